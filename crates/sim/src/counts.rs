//! Counting what happened, to see that every kind of work and fault was tried.

/// Defines a `Tally`: public counters with their names.
macro_rules! tally {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Counts of everything that a run did and suffered.
        #[derive(Clone, Debug, Default)]
        pub struct Tally {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Tally {
            /// All counts with their names.
            #[must_use]
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }

            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Tally) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

pub(crate) use tally;
