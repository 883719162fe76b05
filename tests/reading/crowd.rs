//! Many readers of one store, and many slices held: what they cost a metadata server and a process.
//!
//! - Descriptors are a process's own, so what counts them runs in one of its own.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::env::{Env, Signal, Task, Who};
use batchweave::{Batch, ConsumerOptions, ReadMode, Share, Step, Store};
use batchweave_sim::{Memory, Seeded};
use parking_lot::Mutex;

use crate::support::{PATH, create, options, publish};
use crate::{Home, MODES, add, consumer, is_alone, next, quiet, remote, unsynced};

/// An hour's trainers.
const CROWD: u64 = 512;

/// A seeded clock that notes when a sleep ended: in a wait, that is when its handle looks.
#[derive(Debug)]
struct Diary {
    env: Seeded,
    woken: Mutex<Vec<Duration>>,
}

impl Env for Diary {
    fn now(&self) -> Duration {
        self.env.now()
    }

    fn wall_us(&self) -> u64 {
        self.env.wall_us()
    }

    fn who(&self) -> Who {
        self.env.who()
    }

    fn entropy(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.env.entropy(bytes)
    }

    fn sleep(&self, duration: Duration) {
        self.env.sleep(duration);
        self.woken.lock().push(self.env.now());
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Task>> {
        self.env.spawn(name, body)
    }

    fn signal(&self) -> Arc<dyn Signal> {
        self.env.signal()
    }
}

/// Of one that looks every 2 s at most, and seldom sooner.
const PROBES_A_SECOND: f64 = 0.6;

#[test]
fn an_idle_consumer_probes_less_than_0_6_times_a_second() {
    for depth in [0, 4] {
        let env = Arc::new(Seeded::new(1));
        let disk = Arc::new(Memory::new());
        let store = Store::open_or_create_on(Path::new(PATH), disk, env, options(), &remote()).unwrap();
        publish(&mut store.producer("a").unwrap()).unwrap();
        let run = store.run(Step::new(1)).unwrap();
        let options = ConsumerOptions::new().window_steps(depth);
        let mut consumer = run.consumer_with(Share::WHOLE, options).unwrap();
        consumer.next_batch_timeout(Duration::from_secs(60)).unwrap_err();
        let before = store.stats().calls;
        consumer.next_batch_timeout(Duration::from_secs(3600)).unwrap_err();
        let calls = store.stats().calls.since(&before);
        // A probe opens the segment's directory anew, and then the name; the marks are listed now and then.
        let bound = 3600.0 * PROBES_A_SECOND;
        assert!((calls.open_dir as f64) < bound, "{} probes in an hour", calls.open_dir);
        assert!(calls.metadata() - calls.list < 2 * calls.open_dir + 1, "{calls:?}");
        assert!(calls.list < calls.open_dir / 8, "{calls:?}");
    }
}

#[test]
fn a_crowd_that_begins_to_wait_in_one_instant_is_spread_and_each_keeps_to_its_probes() {
    let disk = Memory::new();
    let writer = create(Arc::new(disk.clone()), 1, options(), &remote()).unwrap();
    publish(&mut writer.producer("a").unwrap()).unwrap();
    // Looks are closer together at first, and in step.
    let (first, settled, waited) =
        (Duration::from_secs(60), Duration::from_secs(300), Duration::from_secs(600));
    let mut looks = Vec::new();
    for number in 0..CROWD {
        let env = Arc::new(Diary { env: Seeded::new(number), woken: Mutex::default() });
        let storage = Arc::new(disk.clone());
        let store = Store::open_on(Path::new(PATH), storage, env.clone(), &remote()).unwrap();
        let mut consumer = store.run(Step::new(1)).unwrap().consumer_with(Share::WHOLE, quiet()).unwrap();
        let began = env.now();
        consumer.next_batch_timeout(waited).unwrap_err();
        let own: Vec<Duration> = env.woken.lock().iter().map(|at| at.saturating_sub(began)).collect();
        let probes = own.iter().filter(|at| **at >= first).count() as f64;
        assert!(probes < (waited - first).as_secs_f64() * PROBES_A_SECOND, "{number}: {probes} probes");
        looks.extend(own);
    }
    looks.retain(|at| (settled..waited).contains(at));
    let mean = looks.len() as f64 / (10.0 * (waited - settled).as_secs_f64());
    assert!(10.0 * mean < CROWD as f64 * PROBES_A_SECOND, "{mean} looks in a tenth of a second");
    let mut tenths = std::collections::BTreeMap::new();
    looks.iter().for_each(|at| *tenths.entry(at.as_millis() / 100).or_insert(0u32) += 1);
    let most = tenths.values().copied().max().unwrap_or_default();
    assert!(f64::from(most) < 3.0 * mean, "{most} looks in one tenth of a second, {mean} on average");
}

#[test]
fn ten_thousand_held_slices_need_few_descriptors() {
    // It lowers the limit of its process.
    if !is_alone("crowd::ten_thousand_held_slices_need_few_descriptors") {
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: hard }).unwrap();
    let home = Home::new(unsynced());
    let mut producer = home.open(ReadMode::Map).producer("a").unwrap();
    let slice = |number: usize| number.to_le_bytes().to_vec();
    for commit in 0..1000 {
        add(&mut producer, &(0..10).map(|index| slice(10 * commit + index)).collect::<Vec<_>>());
    }
    for mode in MODES {
        let store = home.open(mode);
        let mut consumer = consumer(&store, Share::WHOLE);
        let batches: Vec<Batch> = (0..1000).map(|_| next(&mut consumer)).collect();
        let held: Vec<_> = batches.iter().flat_map(Batch::slices).map(|slice| slice.unwrap()).collect();
        assert_eq!(held.len(), 10_000);
        for (number, held) in held.iter().enumerate() {
            assert_eq!(held[..], slice(number));
        }
    }
}

/// Readers, each with a handle of its own, as ranks have it.
const READERS: usize = 256;
/// Of a handle, whatever it has read: the root, directories, the doorbell; the commits that were read last,
/// where they aren't mapped.
const DESCRIPTORS_EACH: [(ReadMode, usize); 2] = [(ReadMode::Map, 7), (ReadMode::Copy, 20)];

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn two_hundred_and_fifty_six_readers_cost_few_descriptors_and_calls_each() {
    // Other tests open files too.
    if !is_alone("crowd::two_hundred_and_fifty_six_readers_cost_few_descriptors_and_calls_each") {
        return;
    }
    let home = Home::new(unsynced());
    let mut producer = home.open(ReadMode::Map).producer("a").unwrap();
    let steps = 64;
    let mut publish =
        |from: usize| (from..from + steps).for_each(|step| add(&mut producer, &[vec![step as u8; 5000]]));
    publish(0);
    for (mode, most) in DESCRIPTORS_EACH {
        let before = descriptors();
        let mut readers: Vec<_> = (0..READERS)
            .map(|_| {
                let store = home.open(mode);
                let consumer = consumer(&store, Share::WHOLE);
                (store, consumer)
            })
            .collect();
        let mut each = Vec::new();
        for round in 0..2 {
            let calls: Vec<u64> = readers.iter().map(|(store, _)| store.stats().metadata_calls).collect();
            for step in 0..steps {
                for (_, consumer) in &mut readers {
                    assert_eq!(
                        next(consumer).slice(0).unwrap()[..],
                        vec![(round * steps + step) as u8; 5000]
                    );
                }
            }
            for ((store, _), before) in readers.iter().zip(calls) {
                let calls = store.stats().metadata_calls - before;
                assert!(calls <= 3 * steps as u64, "{mode:?}: {calls} metadata calls for {steps} steps");
            }
            each.push((descriptors() - before) as f64 / READERS as f64);
            publish((round + 1) * steps);
        }
        assert!(each.iter().all(|each| *each <= most as f64), "{mode:?}: {each:?} descriptors");
    }
}
