//! Reclaim while others sleep, write, rewind, read and reclaim: in each of its calls in turn, and in theirs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::format::names;
use batchweave::storage::Storage;
use batchweave::{
    ErrorKind, MountClass, Producer, ReclaimOptions, Reclaimed, RepairOptions, Segment, Settings, Start,
    Store,
};
use batchweave_sim::{Fault, Match, Memory, Method, Plan, errno};

use super::{dir_path, new_disk, read_file, sleeper, write_file};
use crate::groups::*;
use crate::reclaim::{check, disk_with, keep};
use crate::support::*;

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
        // Its commit there is no commit of the log.
        let first = store.commits(0.into()).unwrap().next().unwrap().unwrap().version.get();
        assert_eq!(first, segments(&disk, "log")[usize::from(stray)] * 16);
        let report = store.reclaim(&keep(1)).unwrap();
        assert_eq!(report.litter_names.iter().any(|name| name == "log/000000000001"), stray, "{report:?}");
        assert!(segments(&disk, "log")[0] > 1, "what a sleeper left goes too");
        check_clean(&open(disk, 71).unwrap());
    }
}

/// A disk on which a reclaim with `keep(1)` drops, raises the floor and removes.
pub fn to_be_reclaimed() -> Memory {
    let disk = disk_with(110);
    let store = open(disk.clone(), 50).unwrap();
    checkpoint(&store, "g", "c0", 20);
    checkpoint(&store, "g", "c1", 70);
    disk
}

/// Runs `meanwhile` on a fork of the disk in each call of a reclaim in turn, and `then` after it.
pub fn in_each_call(
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
    overtaken(|_, slow| publish(slow).map(drop));
}

#[test]
fn whoever_reads_producers_states_and_is_overtaken_goes_on() {
    overtaken(|watched, _| {
        let known = watched.producers()?;
        let middle = known.iter().find(|one| one.name.as_str() == "middle").unwrap();
        assert_eq!(middle.state, state("middle", 0).as_bytes());
        Ok(())
    });
}

/// In each call of `act` another begins the next segment, and reclaims all that may go then.
fn overtaken(act: impl Fn(&Store, &mut Producer) -> batchweave::Result<()>) {
    // Its own segment's states lie in what may go as soon as another has begun the next segment.
    for call in 1.. {
        let disk = new_disk();
        let store = open(disk.clone(), 40).unwrap();
        let mut old = store.producer("old").unwrap();
        publish(&mut old).unwrap();
        let (process, watched, mut slow) = sleeper(&disk, "a");
        let mut b = store.producer("b").unwrap();
        let mut middle = store.producer("middle").unwrap();
        // It follows, so that what it knows begins two segments before the next.
        let mut follow = |end: u64| {
            while publish(&mut b).unwrap().version.get() < end {
                watched.info().unwrap();
            }
        };
        follow(20);
        publish(&mut middle).unwrap();
        follow(46);
        publish(&mut slow).unwrap();
        let before = process.calls();
        let other = parking_lot::Mutex::new(b);
        process.set_plan(Plan::new().meanwhile(Match::any().nth(call), move || {
            publish(&mut other.lock()).unwrap();
            let next = store.info().unwrap().next_step;
            store.reclaim(&ReclaimOptions::new().up_to(next)).unwrap();
        }));
        act(&watched, &mut slow).unwrap_or_else(|error| panic!("in call {call}: {error}"));
        if process.calls() - before < call {
            return;
        }
        assert_eq!(watched.producers().unwrap().len(), 4);
        check_clean(&open(disk, 70).unwrap());
    }
}

#[test]
fn a_checkpoint_that_has_become_the_last_is_not_dropped_without_leave() {
    let base = disk_with(110);
    let store = open(base.clone(), 50).unwrap();
    checkpoint(&store, "g", "p0", 20);
    checkpoint(&store, "g", "c0", 70);
    let left = |disk: &Memory| -> Vec<String> {
        let group = open(disk.clone(), 61).unwrap().group("g").unwrap();
        group.checkpoints().unwrap().iter().map(|kept| kept.name.to_string()).collect()
    };
    for call in 1.. {
        let disk = base.fork();
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let store = open_with(process.clone(), 55, &Settings::new()).unwrap();
        let before = process.calls();
        let (elsewhere, seen) = (disk.clone(), Arc::new(parking_lot::Mutex::new(Vec::new())));
        let saw = seen.clone();
        // Its owner drops the pinned one.
        process.set_plan(Plan::new().meanwhile(Match::any().nth(call), move || {
            *saw.lock() = left(&elsewhere);
            open(elsewhere.clone(), 60).unwrap().group("g").unwrap().drop_checkpoint("p0").unwrap();
        }));
        let reclaimed = store.reclaim(&keep(0));
        if process.calls() - before < call {
            assert_eq!(left(&disk), ["p0"]);
            return;
        }
        match reclaimed {
            // The reclaim came first, and the last one went by its owner's word.
            Ok(report) => assert_eq!((report.dropped.len(), &seen.lock()[..]), (1, &["p0".to_owned()][..])),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                assert!(error.to_string().contains("allow_no_checkpoint"), "{error}");
                assert_eq!(left(&disk), ["c0"], "in call {call}");
            }
        }
        check_clean(&open(disk, 71).unwrap());
    }
}

/// A disk on which a builder, asleep before its put, has brought index 0 back after a reclaim.
fn with_a_stray_index() -> Memory {
    let disk = disk_with(13);
    let (process, _store, mut sleeping) = sleeper(&disk, "b");
    let elsewhere = disk.clone();
    let sleep = Match::method(Method::Link).named("index/").nth(1);
    process.set_plan(Plan::new().meanwhile(sleep, move || {
        let store = open(elsewhere.clone(), 60).unwrap();
        let mut other = store.producer("a").unwrap();
        for _ in 0..100 {
            publish(&mut other).unwrap();
        }
        checkpoint(&store, "g", "c0", 100);
        store.reclaim(&keep(1)).unwrap();
    }));
    publish(&mut sleeping).unwrap();
    disk
}

#[test]
fn repair_sees_to_what_lives_although_a_sleeper_brought_an_index_back() {
    let disk = with_a_stray_index();
    let found = segments(&disk, "index");
    assert!(found[0] == 0 && found[1] > 3, "{found:?}");
    let store = open(disk.clone(), 70).unwrap();
    check_clean(&store);
    assert_eq!(store.repair(RepairOptions::new()).unwrap(), Default::default());
    // An index that is lost is rebuilt all the same, wherever its segment and the one before it are there.
    let indexes = dir_path(&[names::INDEX]);
    for lost in found.iter().skip(2) {
        let disk = disk.fork();
        let name = names::segment(Segment::new(*lost));
        let whole = read_file(&disk, &indexes, &name);
        disk.remove(&disk.open_root(Path::new(&indexes)).unwrap(), &name).unwrap();
        let report = open(disk.clone(), 71).unwrap().repair(RepairOptions::new()).unwrap();
        assert_eq!((report.rebuilt.len(), report.left.len()), (1, 0), "index {lost}: {report:?}");
        assert_eq!(read_file(&disk, &indexes, &name), whole);
        check_clean(&open(disk, 72).unwrap());
    }
}

#[test]
fn an_index_is_not_missed_while_a_listing_of_the_marks_is_old() {
    let disk = disk_with(110);
    let store = open(disk.clone(), 50).unwrap();
    checkpoint(&store, "g", "c0", 110);
    store.reclaim(&keep(1)).unwrap();
    let (marks, newest) = (dir_path(&[names::MARKS]), segments(&disk, "marks").pop().unwrap());
    // The index before the mark that an old listing has as its newest is reclaimed.
    let unseen = [newest - 1, newest].map(|mark| names::segment(Segment::new(mark)));
    assert!(!segments(&disk, "index").contains(&(newest - 3)));
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let late = open_with(process.clone(), 55, &Settings::new()).unwrap();
    let (hidden, shown) = (disk.clone(), disk.clone());
    let (hide, show, dir) = (unseen.clone(), unseen.clone(), marks.clone());
    let by_name = Match::method(Method::Open).named(&format!("marks/{}", unseen[0])).nth(1);
    process.set_plan(
        Plan::new()
            .meanwhile(Match::method(Method::List).named("marks").nth(1), move || {
                let root = hidden.open_root(Path::new(&marks)).unwrap();
                hide.iter().for_each(|mark| hidden.remove(&root, mark).unwrap());
            })
            // By its name it is there, and in a listing from then on.
            .meanwhile(by_name, move || show.iter().for_each(|mark| write_file(&shown, &dir, mark, &[]))),
    );
    let info = late.info().unwrap();
    assert_eq!((info.next_step.get(), info.floor.get()), (110, 110));
}
