//! A job that stops at every storage call of what it says about its group: what it was told is so, what it
//! wasn't is wholly so or not at all, also after a power cut, and whoever comes next goes on.

use batchweave::{CheckpointOptions, GroupInfo, Result, Start, Step};
use batchweave_sim::{Fault, Plan};
use parking_lot::Mutex;

use super::*;

type Word = fn(&Store) -> Result<()>;

fn operator(store: &Store, step: u64, name: &str) -> Result<()> {
    let position = store.position(Step::new(step))?;
    store.group("g")?.checkpoint(position, name, &CheckpointOptions::new().pinned(step == 4)).map(drop)
}

/// What a job says, one word after another; the segment's end lies among them.
const WORDS: [Word; 9] = [
    |store| store.group("g")?.begin(Step::new(2)).map(drop),
    |store| operator(store, 4, "four"),
    |store| operator(store, 6, "six"),
    |store| operator(store, 8, "eight"),
    |store| store.group("g")?.drop_checkpoint("six").map(drop),
    |store| {
        let run = store.group("g")?.begin(Step::new(8))?;
        run.checkpoint(store.position(Step::new(9))?, "nine").map(drop)
    },
    |store| {
        let run = store.group("h")?.begin(Start::Beginning)?;
        run.retain(["none"]).map(drop)
    },
    |store| store.group("g")?.drop_checkpoint("four").map(drop),
    |store| store.group("g")?.retire().map(drop),
];

/// What a group looks like to people (incarnations are versions, which a repeated word moves): its name,
/// whether it lives, what it needs, and its checkpoints.
type Seen = (String, bool, Option<u64>, Vec<(String, u64, bool)>);

fn seen(store: &Store) -> Vec<Seen> {
    let told = |group: GroupInfo| {
        let kept = group.checkpoints.iter();
        let kept = kept.map(|kept| (kept.name.to_string(), kept.position.step.get(), kept.pinned)).collect();
        let needs = group.needs.map(Step::get);
        (group.name.to_string(), group.incarnation.is_some(), needs, kept)
    };
    store.groups().unwrap().into_iter().map(told).collect()
}

/// Runs the words by a process that stops at call `stop`; gives how many it was told of, and whether it came
/// to its end.
fn run(disk: &Memory, stop: u64) -> (usize, bool) {
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new().stop_at(stop)));
    let told = Mutex::new(0);
    let Ok(store) = open_with(process, 2, &Settings::new()) else { return (0, false) };
    for word in WORDS {
        if word(&store).is_err() {
            return (*told.lock(), false);
        }
        *told.lock() += 1;
    }
    (WORDS.len(), true)
}

#[test]
fn what_was_told_is_so_wherever_it_stops() {
    let disk = prepared(9);
    // What is there after each word; the two with more words than one have states in between.
    let mut expected = vec![vec![seen(&process(&disk, 3))]];
    let whole = disk.fork();
    let store = process(&whole, 2);
    for (number, word) in WORDS.iter().enumerate() {
        word(&store).unwrap();
        let mut after = vec![seen(&store)];
        if number == 5 {
            let between = disk.fork();
            let store = process(&between, 2);
            WORDS[..5].iter().for_each(|word| word(&store).unwrap());
            store.group("g").unwrap().begin(Step::new(8)).unwrap();
            after.push(seen(&store));
        }
        expected.push(after);
    }
    let mut stops = 0;
    for stop in 0.. {
        let left = disk.fork();
        let (told, ended) = run(&left, stop);
        let check = |disk: &Memory, how: &str| {
            let store = process(disk, 4);
            let found = seen(&store);
            let mut allowed = expected[told..(told + 2).min(expected.len())].iter().flatten();
            assert!(
                allowed.any(|one| *one == found),
                "{how}: after {told} words and a stop at call {stop} there is {found:?}"
            );
            check_replay(&store);
            let run = store.group("g").unwrap().begin(Start::Beginning).unwrap();
            run.checkpoint(position_after(&run, 9), "afterwards").unwrap();
        };
        check(&left.fork(), "the process died");
        for keep in [0, 1, 2] {
            let cut = left.fork();
            let mut nth = 0u64;
            cut.power_cut_keeping(|_| {
                nth += 1;
                keep == 1 || (keep == 2 && nth.is_multiple_of(2))
            });
            check(&cut, "the power was cut");
        }
        stops += 1;
        if ended {
            break;
        }
    }
    assert!(stops > 100, "only {stops} calls were stopped at");
}

#[test]
fn a_forget_that_stops_anywhere_is_whole_or_not_at_all_and_said_again() {
    let base = prepared(17);
    open(base.clone(), 50).unwrap().producer("gone").unwrap().finish().unwrap();
    let is_there =
        |store: &Store| store.producers().unwrap().iter().any(|known| known.name.as_str() == "gone");
    let (mut left, mut done) = (0, 0);
    for stop in 1.. {
        let disk = base.fork();
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new().stop_at(stop)));
        let told = open_with(process, 51, &Settings::new()).and_then(|store| store.forget("gone"));
        let store = open(disk, 52).unwrap();
        let there = is_there(&store);
        assert!(told.is_err() || !there, "stop {stop}: it was told that the name is gone");
        (left, done) = (left + u32::from(there), done + u32::from(!there));
        assert_eq!(store.forget("gone").unwrap(), there, "stop {stop}");
        assert!(!is_there(&store));
        publish(&mut store.producer("b").unwrap()).unwrap();
        check_replay(&store);
        if told.is_ok() {
            break;
        }
    }
    assert!(left > 0 && done > 0, "some stops are before its link, some after: {left}, {done}");
}
