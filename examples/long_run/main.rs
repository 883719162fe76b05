//! A run of a million steps in one process: what it takes of memory and disk stays as it was after a
//! thousand, and no operation asks more of the filesystem.
//!
//!     cargo run --release --example long_run -- [--steps N] [--slice-bytes N] [DIRECTORY]
//!
//! Each cycle is one segment of 16 versions: 13 steps that are published and delivered, a checkpoint, and a
//! reclaim that keeps two checkpoints, which writes a Drop and a Floor. So versions are equal modulo the
//! segment size whenever a cycle ends, and what is counted then has to be equal: calls by kind, not times,
//! which are printed beside.

#![expect(clippy::disallowed_methods, reason = "an application, not the engine: the clock is its own")]

mod measure;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use batchweave::{
    Consumer, ConsumerOptions, Counts, Durability, Next, Options, Producer, ReclaimOptions, Run, Share,
    Start, Store,
};
use measure::{Measured, Meter};

/// The smallest segments, so that there are most of them.
const SEGMENT: u32 = 16;
/// Control records of a cycle: a Checkpoint, a Drop, a Floor.
const CONTROL: u64 = 3;
const STEPS_PER_CYCLE: u64 = SEGMENT as u64 - CONTROL;
/// Past 66 segments marks are being pruned, and a cycle is like the next.
const FIRST_CYCLES: u64 = 80;

type Failure = Box<dyn Error>;

/// Everything that one process does with a store.
struct Job {
    root: PathBuf,
    store: Store,
    producer: Producer,
    run: Run,
    consumer: Consumer,
    slice_bytes: usize,
    cycles: u64,
    control_seen: Vec<String>,
}

impl Job {
    fn new(root: &Path, slice_bytes: usize) -> Result<Self, Failure> {
        let options = Options::new().segment_size(SEGMENT).durability(Durability::Unsynced);
        let store = Store::open_or_create(root, options)?;
        let producer = store.producer("tok-000")?;
        let run = store.group("long-run")?.begin(Start::Beginning)?;
        // Alone, so that no thread of its own looks when it likes.
        let consumer = run.consumer_with(Share::WHOLE, ConsumerOptions::new().window_steps(0))?;
        let (root, control_seen) = (root.to_path_buf(), Vec::new());
        Ok(Self { root, store, producer, run, consumer, slice_bytes, cycles: 0, control_seen })
    }

    fn steps(&self) -> u64 {
        self.cycles * STEPS_PER_CYCLE
    }

    fn publish(&mut self) -> Result<(), Failure> {
        let step = self.producer.next_sequence().get();
        let mut draft = self.producer.draft()?;
        let slice = vec![step as u8; self.slice_bytes];
        draft.add_slice(&slice, Counts { samples: 1, tokens: slice.len() as u64 })?;
        self.producer.publish_now(draft, format!("{:020}", step + 1))?;
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), Failure> {
        let expected = self.consumer.position().step;
        let batch = self.consumer.next_batch_timeout(Duration::from_secs(60))?.ok_or("the stream ended")?;
        let slice = batch.slices().next().ok_or("a step without a slice")??;
        let is_whole = slice.len() == self.slice_bytes;
        if batch.step() != expected || !is_whole || slice.iter().any(|byte| *byte != expected.get() as u8) {
            return Err(format!("step {} was delivered where {expected} was due", batch.step()).into());
        }
        Ok(())
    }

    /// One segment; `meter` sees each thing that is done.
    fn cycle(&mut self, meter: &mut Meter) -> Result<(), Failure> {
        for _ in 0..STEPS_PER_CYCLE {
            meter.of("publish", &self.store.clone(), || self.publish())?;
            meter.of("deliver", &self.store.clone(), || self.deliver())?;
        }
        let store = self.store.clone();
        meter.of("idle poll", &store, || match self.consumer.try_next()? {
            Next::Pending => Ok(()),
            other => Err(format!("{other:?} where nothing is published").into()),
        })?;
        let name = format!("cycle-{}", self.cycles);
        meter.of("checkpoint", &store, || {
            self.run.checkpoint(self.consumer.position(), &name)?;
            Ok(())
        })?;
        meter.of("reclaim", &store, || {
            let options = ReclaimOptions::new().keep(2).control_seen(std::mem::take(&mut self.control_seen));
            self.control_seen = self.store.reclaim(&options)?.control_seen;
            Ok(())
        })?;
        self.cycles += 1;
        Ok(())
    }

    /// Goes on to so many cycles, and measures the last of them, and what somebody new asks.
    fn measure(&mut self, cycles: u64) -> Result<Measured, Failure> {
        let mut meter = Meter::default();
        while self.cycles + 1 < cycles {
            self.cycle(&mut Meter::off())?;
        }
        self.cycle(&mut meter)?;
        let opened = Store::open(&self.root)?;
        meter.whole("open", &opened, || opened.info().map(drop).map_err(Failure::from))?;
        let joined = Store::open(&self.root)?;
        meter
            .whole("join", &joined, || joined.join(&self.run.snapshot()).map(drop).map_err(Failure::from))?;
        let seeking = Store::open(&self.root)?;
        meter.whole("seek to the floor", &seeking, || {
            let floor = seeking.info()?.floor;
            seeking.batch(floor)?.slice(0).map(drop).map_err(Failure::from)
        })?;
        meter.measured(&self.root, self.steps(), &self.store)
    }
}

fn main() -> Result<(), Failure> {
    let (mut steps, mut slice_bytes) = (1_000_000u64, 4096usize);
    let mut directory = None;
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--steps" {
            let given = arguments.next().ok_or("--steps needs a number")?;
            steps = given.to_string_lossy().parse()?;
        } else if argument == "--slice-bytes" {
            let given = arguments.next().ok_or("--slice-bytes needs a number")?;
            slice_bytes = given.to_string_lossy().parse()?;
        } else {
            directory = Some(PathBuf::from(argument));
        }
    }
    let scratch = match directory {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    };
    let mut job = Job::new(&scratch.path().join("store"), slice_bytes)?;
    let most = (steps / STEPS_PER_CYCLE).max(FIRST_CYCLES * 2);
    let mut marks = vec![FIRST_CYCLES];
    while marks.last().is_some_and(|last| last * 10 < most) {
        marks.extend(marks.last().map(|last| last * 10));
    }
    marks.push(most);
    let mut measured: Vec<Measured> = Vec::new();
    for cycles in marks {
        measured.push(job.measure(cycles)?);
        measured.last().into_iter().for_each(Measured::print);
    }
    measure::judge(&measured)?;
    println!("flat: no operation asks for more, and neither memory nor disk has grown");
    Ok(())
}
