//! Somebody sleeps in each call of a command in turn, while two segments pass, and a newer command of its
//! kind with them: the log is whole whatever he makes of it (R6).

use std::sync::Arc;

use batchweave::{Error, ErrorKind, Primitive, ReclaimOptions, Result, RewindOptions, Settings, Step, Store};
use batchweave_sim::{Fault, Match, Memory, Plan, errno};

use crate::support::*;

/// A disk with so many parts of "a".
fn prepared(plan: &Plan, parts: u64) -> Memory {
    let disk = Memory::new();
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), plan.clone()));
    let store = create(process, 1, options(), &Settings::new()).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 0..parts {
        publish(&mut producer).unwrap();
    }
    disk
}

/// `act` by one who sleeps in each of its calls, while `meanwhile` happens by others. `judge` is told whether
/// he slept before he had looked at the log.
fn asleep_in_each_call(
    (mount, plan): &(&str, Plan),
    parts: u64,
    act: impl Fn(&Store) -> Result<()>,
    meanwhile: impl Fn(&Store) + Clone + Send + Sync + 'static,
    judge: impl Fn(&Store, Result<(), Error>, bool),
) {
    let base = prepared(plan, parts);
    for call in 1.. {
        let disk = base.fork();
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), plan.clone()));
        let store = open_with(process.clone(), 50, &Settings::new()).unwrap();
        store.info().unwrap();
        let before = process.calls();
        store.info().unwrap();
        let looks = process.calls() - before;
        let before = process.calls();
        let (elsewhere, theirs, their_plan) = (disk.clone(), meanwhile.clone(), plan.clone());
        process.set_plan(plan.clone().meanwhile(Match::any().nth(call), move || {
            let process = Arc::new(Fault::new(Arc::new(elsewhere.clone()), their_plan.clone()));
            theirs(&open_with(process, 60, &Settings::new()).unwrap());
        }));
        let acted = act(&store);
        let made = process.calls() - before;
        process.set_plan(plan.clone());
        let fresh =
            open_with(Arc::new(Fault::new(Arc::new(disk.clone()), plan.clone())), 70, &Settings::new())
                .unwrap();
        // From the first commit on, if it is there.
        if fresh.info().unwrap().floor == Step::ZERO {
            check_replay(&fresh);
        }
        let report = fresh.verify(|_| ()).unwrap();
        assert!(report.is_clean(), "{mount}, asleep in call {call} ({acted:?}): {report:?}");
        if made < call {
            acted.unwrap();
            assert!(call > 8);
            return;
        }
        judge(&fresh, acted, call <= looks);
    }
}

/// Mounts on which a store publishes in each of the ways there are.
fn mounts() -> [(&'static str, Plan); 4] {
    [
        ("by link", mount_with(Primitive::Link)),
        ("by rename", mount_with(Primitive::RenameNoreplace)),
        ("by rename of directories", mount_with(Primitive::RenameDirectory)),
        ("by link from beside its place", refusing_across(Primitive::Link, errno::EXDEV)),
    ]
}

/// Each of them, far from a segment's end and close to it.
fn grounds() -> impl Iterator<Item = ((&'static str, Plan), u64)> {
    mounts().into_iter().flat_map(|mount| [(mount.clone(), 6), (mount, 15)])
}

fn publish_many(store: &Store, name: &str, count: u64) {
    let mut producer = store.producer(name).unwrap();
    for _ in 0..count {
        publish(&mut producer).unwrap();
    }
}

fn rewind(store: &Store) -> Result<()> {
    store.rewind(Step::new(3), RewindOptions::new()).map(drop)
}

fn skip(store: &Store) -> Result<()> {
    store.skip(Step::new(1), Step::new(2), "mine").map(drop)
}

#[test]
fn who_rewinds_or_skips_has_done_so_once() {
    for (mount, parts) in grounds() {
        for act in [rewind, skip] {
            let passes = |store: &Store| publish_many(store, "b", 36);
            asleep_in_each_call(&mount, parts, act, passes, |store, acted, _| {
                acted.unwrap();
                assert_eq!(store.info().unwrap().generation.get(), 1);
            });
        }
    }
}

/// Of a rewind to `step` and another, which leaves `left` steps: either came first, or was told of the other.
fn check_overtaken(store: &Store, acted: Result<(), Error>, looking: bool, step: u64, left: u64) {
    let info = store.info().unwrap();
    let (generation, next) = (info.generation.get(), info.next_step.get());
    match acted {
        // What the other has left goes only by who had seen it.
        Ok(()) => assert_eq!((generation, next), (2, if looking { step } else { left })),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Rewound, "{error}");
            assert!(generation <= 2 && next == left, "generation {generation}, {next} steps");
        }
    }
}

#[test]
fn a_rewind_that_reads_the_log_anew_drops_nothing_that_another_has_left() {
    let rewind = |store: &Store| store.rewind(Step::new(40), RewindOptions::new()).map(drop);
    let by_link = ("by link", mount_with(Primitive::Link));
    // What the sleeper was to describe is gone, so that he begins again.
    let rewinds_and_reclaims = |store: &Store| {
        store.rewind(Step::new(2), RewindOptions::new()).unwrap();
        publish_many(store, "a", 60);
        store.reclaim(&ReclaimOptions::new().up_to(Step::new(2))).unwrap();
    };
    asleep_in_each_call(&by_link, 60, rewind, rewinds_and_reclaims, |store, acted, looking| {
        check_overtaken(store, acted, looking, 40, 62);
    });
}

#[test]
fn what_a_newer_one_has_overtaken_stays_in_the_log() {
    for (mount, parts) in grounds() {
        let rewinds = |store: &Store| {
            store.rewind(Step::new(2), RewindOptions::new()).unwrap();
            publish_many(store, "b", 36);
        };
        asleep_in_each_call(&mount, parts, rewind, rewinds, |store, acted, looking| {
            check_overtaken(store, acted, looking, 3, 38);
        });
        let skips = |store: &Store| {
            store.skip(Step::new(2), Step::new(4), "theirs").unwrap();
            publish_many(store, "b", 36);
        };
        asleep_in_each_call(&mount, parts, skip, skips, |_, acted, _| acted.unwrap());
        // The same of a name that is opened: whoever sleeps is told, or has it.
        let open = |store: &Store| store.producer("c").map(drop);
        let opens = |store: &Store| publish_many(store, "c", 36);
        asleep_in_each_call(&mount, parts, open, opens, |store, acted, _| {
            let known = store.producers().unwrap();
            assert_eq!(known.iter().find(|one| one.name.as_str() == "c").unwrap().sequence.get(), 36);
            acted
                .or_else(|error| if error.kind() == ErrorKind::Fenced { Ok(()) } else { Err(error) })
                .unwrap();
        });
    }
}
