//! Reclaim on a quiet store: what is freed and what stays, what is said of it, and what it costs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::env::Env;
use batchweave::format::names::{self, staged_draft};
use batchweave::limits::SEGMENT_SIZE_MIN;
use batchweave::storage::{Access, Storage};
use batchweave::{
    ConsumerOptions, ErrorKind, Incarnation, MountClass, Next, Nonce, ReclaimOptions, Settings, Share, Start,
    Step, Store,
};
use batchweave_sim::{Fault, Match, Memory, Method, Plan, Seeded, errno};

use super::{dir_path, new_disk, write_file};
use crate::groups::*;
use crate::reclaim_races::to_be_reclaimed;
use crate::support::*;

pub fn keep(checkpoints: usize) -> ReclaimOptions {
    ReclaimOptions::new().keep(checkpoints)
}

/// A disk with so many steps of "a" after its Open and the Group of "g", which starts at 0: step s is at
/// version s + 2.
pub fn disk_with(steps: u64) -> Memory {
    let disk = new_disk();
    let store = open(disk.clone(), 40).unwrap();
    let mut producer = store.producer("a").unwrap();
    group(&store, "g", 0);
    for _ in 0..steps {
        publish(&mut producer).unwrap();
    }
    disk
}

/// Steps are read from the floor to the head, verify is content, and a new process publishes.
pub fn check(disk: &Memory, floor: u64, head: u64) {
    let disk = disk.fork();
    let store = open(disk.clone(), 900).unwrap();
    check_clean(&store);
    assert_eq!(store.info().unwrap().floor.get(), floor);
    assert_eq!(store.info().unwrap().next_step.get(), head);
    check_steps(&store, floor, head);
    if floor > 0 {
        let error = store.batch((floor - 1).into()).unwrap_err();
        assert_eq!((error.kind(), error.about_step()), (ErrorKind::Reclaimed, Some((floor - 1).into())));
    }
    let mut again = store.producer("a").unwrap();
    assert_eq!(publish(&mut again).unwrap().step.get(), head);
    check_steps(&open(disk, 901).unwrap(), floor, head + 1);
}

#[test]
fn what_no_group_needs_is_freed_and_nothing_else() {
    let disk = disk_with(110);
    let store = open(disk.clone(), 50).unwrap();
    // Before any checkpoint, all since the start is needed.
    let report = store.reclaim(&keep(1)).unwrap();
    assert_eq!((report.floor.get(), report.segments.count), (0, 0));
    assert_eq!(report.held_by.why, "it began there and has no checkpoint yet");
    for (called, step) in [("c0", 20), ("c1", 62), ("c2", 78), ("c3", 100)] {
        checkpoint(&store, "g", called, step);
    }
    assert_eq!(store.reclaim(&ReclaimOptions::new()).unwrap().floor.get(), 20, "no checkpoint is dropped");
    assert_eq!((segments(&disk, "log")[0], segments(&disk, "index")[0]), (1, 0), "step 20 is in segment 1");
    let report = store.reclaim(&keep(3)).unwrap();
    assert_eq!((report.floor_before.get(), report.floor.get()), (20, 62));
    assert_eq!(report.dropped.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["c0"]);
    assert_eq!(report.held_by.group.as_ref().unwrap().as_str(), "g");
    assert_eq!(report.held_by.why, "its checkpoint c1");
    // Step 62 is the first of segment 4, at version 64.
    assert_eq!(segments(&disk, "log"), [4, 5, 6, 7]);
    assert_eq!(segments(&disk, "index"), [3, 4, 5, 6], "the one before the first live segment stays");
    assert_eq!((report.segments.count, report.indexes.count, report.litter.count), (3, 3, 0));
    check(&disk, 62, 110);
    let again = store.reclaim(&keep(3)).unwrap();
    assert_eq!((again.segments.count, again.indexes.count, again.dropped.len()), (0, 0, 0));
    assert_eq!(again.floor_before, again.floor);
    // The newest segment's mark and the two before it stay, whatever is needed.
    checkpoint(&store, "g", "c4", 110);
    assert_eq!(store.reclaim(&keep(1)).unwrap().floor.get(), 110);
    assert_eq!((segments(&disk, "log"), segments(&disk, "index")), (vec![6, 7], vec![5, 6]));
    check(&disk, 110, 110);
}

#[test]
fn the_lowest_need_of_all_live_groups_counts_and_pinned_ones_stay() {
    let disk = disk_with(110);
    let store = open(disk.clone(), 50).unwrap();
    group(&store, "h", 40);
    for (called, step) in [("p0", 30), ("c1", 50), ("c2", 60), ("c3", 70)] {
        checkpoint(&store, "g", called, step);
    }
    let report = store.reclaim(&keep(1)).unwrap();
    assert_eq!(report.dropped.iter().map(|one| one.step.get()).collect::<Vec<_>>(), [50, 60]);
    assert_eq!(report.floor.get(), 30);
    assert_eq!(report.held_by.why, "its checkpoint p0, which is pinned");
    checkpoint(&store, "h", "c0", 80);
    let below = store.reclaim(&keep(1).up_to(25.into())).unwrap();
    assert_eq!((below.floor.get(), below.held_by.group), (30, None), "the floor never falls");
    check(&disk, 30, 110);
    let json: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(json["held_by"]["group"], "g");
    assert!(report.to_string().contains("Group g holds it at step 30"), "{report}");
}

#[test]
fn a_group_is_left_without_checkpoints_only_if_told() {
    let disk = disk_with(60);
    let store = open(disk.clone(), 50).unwrap();
    checkpoint(&store, "g", "c0", 40);
    let before = disk.paths();
    let error = store.reclaim(&keep(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.to_string().contains("group g") && error.to_string().contains("allow_no_checkpoint"),
        "{error}"
    );
    assert_eq!(disk.paths(), before, "refused before anything is done");
    let report = store.reclaim(&keep(0).allow_no_checkpoint(true)).unwrap();
    assert_eq!((report.dropped.len(), report.floor.get()), (1, 0), "it protects the floor of that moment");
    assert_eq!(report.held_by.step.get(), 0);
}

#[test]
fn without_a_group_nothing_is_freed_unless_told_by_step() {
    let disk = new_disk();
    let store = open(disk.clone(), 50).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 0..110 {
        publish(&mut producer).unwrap();
    }
    let report = store.reclaim(&keep(0)).unwrap();
    assert_eq!((report.floor.get(), report.held_by.group), (0, None));
    let error = store.reclaim(&ReclaimOptions::new().up_to(111.into())).unwrap_err();
    assert_eq!((error.kind(), error.about_step()), (ErrorKind::Invalid, Some(111.into())));
    assert_eq!(store.reclaim(&ReclaimOptions::new().up_to(64.into())).unwrap().floor.get(), 64);
    check(&disk, 64, 110);
    // Up to the head itself.
    assert_eq!(store.reclaim(&ReclaimOptions::new().up_to(110.into())).unwrap().bytes_retained, 0);
    check(&disk, 110, 110);
}

#[test]
fn a_dry_run_says_what_a_real_one_does_and_does_nothing() {
    let stage = dir_path(&[names::STAGE]);
    for litter in [false, true] {
        let disk = disk_with(110);
        let store = open(disk.clone(), 50).unwrap();
        for (called, step) in [("c0", 20), ("p1", 64), ("c2", 80), ("c3", 100)] {
            checkpoint(&store, "g", called, step);
        }
        if litter {
            let name =
                staged_draft(&"nobody".parse().unwrap(), Incarnation::new(3), 0.into(), Nonce::new([9; 16]));
            write_file(&disk, &stage, &name, b"twelve bytes");
        }
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let watched = open_with(process.clone(), 51, &Settings::new()).unwrap();
        let before = disk.paths();
        let said = watched.reclaim(&keep(1).dry_run(true)).unwrap();
        let changes: u64 = Method::CHANGES.iter().map(|method| process.count(*method)).sum();
        assert_eq!(changes, 0, "a dry run changes nothing");
        assert_eq!(disk.paths(), before);
        let bytes = |disk: &Memory| -> u64 {
            let log = disk.paths().into_iter().filter(|path| path.contains("/log/") && !path.ends_with('/'));
            let size = |path: String| {
                let (dir, name) = path.rsplit_once('/').unwrap();
                let dir = disk.open_root(Path::new(dir)).unwrap();
                disk.size(&disk.open(&dir, name, Access::Read).unwrap()).unwrap()
            };
            log.map(size).sum()
        };
        let was = bytes(&disk);
        let done = watched.reclaim(&keep(1)).unwrap();
        // Beside a Drop for each, and the Floor: control commits of one block.
        assert_eq!(was - bytes(&disk), done.segments.bytes - 4096 * (done.dropped.len() as u64 + 1));
        let mut said = said;
        said.dry_run = false;
        assert_eq!(said, done);
        assert_eq!((done.floor.get(), done.dropped.len(), done.segments.count), (64, 2, 4));
        assert_eq!((done.litter.count, done.litter.bytes), if litter { (1, 12) } else { (0, 0) });
        check(&disk, 64, 110);
    }
}

#[test]
fn readers_above_the_floor_read_on_and_one_below_is_told() {
    for class in [MountClass::Local, MountClass::CloseToOpen] {
        let disk = disk_with(110);
        let settings = Settings::new().mount_class(class);
        let reader = open_with(Arc::new(disk.clone()), 50, &settings).unwrap();
        let options = ConsumerOptions::new().window_steps(0);
        let from = |step: u64| {
            let run = reader.run(Start::Step(step.into())).unwrap();
            run.consumer_with(Share::WHOLE, options).unwrap()
        };
        let (mut above, mut below) = (from(64), from(10));
        assert!(matches!(above.try_next().unwrap(), Next::Batch(_)));
        assert!(matches!(below.try_next().unwrap(), Next::Batch(_)));
        let other = open(disk.clone(), 60).unwrap();
        checkpoint(&other, "g", "c0", 64);
        other.reclaim(&keep(1)).unwrap();
        // Its handle hasn't looked at the log since: what it meets is explained all the same (R7).
        let error = below.try_next().unwrap_err();
        assert_eq!((error.kind(), error.about_step()), (ErrorKind::Reclaimed, Some(11.into())), "{error}");
        for step in 65..110 {
            let Next::Batch(batch) = above.try_next().unwrap() else { panic!("step {step} is there") };
            assert_eq!(parse(&batch.slice(0).unwrap()), ("a".to_owned(), step));
        }
        let error = reader.run(Start::Step(63.into())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reclaimed, "{error}");
        assert_eq!(reader.run(Start::Beginning).unwrap().position().step.get(), 64);
    }
}

#[test]
fn rewound_segments_are_freed_before_the_floor_comes_to_them() {
    let disk = disk_with(90);
    let store = open(disk.clone(), 50).unwrap();
    checkpoint(&store, "g", "c0", 10);
    // Steps 20 to 89 are at versions 22 to 91; the Rewind is at 93, in segment 5.
    rewind(&store, 20);
    let mut producer = store.producer("a").unwrap();
    for _ in 20..70 {
        publish(&mut producer).unwrap();
    }
    let report = store.reclaim(&keep(1)).unwrap();
    assert_eq!((report.floor.get(), report.segments.count, report.indexes.count), (10, 3, 0));
    assert_eq!(segments(&disk, "log"), [0, 1, 5, 6, 7, 8, 9], "between its last live part and the Rewind");
    assert_eq!(segments(&disk, "index")[..3], [0, 1, 2], "indexes go as a prefix only");
    check(&disk, 10, 70);
    // A rewind into what is left finds its states.
    rewind(&open(disk.fork(), 52).unwrap(), 15);
    // The floor past the Rewind: nothing of the older piece is left.
    checkpoint(&store, "g", "c1", 40);
    store.reclaim(&keep(1)).unwrap();
    assert_eq!((segments(&disk, "log")[0], segments(&disk, "index")[0]), (7, 6));
    check(&disk, 40, 70);
    rewind(&open(disk.fork(), 53).unwrap(), 40);
}

#[test]
fn a_floor_where_history_was_rewound_to_frees_all_before_it() {
    // The parts of the last segment that is freed had higher numbers than the floor.
    let disk = disk_with(90);
    let store = open(disk.clone(), 50).unwrap();
    rewind(&store, 20);
    let mut producer = store.producer("a").unwrap();
    for _ in 20..80 {
        publish(&mut producer).unwrap();
    }
    checkpoint(&store, "g", "c0", 20);
    store.reclaim(&keep(1)).unwrap();
    assert_eq!((segments(&disk, "log")[0], segments(&disk, "index")[0]), (5, 4));
    check(&disk, 20, 80);
}

/// Calls by method of a reclaim that frees three segments and keeps so many.
fn cost(retained: u64) -> BTreeMap<String, u64> {
    let size = u64::from(SEGMENT_SIZE_MIN);
    let disk = disk_with((3 + retained) * size);
    // Step 50 is at version 52, in segment 3.
    checkpoint(&open(disk.clone(), 50).unwrap(), "g", "c0", 50);
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process.clone(), 51, &Settings::new()).unwrap();
    store.info().unwrap();
    let counts = || Method::ALL.iter().map(|method| (method.to_string(), process.count(*method)));
    let before: Vec<_> = counts().collect();
    let report = store.reclaim(&keep(1)).unwrap();
    assert_eq!((report.segments.count, report.indexes.count), (3, 2));
    let spent = counts().zip(before).map(|((method, now), (_, then))| (method, now - then));
    spent.filter(|(_, calls)| *calls > 0).collect()
}

#[test]
fn what_is_left_of_a_long_log_is_found() {
    // Most indexes that a search could begin with are gone.
    let disk = disk_with(400);
    checkpoint(&open(disk.clone(), 50).unwrap(), "g", "c0", 300);
    open(disk.clone(), 51).unwrap().reclaim(&keep(1)).unwrap();
    check(&disk, 300, 400);
}

#[test]
fn what_stays_costs_nothing() {
    let (few, many) = (cost(10), cost(100));
    assert_eq!(few.keys().collect::<Vec<_>>(), many.keys().collect::<Vec<_>>());
    for (method, few) in &few {
        // Finding the floor's commit is a bisection over what is retained.
        let seek = if ["open", "open_dir", "size", "read_at", "map", "populate"].contains(&&**method) {
            16
        } else {
            0
        };
        assert!(
            many[method] <= few + seek,
            "{method}: {few} calls with 10 segments, {} with 100",
            many[method]
        );
    }
}

#[test]
fn a_thread_reclaims_when_asked_and_stops() {
    let disk = to_be_reclaimed();
    let env = Arc::new(Seeded::new(80));
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = Store::open_on(Path::new(PATH), process.clone(), env.clone(), &Settings::new()).unwrap();
    let error = store.reclaim_in_background(keep(1), Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    process.set_plan(Plan::new().fail(Match::method(Method::RemoveDir).nth(1), errno::EACCES));
    let hour = Duration::from_secs(3600);
    let reclaimer = store.reclaim_in_background(keep(1), hour).unwrap();
    // The clock moves on only when the thread waits for its next pass.
    env.sleep(hour / 2);
    let error = reclaimer.last_error().expect("the first pass failed");
    assert_eq!(error.errno(), Some(errno::EACCES), "{error}");
    env.sleep(hour);
    assert!(reclaimer.last_error().is_none());
    assert_eq!(reclaimer.last_report().unwrap().floor.get(), 70);
    drop(reclaimer);
    check(&disk, 70, 110);
    assert_eq!(segments(&disk, "log")[0], 4);
    assert_eq!(Step::new(70), store.info().unwrap().floor);
}
