//! The proof: corpus, store and the trainer's logs are held against one another.
//!
//! Nothing here believes what a process said of itself: the corpus is packed anew, the store is read anew, and the logs
//! hold the ids that were found in the delivered bytes.

use std::path::Path;

use batchweave::{Step, Store};

use crate::corpus::{Corpus, Cursor, Packer, Window};
use crate::job::{PARTITIONS, Result, producer_name};
use crate::trainer::{Trained, trained};

/// The loss has to fall to this part of what it was.
const FALLS_TO: f32 = 0.8;
/// The loss at the end is the mean of so many steps.
const LAST_STEPS: usize = 16;

/// What was found. With a failure, what comes after it wasn't looked at.
#[derive(Default)]
pub struct Proof {
    pub proved: Vec<String>,
    pub failed: Option<String>,
    /// Bytes of all slices.
    pub bytes: u64,
    pub loss_first: f32,
    pub loss_last: f32,
    waits_us: Vec<f64>,
}

impl Proof {
    /// The time in `next_batch` that this part of all calls stayed below.
    pub fn waited_us(&self, part: f64) -> f64 {
        self.waits_us.get((self.waits_us.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
    }
}

/// An error means that something couldn't be read; what was read and is wrong is in the proof.
pub fn prove(corpus: &Corpus, store: &Store, run: &Path, resumed_at: u64) -> Result<Proof> {
    let lives = [trained(run, 0)?, trained(run, 1)?];
    let steps = store.info()?.next_step.get();
    let mut proof = Proof::default();
    proof.waits_us = lives.iter().flatten().flat_map(|trained| trained.waited_us.iter().copied()).collect();
    proof.waits_us.sort_by(f64::total_cmp);

    let mut stored = Vec::new();
    let outcome = corpus_is_stored(corpus, store, steps, &mut stored, &mut proof.bytes)?
        .and_then(|what| {
            proof.proved.push(what);
            stored_is_delivered(&stored, &lives)
        })
        .and_then(|what| {
            proof.proved.push(what);
            resumed_is_continued(&lives, resumed_at, steps)
        })
        .and_then(|what| {
            proof.proved.push(what);
            let losses: Vec<f32> =
                lives.iter().flatten().map(|trained| f32::from_bits(trained.loss)).collect();
            let last = &losses[losses.len().saturating_sub(LAST_STEPS)..];
            proof.loss_first = losses.first().copied().unwrap_or(f32::NAN);
            proof.loss_last = last.iter().sum::<f32>() / last.len() as f32;
            let fell = proof.loss_last < FALLS_TO * proof.loss_first;
            if fell {
                Ok("the loss fell".to_owned())
            } else {
                Err("the loss didn't fall: is it text?".to_owned())
            }
        });
    match outcome {
        Ok(what) => proof.proved.push(what),
        Err(what) => proof.failed = Some(what),
    }
    Ok(proof)
}

type Verdict = std::result::Result<String, String>;

/// Every window of the corpus is in the store exactly once, in order, with its bytes, by its producer; and the
/// attachments, which are put into `stored`, name them.
fn corpus_is_stored(
    corpus: &Corpus,
    store: &Store,
    steps: u64,
    stored: &mut Vec<Vec<u64>>,
    bytes: &mut u64,
) -> Result<Verdict> {
    let packer = |partition| Packer::new(corpus, partition, Cursor::default());
    let mut packers: Vec<Packer<'_>> = (0..PARTITIONS).map(packer).collect();
    let mut packed = Vec::new();
    for batch in store.batches(Step::ZERO..Step::new(steps)) {
        let batch = batch?;
        let step = batch.step();
        let attachment: Vec<u8> = batch.attachments()?.concat();
        let attached: Vec<u64> = attachment.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)).collect();
        let producers = batch.producers()?;
        let mut found = Vec::new();
        for slice in batch.slices() {
            let slice = slice?;
            *bytes += slice.len() as u64;
            for window in Window::all_in(&slice) {
                let Some(packer) = packers.get_mut(window.partition()) else {
                    return Ok(Err(format!("step {step} holds a window of no partition")));
                };
                packed.clear();
                let more = packer.pack(&mut packed)?;
                if !more || Window::all_in(&packed).next().is_none_or(|next| next != window) {
                    let what = format!("step {step}, partition {}", window.partition());
                    return Ok(Err(format!("{what}: a window comes twice, out of order or changed")));
                }
                if producers.iter().any(|name| name.as_str() != producer_name(window.partition())) {
                    return Ok(Err(format!("step {step} is of another producer than its windows")));
                }
                found.push(window.id);
            }
        }
        if found != attached {
            return Ok(Err(format!("step {step}: its attachment doesn't name its windows")));
        }
        stored.push(found);
    }
    for packer in &mut packers {
        packed.clear();
        if packer.pack(&mut packed)? {
            return Ok(Err(format!(
                "window {} of a partition isn't in the store",
                packer.cursor.windows - 1
            )));
        }
    }
    let windows: usize = stored.iter().map(Vec::len).sum();
    Ok(Ok(format!("all {windows} windows of the corpus are in the store once, in order, byte for byte")))
}

/// Each trained step got exactly what its attachment in the store names.
fn stored_is_delivered(stored: &[Vec<u64>], lives: &[Vec<Trained>; 2]) -> Verdict {
    for trained in lives.iter().flatten() {
        if stored.get(trained.step as usize) != Some(&trained.ids) {
            return Err(format!("step {}: other windows were delivered than the store has", trained.step));
        }
    }
    Ok("each step was trained on exactly the windows that its attachment names".to_owned())
}

/// The second life begins at the saved position and goes on to the end; what both trained gave the same losses.
fn resumed_is_continued([first, second]: &[Vec<Trained>; 2], resumed_at: u64, steps: u64) -> Verdict {
    let numbers = |life: &[Trained]| life.iter().map(|trained| trained.step).collect::<Vec<_>>();
    if numbers(first) != (0..first.len() as u64).collect::<Vec<_>>() {
        return Err("the first life has a gap or a double".to_owned());
    }
    if numbers(second) != (resumed_at..steps).collect::<Vec<_>>() {
        return Err(format!("the second life isn't exactly steps {resumed_at}..{steps}"));
    }
    let again = first.get(resumed_at as usize..).unwrap_or_default();
    if again.is_empty() {
        return Err(
            "no step was trained in both lives, so nothing shows that the second continues".to_owned()
        );
    }
    for (before, after) in again.iter().zip(second) {
        if before.loss != after.loss {
            return Err(format!("step {}: another loss after the resume than before the kill", before.step));
        }
    }
    let (count, from) = (again.len(), resumed_at);
    Ok(format!(
        "steps 0..{steps} were trained, {count} of them again from {from}: the same losses, bit for bit"
    ))
}
