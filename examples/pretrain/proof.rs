//! The proof: corpus, store and the trainer's logs are held against one another.
//!
//! - Nothing here believes what a process said of itself: the corpus is packed anew, the store is read anew,
//!   and the logs hold ids and digests of the bytes that were delivered.
//! - The *history* is what the model at the end has seen: of each life of the trainer the steps before the
//!   one at which the next life began.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use batchweave::{Batch, Store};

use crate::corpus::{Corpus, Cursor, Packer, Window};
use crate::driver::Driven;
use crate::job::{KEPT, PARTITIONS, Result, producer_name};
use crate::models::{self, checkpoints};
use crate::space::Space;
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
    /// A digest of which step has which windows, with their bytes: the same of runs that delivered the same.
    pub order: u64,
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
pub fn prove(corpus: &Corpus, store: &Store, run: &Path, driven: &Driven, space: &Space) -> Result<Proof> {
    let lives = (0..driven.begins.len()).map(|life| trained(run, life)).collect::<Result<Vec<_>>>()?;
    let ends = driven.begins.iter().skip(1).copied().chain([u64::MAX]);
    let parts =
        lives.iter().zip(ends).flat_map(|(life, end)| life.iter().filter(move |step| step.step < end));
    let history: Vec<&Trained> = parts.collect();
    let mut waits_us: Vec<f64> = lives.iter().flatten().flat_map(|step| step.waited_us.clone()).collect();
    waits_us.sort_by(f64::total_cmp);
    let losses: Vec<f32> = history.iter().map(|step| f32::from_bits(step.loss)).collect();
    let last = &losses[losses.len().saturating_sub(LAST_STEPS)..];
    let loss_first = losses.first().copied().unwrap_or(f32::NAN);
    let loss_last = last.iter().sum::<f32>() / last.len() as f32;

    let order = order_of(&history);
    let mut proof = Proof { proved: Vec::new(), failed: Vec::new(), loss_first, loss_last, order, waits_us };
    for verdict in [
        history_is_whole(&history, store.info()?.next_step.get()),
        turns_are_kept(corpus, store, &history)?,
        corpus_is_delivered(corpus, &history)?,
        store_is_delivered(store, &history)?,
        lives_continue(&lives, &driven.begins),
        killed_is_repeated(&lives),
        rewound_is_delivered_again(&lives, &history),
        unneeded_is_freed(store, run, space)?,
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

fn history_is_whole(history: &[&Trained], steps: u64) -> Verdict {
    if !history.iter().map(|trained| trained.step).eq(0..steps) {
        return Err(format!("what the model has seen isn't exactly steps 0..{steps}"));
    }
    Ok(format!("the model has seen steps 0..{steps}, each once, in order"))
}

fn order_of(history: &[&Trained]) -> u64 {
    let mut hasher = DefaultHasher::new();
    history.iter().for_each(|trained| (trained.step, &trained.windows).hash(&mut hasher));
    hasher.finish()
}

/// Where producers take turns: round and round, each a batch, without those that have no more.
fn turns_are_kept(corpus: &Corpus, store: &Store, history: &[&Trained]) -> Result<Verdict> {
    if store.turns()?.is_none() {
        return Ok(Ok("the producers published freely, so another run has another order".to_owned()));
    }
    let rounds = (0..PARTITIONS).map(|partition| corpus.batches(partition)).max().unwrap_or(0);
    let round = |round| (0..PARTITIONS).filter(move |partition| corpus.batches(*partition) > round);
    let expected = (0..rounds).flat_map(round);
    let mut found = history.iter().zip(expected);
    let of = |trained: &Trained, partition| {
        trained.windows.iter().all(|(id, _)| Window { id: *id, tokens: &[] }.partition() == partition)
    };
    Ok(match found.find(|(trained, partition)| !of(trained, *partition)) {
        Some((trained, partition)) => {
            Err(format!("step {} isn't of {}, whose turn it was", trained.step, producer_name(partition)))
        }
        None => Ok("the producers took turns, so every run has this order".to_owned()),
    })
}

/// Every window of the corpus is in the history exactly once, in the order of its partition, with its bytes.
fn corpus_is_delivered(corpus: &Corpus, history: &[&Trained]) -> Result<Verdict> {
    let packer = |partition| Packer::new(corpus, partition, Cursor::default());
    let mut packers: Vec<Packer<'_>> = (0..PARTITIONS).map(packer).collect();
    let mut count = 0;
    for trained in history {
        for (id, digest) in &trained.windows {
            if let Err(wrong) = is_next(&Window { id: *id, tokens: &[] }, *digest, &mut packers)? {
                return Ok(Err(format!("step {}: {wrong}", trained.step)));
            }
            count += 1;
        }
    }
    for packer in &mut packers {
        let mut packed = Vec::new();
        packer.pack(&mut packed)?;
        if let Some(next) = Window::all_in(&packed).next() {
            return Ok(Err(format!("{next} wasn't delivered")));
        }
    }
    Ok(Ok(format!("all {count} windows of the corpus were delivered once, in order, byte for byte")))
}

/// A delivered window is what its partition has next.
fn is_next(window: &Window<'_>, digest: u64, packers: &mut [Packer<'_>]) -> Result<Result<(), String>> {
    let mut packed = Vec::new();
    match packers.get_mut(window.partition()) {
        Some(packer) => packer.pack(&mut packed)?,
        None => return Ok(Err(format!("there is no such thing as {window}"))),
    };
    Ok(match Window::all_in(&packed).next() {
        Some(next) if next.id == window.id && next.digest() == digest => Ok(()),
        Some(next) if next.id == window.id => Err(format!("the tokens of {window} aren't the corpus's")),
        Some(next) => Err(format!("{window} stands where {next} is next")),
        None => Err(format!("{window} comes after the last one")),
    })
}

/// What the store still has is what was delivered at that step: by its own producer, and named by its
/// attachment.
fn store_is_delivered(store: &Store, history: &[&Trained]) -> Result<Verdict> {
    let info = store.info()?;
    for batch in store.batches(info.floor..info.next_step) {
        let batch = batch?;
        let (step, producers) = (batch.step(), batch.producers()?);
        let mut found = Vec::new();
        for slice in batch.slices() {
            for window in Window::all_in(&slice?) {
                let name = producer_name(window.partition());
                if producers.iter().any(|producer| producer.as_str() != name) {
                    return Ok(Err(format!("step {step}: {window} isn't by {name}")));
                }
                found.push((window.id, window.digest()));
            }
        }
        let ids: Vec<u64> = found.iter().map(|(id, _)| *id).collect();
        if ids != attached_to(&batch)? {
            return Ok(Err(format!("step {step}: its attachment doesn't name its windows")));
        }
        if history.get(step.get() as usize).is_none_or(|trained| trained.windows != found) {
            return Ok(Err(format!("step {step}: other windows were delivered than are stored")));
        }
    }
    Ok(Ok(format!("steps {}..{} are in the store as they were delivered", info.floor, info.next_step)))
}

/// The ids in a batch's attachment.
fn attached_to(batch: &Batch) -> Result<Vec<u64>> {
    let bytes = batch.attachments()?.concat();
    Ok(bytes.as_chunks().0.iter().map(|id| u64::from_le_bytes(*id)).collect())
}

/// Each life begins at its checkpoint, with the very model that the life before had at that step.
fn lives_continue(lives: &[Vec<Trained>], begins: &[u64]) -> Verdict {
    for (number, (life, begin)) in lives.iter().zip(begins).enumerate() {
        if !life.iter().map(|trained| trained.step).eq(*begin..begin + life.len() as u64) {
            return Err(format!("the trainer's life {number} isn't steps from {begin} on, one by one"));
        }
    }
    for pair in lives.windows(2) {
        let [before, after] = pair else { continue };
        let Some(first) = after.first() else { return Err("a life of the trainer is empty".to_owned()) };
        match before.iter().find(|trained| trained.step == first.step) {
            None => return Err(format!("nothing shows that the life from step {} on goes on", first.step)),
            Some(then) if then.model != first.model => {
                return Err(format!("step {}: the trainer goes on with another model", first.step));
            }
            Some(_) => {}
        }
    }
    Ok(format!("the trainer went on at steps {:?}, with the same model bit for bit", &begins[1..]))
}

/// What was trained again after the kill was the same, and gave the same losses.
fn killed_is_repeated(lives: &[Vec<Trained>]) -> Verdict {
    let [killed, resumed, ..] = lives else { return Err("the trainer wasn't killed".to_owned()) };
    let begin = resumed.first().map_or(u64::MAX, |first| first.step);
    let again: Vec<_> = killed.iter().filter(|trained| trained.step >= begin).zip(resumed).collect();
    let differs = |(before, after): &&(&Trained, &Trained)| {
        (before.loss, &before.windows) != (after.loss, &after.windows)
    };
    if let Some((wrong, _)) = again.iter().find(differs) {
        return Err(format!("step {}: not the same after the resume as before the kill", wrong.step));
    }
    Ok(format!("{} steps were trained again after the kill: the same losses, bit for bit", again.len()))
}

/// What was delivered before the rewind and dropped by it came again, at whatever step, with the same bytes.
fn rewound_is_delivered_again(lives: &[Vec<Trained>], history: &[&Trained]) -> Verdict {
    let [_, rewound, last] = lives else { return Err("the trainer wasn't rewound once".to_owned()) };
    let begin = last.first().map_or(u64::MAX, |first| first.step);
    let later = history.iter().filter(|trained| trained.step >= begin);
    let again: HashMap<u64, u64> = later.flat_map(|trained| trained.windows.iter().copied()).collect();
    let dropped = rewound.iter().filter(|trained| trained.step >= begin);
    let dropped: Vec<(u64, u64)> = dropped.flat_map(|trained| trained.windows.iter().copied()).collect();
    if dropped.is_empty() {
        return Err("the rewind dropped nothing that had been delivered".to_owned());
    }
    if let Some((id, _)) = dropped.iter().find(|(id, digest)| again.get(id) != Some(digest)) {
        let window = Window { id: *id, tokens: &[] };
        return Err(format!("{window} was rewound, and didn't come again as it was"));
    }
    Ok(format!("{} windows that the rewind dropped came again, byte for byte", dropped.len()))
}

/// Segments and indexes were freed, and what is left is what the models that are left need.
fn unneeded_is_freed(store: &Store, run: &Path, space: &Space) -> Result<Verdict> {
    let kept = checkpoints(store)?;
    let mut marked: Vec<String> = kept.iter().map(|checkpoint| checkpoint.name.to_string()).collect();
    let files = std::fs::read_dir(models::directory(run))?;
    let names = files.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
    let mut saved = names.collect::<Result<Vec<String>>>()?;
    marked.sort();
    saved.sort();
    if saved.len() != KEPT || saved != marked {
        return Ok(Err(format!("the models are {saved:?}, but the checkpoints {marked:?}")));
    }
    if let Some(lost) = kept.iter().find(|checkpoint| checkpoint.position.step < space.floor) {
        return Ok(Err(format!("checkpoint {} lies below the floor, {}", lost.name, space.floor)));
    }
    if space.segments.freed == 0 || space.indexes.freed == 0 {
        return Ok(Err(format!("{} segments and {} indexes were freed", space.segments, space.indexes)));
    }
    let (segments, indexes) = (&space.segments, &space.indexes);
    Ok(Ok(format!(
        "{KEPT} models are left; of what they don't need {segments} segments, {indexes} indexes went"
    )))
}
