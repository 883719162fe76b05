//! Two segments pass, and what may be removed is, while somebody sleeps in a call: whatever he meets then,
//! replay explains it (R7).
//!
//! The method: for each call of each way to use a log, on each class of mount, tame and at
//! its worst, a fork of a prepared disk; in
//! that call others publish and remove. So every fault of this kind is shown that one call can show.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::format::names;
use batchweave::storage::Storage;
use batchweave::{Producer, Segment, Settings, Store};
use batchweave_sim::{Alone, Choices, Class, Fault, Links, Match, Memory, Mount, Plan, Traits};

use crate::support::{PATH, create, open, open_with, options, publish, reopen};

const MOUNTS: [(Class, Links); 4] = [
    (Class::Local, Links::Everywhere),
    (Class::Local, Links::Nowhere),
    (Class::Coherent { bricks: 1 }, Links::Everywhere),
    (Class::CloseToOpen, Links::Everywhere),
];

fn mounted(disk: &Memory, (class, links): (Class, Links), wild_one_in: u32) -> Mount {
    let traits = Traits { links, wild_one_in, ..class.traits() };
    Mount::with_traits(disk.clone(), class, traits, Choices::replay(Vec::new()), Arc::new(Alone))
}

/// Others publish two segments and more, and remove every segment that may be: k, where mark k+2 exists (R6).
fn pass_segments(disk: &Memory) {
    let mut producer = open(disk.clone(), 60).unwrap().producer("b").unwrap();
    let mut newest = 0;
    for _ in 0..35 {
        newest = publish(&mut producer).unwrap().version.get() / 16;
    }
    let log = disk.open_root(&Path::new(PATH).join(names::LOG)).unwrap();
    for segment in 0..=newest - 2 {
        let name = names::segment(Segment::new(segment));
        let Ok(dir) = disk.open_dir(&log, &name) else { continue };
        for commit in disk.list(&dir).unwrap() {
            disk.remove(&dir, commit.to_str().unwrap()).unwrap();
        }
        disk.remove_dir(&log, &name).unwrap();
    }
}

/// A disk with a log of so many versions, the last of them parts of "a".
fn prepared(versions: u64, mount: (Class, Links)) -> Memory {
    let disk = Memory::new();
    let store = create(Arc::new(mounted(&disk, mount, 0)), 1, options(), &Settings::new()).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 1..versions {
        publish(&mut producer).unwrap();
    }
    disk
}

/// Does `act` on a fork of the disk once for each of its calls, sleeping in that one. No error is outlasted:
/// there is none to be told of.
fn sleep_in_each_call<T>(
    versions: u64,
    prepare: impl Fn(Store, &Memory) -> T,
    act: impl Fn(&mut T) -> batchweave::Result<()>,
) {
    for (on, wild) in MOUNTS.into_iter().flat_map(|on| [(on, 0), (on, 1)]) {
        let base = prepared(versions, on);
        for call in 1.. {
            let disk = base.fork();
            let mount = mounted(&disk, on, wild);
            let process = Arc::new(Fault::new(Arc::new(mount), Plan::new()));
            let settings = Settings::new().io_patience(Duration::ZERO);
            let mut prepared = prepare(open_with(process.clone(), 50, &settings).unwrap(), &disk);
            let (before, elsewhere) = (process.calls(), disk.clone());
            let sleep = Match::any().nth(call);
            process.set_plan(Plan::new().meanwhile(sleep, move || pass_segments(&elsewhere)));
            act(&mut prepared)
                .unwrap_or_else(|error| panic!("{on:?} {wild}, asleep in call {call}: {error}"));
            let made = process.calls() - before;
            drop(prepared);
            if made < call {
                break;
            }
            check(&disk);
        }
    }
}

/// What is visible of "a" is what the log says, and it can go on.
fn check(disk: &Memory) {
    let store = open(disk.clone(), 70).unwrap();
    let known = store.producers().unwrap();
    let one = known.iter().find(|one| one.name.as_str() == "a").unwrap();
    let parts: Vec<_> = (0..one.sequence.get()).map(|sequence| ("a".to_owned(), sequence)).collect();
    publish(&mut reopen(&store, "a", &parts)).unwrap();
}

fn opened(store: Store) -> Producer {
    store.producer("a").unwrap()
}

fn publish_one(producer: &mut Producer) -> batchweave::Result<()> {
    let sequence = producer.next_sequence();
    let published = publish(producer)?;
    assert_eq!(published.sequence, sequence, "its part is in once");
    Ok(())
}

/// A commit that was removed between look-up and reading was an `Io` error, and so was the listing of a
/// directory that was removed after it was opened (R8).
#[test]
fn whoever_looks_for_the_end_finds_it() {
    for versions in [3, 15, 16, 20] {
        sleep_in_each_call(versions, |store, _| store, |store| store.info().map(drop));
    }
}

/// The same of one who follows the log.
#[test]
fn whoever_follows_the_log_goes_on() {
    let follow = |store: Store, disk: &Memory| {
        store.info().unwrap();
        let mut producer = open(disk.clone(), 55).unwrap().producer("a").unwrap();
        publish(&mut producer).unwrap();
        publish(&mut producer).unwrap();
        store
    };
    for versions in [3, 13, 16] {
        sleep_in_each_call(versions, follow, |store| store.info().map(drop));
    }
}

/// The state was read from a commit that was removed meanwhile, instead of from the index.
#[test]
fn whoever_opens_a_producer_gets_its_state() {
    for versions in [3, 15, 16] {
        sleep_in_each_call(
            versions,
            |store, _| store,
            |store| {
                let producer = store.producer("a")?;
                let after = crate::support::state("a", producer.next_sequence().get() - 1);
                assert_eq!(producer.state(), after.as_bytes());
                Ok(())
            },
        );
    }
}

/// The sync of the directory of one's own commit, removed since, poisoned the producer.
#[test]
fn whoever_publishes_has_published_once() {
    sleep_in_each_call(3, |store, _| opened(store), publish_one);
}

/// So did that of the segment that was complete; and its index failed to be built of removed commits.
/// Where a commit is published by a rename, one that went to a directory that was made anew was lost to its
/// producer: its staged name was gone with it.
#[test]
fn whoever_crosses_a_boundary_has_published_once() {
    sleep_in_each_call(15, |store, _| opened(store), publish_one);
}
