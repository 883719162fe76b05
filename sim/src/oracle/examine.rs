//! Holding what is on a filesystem against the ledger, by readers that nobody disturbs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use batchweave::log::tail::Tail;
use batchweave::{ConsumerOptions, Counts, ErrorKind, Incarnation, Next, Settings, Share, Start, Store};

use super::ledger::Left;
use super::replay::{Replayed, check_replay};
use super::{Ledger, check_turns, parse, retained, state, text};
use crate::{Choices, Memory, Seeded};

/// The writer's number in what [`goes_on`] publishes: no process of a run has it.
const EXAMINER: usize = usize::MAX;

pub(super) fn open(memory: &Memory, path: &Path, seed: u64) -> Result<Option<Store>, String> {
    let storage = Arc::new(memory.clone());
    match Store::open_on(path, storage, Arc::new(Seeded::new(seed)), &Settings::new()) {
        Ok(store) => Ok(Some(store)),
        // Not created yet, or not wholly.
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
        Err(error) => Err(format!("the store can't be opened: {error}")),
    }
}

/// Holds what is on a filesystem now against the ledger: on a copy, so that nothing is changed.
///
/// # Errors
/// The first promise that is broken.
pub fn examine(memory: &Memory, path: &Path, ledger: &Ledger) -> Result<Option<Replayed>, String> {
    examine_what(Left::All, memory, path, ledger)
}

pub(super) fn examine_what(
    left: Left,
    memory: &Memory,
    path: &Path,
    ledger: &Ledger,
) -> Result<Option<Replayed>, String> {
    if let Some(annals) = ledger.annals() {
        return retained::examine(left, memory, path, annals).map(|()| None);
    }
    let Some(store) = open(&memory.fork(), path, 1)? else {
        return match ledger.acknowledged() {
            0 => Ok(None),
            parts => Err(format!("P6: {parts} parts were acknowledged, and there is no store")),
        };
    };
    let replayed = check_replay(&store);
    check_dense(&replayed)?;
    check_turns(&replayed.turns)?;
    let texts = read_all(&store, replayed.holders.len())?;
    for (text, (name, sequence, _)) in texts.iter().zip(&replayed.holders) {
        let (producer, found, _) = parse(text)?;
        if (producer, found) != (name.as_str(), *sequence) {
            return Err(format!("P2: the part of {name}/{sequence} holds {text}"));
        }
    }
    ledger.check(&replayed, &texts, u64::from(store.options().parts_per_step), left)?;
    let report = store.verify(|_| ()).map_err(|error| format!("verify can't read the store: {error}"))?;
    if let Some(finding) = report.findings.first() {
        return Err(format!("verify finds: {finding:?}"));
    }
    Ok(Some(replayed))
}

/// P3: every producer's parts are 0, 1, 2, ... in the order of the log.
fn check_dense(replayed: &Replayed) -> Result<(), String> {
    let mut next: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, sequence, version) in &replayed.holders {
        let expected = next.entry(name).or_default();
        if sequence != expected {
            return Err(format!("P3: {name}/{sequence} is visible by version {version}, not {expected}"));
        }
        *expected += 1;
    }
    Ok(())
}

/// All parts' texts in order; of an open step too, whose parts no reader gets yet.
fn read_all(store: &Store, parts: usize) -> Result<Vec<String>, String> {
    let per_step = store.options().parts_per_step as usize;
    let run = store.run(Start::Beginning).map_err(|error| format!("no run: {error}"))?;
    let options = ConsumerOptions::new().window_steps(0);
    let mut consumer = run.consumer_with(Share::WHOLE, options).map_err(|error| error.to_string())?;
    let mut texts = Vec::new();
    let failed = |error| format!("P1: a visible step can't be read: {error}");
    while let Next::Batch(batch) = consumer.try_next().map_err(failed)? {
        texts.extend(texts_of(&batch, per_step)?);
    }
    let whole = parts / per_step * per_step;
    if texts.len() != whole {
        return Err(format!("P1: {whole} parts are in whole steps, a reader gets {}", texts.len()));
    }
    Ok(texts)
}

/// The text of each part of a batch, of which every slice is a copy.
///
/// # Errors
/// A slice can't be read, or differs from the others of its part.
pub(crate) fn texts_of(batch: &batchweave::Batch, parts: usize) -> Result<Vec<String>, String> {
    let slices: Result<Vec<_>, _> = batch.slices().collect();
    let slices = slices.map_err(|error| format!("P1: a slice can't be read: {error}"))?;
    let mut texts = Vec::new();
    for part in slices.chunks(slices.len() / parts.max(1)) {
        let text = String::from_utf8_lossy(&part[0]).into_owned();
        if part.iter().any(|slice| **slice != *text.as_bytes()) {
            return Err(format!("P1: the slices of {text} differ"));
        }
        texts.push(text.trim_end().to_owned());
    }
    Ok(texts)
}

/// P6: cuts the power of a copy, keeping what the choices say, and examines what is left of a synced store.
///
/// # Errors
/// The first promise that is broken.
pub fn examine_after_power_cut(
    memory: &Memory,
    path: &Path,
    ledger: &Ledger,
    choices: &Choices,
) -> Result<(), String> {
    let copy = memory.fork();
    let odds = *choices.one_of(&[0, 2, 4, 1]);
    copy.power_cut_keeping(|_| choices.chance(odds));
    examine_what(Left::Durable, &copy, path, ledger).map_err(|what| format!("after a power cut: {what}"))?;
    goes_on_with(Left::Durable, &copy, path, ledger).map_err(|what| format!("after a power cut: {what}"))
}

/// P7: from this state, with everybody gone, each kind of actor comes to its end alone: a producer with a
/// name of its own, and a reader. On a copy.
///
/// # Errors
/// One of them doesn't.
pub fn goes_on(memory: &Memory, path: &Path, ledger: &Ledger) -> Result<(), String> {
    goes_on_with(Left::All, memory, path, ledger)
}

pub(super) fn goes_on_with(left: Left, memory: &Memory, path: &Path, ledger: &Ledger) -> Result<(), String> {
    let copy = memory.fork();
    let Some(store) = open(&copy, path, 2)? else { return Ok(()) };
    if store.info().map_err(|error| format!("P7: no info: {error}"))?.closed.is_some() {
        store.reopen().map_err(|error| format!("P7: it can't be reopened: {error}"))?;
    }
    // Whoever waits for a member that is gone for good lets the others go on.
    if store.turns().map_err(|error| format!("P7: no turns: {error}"))?.is_some() {
        store.end_turns().map_err(|error| format!("P7: the turns can't be ended: {error}"))?;
    }
    publish_step(&store)?;
    examine_what(left, &copy, path, ledger).map(drop).map_err(|what| format!("after one more step: {what}"))
}

/// Publishes one whole step by a name of its own.
fn publish_step(store: &Store) -> Result<(), String> {
    let slices = store.options().divisor;
    let mut producer = store.producer("examiner").map_err(|error| format!("P7: no producer: {error}"))?;
    for _ in 0..store.options().parts_per_step {
        let text = text("examiner", producer.next_sequence().get(), EXAMINER);
        let published = producer.draft().and_then(|mut draft| {
            for _ in 0..slices {
                draft.add_slice(text.as_bytes(), Counts { samples: 1, tokens: 1 })?;
            }
            Ok(producer.publish_now(draft, state(&text))?)
        });
        published.map_err(|error| format!("P7: nobody else can publish: {error}"))?;
    }
    Ok(())
}

/// The version of the newest Open of a name, or of its Retire.
///
/// # Errors
/// The log can't be read.
pub fn newest_open(memory: &Memory, path: &Path, name: &str) -> Result<u64, String> {
    let Some(store) = open(&memory.fork(), path, 5)? else { return Ok(0) };
    let tail = Tail::load(store.inner()).map_err(|error| format!("the log can't be loaded: {error}"))?;
    let known = tail.state.producers.iter().find(|(known, _)| known.as_str() == name);
    Ok(known.map_or(0, |(_, known)| {
        let retired = if known.finished { known.last_version.get() } else { 0 };
        retired.max(known.last_open.get())
    }))
}

/// How many parts of a name are visible, as long as this incarnation has it; else none.
///
/// # Errors
/// The log can't be read.
pub fn visible_of(memory: &Memory, path: &Path, name: &str, incarnation: Incarnation) -> Result<u64, String> {
    let Some(store) = open(&memory.fork(), path, 6)? else { return Ok(0) };
    let tail = Tail::load(store.inner()).map_err(|error| format!("the log can't be loaded: {error}"))?;
    let mut known = tail.state.producers.iter().filter(|(known, _)| known.as_str() == name);
    let mine = known.next().filter(|(_, known)| known.incarnation == Some(incarnation));
    Ok(mine.map_or(0, |(_, known)| known.next.get()))
}

/// Holds the log's end against the ledger where old segments are gone: all that is acknowledged is in, and
/// nothing twice; somebody new can go on.
///
/// # Errors
/// The first promise that is broken.
pub fn examine_tail(memory: &Memory, path: &Path, ledger: &Ledger) -> Result<(), String> {
    let Some(store) = open(&memory.fork(), path, 3)? else { return Err("there is no store".to_owned()) };
    let tail = Tail::load(store.inner()).map_err(|error| format!("the log can't be loaded: {error}"))?;
    let next = |name: &str| {
        let known = tail.state.producers.iter().find(|(known, _)| known.as_str() == name);
        known.map_or(0, |(_, known)| known.next.get())
    };
    ledger.check_sequences(next)?;
    let visible: u64 = tail.state.producers.values().map(|known| known.next.get()).sum();
    if visible != tail.state.next_part.get() {
        return Err(format!("P3: {} parts are visible, the producers have {visible}", tail.state.next_part));
    }
    publish_step(&store)
}
