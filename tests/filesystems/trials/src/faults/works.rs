//! Pieces of the engine's work, each seen through whatever goes wrong once in it.

use std::fs;
use std::path::Path;

use batchweave::{
    CopyOptions, ErrorKind, Next, Producer, ReadMode, ReclaimOptions, Settings, Share, Start, Step, Store,
};

use super::case::{Case, NAME, options};
use crate::{Result, judge, part};

/// From here on the faults may come.
type Arm<'a> = &'a dyn Fn() -> Result<()>;

/// A piece of work: parts of the store that it begins with, and what is done there. It calls its second
/// argument when the faults may begin.
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) parts: u64,
    pub(super) act: fn(&Case<'_>, Arm<'_>) -> Result<()>,
    /// A short run has every so manieth call fail, in one way; 0: each in every way.
    pub(super) every: u64,
}

/// Parts such that the next Open and one more part fill the first segment.
pub(super) const BEFORE_BOUNDARY: u64 = 13;
/// Parts over three segments, and as many of them as are read before a checkpoint.
const LONG: u64 = 32;
const READ: u64 = 16;
const SOME: u64 = 17;
const FEW: u64 = 3;

pub(super) const WORKS: [Work; 9] = [
    Work { name: "create", parts: 0, act: create, every: 2 },
    Work { name: "open", parts: FEW, act: open, every: 0 },
    Work { name: "publish", parts: FEW, act: publish, every: 0 },
    Work { name: "boundary", parts: BEFORE_BOUNDARY, act: boundary, every: 0 },
    Work { name: "reclaim", parts: LONG, act: reclaim, every: 2 },
    Work { name: "read", parts: SOME, act: read, every: 1 },
    Work { name: "mapped", parts: SOME, act: mapped, every: 1 },
    Work { name: "copy", parts: FEW, act: copy, every: 3 },
    Work { name: "verify", parts: SOME, act: verify, every: 3 },
];

fn create(case: &Case<'_>, arm: Arm<'_>) -> Result<()> {
    arm()?;
    let store = case.insist("creating", || Store::open_or_create(&case.path, options()))?;
    case.place.rules.lift()?;
    let producer = store.producer(NAME)?;
    case.publish(&store, producer)?;
    case.judge(Step::new(0), 1)
}

fn open(case: &Case<'_>, arm: Arm<'_>) -> Result<()> {
    arm()?;
    let store = case.open()?;
    let producer = case.insist("opening the producer", || store.producer(NAME))?;
    part::check_state(&producer)?;
    go_on(case, &store, producer, FEW)
}

fn publish(case: &Case<'_>, arm: Arm<'_>) -> Result<()> {
    let store = case.open()?;
    let producer = store.producer(NAME)?;
    arm()?;
    let producer = case.publish(&store, producer)?;
    go_on(case, &store, producer, FEW + 1)
}

fn boundary(case: &Case<'_>, arm: Arm<'_>) -> Result<()> {
    let store = case.open()?;
    let producer = store.producer(NAME)?;
    let producer = case.publish(&store, producer)?;
    arm()?;
    let producer = case.publish(&store, producer)?;
    go_on(case, &store, producer, BEFORE_BOUNDARY + 2)
}

/// The same handle publishes one more, and all is there.
fn go_on(case: &Case<'_>, store: &Store, producer: Producer, parts: u64) -> Result<()> {
    case.place.rules.lift()?;
    let producer = case.publish(store, producer)?;
    drop(producer);
    case.judge(Step::new(0), parts + 1)
}

fn reclaim(case: &Case<'_>, arm: Arm<'_>) -> Result<()> {
    let store = case.open()?;
    let run = store.group("job")?.begin(Start::Beginning)?;
    let mut consumer = run.consumer(Share::WHOLE)?;
    for _ in 0..READ {
        consumer.next_batch_timeout(crate::child::PATIENCE)?.ok_or("the stream ended early")?;
    }
    arm()?;
    case.insist("the checkpoint", || run.checkpoint(consumer.position(), "kept"))?;
    case.place.rules.check_durable()?;
    let reclaim = || store.reclaim(&ReclaimOptions::new().keep(1));
    case.insist("the reclaim", reclaim)?;
    case.place.rules.lift()?;
    // A server that was restarted where nothing hangs on the answer is met by the next one.
    let reclaimed = case.insist("the next reclaim", reclaim)?;
    let segments = fs::read_dir(case.truth.join("log"))?.count();
    if reclaimed.floor != Step::new(READ) || segments > 2 {
        return Err(format!("{segments} segments are left, the floor is {}", reclaimed.floor).into());
    }
    let producer = store.producer(NAME)?;
    drop(case.publish(&store, producer)?);
    case.judge(reclaimed.floor, LONG + 1)
}

fn read(case: &Case<'_>, arm: Arm<'_>) -> Result<()> {
    read_from(case, arm, &case.path, &Settings::new())
}

/// By mappings, from the mount that has a page cache: what can't be read is an error there too, no signal.
fn mapped(case: &Case<'_>, arm: Arm<'_>) -> Result<()> {
    read_from(case, arm, &case.at_b(), &Settings::new().read_mode(ReadMode::Map))
}

fn read_from(case: &Case<'_>, arm: Arm<'_>, path: &Path, settings: &Settings) -> Result<()> {
    arm()?;
    let store = case.insist("opening the store", || Store::open_with(path, settings))?;
    let run = case.insist("beginning the run", || store.run(Start::Beginning))?;
    let mut consumer = case.insist("the consumer", || run.consumer(Share::WHOLE))?;
    for sequence in 0..SOME {
        // An error leaves the position where it was, and a batch that can't be had whole is had again.
        let batch = case.insist("the next batch", || consumer.try_next())?;
        let Next::Batch(batch) = batch else {
            return Err(format!("step {sequence} isn't seen, though it is there").into());
        };
        let slices = case.insist("its slices", || batch.slices().collect::<Result<Vec<_>, _>>())?;
        for (number, slice) in (0..).zip(&slices) {
            let id = part::check_slice(slice, number)?;
            if !id.is(NAME, sequence) {
                return Err(format!("step {sequence} holds {id}").into());
            }
        }
    }
    drop(consumer);
    case.judge(Step::new(0), SOME)
}

/// A copy that failed is destroyed, as its error says, and made again; if only its last sync failed it is
/// there, whole.
fn copy(case: &Case<'_>, arm: Arm<'_>) -> Result<()> {
    let store = case.open()?;
    let dest = case.place.case();
    let to = dest.path.clone();
    let copy = || store.copy_to(&to, CopyOptions::new().allow_unknown_fuse(true)).map(drop);
    arm()?;
    let mut is_said_again = false;
    case.insist("the copy", || {
        let is_said_again = std::mem::replace(&mut is_said_again, true);
        copy().or_else(|error| match error.kind() {
            ErrorKind::Invalid if error.path().is_some_and(|path| path != to) => {
                batchweave::destroy(error.path().unwrap_or(&to), batchweave::DestroyOptions::new())?;
                copy()
            }
            ErrorKind::Invalid if is_said_again => Ok(()),
            _ => Err(error),
        })
    })?;
    dest.judge(Step::new(0), FEW)?;
    dest.remove()?;
    case.judge(Step::new(0), FEW)
}

/// What can't be read is said, and isn't damage: asked again, nothing is found.
fn verify(case: &Case<'_>, arm: Arm<'_>) -> Result<()> {
    let store = case.open()?;
    arm()?;
    match store.verify(|_| ()) {
        Ok(report) => {
            let is_said = report.findings.iter().any(|finding| finding.what.contains("errno"));
            if !is_said && !report.findings.is_empty() {
                return Err(format!("a fault that passes is told as damage: {:?}", report.findings).into());
            }
            if !report.findings.is_empty() && case.place.rules.seen()?.fired == 0 {
                return Err(format!("found without a fault: {:?}", report.findings).into());
            }
        }
        Err(error) => case.check(&error)?,
    }
    case.place.rules.lift()?;
    judge::verify(&case.path)?;
    case.judge(Step::new(0), SOME)
}
