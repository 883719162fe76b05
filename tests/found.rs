//! Faults that were found once, each kept by the case that showed it.

#[path = "found/mounts.rs"]
mod mounts;
#[path = "found/reclaimed.rs"]
mod reclaimed;
#[path = "found/removed.rs"]
mod removed;
#[expect(dead_code, reason = "what examines crashes isn't needed here")]
mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use batchweave::env::System;
use batchweave::storage::Posix;
use batchweave::{
    Counts, Durability, ErrorKind, Options, Producer, PublishError, Published, Settings, Share, Start, Step,
    Store,
};
use batchweave_sim::{Fault, Match, Memory, Method, Plan};

const EIO: i32 = 5;

struct Home {
    dir: tempfile::TempDir,
    fault: Arc<Fault>,
    store: Store,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fault = Arc::new(Fault::new(Arc::new(Posix::new()), Plan::new()));
        let options = Options::new().durability(Durability::Unsynced).segment_size(16);
        let storage = Arc::clone(&fault) as _;
        let env = Arc::new(System::new());
        let path = dir.path().join("store");
        let store = Store::open_or_create_on(&path, storage, env, options, &Settings::new()).unwrap();
        Self { dir, fault, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("store").join(name)
    }

    fn first_byte(&self, step: u64) -> u8 {
        self.store.batch(Step::new(step)).unwrap().slice(0).unwrap()[0]
    }
}

fn publish(producer: &mut Producer, byte: u8) -> Result<Published, PublishError> {
    let mut draft = producer.draft().unwrap();
    draft.add_slice(&[byte; 1000], Counts::default()).unwrap();
    producer.publish_now(draft, [byte])
}

/// The last bytes of a commit were only skipped, not written: its file was shorter than its header says.
#[test]
fn a_commit_that_ends_in_padding_is_as_long_as_it_says() {
    let home = Home::new();
    let mut producer = home.store.producer("a").unwrap();
    for length in [1usize, 7, 260_001, 262_143, 524_289] {
        let mut draft = producer.draft().unwrap();
        draft.add_slice(b"x", Counts::default()).unwrap();
        draft.attach(&vec![7; length]).unwrap();
        let published = producer.publish_now(draft, []).unwrap();
        let batch = home.store.batch(published.step).unwrap();
        assert_eq!(&*batch.slice(0).unwrap(), b"x");
        assert_eq!(batch.attachments().unwrap()[0].len(), length);
    }
    assert!(home.store.verify(|_| ()).unwrap().is_clean());
}

/// After an error the thread that reads ahead handed over the step after it.
#[test]
fn an_error_stays_at_its_turn() {
    let home = Home::new();
    let mut producer = home.store.producer("a").unwrap();
    for byte in 0..8 {
        publish(&mut producer, byte).unwrap();
    }
    // Version 0 is the Open, version 2 is step 1.
    let commit =
        fs::OpenOptions::new().write(true).open(home.path("log/000000000000/00000000000000000002")).unwrap();
    commit.write_all_at(&[99], 4500).unwrap();
    for _ in 0..50 {
        let store = Store::open(home.path("")).unwrap();
        let mut consumer = store.run(Start::Beginning).unwrap().consumer(Share::WHOLE).unwrap();
        assert_eq!(consumer.next_batch().unwrap().unwrap().step(), Step::new(0));
        for _ in 0..4 {
            let error = consumer.next_batch().unwrap_err();
            assert_eq!((error.kind(), error.about_step()), (ErrorKind::Corrupt, Some(Step::new(1))));
            assert_eq!(consumer.position().step, Step::new(1));
        }
    }
}

/// A commit that the producer had promised to keep was dropped when trying it again met a passing error.
#[test]
fn an_unknown_commit_is_kept_over_later_errors() {
    let home = Home::new();
    let mut producer = home.store.producer("a").unwrap();
    for byte in 0..15 {
        publish(&mut producer, byte).unwrap();
    }
    // The next one is version 16, the first of its segment.
    home.fault.set_plan(Plan::new().fail(Match::method(Method::Link).named("log/"), EIO));
    assert!(publish(&mut producer, 15).unwrap_err().draft.is_none(), "its outcome is unknown");
    home.fault.set_plan(Plan::new().fail(Match::method(Method::OpenDir).named("marks"), EIO));
    let next = publish(&mut producer, 16).unwrap_err();
    home.fault.set_plan(Plan::new());
    producer.publish_now(*next.draft.expect("nothing of it was tried"), [16]).unwrap();
    assert_eq!((0..17).map(|step| home.first_byte(step)).collect::<Vec<_>>(), (0..17).collect::<Vec<_>>());
    assert_eq!(producer.state(), [16]);
}

/// The state was that of the part before, so a source resumed from it was published twice.
#[test]
fn flush_brings_the_state_of_what_it_settles() {
    let home = Home::new();
    let mut producer = home.store.producer("a").unwrap();
    home.fault.set_plan(Plan::new().fail(Match::method(Method::Link), EIO));
    assert!(publish(&mut producer, 1).is_err());
    home.fault.set_plan(Plan::new());
    producer.flush().unwrap();
    assert_eq!((producer.next_sequence().get(), producer.state()), (1, vec![1]));
}

/// A draft that was given back couldn't be published again.
#[test]
fn a_draft_given_back_is_published_as_the_same_file() {
    let home = Home::new();
    let mut producer = home.store.producer("a").unwrap();
    let mut draft = producer.draft().unwrap();
    draft.add_slice(b"x", Counts::default()).unwrap();
    home.store.close(false).unwrap();
    let refused = producer.publish_now(draft, [1]).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Invalid);
    home.store.reopen().unwrap();
    let other_state = producer.publish_now(*refused.draft.unwrap(), [2]).unwrap_err();
    assert_eq!(other_state.error.kind(), ErrorKind::Invalid, "its file has a state in it");
    producer.publish_now(*other_state.draft.unwrap(), [1]).unwrap();
    assert_eq!(home.first_byte(0), b'x');
    assert_eq!(fs::read_dir(home.path("stage")).unwrap().count(), 0);
}

/// HEAD goes back when two writers ring in the other order; an answer was taken from it.
#[test]
fn an_old_doorbell_gives_no_wrong_answer() {
    let home = Home::new();
    let late = Store::open(home.path("")).unwrap();
    assert_eq!(late.info().unwrap().next_step, Step::new(0));
    let mut producer = home.store.producer("a").unwrap();
    for byte in 0..5 {
        publish(&mut producer, byte).unwrap();
    }
    home.store.close(false).unwrap();
    let head = fs::OpenOptions::new().write(true).open(home.path("HEAD")).unwrap();
    head.write_all_at(&2u64.to_le_bytes(), 0).unwrap();
    assert_eq!(late.batch(Step::new(4)).unwrap().step(), Step::new(4));
    assert_eq!(late.info().unwrap().closed, Some(Step::new(5)));
}

/// A doorbell cut short was a SIGBUS.
#[test]
fn a_doorbell_cut_short_harms_nothing() {
    let home = Home::new();
    let mut producer = home.store.producer("a").unwrap();
    let run = home.store.run(Start::Beginning).unwrap();
    let mut consumer = run.consumer(Share::WHOLE).unwrap();
    publish(&mut producer, 0).unwrap();
    assert!(consumer.next_batch().unwrap().is_some());
    fs::write(home.path("HEAD"), b"").unwrap();
    let waited = consumer.next_batch_timeout(Duration::from_millis(1)).unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::Timeout);
    publish(&mut producer, 1).unwrap();
    assert_eq!(consumer.next_batch().unwrap().unwrap().step(), Step::new(1));
}

/// The newest segment, begun and purged, was taken for one that nobody has begun.
#[test]
fn a_purged_newest_segment_is_missing_not_empty() {
    let home = Home::new();
    let mut producer = home.store.producer("a").unwrap();
    for byte in 0..20 {
        publish(&mut producer, byte).unwrap();
    }
    fs::remove_dir_all(home.path("log/000000000001")).unwrap();
    let purged = Store::open(home.path("")).unwrap();
    let error = purged.producer("b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("purged"), "{error}");
    assert!(!home.path("log/000000000001").exists(), "nothing is written over history");
}

/// STORE had its name and no sync when its creator died; who opened it acknowledged parts that a power cut
/// took with it.
#[test]
fn a_store_that_has_acknowledged_survives_its_creator_and_a_power_cut() {
    let path = Path::new("/store");
    let env = || Arc::new(System::new());
    for call in 0.. {
        let disk = Memory::new();
        let creator = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new().stop_at(call)));
        let settings = Settings::new();
        let created = Store::open_or_create_on(path, creator, env(), Options::new(), &settings).is_ok();
        // Whoever finds a store publishes to it.
        let open = || Store::open_on(path, Arc::new(disk.clone()), env(), &settings);
        if let Ok(store) = open() {
            publish(&mut store.producer("a").unwrap(), 7).unwrap();
            disk.power_cut();
            let store = open().unwrap_or_else(|error| panic!("creator stopped at call {call}: {error}"));
            assert_eq!(store.batch(Step::ZERO).unwrap().slice(0).unwrap()[0], 7);
        }
        if created {
            break;
        }
    }
}
