//! P9 by counting: what each operation asks of the filesystem, and the bytes that it moves, at about a
//! thousand versions and at a hundred thousand, at versions equal modulo the segment size.
//!
//! - The first store is past 66 segments, so marks are being pruned already.
//! - Equal means equal: per method, calls and bytes. Only a seek may cost more, by the logarithm of the
//!   segments.
//! - Each measurement begins from a copy of the filesystem, with the same entropy.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::storage::Storage;
use batchweave::{
    ConsumerOptions, Counts, Durability, MountClass, Next, Options, Producer, ReclaimOptions, Run, Settings,
    Share, Start, Step, Store,
};
use batchweave_sim::{Fault, Memory, Method, Plan, Seeded};

const PATH: &str = "/store";
/// The smallest, so that there are most of them.
const SEGMENT: u64 = 16;
/// Where in a segment the newest version is: its ends, where the next one begins, and between.
const SLOTS: [u64; 4] = [0, 1, 7, 15];
/// Longer than any pause between two looks at the log.
const PAUSE: Duration = Duration::from_millis(100);

/// The kinds of mount.
const CLASSES: [MountClass; 2] = [MountClass::Local, MountClass::CloseToOpen];

/// Calls and bytes by method, of those that were called.
type Cost = BTreeMap<String, (u64, u64)>;
/// The same by operation, in order.
type Costs = Vec<(String, Cost)>;

fn open(storage: Arc<dyn Storage>, env: &Arc<Seeded>, class: MountClass) -> Store {
    let settings = Settings::new().mount_class(class);
    Store::open_on(Path::new(PATH), storage, env.clone(), &settings).unwrap()
}

fn publish(producer: &mut Producer) -> u64 {
    let mut draft = producer.draft().unwrap();
    draft.add_slice(b"a slice", Counts { samples: 1, tokens: 2 }).unwrap();
    draft.metadata(b"metadata").unwrap();
    producer.publish_now(draft, b"a state").unwrap().version.get()
}

/// A store that grows, seen at some of its lengths.
struct Growing {
    disk: Memory,
    producer: Producer,
    newest: u64,
}

impl Growing {
    fn new(durability: Durability) -> Self {
        let disk = Memory::new();
        let options = Options::new().segment_size(SEGMENT as u32).durability(durability);
        let env = Arc::new(Seeded::new(1));
        let (storage, settings) = (Arc::new(disk.clone()), Settings::new());
        let store = Store::open_or_create_on(Path::new(PATH), storage, env, options, &settings).unwrap();
        Self { disk, producer: store.producer("writer").unwrap(), newest: 0 }
    }

    /// What everything costs with the newest version in each of the slots of a segment, for each class.
    fn costs(&mut self, segment: u64) -> Vec<Costs> {
        let mut costs = Vec::new();
        for slot in SLOTS {
            while self.newest < segment * SEGMENT + slot {
                self.newest = publish(&mut self.producer);
                // Keeps what is remembered of the unsynced from growing, which is no cost of the engine.
                if self.newest.is_multiple_of(1000) {
                    self.disk.write_back();
                }
            }
            costs.extend(CLASSES.map(|class| costs_of(&self.disk.fork(), class)));
        }
        CLASSES.into_iter().for_each(|class| check_seeks(&self.disk, class));
        costs
    }
}

/// Names what is done, and counts it.
struct Meter {
    process: Arc<Fault>,
    costs: Costs,
}

impl Meter {
    fn new(disk: &Memory) -> Self {
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        Self { process, costs: Vec::new() }
    }

    fn so_far(&self) -> impl Iterator<Item = (Method, (u64, u64))> {
        Method::ALL.iter().map(|method| (*method, (self.process.count(*method), self.process.bytes(*method))))
    }

    fn of<T>(&mut self, name: &str, act: impl FnOnce() -> T) -> T {
        let before: Vec<_> = self.so_far().collect();
        let result = act();
        let both = self.so_far().zip(before);
        let spent =
            both.map(|((method, now), (_, then))| (method.to_string(), (now.0 - then.0, now.1 - then.1)));
        let cost = spent.filter(|(_, (calls, _))| *calls > 0).collect();
        self.costs.push((name.to_owned(), cost));
        result
    }
}

/// What everything costs whose cost may not depend on the log's length.
fn costs_of(disk: &Memory, class: MountClass) -> Costs {
    let mut meter = Meter::new(disk);
    let env = Arc::new(Seeded::new(2));
    let storage = meter.process.clone();
    let store = meter.of("opening", || open(storage, &env, class));
    let next = meter.of("info", || store.info().unwrap()).next_step;
    meter.of("listing producers", || store.producers().unwrap());
    meter.of("the newest step", || read(&store, Step::new(next.get() - 1)));
    let run = meter.of("a run at the head", || store.run(next).unwrap());
    // Alone, so that no thread of its own looks when it likes.
    let options = ConsumerOptions::new().window_steps(0);
    let mut consumer = meter.of("a consumer", || run.consumer_with(Share::WHOLE, options).unwrap());
    let mut producer = meter.of("a producer", || store.producer("another").unwrap());
    // One whole segment and more: each is published, waited for and read, the ones across a boundary too.
    for number in 0..SEGMENT + 2 {
        env.advance(PAUSE);
        let idle = meter.of(&format!("idle poll {number}"), || consumer.try_next().unwrap());
        assert!(matches!(idle, Next::Pending));
        meter.of(&format!("publish {number}"), || publish(&mut producer));
        env.advance(PAUSE);
        meter.of(&format!("reading step {number}"), || match consumer.try_next().unwrap() {
            Next::Batch(batch) => drop(batch.slice(0).unwrap()),
            other => panic!("{other:?}"),
        });
    }
    meter.costs
}

fn read(store: &Store, step: Step) {
    store.batch(step).unwrap().slice(0).unwrap();
}

/// A seek may open as many indexes as a search from the end backwards, and then by bisection, needs: two more
/// whenever the step is twice as far from the end.
fn check_seeks(disk: &Memory, class: MountClass) {
    let head = open(Arc::new(disk.clone()), &Arc::new(Seeded::new(3)), class).info().unwrap().next_step.get();
    for step in [0, 1, head / 7, head / 3, head / 2, head - 3 * SEGMENT] {
        let segments = (head - step) / SEGMENT + 1;
        let most = 2 * u64::from(segments.ilog2()) + 1;
        let mut meter = Meter::new(disk);
        let store = open(meter.process.clone(), &Arc::new(Seeded::new(3)), class);
        store.info().unwrap();
        meter.of("a seek", || read(&store, Step::new(step)));
        let opened = meter.costs[0].1["open"].0;
        // Besides the commit itself, and looks at the head and its marks.
        assert!(opened <= most + 4, "{opened} files opened to find step {step} in {segments} segments");
    }
}

/// A store that lives: in each segment a group checkpoints, and a reclaim frees what that leaves behind.
struct Living {
    disk: Memory,
    store: Store,
    producer: Producer,
    run: Run,
    cycles: u64,
}

/// Of a segment's versions, one each is a Checkpoint, a Drop and a Floor; all others are parts.
const PARTS_OF_CYCLE: u64 = SEGMENT - 3;

impl Living {
    fn new() -> Self {
        let disk = Memory::new();
        let options = Options::new().segment_size(SEGMENT as u32).durability(Durability::Unsynced);
        let env = Arc::new(Seeded::new(1));
        let (storage, settings) = (Arc::new(disk.clone()), Settings::new());
        let store = Store::open_or_create_on(Path::new(PATH), storage, env, options, &settings).unwrap();
        let producer = store.producer("writer").unwrap();
        let run = store.group("train").unwrap().begin(Start::Beginning).unwrap();
        checkpoint(&store, &run);
        Self { disk, store, producer, run, cycles: 0 }
    }

    fn grow(&mut self, cycles: u64) {
        while self.cycles < cycles {
            for _ in 0..PARTS_OF_CYCLE {
                publish(&mut self.producer);
            }
            checkpoint(&self.store, &self.run);
            let freed = self.store.reclaim(&ReclaimOptions::new().keep(1)).unwrap();
            assert_eq!((freed.dropped.len(), freed.floor), (1, freed.held_by.step), "one a cycle");
            self.cycles += 1;
            if self.cycles.is_multiple_of(100) {
                self.disk.write_back();
            }
        }
    }

    /// What the lifecycle costs after so many cycles, with the newest version in each of the slots.
    fn costs(&mut self, cycles: u64) -> Vec<Costs> {
        self.grow(cycles);
        let cases = SLOTS.iter().flat_map(|slot| CLASSES.map(|class| (*slot, class)));
        cases.map(|(slot, class)| costs_of_life(&self.disk.fork(), slot, class)).collect()
    }
}

/// At the head, by a name of one length.
fn checkpoint(store: &Store, run: &Run) {
    let head = store.info().unwrap().next_step;
    let name = format!("{:010}", head.get());
    run.checkpoint(store.position(head).unwrap(), &name).unwrap();
}

fn costs_of_life(disk: &Memory, slot: u64, class: MountClass) -> Costs {
    let mut meter = Meter::new(disk);
    let env = Arc::new(Seeded::new(2));
    let storage = meter.process.clone();
    let store = meter.of("opening", || open(storage, &env, class));
    let mut producer = meter.of("a producer", || store.producer("writer").unwrap());
    for _ in 0..=slot {
        publish(&mut producer);
    }
    meter.of("the first retained step", || read(&store, store.info().unwrap().floor));
    let group = store.group("train").unwrap();
    let run = meter.of("beginning a group's run", || group.begin(Start::Beginning).unwrap());
    let snapshot = run.snapshot();
    let joining = open(meter.process.clone(), &env, class);
    meter.of("joining it", || joining.join(&snapshot).unwrap());
    for number in 0..2 {
        for _ in 0..SEGMENT {
            publish(&mut producer);
        }
        meter.of(&format!("checkpoint {number}"), || checkpoint(&store, &run));
        let reclaimed =
            meter.of(&format!("reclaim {number}"), || store.reclaim(&ReclaimOptions::new().keep(1)).unwrap());
        assert!(reclaimed.segments.count > 0 || number == 0, "it has something to free: {reclaimed}");
        meter.of(&format!("a reclaim of nothing {number}"), || {
            store.reclaim(&ReclaimOptions::new().keep(1)).unwrap()
        });
    }
    meter.costs
}

#[test]
fn costs_of_groups_checkpoints_and_reclaim_do_not_grow() {
    check_life(100_000 / SEGMENT);
}

/// Ten times as long as the one above: two minutes even optimised, too long for every `cargo test`. `.ci/run`
/// asks for it by `--ignored`, in release.
#[test]
#[ignore = "takes an optimised build"]
fn costs_at_a_million_versions_are_those_at_a_thousand() {
    check_life(1_000_000 / SEGMENT);
}

/// Holds a store of `last` segments, most of them reclaimed, against itself when it had 67.
fn check_life(last: u64) {
    let mut store = Living::new();
    let (short, long) = (store.costs(67), store.costs(last));
    for (short, long) in short.iter().zip(&long) {
        for ((name, short), (_, long)) in short.iter().zip(long) {
            assert_eq!(short, long, "{name} costs more in a longer log");
        }
    }
}

/// Holds a store of `last` segments against itself when it had 67.
fn check(durability: Durability, last: u64) {
    let mut store = Growing::new(durability);
    let (short, long) = (store.costs(67), store.costs(last));
    let cases = SLOTS.iter().flat_map(|slot| CLASSES.map(|class| (slot, class)));
    for (case, (short, long)) in cases.zip(short.iter().zip(&long)) {
        for ((name, short), (_, long)) in short.iter().zip(long) {
            assert_eq!(short, long, "{name} costs more in a longer log (slot, class: {case:?})");
        }
    }
}

#[test]
fn costs_at_a_hundred_thousand_versions_are_those_at_a_thousand() {
    check(Durability::Unsynced, 100_000 / SEGMENT);
}

#[test]
fn costs_of_a_synced_store_do_not_grow_either() {
    check(Durability::Synced, 5 * 67);
}
