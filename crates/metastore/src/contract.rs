//! What every backend must do, as checks that panic on the first breach. Backends' tests run [`all`] on an empty store.

#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests, shared between crates

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Change, Expected, Kind, MetadataError, MetadataStore, Notice, Version};

/// Runs every check on an empty store.
///
/// # Panics
/// If the store breaks the contract.
pub async fn all(store: &MetadataStore) {
    versions(store).await;
    parents_and_children(store).await;
    invalid_paths(store).await;
    sequential_names(store).await;
    sessions(store).await;
    watches(store).await;
    compare_and_set_has_one_winner(store).await;
}

async fn versions(store: &MetadataStore) {
    assert_eq!(store.get("/v/a").await.unwrap(), None);
    let missing = store.put("/v/a", "x", Expected::Version(Version(0))).await;
    assert_eq!(missing, Err(MetadataError::NoNode("/v/a".into())));
    assert_eq!(store.put("/v/a", "1", Expected::Absent).await, Ok(Version(0)));
    assert_eq!(store.put("/v/a", "x", Expected::Absent).await, Err(MetadataError::BadVersion("/v/a".into())));
    assert_eq!(store.put("/v/a", "2", Expected::Version(Version(0))).await, Ok(Version(1)));
    let stale = store.put("/v/a", "x", Expected::Version(Version(0))).await;
    assert_eq!(stale, Err(MetadataError::BadVersion("/v/a".into())));
    assert_eq!(store.put("/v/a", "3", Expected::Any).await, Ok(Version(2)));
    let node = store.get("/v/a").await.unwrap().expect("the node that was put");
    assert_eq!((&node.value[..], node.version, node.session), (&b"3"[..], Version(2), None));
    assert!(node.created <= node.modified);
    let stale = store.delete("/v/a", Expected::Version(Version(1))).await;
    assert_eq!(stale, Err(MetadataError::BadVersion("/v/a".into())));
    assert_eq!(store.delete("/v/a", Expected::Version(Version(2))).await, Ok(()));
    assert_eq!(store.delete("/v/a", Expected::Any).await, Err(MetadataError::NoNode("/v/a".into())));
    assert_eq!(store.put("/v/a", "new life", Expected::Any).await, Ok(Version(0)));
}

async fn parents_and_children(store: &MetadataStore) {
    for path in ["/p/a/x/deep", "/p/a-b", "/p/a", "/p/a0/y", "/p/a b", "/p/é"] {
        store.put(path, path.to_owned(), Expected::Any).await.unwrap();
    }
    assert_eq!(store.children("/p").await.unwrap(), ["a", "a b", "a-b", "a0", "é"]);
    assert_eq!(store.children("/p/a").await.unwrap(), ["x"]);
    assert_eq!(store.children("/p/nothing").await.unwrap(), Vec::<String>::new());
    let made = store.get("/p/a/x").await.unwrap().expect("parents are made");
    assert!(made.value.is_empty());
    // "/p/a" was made empty as a parent before it was written.
    assert_eq!(store.get("/p/a").await.unwrap().map(|node| node.version), Some(Version(1)));
    assert_eq!(store.delete("/p/a", Expected::Any).await, Err(MetadataError::NotEmpty("/p/a".into())));
    for path in ["/p/a/x/deep", "/p/a/x", "/p/a"] {
        store.delete(path, Expected::Any).await.unwrap();
    }
    assert_eq!(store.children("/p").await.unwrap(), ["a b", "a-b", "a0", "é"]);
}

async fn invalid_paths(store: &MetadataStore) {
    for path in ["", "/", "a", "/a/", "//a", "/a//b", "/a\0b"] {
        let invalid = MetadataError::InvalidPath(path.to_owned());
        assert_eq!(store.get(path).await, Err(invalid.clone()), "{path:?}");
        assert_eq!(store.put(path, "", Expected::Any).await, Err(invalid.clone()), "{path:?}");
        assert_eq!(store.delete(path, Expected::Any).await, Err(invalid.clone()), "{path:?}");
        assert_eq!(store.children(path).await, Err(invalid), "{path:?}");
    }
}

async fn sequential_names(store: &MetadataStore) {
    let mut names = Vec::new();
    for _ in 0..3 {
        let path = store.create_ephemeral("/s/ID-", "", Kind::EphemeralSequential).await.unwrap();
        let digits = path.strip_prefix("/s/ID-").expect("the prefix").to_owned();
        assert_eq!(digits.len(), 10);
        names.push(digits);
        store.delete(&path, Expected::Any).await.unwrap();
    }
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
}

async fn sessions(store: &MetadataStore) {
    let other = store.new_session();
    other.create_ephemeral("/e/mine", "x", Kind::Ephemeral).await.unwrap();
    other.put("/e/stays", "x", Expected::Absent).await.unwrap();
    let node = store.get("/e/mine").await.unwrap().expect("others see it");
    assert_eq!(node.session, Some(other.session()));
    let taken = store.create_ephemeral("/e/mine", "y", Kind::Ephemeral).await;
    assert_eq!(taken, Err(MetadataError::BadVersion("/e/mine".into())));
    drop(other);
    assert_eq!(store.get("/e/mine").await.unwrap(), None);
    assert!(store.get("/e/stays").await.unwrap().is_some());
}

async fn watches(store: &MetadataStore) {
    let seen: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let watcher = Arc::clone(&seen);
    store.put("/w", "", Expected::Any).await.unwrap();
    store
        .watch("/w", move |notices| {
            watcher.lock().extend_from_slice(notices);
            watcher.lock().len() < 5
        })
        .await
        .unwrap();
    let session = store.new_session();
    session.create_ephemeral("/w/e", "", Kind::Ephemeral).await.unwrap();
    store.put("/w/a/b", "1", Expected::Any).await.unwrap();
    store.put("/wx", "not below", Expected::Any).await.unwrap();
    store.put("/w", "2", Expected::Any).await.unwrap();
    drop(session);
    store.put("/w", "no longer watched", Expected::Any).await.unwrap();
    let expected = [
        ("/w/e", Change::Created),
        ("/w/a", Change::Created),
        ("/w/a/b", Change::Created),
        ("/w", Change::Modified),
        ("/w/e", Change::Deleted),
    ];
    let expected: Vec<Notice> =
        expected.iter().map(|(path, change)| Notice { path: (*path).to_owned(), change: *change }).collect();
    assert_eq!(*seen.lock(), expected);
}

/// Many writers that race for one version: exactly one of them wins each.
async fn compare_and_set_has_one_winner(store: &MetadataStore) {
    store.put("/c", "", Expected::Absent).await.unwrap();
    for round in 0..20 {
        let expected = Expected::Version(Version(round));
        let (a, b, c) = tokio::join!(
            store.put("/c", "a", expected),
            store.put("/c", "b", expected),
            store.put("/c", "c", expected)
        );
        assert_eq!([a, b, c].iter().filter(|result| result.is_ok()).count(), 1);
    }
}
