//! A step read by the thread that reads ahead and by its consumer, each made to do its share.
//!
//! The method: a judge of storage calls keeps the thread in its first run of a step until the consumer has
//! read some of that step too, so that it is known who reads what; then the consumer's own reads go wrong.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use batchweave::env::System;
use batchweave::{Consumer, Counts, ErrorKind, ReadMode, Settings, Share, Start, Store};
use batchweave_sim::{Call, Failure, Fate, Fault, Judge, Memory, Method};
use parking_lot::{Condvar, Mutex};

use crate::bytes_of;
use crate::support::{PATH, options};

const STEPS: u64 = 3;
const SLICES: u64 = 6;
const SLICE_BYTES: usize = 1 << 20;
/// The header, the table, and one piece of the first run: from then on the thread waits.
const READS_ALONE: u64 = 3;
/// Whoever waits this long is alone.
const PATIENCE: Duration = Duration::from_secs(20);

/// What goes wrong with a run in the consumer's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    Fails,
    Panics,
}

#[derive(Debug, Default)]
struct Reads {
    thread: u64,
    consumer: u64,
}

/// Makes the two read each step together.
struct Pair {
    of: Mutex<BTreeMap<String, Reads>>,
    changed: Condvar,
    /// The consumer didn't come once, and isn't waited for again.
    alone: AtomicBool,
    trouble: Mutex<Trouble>,
}

impl Pair {
    fn new() -> Arc<Self> {
        let trouble = Mutex::new(Trouble::None);
        let alone = AtomicBool::new(false);
        Arc::new(Self { of: Mutex::default(), changed: Condvar::new(), alone, trouble })
    }

    /// How many steps both have read of.
    fn shared(&self) -> usize {
        let shared = |reads: &&Reads| reads.thread > READS_ALONE && reads.consumer > 0;
        self.of.lock().values().filter(shared).count()
    }
}

impl Judge for Pair {
    fn before(&self, method: Method, on: &str) -> Fate {
        if method != Method::ReadAt || !on.contains("log/") {
            return Fate::default();
        }
        let mut of = self.of.lock();
        let reads = of.entry(on.to_owned()).or_default();
        if std::thread::current().name() == Some("batchweave-prefetch") {
            reads.thread += 1;
            let lacks_company = |of: &mut BTreeMap<String, Reads>| {
                of.get(on).is_some_and(|reads| reads.consumer == 0 && reads.thread > READS_ALONE)
            };
            if !self.alone.load(Ordering::Relaxed) {
                let waited = self.changed.wait_while_for(&mut of, lacks_company, PATIENCE);
                self.alone.store(waited.timed_out(), Ordering::Relaxed);
            }
            return Fate::default();
        }
        reads.consumer += 1;
        let helps = reads.thread > READS_ALONE;
        self.changed.notify_all();
        drop(of);
        if !helps {
            return Fate::default();
        }
        match std::mem::replace(&mut *self.trouble.lock(), Trouble::None) {
            Trouble::None => Fate::default(),
            Trouble::Fails => Fate::fails(Failure::Before(5)),
            Trouble::Panics => panic!("the consumer's read panics"),
        }
    }

    fn after(&self, _call: Call) {}
}

fn slice(step: u64, number: u64) -> Vec<u8> {
    let mut bytes = vec![(step * 16 + number) as u8; SLICE_BYTES];
    bytes[..8].copy_from_slice(&(step << 32 | number).to_le_bytes());
    bytes
}

fn expected(step: u64) -> Vec<Vec<u8>> {
    (0..SLICES).map(|number| slice(step, number)).collect()
}

/// A consumer of a few large steps, through the judge.
fn consumer_of(pair: &Arc<Pair>) -> Consumer {
    let disk = Memory::new();
    let writer = crate::support::create(Arc::new(disk.clone()), 1, options(), &Settings::new()).unwrap();
    let mut producer = writer.producer("a").unwrap();
    for step in 0..STEPS {
        let mut draft = producer.draft().unwrap();
        for bytes in expected(step) {
            draft.add_slice(&bytes, Counts::default()).unwrap();
        }
        producer.publish_now(draft, "").unwrap();
    }
    let judge = Arc::clone(pair) as _;
    let storage = Fault::new(Arc::new(disk), batchweave_sim::Plan::new()).judged_by(judge);
    let settings = Settings::new().read_mode(ReadMode::Copy).io_patience(Duration::ZERO);
    let env = Arc::new(System::new());
    let store = Store::open_on(Path::new(PATH), Arc::new(storage), env, &settings).unwrap();
    let consumer = store.run(Start::Beginning).unwrap().consumer(Share::WHOLE).unwrap();
    pair.of.lock().clear();
    consumer
}

/// On a busy machine the thread may come late to every step, which the consumer then reads alone: again,
/// until the two have met.
fn until_they_meet(once: impl Fn() -> bool) {
    assert!((0..100).any(|_| once()), "the two never read a step together");
}

#[test]
fn a_consumer_that_would_wait_reads_with_the_thread() {
    until_they_meet(|| {
        let pair = Pair::new();
        let mut consumer = consumer_of(&pair);
        for step in 0..STEPS {
            let batch = consumer.next_batch().unwrap().unwrap();
            assert_eq!(bytes_of(&batch), expected(step));
        }
        pair.shared() > 0
    });
}

#[test]
fn what_a_helper_cannot_read_is_an_error_at_its_turn_and_had_at_the_next() {
    until_they_meet(|| {
        let pair = Pair::new();
        let mut consumer = consumer_of(&pair);
        *pair.trouble.lock() = Trouble::Fails;
        let mut errors = 0;
        for step in 0..STEPS {
            let batch = consumer.next_batch().or_else(|error| {
                assert_eq!((error.kind(), consumer.position().step.get()), (ErrorKind::Io, step), "{error}");
                errors += 1;
                consumer.next_batch()
            });
            assert_eq!(bytes_of(&batch.unwrap().unwrap()), expected(step));
        }
        let failed = *pair.trouble.lock() == Trouble::None;
        assert_eq!(errors, u32::from(failed), "{:?}", pair.of.lock());
        failed
    });
}

#[test]
fn a_helper_that_panics_leaves_its_run_to_the_thread() {
    until_they_meet(|| {
        let pair = Pair::new();
        let mut consumer = consumer_of(&pair);
        *pair.trouble.lock() = Trouble::Panics;
        let mut panics = 0;
        for step in 0..STEPS {
            let batch = catch_unwind(AssertUnwindSafe(|| consumer.next_batch())).unwrap_or_else(|_| {
                panics += 1;
                consumer.next_batch()
            });
            assert_eq!(bytes_of(&batch.unwrap().unwrap()), expected(step));
        }
        let panicked = *pair.trouble.lock() == Trouble::None;
        assert_eq!(panics, u32::from(panicked), "{:?}", pair.of.lock());
        panicked
    });
}
