//! Known bugs, put back on purpose to show that the simulators find them.
//!
//! Code that closes a way to lose data asks `canary!("NAME")` at the place where the bug would be. Without the cargo
//! feature `canary` the answer is the constant `false` and the broken branch is compiled out. With it, a simulator
//! chooses one canary for the whole process, and none is chosen until then.

/// Whether the named bug is to be committed here.
#[macro_export]
macro_rules! canary {
    ($name:literal) => {
        $crate::is_canary($name)
    };
}

/// Whether `name` is the chosen canary; always `false` without the feature. Use it through [`canary!`](crate::canary!).
#[cfg(not(feature = "canary"))]
#[must_use]
pub const fn is_canary(_name: &str) -> bool {
    false
}

#[cfg(feature = "canary")]
static CHOSEN: std::sync::RwLock<Option<String>> = std::sync::RwLock::new(None);

/// Whether `name` is the chosen canary. Use it through [`canary!`](crate::canary!).
#[cfg(feature = "canary")]
#[must_use]
pub fn is_canary(name: &str) -> bool {
    CHOSEN.read().is_ok_and(|chosen| chosen.as_deref() == Some(name))
}

/// Chooses the bug that the whole process commits from now on; `None` for none.
#[cfg(feature = "canary")]
pub fn choose_canary(name: Option<&str>) {
    if let Ok(mut chosen) = CHOSEN.write() {
        *chosen = name.map(str::to_owned);
    }
}
