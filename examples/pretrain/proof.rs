//! The proof: corpus, store and the trainer's logs are held against one another.
//!
//! Nothing here believes what a process said of itself: the corpus is packed anew, the store is read anew,
//! and the logs hold the ids that were found in the delivered bytes.

use std::path::Path;

use batchweave::{Batch, Step, Store};

use crate::corpus::{Corpus, Cursor, Packer, Window};
use crate::job::{PARTITIONS, Result, producer_name};
use crate::trainer::{Trained, trained};

/// The loss has to fall to this part of what it was.
const FALLS_TO: f32 = 0.8;
/// The loss at the end is the mean of so many steps.
const LAST_STEPS: usize = 16;

pub struct Proof {
    pub proved: Vec<String>,
    pub failed: Vec<String>,
    pub loss_first: f32,
    pub loss_last: f32,
    /// Of all calls of `next_batch`, in order of length.
    waits_us: Vec<f64>,
}

impl Proof {
    /// The time that this part of all calls of `next_batch` stayed below.
    pub fn waited_us(&self, part: f64) -> f64 {
        self.waits_us.get((self.waits_us.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
    }
}

/// What holds, or what doesn't.
type Verdict = std::result::Result<String, String>;

/// An error means that something couldn't be read; what was read and is wrong is in the proof.
pub fn prove(corpus: &Corpus, store: &Store, run: &Path, resumed_at: u64) -> Result<Proof> {
    let lives = [trained(run, 0)?, trained(run, 1)?];
    let steps = store.info()?.next_step;
    let batches = || store.batches(Step::ZERO..steps);
    let attached: Vec<Vec<u64>> = batches().map(|batch| attached_to(&batch?)).collect::<Result<_>>()?;
    let mut waits_us: Vec<f64> = lives.iter().flatten().flat_map(|step| step.waited_us.clone()).collect();
    waits_us.sort_by(f64::total_cmp);
    let losses: Vec<f32> = lives.iter().flatten().map(|step| f32::from_bits(step.loss)).collect();
    let last = &losses[losses.len().saturating_sub(LAST_STEPS)..];
    let loss_first = losses.first().copied().unwrap_or(f32::NAN);
    let loss_last = last.iter().sum::<f32>() / last.len() as f32;

    let mut proof = Proof { proved: Vec::new(), failed: Vec::new(), loss_first, loss_last, waits_us };
    for verdict in [
        corpus_is_stored(corpus, batches())?,
        attached_is_delivered(&attached, &lives),
        resumed_is_continued(&lives, resumed_at, steps.get()),
        if loss_last < FALLS_TO * loss_first {
            Ok("the loss fell".to_owned())
        } else {
            Err("the loss didn't fall by a fifth: is it text?".to_owned())
        },
    ] {
        match verdict {
            Ok(what) => proof.proved.push(what),
            Err(what) => proof.failed.push(what),
        }
    }
    Ok(proof)
}

/// The ids in a batch's attachment.
fn attached_to(batch: &Batch) -> Result<Vec<u64>> {
    let bytes = batch.attachments()?.concat();
    Ok(bytes.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)).collect())
}

/// Every window of the corpus is in the store exactly once, in order, with its bytes, by its producer, and
/// named by the attachment of its batch.
fn corpus_is_stored(
    corpus: &Corpus,
    batches: impl Iterator<Item = batchweave::Result<Batch>>,
) -> Result<Verdict> {
    let packer = |partition| Packer::new(corpus, partition, Cursor::default());
    let mut packers: Vec<Packer<'_>> = (0..PARTITIONS).map(packer).collect();
    let mut count = 0;
    for batch in batches {
        let batch = batch?;
        let (step, producers) = (batch.step(), batch.producers()?);
        let mut found = Vec::new();
        for slice in batch.slices() {
            for window in Window::all_in(&slice?) {
                if let Err(wrong) = is_next(&window, &mut packers)? {
                    return Ok(Err(format!("step {step}: {wrong}")));
                }
                let name = producer_name(window.partition());
                if producers.iter().any(|producer| producer.as_str() != name) {
                    return Ok(Err(format!("step {step}: {window} isn't by {name}")));
                }
                found.push(window.id);
            }
        }
        if found != attached_to(&batch)? {
            return Ok(Err(format!("step {step}: its attachment doesn't name its windows")));
        }
        count += found.len();
    }
    for packer in &mut packers {
        let mut packed = Vec::new();
        packer.pack(&mut packed)?;
        if let Some(next) = Window::all_in(&packed).next() {
            return Ok(Err(format!("{next} isn't in the store")));
        }
    }
    Ok(Ok(format!("all {count} windows of the corpus are in the store once, in order, byte for byte")))
}

/// A stored window is what its partition has next.
fn is_next(window: &Window<'_>, packers: &mut [Packer<'_>]) -> Result<Result<(), String>> {
    let mut packed = Vec::new();
    match packers.get_mut(window.partition()) {
        Some(packer) => packer.pack(&mut packed)?,
        None => return Ok(Err(format!("there is no such thing as {window}"))),
    };
    Ok(match Window::all_in(&packed).next() {
        Some(next) if next == *window => Ok(()),
        Some(next) if next.id == window.id => Err(format!("the tokens of {window} aren't the corpus's")),
        Some(next) => Err(format!("{window} stands where {next} is next")),
        None => Err(format!("{window} comes after the last one")),
    })
}

/// Each trained step got exactly what its attachment in the store names.
fn attached_is_delivered(attached: &[Vec<u64>], lives: &[Vec<Trained>; 2]) -> Verdict {
    match lives.iter().flatten().find(|trained| attached.get(trained.step as usize) != Some(&trained.ids)) {
        Some(wrong) => Err(format!("step {}: other windows were delivered than are attached", wrong.step)),
        None => Ok("each step was trained on exactly the windows that its attachment names".to_owned()),
    }
}

/// The second life begins at the saved position and goes on to the end; what both trained gave the same
/// losses.
fn resumed_is_continued([first, second]: &[Vec<Trained>; 2], resumed_at: u64, steps: u64) -> Verdict {
    if !first.iter().map(|trained| trained.step).eq(0..first.len() as u64) {
        return Err("the trainer's first life has a gap or a double".to_owned());
    }
    if !second.iter().map(|trained| trained.step).eq(resumed_at..steps) {
        return Err(format!("the trainer's second life isn't exactly steps {resumed_at}..{steps}"));
    }
    let again = first.get(resumed_at as usize..).unwrap_or_default();
    if again.is_empty() {
        return Err(
            "no step was trained in both lives, so nothing shows that the second continues".to_owned()
        );
    }
    if let Some((wrong, _)) = again.iter().zip(second).find(|(before, after)| before.loss != after.loss) {
        return Err(format!("step {}: another loss after the resume than before the kill", wrong.step));
    }
    let count = again.len();
    Ok(format!(
        "steps 0..{steps} were trained, {count} again from {resumed_at}: the same losses, bit for bit"
    ))
}
