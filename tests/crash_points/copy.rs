//! A copy, and a destroy, stopped at each of their calls: a copy is whole or isn't there, its source is as it
//! was, and a destroy that goes on ends where the first would have.

use std::path::Path;
use std::sync::Arc;

use batchweave::storage::Storage;
use batchweave::{
    CopyOptions, DestroyOptions, Durability, ErrorKind, Options, Primitive, Settings, Step, Store,
};
use batchweave_sim::{Fault, Match, Memory, Method, Plan, Seeded};
use parking_lot::Mutex;

use crate::support::*;

const DEST: &str = "/copy";
const PARTIAL: &str = "/copy.partial";
const STEPS: u64 = 20;

/// Two segments by two producers, one of which has finished.
fn prepared(options: Options, primitive: Primitive) -> Memory {
    let disk = Memory::new();
    let mount = Arc::new(Fault::new(Arc::new(disk.clone()), mount_with(primitive)));
    let store = create(mount, 1, options, &Settings::new()).unwrap();
    let (mut a, mut b) = (store.producer("a").unwrap(), store.producer("b").unwrap());
    for step in 0..STEPS {
        publish(if step % 3 == 0 { &mut b } else { &mut a }).unwrap();
    }
    b.finish().unwrap();
    disk
}

fn at(path: &str, disk: &Memory, seed: u64) -> batchweave::Result<Store> {
    Store::open_on(Path::new(path), Arc::new(disk.clone()), Arc::new(Seeded::new(seed)), &Settings::new())
}

/// Runs `doing` in a process of its own; calls `left` with a fork of the disk before each call that changes
/// anything, and with what a power cut leaves of it. Gives how many there were.
fn stop_everywhere(
    disk: &Memory,
    primitive: Primitive,
    synced: bool,
    doing: impl FnOnce(Store),
    left: impl Fn(&Memory, &str) + Send + Sync + 'static,
) -> u64 {
    let (left, points) = (Arc::new(left), Arc::new(Mutex::new(0u64)));
    let mut faults = mount_with(primitive);
    for &method in Method::CHANGES {
        let (disk, left, points) = (disk.clone(), Arc::clone(&left), Arc::clone(&points));
        faults = faults.meanwhile(Match::method(method), move || {
            let point = {
                let mut points = points.lock();
                *points += 1;
                *points
            };
            left(&disk.fork(), &format!("stopped at point {point}"));
            for seed in if synced { 0..2u64 } else { 0..0 } {
                let dark = disk.fork();
                let mut drawn = point * 3 + seed;
                dark.power_cut_keeping(|_| {
                    drawn = drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    seed > 0 && drawn >> 40 & 1 == 1
                });
                left(&dark, &format!("power cut at point {point}, keeping by {seed}"));
            }
        });
    }
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process.clone(), 50, &Settings::new()).unwrap();
    process.set_plan(faults);
    doing(store);
    *points.lock()
}

fn check_copy(disk: &Memory, how: &str) {
    let copy = at(DEST, disk, 60).unwrap_or_else(|error| panic!("{how}: {error}"));
    let source = at(PATH, disk, 61).unwrap_or_else(|error| panic!("{how}: {error}"));
    assert_eq!(copy.info().unwrap().origin, Some(source.uuid()), "{how}");
    assert_eq!(read_all(&copy), read_all(&source), "{how}");
    let report = copy.verify(|_| ()).unwrap();
    assert!(report.is_clean(), "{how}: {:?}", report.findings);
    let finished: Vec<_> = copy.producers().unwrap().iter().map(|known| known.finished).collect();
    assert_eq!(finished, [false, true], "{how}");
}

/// Nothing is at the place, or a whole copy. An unfinished one can be destroyed, to make it anew.
fn check_copying(disk: &Memory, how: &str) {
    if let Ok(partial) = disk.open_root(Path::new(PARTIAL)) {
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        if !disk.list(&partial).unwrap().is_empty() {
            let report = batchweave::destroy_on(Path::new(PARTIAL), &storage, DestroyOptions::new());
            let report = report.unwrap_or_else(|error| panic!("{how}: {error}"));
            assert!(report.left.is_empty(), "{how}: {:?}", report.left);
        }
        assert!(disk.list(&partial).unwrap().is_empty(), "{how}");
    }
    if disk.open_root(Path::new(DEST)).is_ok() {
        check_copy(disk, how);
    }
    let source = open(disk.clone(), 62).unwrap_or_else(|error| panic!("{how}: {error}"));
    assert_eq!(source.info().unwrap().next_step, Step::new(STEPS), "{how}");
    assert_eq!(read_all(&source).len() as u64, STEPS, "{how}");
}

fn copy_everywhere(options: Options, primitive: Primitive) -> u64 {
    let disk = prepared(options, primitive);
    let synced = options.durability == Durability::Synced;
    let copy = |store: Store| drop(store.copy_to(DEST, CopyOptions::new()).unwrap());
    let points = stop_everywhere(&disk, primitive, synced, copy, check_copying);
    check_copy(&disk, "at the end");
    if synced {
        let dark = disk.fork();
        dark.power_cut_keeping(|_| false);
        check_copy(&dark, "power cut after the end");
    }
    points
}

#[test]
fn a_copy_of_a_synced_store_is_stopped_anywhere() {
    let points = copy_everywhere(options(), Primitive::Link);
    assert!(points > STEPS * 5, "only {points} crash points");
}

#[test]
fn a_copy_of_an_unsynced_store_is_stopped_anywhere() {
    copy_everywhere(options().durability(Durability::Unsynced), Primitive::Link);
}

/// Each file is two names there, and a stop may leave the outer one.
#[test]
fn a_copy_of_directories_with_a_file_each_is_stopped_anywhere() {
    let points = copy_everywhere(options(), Primitive::RenameDirectory);
    assert!(points > STEPS * 6, "only {points} crash points");
}

/// A rename whose reply is lost has given the copy its name; one that is refused leaves nothing.
#[test]
fn the_last_rename_fails_or_its_reply_is_lost() {
    for lost in [true, false] {
        let disk = prepared(options(), Primitive::Link);
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let store = open_with(process.clone(), 50, &Settings::new()).unwrap();
        let rename = Match::method(Method::RenameRoot);
        let plan = Plan::new();
        process.set_plan(if lost {
            plan.lose_reply(rename, batchweave_sim::errno::EIO)
        } else {
            plan.fail(rename, batchweave_sim::errno::EIO)
        });
        let copied = store.copy_to(DEST, CopyOptions::new());
        if lost {
            assert_eq!(copied.unwrap().steps, STEPS);
            check_copy(&disk, "a lost reply");
        } else {
            copied.unwrap_err();
            assert!(disk.open_root(Path::new(DEST)).is_err());
            assert!(disk.open_root(Path::new(PARTIAL)).is_err(), "it is removed again");
        }
    }
}

/// The store is as it was, or none, and a destroy goes on with what is left of it.
fn check_destroying(disk: &Memory, how: &str) {
    match at(PATH, disk, 63) {
        Ok(store) => {
            assert_eq!(read_all(&store).len() as u64, STEPS, "{how}");
            store.destroy().unwrap_or_else(|error| panic!("{how}: {error}"));
        }
        Err(error) => {
            assert_eq!(error.kind(), batchweave::ErrorKind::Invalid, "{how}: {error}");
            let root = disk.open_root(Path::new(PATH)).unwrap();
            if !disk.list(&root).unwrap().is_empty() {
                let storage: Arc<dyn Storage> = Arc::new(disk.clone());
                let report = batchweave::destroy_on(Path::new(PATH), &storage, DestroyOptions::new());
                assert!(report.unwrap_or_else(|error| panic!("{how}: {error}")).resumed, "{how}");
            }
        }
    }
    let root = disk.open_root(Path::new(PATH)).unwrap();
    assert!(disk.list(&root).unwrap().is_empty(), "{how}");
    let store = create(Arc::new(disk.clone()), 64, options(), &Settings::new()).unwrap();
    publish(&mut store.producer("a").unwrap()).unwrap();
}

fn destroy_everywhere(primitive: Primitive) -> u64 {
    let disk = prepared(options(), primitive);
    let destroy = |store: Store| drop(store.destroy().unwrap());
    let points = stop_everywhere(&disk, primitive, true, destroy, check_destroying);
    check_destroying(&disk, "at the end");
    points
}

#[test]
fn a_destroy_is_stopped_anywhere() {
    let points = destroy_everywhere(Primitive::Link);
    assert!(points > STEPS + 10, "only {points} crash points");
}

#[test]
fn a_destroy_of_directories_with_a_file_each_is_stopped_anywhere() {
    let points = destroy_everywhere(Primitive::RenameDirectory);
    assert!(points > 2 * STEPS + 10, "only {points} crash points");
}

/// That STORE is gone may not be durable where the first destroy was stopped.
#[test]
fn a_destroy_that_goes_on_leaves_no_half_of_a_store_in_a_power_cut_either() {
    for primitive in [Primitive::Link, Primitive::RenameDirectory] {
        let disk = prepared(options(), primitive);
        let first = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let store = open_with(first.clone(), 50, &Settings::new()).unwrap();
        let dying = first.clone();
        first.set_plan(Plan::new().meanwhile(Match::method(Method::SyncDir), move || dying.stop()));
        store.destroy().unwrap_err();
        let (dark, cuts) = (disk.clone(), Arc::new(Mutex::new(0)));
        let counted = cuts.clone();
        let removal = Match::method(Method::Remove).named("log/");
        let second = Fault::new(
            Arc::new(disk),
            Plan::new().meanwhile(removal, move || {
                *counted.lock() += 1;
                let dark = dark.fork();
                // Only what went of the rest is kept.
                dark.power_cut_keeping(|unsynced| !unsynced.to_string().contains("STORE"));
                assert_eq!(at(PATH, &dark, 63).unwrap_err().kind(), batchweave::ErrorKind::Invalid);
            }),
        );
        let second: Arc<dyn Storage> = Arc::new(second);
        let report = batchweave::destroy_on(Path::new(PATH), &second, DestroyOptions::new()).unwrap();
        assert!(report.resumed && *cuts.lock() > STEPS, "{primitive}: {report:?}");
    }
}

/// Where a file is a directory, a client may keep what somebody has open in it: that is named, and the rest
/// goes.
#[test]
fn a_destroy_leaves_what_a_client_keeps_of_a_file_that_was_open() {
    let disk = prepared(options(), Primitive::RenameDirectory);
    let held = "log/000000000000/00000000000000000003";
    let inner = disk.open_root(&Path::new(PATH).join(held)).unwrap();
    disk.create_exclusive(&inner, ".fuse_hidden01").unwrap();
    let report = open(disk.clone(), 2).unwrap().destroy().unwrap();
    assert_eq!(report.left, [Path::new(held)]);
    disk.remove(&inner, ".fuse_hidden01").unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let report = batchweave::destroy_on(Path::new(PATH), &storage, DestroyOptions::new()).unwrap();
    assert!(report.resumed && report.left.is_empty(), "{report:?}");
    assert!(disk.list(&disk.open_root(Path::new(PATH)).unwrap()).unwrap().is_empty());
}

#[test]
fn where_no_store_may_live_no_copy_is_begun() {
    let disk = prepared(options(), Primitive::Link);
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process.clone(), 50, &Settings::new()).unwrap();
    // It has no primitive at all.
    let plan = mount_with(Primitive::RenameDirectory);
    process.set_plan(plan.fail(Match::method(Method::Rename), batchweave_sim::errno::EPERM));
    let error = store.copy_to(DEST, CopyOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(disk.open_root(Path::new(PARTIAL)).is_err(), "its directory is removed again");
}
