//! Reclaim: what is freed and what stays, on a quiet store and while others sleep, write and reclaim.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::env::Env;
use batchweave::format::names::{self, staged_control, staged_draft};
use batchweave::limits::SEGMENT_SIZE_MIN;
use batchweave::storage::Storage;
use batchweave::{
    ConsumerOptions, ErrorKind, Incarnation, MountClass, Next, Nonce, Primitive, ReclaimOptions, Reclaimed,
    Sequence, Settings, Share, Start, Step, Store,
};
use batchweave_sim::{Fault, Match, Memory, Method, Plan, Seeded, errno};

use super::{dir_path, new_disk, segment_path, sleeper, write_file};
use crate::groups::*;
use crate::support::*;

fn keep(checkpoints: usize) -> ReclaimOptions {
    ReclaimOptions::new().keep(checkpoints)
}

/// A disk with so many steps of "a" after its Open and the Group of "g", which starts at 0: step s is at
/// version s + 2.
fn disk_with(steps: u64) -> Memory {
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
fn check(disk: &Memory, floor: u64, head: u64) {
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

/// The calls that change what is on a disk or what is durable.
const CHANGES: [Method; 9] = [
    Method::CreateExclusive,
    Method::WriteAt,
    Method::SyncFile,
    Method::Link,
    Method::RenameNoreplace,
    Method::MakeDir,
    Method::RemoveDir,
    Method::SyncDir,
    Method::Remove,
];

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
        assert_eq!(CHANGES.map(|method| process.count(method)), [0; 9], "a dry run changes nothing");
        assert_eq!(disk.paths(), before);
        let bytes = |disk: &Memory| -> u64 {
            let log = disk.paths().into_iter().filter(|path| path.contains("/log/") && !path.ends_with('/'));
            let size = |path: String| {
                let (dir, name) = path.rsplit_once('/').unwrap();
                let dir = disk.open_root(Path::new(dir)).unwrap();
                disk.size(&disk.open(&dir, name, batchweave::storage::Access::Read).unwrap()).unwrap()
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

#[test]
fn a_sleeper_whose_segment_was_reclaimed_is_not_acknowledged_there() {
    for (method, name) in [
        (Method::MakeDir, "log/000000000001"),
        (Method::CreateExclusive, "marks/000000000001"),
        (Method::Link, "log/000000000001/"),
    ] {
        let disk = disk_with(13);
        let (process, _store, mut sleeping) = sleeper(&disk, "a");
        let elsewhere = disk.clone();
        let sleep = Match::method(method).named(name).nth(1);
        process.set_plan(Plan::new().meanwhile(sleep, move || {
            let store = open(elsewhere.clone(), 60).unwrap();
            let mut other = store.producer("b").unwrap();
            for _ in 0..50 {
                publish(&mut other).unwrap();
            }
            checkpoint(&store, "g", "c0", 60);
            assert!(store.reclaim(&keep(1)).unwrap().segments.count >= 2);
            if method == Method::Link {
                let log = elsewhere.open_root(Path::new(&dir_path(&[names::LOG]))).unwrap();
                elsewhere.make_dir(&log, "000000000001").unwrap();
            }
        }));
        // The 14th: the Open of the sleeper took version 15.
        let published = publish(&mut sleeping).unwrap();
        assert!(published.version.get() > 50, "{method}: acknowledged where nobody reads");
        let store = open(disk.clone(), 70).unwrap();
        check_clean(&store);
        let stray = segments(&disk, "log")[0] == 1;
        let report = store.reclaim(&keep(1)).unwrap();
        assert_eq!(report.litter_names.iter().any(|name| name == "log/000000000001"), stray, "{report:?}");
        assert!(segments(&disk, "log")[0] > 1, "what a sleeper left goes too");
        check_clean(&open(disk, 71).unwrap());
    }
}

/// A disk on which a reclaim with `keep(1)` drops, raises the floor and removes.
fn to_be_reclaimed() -> Memory {
    let disk = disk_with(110);
    let store = open(disk.clone(), 50).unwrap();
    checkpoint(&store, "g", "c0", 20);
    checkpoint(&store, "g", "c1", 70);
    disk
}

/// Runs `meanwhile` on a fork of the disk in each call of a reclaim in turn, and `then` after it.
fn in_each_call(
    base: &Memory,
    meanwhile: impl Fn(&Memory) + Send + Sync + Clone + 'static,
    then: impl Fn(&Memory, Reclaimed),
) {
    for call in 1.. {
        let disk = base.fork();
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let store = open_with(process.clone(), 55, &Settings::new()).unwrap();
        let before = process.calls();
        let (elsewhere, act) = (disk.clone(), meanwhile.clone());
        process.set_plan(Plan::new().meanwhile(Match::any().nth(call), move || act(&elsewhere)));
        let report = store.reclaim(&keep(1)).unwrap_or_else(|error| panic!("in call {call}: {error}"));
        if process.calls() - before < call {
            return;
        }
        then(&disk, report);
    }
}

#[test]
fn two_reclaimers_at_once_do_what_one_does() {
    let base = to_be_reclaimed();
    let alone = base.fork();
    open(alone.clone(), 55).unwrap().reclaim(&keep(1)).unwrap();
    in_each_call(
        &base,
        |disk| drop(open(disk.clone(), 60).unwrap().reclaim(&keep(1)).unwrap()),
        |disk, report| {
            assert_eq!(report.floor.get(), 70);
            assert_eq!(left(disk), left(&alone));
        },
    );
    check(&alone, 70, 110);
}

#[test]
fn a_reclaimer_sleeps_while_a_group_needs_more() {
    // A group that opens below its floor before the Floor is linked is protected; after it, it is refused.
    let base = to_be_reclaimed();
    in_each_call(
        &base,
        |disk| {
            let store = open(disk.clone(), 60).unwrap();
            if store.info().unwrap().floor.get() <= 30 {
                group(&store, "late", 30);
            }
        },
        |disk, report| {
            let store = open(disk.clone(), 61).unwrap();
            let floor = store.info().unwrap().floor.get();
            let late =
                store.inner().current().unwrap().state.groups.keys().any(|name| name.as_str() == "late");
            assert_eq!((floor, report.floor.get()), if late { (30, 30) } else { (70, 70) });
            check_steps(&store, floor, 110);
            check_clean(&store);
        },
    );
}

#[test]
fn a_reclaimer_frozen_before_a_removal_through_hundreds_of_commits_harms_nothing() {
    let base = to_be_reclaimed();
    for (method, nth) in [
        (Method::List, 4),
        (Method::Link, 2),
        (Method::SyncDir, 1),
        (Method::Remove, 3),
        (Method::RemoveDir, 2),
    ] {
        let disk = base.fork();
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let store = open_with(process.clone(), 55, &Settings::new()).unwrap();
        let elsewhere = disk.clone();
        process.set_plan(Plan::new().meanwhile(Match::method(method).nth(nth), move || {
            let store = open(elsewhere.clone(), 60).unwrap();
            let mut producer = store.producer("a").unwrap();
            for _ in 0..520 {
                publish(&mut producer).unwrap();
            }
            checkpoint(&store, "g", "c9", 600);
            store.reclaim(&keep(2)).unwrap();
        }));
        store.reclaim(&keep(1)).unwrap();
        let floor = open(disk.clone(), 61).unwrap().info().unwrap().floor.get();
        assert!(floor == 70 || floor == 600, "{floor}");
        check(&disk, floor, 630);
    }
}

#[test]
fn a_checkpoint_that_a_rewind_has_made_the_last_is_not_dropped() {
    let base = to_be_reclaimed();
    in_each_call(
        &base,
        |disk| {
            let store = open(disk.clone(), 60).unwrap();
            if store.info().unwrap().floor.get() < 70 {
                rewind(&store, 69);
            }
        },
        |disk, _| {
            let store = open(disk.clone(), 61).unwrap();
            let checkpoints = |store: &Store| -> Vec<u64> {
                let tail = store.inner().current().unwrap();
                tail.state.groups.values().flat_map(|one| &one.checkpoints).map(|c| c.step.get()).collect()
            };
            let floor = store.info().unwrap().floor.get();
            let order: Vec<_> = store
                .commits(0.into())
                .unwrap()
                .filter_map(|commit| commit.ok().filter(|commit| commit.void.is_none()))
                .map(|commit| commit.kind)
                .filter(|kind| kind == "drop" || kind == "rewind")
                .collect();
            let dropped_first = order.first().is_some_and(|kind| kind == "drop");
            let left = checkpoints(&store);
            if floor == 70 {
                return check_steps(&store, 70, 110);
            }
            assert_eq!(left, if dropped_first { vec![] } else { vec![20] }, "{order:?}");
            assert!(floor <= 69, "{floor}");
            check_steps(&store, if left.is_empty() { floor } else { 20 }, 69);
            check_clean(&store);
        },
    );
}

#[test]
fn whatever_call_fails_another_reclaim_ends_as_if_none_had() {
    let base = to_be_reclaimed();
    let alone = base.fork();
    open(alone.clone(), 55).unwrap().reclaim(&keep(1)).unwrap();
    let alone = left(&alone);
    for lost in [false, true] {
        for call in 1.. {
            let disk = base.fork();
            let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
            let store = open_with(process.clone(), 55, &Settings::new()).unwrap();
            let (before, calls) = (process.calls(), Match::any().nth(call));
            process.set_plan(match lost {
                true => Plan::new().lose_reply(calls, errno::EIO),
                false => Plan::new().fail(calls, errno::EIO),
            });
            let failed = store.reclaim(&keep(1)).err();
            if process.calls() - before < call {
                break;
            }
            process.set_plan(Plan::new());
            check_clean(&open(disk.clone(), 61).unwrap());
            let report = store.reclaim(&keep(1)).unwrap_or_else(|error| {
                panic!("after {failed:?} in call {call} (reply lost: {lost}): {error}")
            });
            assert_eq!(report.floor.get(), 70);
            // An outcome that was unknown may have left a commit that is void.
            if failed.is_none_or(|error| error.commit_version().is_none()) {
                assert_eq!(left(&disk), alone, "call {call} (reply lost: {lost})");
            }
            check(&disk, 70, 110);
        }
    }
}

#[test]
fn a_reader_that_sleeps_gets_the_step_or_is_told_that_it_was_reclaimed() {
    let base = to_be_reclaimed();
    for class in [MountClass::Local, MountClass::CloseToOpen] {
        for step in [19u64, 45, 75] {
            for warm in [false, true] {
                for call in 1.. {
                    let disk = base.fork();
                    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
                    let settings = Settings::new().mount_class(class).io_patience(Duration::ZERO);
                    let store = open_with(process.clone(), 55, &settings).unwrap();
                    if warm {
                        store.info().unwrap();
                    }
                    let (before, elsewhere) = (process.calls(), disk.clone());
                    process.set_plan(Plan::new().meanwhile(Match::any().nth(call), move || {
                        open(elsewhere.clone(), 60).unwrap().reclaim(&keep(1)).unwrap();
                    }));
                    let started = store.run(Start::Step(step.into())).map(drop);
                    let read = store.batch(step.into()).and_then(|batch| batch.slice(0));
                    let told = |error: &batchweave::Error| {
                        assert_eq!(
                            error.kind(),
                            ErrorKind::Reclaimed,
                            "{class}, step {step}, call {call}: {error}"
                        );
                        // A run that begins at a step looks for the lineage of the one before.
                        let about = error.about_step().unwrap().get();
                        assert!(step < 70 && (about == step || about + 1 == step), "{error}");
                    };
                    let _ = started.inspect_err(told);
                    match read {
                        Ok(slice) => assert_eq!(parse(&slice), ("a".to_owned(), step)),
                        Err(error) => told(&error),
                    }
                    if process.calls() - before < call {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn an_index_builder_that_was_overtaken_goes_on() {
    // Its own segment's states lie in what may go as soon as another has begun the next segment.
    for call in 1.. {
        let disk = new_disk();
        let store = open(disk.clone(), 40).unwrap();
        let mut old = store.producer("old").unwrap();
        publish(&mut old).unwrap();
        let (process, watched, mut slow) = sleeper(&disk, "a");
        let mut b = store.producer("b").unwrap();
        let mut middle = store.producer("middle").unwrap();
        while publish(&mut b).unwrap().version.get() < 20 {}
        publish(&mut middle).unwrap();
        while publish(&mut b).unwrap().version.get() < 46 {}
        publish(&mut slow).unwrap();
        let before = process.calls();
        let other = parking_lot::Mutex::new(b);
        process.set_plan(Plan::new().meanwhile(Match::any().nth(call), move || {
            publish(&mut other.lock()).unwrap();
            let next = store.info().unwrap().next_step;
            store.reclaim(&ReclaimOptions::new().up_to(next)).unwrap();
        }));
        publish(&mut slow).unwrap_or_else(|error| panic!("in call {call}: {error}"));
        if process.calls() - before < call {
            return;
        }
        assert_eq!(watched.producers().unwrap().len(), 4);
        check_clean(&open(disk, 70).unwrap());
    }
}

#[test]
fn only_dead_drafts_are_litter() {
    let disk = disk_with(20);
    let stage = dir_path(&[names::STAGE]);
    let (process, store, mut live) = sleeper(&disk, "b");
    publish(&mut live).unwrap();
    let open_draft = live.draft().unwrap();
    let incarnation = live.incarnation();
    let put = |producer: &str, incarnation: Incarnation, first: u64, nonce: u8| {
        let producer = producer.parse().unwrap();
        let name = staged_draft(&producer, incarnation, Sequence::new(first), Nonce::new([nonce; 16]));
        write_file(&disk, &stage, &name, b"bytes");
        name
    };
    let dead = [
        put("b", incarnation, 0, 1),
        put("b", Incarnation::new(0), 5, 2),
        put("unknown", Incarnation::new(3), 0, 3),
        put("a", Incarnation::new(7), 20, 4),
    ];
    let alive = [put("b", incarnation, 1, 5), put("b", Incarnation::new(1000), 0, 6)];
    let strange = "not one of ours";
    write_file(&disk, &stage, strange, b"");
    let report = store.reclaim(&ReclaimOptions::new()).unwrap();
    let mut expected = dead.map(|name| format!("stage/{name}"));
    expected.sort();
    assert_eq!((report.litter_names, report.litter.bytes), (expected.to_vec(), 20));
    let staged: Vec<_> = disk.paths().into_iter().filter(|path| path.contains("/stage/")).collect();
    let stays = |name: &str| staged.iter().any(|path| path.ends_with(name));
    assert!(alive.iter().all(|name| stays(name)) && stays(strange), "{staged:?}");
    // Beside stage/ itself and the draft that is being written.
    assert_eq!(staged.len(), alive.len() + 3, "{staged:?}");
    // What may yet come in: one whose outcome is unknown (R2).
    drop(open_draft);
    let lost = Match::method(Method::Link);
    process.set_plan(Plan::new().fail(lost, errno::EIO));
    let draft = draft(&mut live, 1).unwrap();
    let failed = live.publish(draft, state("b", 1)).unwrap_err();
    assert!(failed.draft.is_none(), "its outcome is unknown");
    process.set_plan(Plan::new());
    open(disk.clone(), 60).unwrap().reclaim(&ReclaimOptions::new()).unwrap();
    live.flush().unwrap();
    assert_eq!(live.next_sequence().get(), 2);
}

#[test]
fn a_draft_that_is_in_the_log_is_litter_and_its_bytes_stay() {
    let disk = disk_with(20);
    let (process, store, mut live) = sleeper(&disk, "b");
    process.set_plan(Plan::new().fail(Match::method(Method::Remove), errno::EIO));
    publish(&mut live).unwrap();
    process.set_plan(Plan::new());
    let report = store.reclaim(&ReclaimOptions::new()).unwrap();
    assert_eq!((report.litter.count, report.litter.bytes), (1, 0));
    assert_eq!(parse(&store.batch(20.into()).unwrap().slice(0).unwrap()), ("b".to_owned(), 0));
}

#[test]
fn a_draft_opened_since_the_names_were_listed_is_alive() {
    // Its producer's Open is newer than any view from before the listing.
    let disk = disk_with(20);
    for call in 1..12 {
        let disk = disk.fork();
        let (process, store, old) = sleeper(&disk, "b");
        drop(old);
        let elsewhere = disk.clone();
        let held = Arc::new(parking_lot::Mutex::new(None));
        let holder = held.clone();
        process.set_plan(Plan::new().meanwhile(Match::any().nth(call), move || {
            let mut producer = open(elsewhere.clone(), 60).unwrap().producer("b").unwrap();
            let draft = draft(&mut producer, 1).unwrap();
            *holder.lock() = Some((producer, draft));
        }));
        assert_eq!(store.reclaim(&ReclaimOptions::new()).unwrap().litter.count, 0);
        let (mut producer, draft) = held.lock().take().unwrap();
        producer.publish(draft, "state").unwrap();
    }
}

#[test]
fn control_files_are_litter_when_seen_twice() {
    let disk = disk_with(20);
    let name = staged_control("floor", Nonce::new([7; 16]));
    write_file(&disk, &dir_path(&[names::STAGE]), &name, b"1234");
    let store = open(disk.clone(), 50).unwrap();
    let first = store.reclaim(&ReclaimOptions::new()).unwrap();
    assert_eq!((first.litter.count, &first.control_seen), (0, &vec![name.clone()]));
    let unrelated = store.reclaim(&ReclaimOptions::new()).unwrap();
    assert_eq!(unrelated.litter.count, 0, "who doesn't say what he has seen hasn't seen it");
    let second = store.reclaim(&ReclaimOptions::new().control_seen(first.control_seen)).unwrap();
    assert_eq!((second.litter.count, second.litter.bytes), (1, 4));
    assert_eq!((second.litter_names, second.control_seen), (vec![format!("stage/{name}")], vec![]));
}

/// Removes every control file in stage/, as a reclaim that sees them a second time does.
fn take_control_files(disk: &Memory) {
    let store = open(disk.clone(), 60).unwrap();
    let seen = store.reclaim(&ReclaimOptions::new()).unwrap().control_seen;
    assert!(!seen.is_empty(), "there is none to take");
    let report = store.reclaim(&ReclaimOptions::new().control_seen(seen)).unwrap();
    assert!(report.litter.count > 0);
}

#[test]
fn whoever_lives_and_loses_a_control_file_stages_it_again() {
    for primitive in [Primitive::Link, Primitive::RenameNoreplace] {
        let fails = || match primitive {
            Primitive::Link => Plan::new(),
            _ => Plan::new().fail(Match::method(Method::Link), errno::EPERM),
        };
        let method = if primitive == Primitive::Link { Method::Link } else { Method::RenameNoreplace };
        // The Open of a name, and an index at a boundary.
        for (versions, target) in [(5, "log/"), (15, "index/")] {
            let disk = Memory::new();
            let process = Arc::new(Fault::new(Arc::new(disk.clone()), fails()));
            let store = create(process.clone(), 1, options(), &Settings::new()).unwrap();
            assert_eq!(store.info().unwrap().primitive, primitive);
            let mut producer = store.producer("a").unwrap();
            for _ in 1..versions {
                publish(&mut producer).unwrap();
            }
            let elsewhere = disk.clone();
            let wake = Match::method(method).named(&format!("-> {target}")).nth(1);
            let wake_staged = wake.when(move |on| on.contains("stage/-") && on.contains(target));
            process.set_plan(fails().meanwhile(wake_staged, move || take_control_files(&elsewhere)));
            if target == "log/" {
                store.producer("b").unwrap();
            } else {
                while publish(&mut producer).unwrap().version.get() < 17 {}
            }
            check_clean(&open(disk, 70).unwrap());
        }
    }
}

#[test]
fn names_that_the_store_does_not_give_stay() {
    let disk = to_be_reclaimed();
    write_file(&disk, &segment_path(20), ".nfs0000000000000001", b"an open file of another client");
    let store = open(disk.clone(), 50).unwrap();
    let report = store.reclaim(&keep(1)).unwrap();
    assert_eq!(segments(&disk, "log")[..2], [1, 4]);
    assert_eq!(report.segments.count, 3);
    let dir = disk.open_root(Path::new(&segment_path(20))).unwrap();
    assert_eq!(disk.list(&dir).unwrap(), [".nfs0000000000000001"]);
    disk.remove(&dir, ".nfs0000000000000001").unwrap();
    assert_eq!(store.reclaim(&keep(1)).unwrap().litter_names, ["log/000000000001"]);
    check(&disk, 70, 110);
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
