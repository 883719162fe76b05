//! Changes of history: rewinds and skips, and everything that must not go on as if steps only grew. A plain
//! list of parts is the truth: a rewind cuts it, and whatever anybody reads is held against it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::format::commit::{Draft, People, seal};
use batchweave::format::names;
use batchweave::format::part::{PartDescriptor, align};
use batchweave::format::record::{Parts, Record};
use batchweave::log::read;
use batchweave::storage::{Storage, read_exact_at, write_all_at};
use batchweave::{ErrorKind, Nonce, Producer, RewindOptions, Settings, Step, Store};
use batchweave_sim::{Memory, Seeded};

use crate::support::*;

/// A store whose history is changed, and the truth.
pub(crate) struct World {
    pub(crate) disk: Memory,
    seed: u64,
    /// Parts in a step.
    m: usize,
    /// Whose parts are visible, in order.
    pub(crate) truth: Vec<(String, u64)>,
    /// Who had finished right before each part came in.
    before: Vec<BTreeMap<String, bool>>,
    finished: BTreeMap<String, bool>,
    producers: BTreeMap<String, Producer>,
    /// A handle that reads all along.
    old: (Store, Arc<Seeded>),
    pub(crate) store: Store,
}

impl World {
    pub(crate) fn new(m: u32) -> Self {
        let disk = Memory::new();
        let options = options().parts_per_step(m);
        let store = create(Arc::new(disk.clone()), 1, options, &Settings::new()).unwrap();
        let env = Arc::new(Seeded::new(2));
        let old = open_in(Arc::new(disk.clone()), &env, &Settings::new()).unwrap();
        Self {
            disk,
            seed: 10,
            m: m as usize,
            truth: Vec::new(),
            before: Vec::new(),
            finished: BTreeMap::new(),
            producers: BTreeMap::new(),
            old: (old, env),
            store,
        }
    }

    fn fresh(&mut self) -> Store {
        self.seed += 1;
        open(self.disk.clone(), self.seed).unwrap()
    }

    fn came_in(&mut self, name: &str, sequence: u64) {
        self.before.push(self.finished.clone());
        self.truth.push((name.to_owned(), sequence));
    }

    /// Publishes a part of a name, which is opened if need be and then has to go on exactly (P3).
    pub(crate) fn publish(&mut self, name: &str) {
        let (store, truth) = (&self.store, &self.truth);
        let producer = self.producers.entry(name.to_owned()).or_insert_with(|| reopen(store, name, truth));
        self.finished.insert(name.to_owned(), false);
        let published = publish(producer).unwrap();
        assert_eq!(published.part.get(), self.truth.len() as u64, "part numbers are dense");
        self.came_in(name, published.sequence.get());
    }

    /// Publishes by "a" and "b", not quite in turns.
    pub(crate) fn publish_steps(&mut self, steps: usize) {
        for number in 0..steps * self.m {
            self.publish(if number % 3 == 1 { "b" } else { "a" });
        }
    }

    /// Several parts of "a" in one commit, as a grouping writer makes it.
    fn publish_group(&mut self, count: u64) {
        while self.store.info().unwrap().head_version.unwrap().next().slot(16) == 0 {
            self.publish("a");
        }
        self.publish("a");
        self.seed += 1;
        let (version, bytes) = grouped(&self.disk, self.seed, count);
        let segment = format!("{PATH}/log/{}", names::segment(version.segment(16)));
        let dir = self.disk.open_root(Path::new(&segment)).unwrap();
        let file = self.disk.create_exclusive(&dir, &names::version(version)).unwrap();
        write_all_at(&self.disk, &file, &bytes, 0).unwrap();
        let first = self.truth.iter().filter(|(name, _)| name == "a").count() as u64;
        (first..first + count).for_each(|sequence| self.came_in("a", sequence));
        // The open producer doesn't know of it.
        self.producers.remove("a");
    }

    fn finish(&mut self, name: &str) {
        if let Some(producer) = self.producers.remove(name) {
            producer.finish().unwrap();
            self.finished.insert(name.to_owned(), true);
        }
    }

    pub(crate) fn rewind(&mut self, step: u64) {
        let options = RewindOptions::new();
        let would = self.fresh().preview_rewind(Step::new(step), options).unwrap();
        let did = self.store.rewind(Step::new(step), options).unwrap();
        assert_eq!(would, did, "a preview says what happens");
        let kept = step as usize * self.m;
        assert_eq!(did.parts, (self.truth.len() - kept) as u64);
        for set_back in &did.producers {
            let name = set_back.producer.as_str();
            let count = |parts: &[(String, u64)]| parts.iter().filter(|(who, _)| who == name).count() as u64;
            assert_eq!(set_back.sequence.get(), count(&self.truth[..kept]));
            assert_eq!(set_back.parts, count(&self.truth[kept..]));
        }
        self.truth.truncate(kept);
        if let Some(then) = self.before.get(kept) {
            self.finished.iter_mut().for_each(|(name, now)| *now = then.get(name) == Some(&true));
        }
        self.before.truncate(kept);
        for mut producer in std::mem::take(&mut self.producers).into_values() {
            let error = publish(&mut producer).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
            // It may have been retired as of that step.
            let why = error.to_string();
            assert!(why.contains("set back by a rewind") || why.contains("was retired"), "{error}");
        }
    }

    /// Everybody reads the truth.
    pub(crate) fn check(&mut self) {
        let fresh = self.fresh();
        let report = fresh.verify(|_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(check_replay(&fresh).parts(), self.truth);
        let steps = self.truth.len() / self.m;
        assert_eq!(fresh.info().unwrap().next_step.get(), steps as u64);
        assert_eq!(read_all(&fresh), self.truth[..steps * self.m]);
        self.old.1.advance(Duration::from_secs(2));
        let backwards = self.fresh();
        for step in 0..steps as u64 {
            self.check_step(&self.old.0, step);
            self.check_step(&self.store, step);
            self.check_step(&backwards, steps as u64 - 1 - step);
        }
        for beyond in [steps as u64, steps as u64 + 3] {
            let error = self.old.0.batch(Step::new(beyond)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        for one in self.old.0.producers().unwrap() {
            let name = one.name.as_str();
            let count = self.truth.iter().filter(|(who, _)| who == name).count() as u64;
            assert_eq!(one.sequence.get(), count, "{name}");
            let expected = count.checked_sub(1).map(|last| state(name, last)).unwrap_or_default();
            assert_eq!(one.state, expected.as_bytes(), "{name}");
            assert_eq!(Some(&one.finished), self.finished.get(name), "{name}");
        }
    }

    fn check_step(&self, store: &Store, step: u64) {
        let batch = store.batch(Step::new(step)).unwrap();
        let found: Vec<_> = batch.slices().map(|slice| parse(&slice.unwrap())).collect();
        let first = step as usize * self.m;
        assert_eq!(found, self.truth[first..first + self.m], "step {step}");
    }
}

/// The commit that comes next, with `count` parts of "a" at once: made of what a fork publishes one by one.
fn grouped(disk: &Memory, seed: u64, count: u64) -> (batchweave::Version, Vec<u8>) {
    let store = open(disk.clone(), seed).unwrap();
    let tail = store.inner().current().unwrap();
    let (version, generation) = (tail.state.next_version, tail.state.generation);
    let known = tail.state.producers.iter().find(|(name, _)| name.as_str() == "a").unwrap();
    let (name, incarnation, first) = (known.0.clone(), known.1.incarnation.unwrap(), known.1.next);
    drop(tail);
    let fork = disk.fork();
    let elsewhere = open(fork.clone(), seed + 1_000_000).unwrap();
    let mut producer = elsewhere.producer("a").unwrap();
    let (mut parts, mut bytes): (Vec<PartDescriptor>, Vec<u8>) = (Vec::new(), vec![0; 4096]);
    for _ in 0..count {
        let published = publish(&mut producer).unwrap();
        let file = elsewhere.inner().open_behind(published.version).unwrap();
        let read = read::commit(elsewhere.inner(), &file, published.version).unwrap();
        let Some(Record::Parts(one)) = read.record else { panic!("no parts") };
        let mut part = one.parts[0];
        let mut copied = vec![0; (part.layout().unwrap().end - part.place) as usize];
        read_exact_at(&fork, &file, &mut copied, part.place).unwrap();
        part.place = align(bytes.len() as u64, 4096).unwrap();
        bytes.resize(part.place as usize, 0);
        bytes.extend(copied);
        parts.push(part);
    }
    let draft = Draft {
        store: store.uuid(),
        nonce: Nonce::new(u128::from(seed).to_le_bytes()),
        generation,
        seen: None,
        attempt_us: 0,
        people: People::default(),
    };
    let sealed = seal(draft, &Record::Parts(Parts { producer: name, incarnation, first, parts })).unwrap();
    assert!(sealed.elsewhere.is_none());
    bytes[..4096].copy_from_slice(sealed.block.as_slice());
    (version, bytes)
}

/// Publishes and rewinds in turns; everybody reads the truth after each.
fn rewinds(m: u32, script: &[(usize, u64)]) {
    let mut world = World::new(m);
    for (steps, to) in script {
        world.publish_steps(*steps);
        world.check();
        world.rewind(*to);
        world.check();
    }
    // Over the next boundaries, with what the last rewind has left.
    world.publish_steps(20);
    world.check();
    world.publish_steps(20);
    world.check();
}

#[test]
fn rewinds_in_a_segment_over_one_and_over_three() {
    for m in [1, 2] {
        for (steps, to) in [(6, 4), (20, 5), (20, 13), (20, 14), (20, 15), (60, 3), (60, 31), (31, 30)] {
            rewinds(m, &[(steps, to)]);
        }
    }
}

#[test]
fn rewinds_to_the_beginning_and_to_the_head() {
    for m in [1, 2] {
        rewinds(m, &[(0, 0)]);
        rewinds(m, &[(7, 0), (7, 0)]);
        rewinds(m, &[(40, 0), (40, 0)]);
        rewinds(m, &[(7, 7), (30, 37)]);
    }
}

#[test]
fn rewinds_twice_and_more_in_a_row() {
    for m in [1, 2] {
        rewinds(m, &[(40, 20), (0, 20), (0, 10), (0, 3)]);
        rewinds(m, &[(40, 20), (10, 25), (5, 10), (30, 12)]);
        // Up again above where an older rewind went.
        rewinds(m, &[(30, 5), (30, 25), (30, 28), (1, 27), (40, 6)]);
    }
}

#[test]
fn rewinds_into_a_commit_of_several_parts() {
    for (m, count) in [(2, 4), (2, 5), (3, 7)] {
        for back in 0..3 {
            for after in [0, 40] {
                let mut world = World::new(m);
                world.publish_steps(3);
                world.publish_group(count);
                world.publish_steps(after);
                world.check();
                // Steps that begin in the middle of it, at its end, and before it.
                let step = (3 * u64::from(m) + 1 + count) / u64::from(m) - back;
                world.rewind(step);
                world.check();
                world.publish_steps(10);
                world.check();
            }
        }
    }
}

#[test]
fn rewinds_that_nobody_has_chosen() {
    // What a seed draws: parts of three names, retirements, opened anew, rewinds near and far.
    for seed in 1..=12u64 {
        let mut drawn = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut draw = |below: u64| {
            drawn ^= drawn << 13;
            drawn ^= drawn >> 7;
            drawn ^= drawn << 17;
            (drawn >> 20) % below
        };
        let mut world = World::new(1 + (seed % 3) as u32);
        for round in 0..60 {
            let name = ["a", "b", "c"][draw(3) as usize];
            match draw(12) {
                0 => world.finish(name),
                1 => drop(world.producers.remove(name)),
                2 => {
                    let steps = (world.truth.len() / world.m) as u64;
                    let step = if draw(3) == 0 { draw(steps + 1) } else { steps - draw(steps + 1).min(3) };
                    world.rewind(step);
                }
                _ => (0..draw(6)).for_each(|_| world.publish(name)),
            }
            if round % 10 == 9 {
                world.check();
            }
        }
    }
}
