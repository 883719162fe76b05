//! A reclaim that drops, raises the floor and removes, stopped at each of its calls: what a checkpoint
//! protects is there, everyone goes on, nothing is to be repaired, and a second reclaim ends where the
//! first would have.

use std::sync::Arc;

use batchweave::format::names;
use batchweave::{Durability, Options, Primitive, ReclaimOptions, RepairOptions, RepairReport, Settings};
use batchweave_sim::{Fault, Match, Memory, Method, Plan};
use parking_lot::Mutex;

use crate::groups::*;
use crate::support::*;

const FLOOR: u64 = 35;
const HEAD: u64 = 110;

fn plan() -> ReclaimOptions {
    ReclaimOptions::new().keep(2)
}

/// Ten segments, one of them wholly rewound; of three checkpoints the oldest may go, and the segments before
/// step 35 with it.
fn prepared(options: Options, primitive: Primitive) -> Memory {
    let disk = Memory::new();
    let mount = Arc::new(Fault::new(Arc::new(disk.clone()), mount_with(primitive)));
    let store = create(mount, 1, options, &Settings::new()).unwrap();
    let mut a = store.producer("a").unwrap();
    group(&store, "g", 0);
    for _ in 0..60 {
        publish(&mut a).unwrap();
    }
    rewind(&store, 30);
    let mut a = store.producer("a").unwrap();
    for step in 30..HEAD {
        publish(&mut a).unwrap();
        if let Some(place) = [31, 40, 100].iter().position(|at| *at == step) {
            checkpoint(&store, "g", &format!("c{place}"), [10, FLOOR, 90][place]);
        }
    }
    disk
}

/// What a stop has left: all from a checkpoint on is read, nothing is wrong, a producer goes on, and another
/// reclaim ends in `done`.
fn check_left(disk: &Memory, done: &[String], how: &str) {
    let store = open(disk.clone(), 1000).unwrap_or_else(|error| panic!("{how}: {error}"));
    let floor = store.info().unwrap_or_else(|error| panic!("{how}: {error}")).floor.get();
    let report = store.verify(|_| ()).unwrap();
    assert!(report.is_clean(), "{how}: {:?}", report.findings);
    let repaired = store.repair(RepairOptions::new().dry_run(true)).unwrap();
    assert_eq!(repaired, RepairReport::default(), "{how}: nothing is broken where a removal stopped");
    let dropped = {
        let tail = store.inner().current().unwrap();
        let group = &tail.state.groups.values().next().unwrap();
        assert_eq!(group.checkpoints.last().unwrap().step.get(), 90, "{how}");
        group.checkpoints.len() == 2
    };
    // What the oldest checkpoint protects as long as it is there (P5), whatever the floor says.
    let protected = if dropped { FLOOR } else { 10 };
    assert!(floor <= protected, "{how}: the floor is {floor}, step {protected} is protected");
    check_steps(&store, protected, HEAD);
    let going_on = open(disk.fork(), 1001).unwrap();
    let mut a = going_on.producer("a").unwrap_or_else(|error| panic!("{how}: {error}"));
    assert_eq!(publish(&mut a).unwrap().step.get(), HEAD, "{how}");
    let again = open(disk.clone(), 1002).unwrap();
    let report = again.reclaim(&plan()).unwrap_or_else(|error| panic!("{how}: {error}"));
    assert_eq!(report.floor.get(), FLOOR, "{how}");
    assert_eq!(left(disk), done, "{how}");
    check_clean(&again);
    check_steps(&again, FLOOR, HEAD);
}

/// Stops before each call that changes anything; gives how many there were.
fn stop_everywhere(options: Options, primitive: Primitive) -> u64 {
    let base = prepared(options, primitive);
    let done = base.fork();
    let report = open(done.clone(), 1002).unwrap().reclaim(&plan()).unwrap();
    assert_eq!((report.segments.count, report.indexes.count, report.dropped.len()), (4, 3, 1));
    assert_eq!(segments(&done, names::LOG)[0], 4);
    let done = Arc::new(left(&done));
    let synced = options.durability == Durability::Synced;
    let disk = base.fork();
    let points = Arc::new(Mutex::new(0u64));
    let mut faults = Plan::new();
    for &method in Method::CHANGES {
        let (disk, done, points) = (disk.clone(), done.clone(), points.clone());
        faults = faults.meanwhile(Match::method(method), move || {
            let point = {
                let mut points = points.lock();
                *points += 1;
                *points
            };
            check_left(&disk.fork(), &done, &format!("stopped at point {point}"));
            for seed in if synced { 0..3u64 } else { 0..0 } {
                let dark = disk.fork();
                let mut drawn = point * 3 + seed;
                dark.power_cut_keeping(|_| {
                    drawn = drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    seed > 0 && drawn >> 40 & 1 == 1
                });
                check_left(&dark, &done, &format!("power cut at point {point}, keeping by {seed}"));
            }
        });
    }
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process.clone(), 50, &Settings::new()).unwrap();
    process.set_plan(faults);
    store.reclaim(&plan()).unwrap();
    process.set_plan(Plan::new());
    check_left(&disk.fork(), &done, "at the end");
    *points.lock()
}

#[test]
fn a_reclaim_of_a_synced_store_is_stopped_anywhere() {
    let points = stop_everywhere(options(), Primitive::Link);
    assert!(points > 4 * 17 + 3 + 10, "only {points} crash points");
}

#[test]
fn a_reclaim_of_an_unsynced_store_is_stopped_anywhere_and_syncs_nothing() {
    stop_everywhere(options().durability(Durability::Unsynced), Primitive::Link);
}

/// Each file is two names there, and a stop may leave the outer one.
#[test]
fn a_reclaim_of_directories_with_a_file_each_is_stopped_anywhere() {
    let points = stop_everywhere(options(), Primitive::RenameDirectory);
    assert!(points > 2 * 4 * 17 + 3 + 10, "only {points} crash points");
}

/// A Floor that another process has linked, and not synced, isn't what anything is removed by before it is
/// durable.
#[test]
fn what_another_s_floor_allows_is_removed_once_that_is_durable() {
    let base = prepared(options(), Primitive::Link);
    let disk = base.fork();
    // It stops right after its Floor has got its name.
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let first = open_with(process.clone(), 50, &Settings::new()).unwrap();
    let calls = |name: &'static str| Match::method(batchweave_sim::Method::SyncDir).named(name);
    let newest = "log/000000000009";
    // The first is the Drop's, the second before the Floor, the third after it.
    let dying = process.clone();
    process.set_plan(Plan::new().meanwhile(calls(newest).nth(3), move || dying.stop()));
    first.reclaim(&plan()).unwrap_err();
    assert_eq!(open(disk.clone(), 51).unwrap().info().unwrap().floor.get(), FLOOR, "its Floor is in");
    let done = base.fork();
    open(done.clone(), 1002).unwrap().reclaim(&plan()).unwrap();
    let done = left(&done);
    let elsewhere = disk.clone();
    let second = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(second.clone(), 52, &Settings::new()).unwrap();
    let removes = Match::method(batchweave_sim::Method::Remove);
    second.set_plan(Plan::new().meanwhile(removes, move || {
        let dark = elsewhere.fork();
        // The removals are kept, and of the rest of what isn't synced nothing.
        dark.power_cut_keeping(|unsynced| format!("{unsynced:?}").contains("remove"));
        check_left(&dark, &done, "power cut while another's floor is gone by");
    }));
    store.reclaim(&plan()).unwrap();
}
