//! Holding what is on a filesystem against the truth where segments are removed: what is protected can be
//! read, what isn't is freed (P5).

use std::path::Path;

use batchweave::log::index::Index;
use batchweave::log::tail::Tail;
use batchweave::log::void::Void;
use batchweave::{ConsumerOptions, Next, ReclaimOptions, Share, Start, Step, Store, Version};

use super::annals::Annals;
use super::examine::{goes_on_with, open, texts_of};
use super::ledger::{Ledger, Left};
use super::truth::{Truth, is_text, truth};
use crate::{Choices, Memory};

/// Segments below the first live one that may be left when a reclaim is through.
const SLACK: usize = 3;

/// Holds what is on a filesystem now against the truth and against what was told, on a copy.
///
/// # Errors
/// The first promise that is broken.
pub(super) fn examine(left: Left, memory: &Memory, path: &Path, annals: &Annals) -> Result<(), String> {
    let (store, truth) = match (open(&memory.fork(), path, 1)?, truth(memory, path)?) {
        (Some(store), Some(truth)) => (store, truth),
        _ if annals.acknowledged() == 0 => return Ok(()),
        _ => return Err("P6: parts were acknowledged, and there is no store".to_owned()),
    };
    let tail = Tail::load(store.inner()).map_err(|error| format!("P5: the log can't be loaded: {error}"))?;
    if tail.state != truth.state {
        return Err(format!(
            "P6: who opens the store finds {:?}, its whole log says {:?}",
            tail.state, truth.state
        ));
    }
    check_indexes(&store, &truth)?;
    check_readable(&store, &truth)?;
    check_run(&store, &truth)?;
    annals.check(&truth, left)?;
    let report = store.verify(|_| ()).map_err(|error| format!("verify can't read the store: {error}"))?;
    match report.findings.first() {
        Some(finding) => Err(format!("verify finds: {finding:?}")),
        None => Ok(()),
    }
}

/// The indexes that are left say what the log says; from the one before the first live segment on there are
/// all. Before that one may be there that a sleeper has put again.
fn check_indexes(store: &Store, truth: &Truth) -> Result<(), String> {
    let (log, size) = (store.inner(), u64::from(store.options().segment_size));
    let newest = (truth.voids.len() as u64).saturating_sub(1) / size;
    let live = truth.first_live() / size;
    for segment in 0..newest {
        let index = Index::open(log, segment.into()).map_err(|error| format!("index {segment}: {error}"))?;
        let Some(index) = index else {
            if segment + 1 >= live.min(newest) {
                return Err(format!("P5: index {segment} is missing, segments live from {live} on"));
            }
            continue;
        };
        for slot in 0..size {
            let version = segment * size + slot;
            let void = truth.voids[version as usize].map_or(0, Void::number);
            let entry = index.version(Version::new(version)).map_err(|error| error.to_string())?;
            if entry.void != void {
                return Err(format!(
                    "P2: index {segment} says {} of version {version}, not {void}",
                    entry.void
                ));
            }
        }
    }
    Ok(())
}

/// P5: every step from the floor on can be read by who comes now, byte for byte; and the floor is no higher
/// than what a live group needs, which the model has seen to.
fn check_readable(store: &Store, truth: &Truth) -> Result<(), String> {
    let model = &truth.model;
    for step in model.floor..model.head() {
        let needed =
            model.groups.iter().filter(|(_, group)| group.needs().is_some_and(|needs| needs <= step));
        let needed: Vec<&String> = needed.map(|(name, _)| name).collect();
        let read = store.batch(Step::new(step)).map_err(|error| error.to_string());
        let texts = read.and_then(|batch| texts_of(&batch, model.parts_per_step as usize));
        let texts = texts.map_err(|error| {
            format!("P5: step {step} is retained, needed by {needed:?}, and can't be read: {error}")
        })?;
        let held = model.step(model.generation, step).unwrap_or_default();
        if held.len() != texts.len() || held.iter().zip(&texts).any(|(held, text)| !is_text(held, text)) {
            return Err(format!("P2: step {step} holds {texts:?}, the log has {held:?}"));
        }
    }
    match model.floor.checked_sub(1) {
        Some(below) if store.batch(Step::new(below)).is_ok() => {
            Err(format!("P5: step {below} is below the floor, and is handed out"))
        }
        _ => Ok(()),
    }
}

/// A run from the beginning gets every retained step that isn't skipped, and no other.
fn check_run(store: &Store, truth: &Truth) -> Result<(), String> {
    let model = &truth.model;
    let run = store.run(Start::Beginning).map_err(|error| format!("P5: no run: {error}"))?;
    let options = ConsumerOptions::new().window_steps(0);
    let mut consumer = run.consumer_with(Share::WHOLE, options).map_err(|error| error.to_string())?;
    let mut steps = Vec::new();
    let failed = |error| format!("P5: a retained step can't be read by a run: {error}");
    let ends = loop {
        match consumer.try_next().map_err(failed)? {
            Next::Batch(batch) => steps.push(batch.step().get()),
            next => break matches!(next, Next::Closed),
        }
    };
    if ends != model.stream.closed().is_some() {
        return Err(format!(
            "P2: a run from the beginning ends: {ends}, and the stream is {:?}",
            model.stream
        ));
    }
    let expected = (model.floor..model.head()).filter(|step| !model.skipped.contains(step));
    if expected.clone().eq(steps.iter().copied()) {
        return Ok(());
    }
    let expected: Vec<u64> = expected.collect();
    Err(format!("P2: a run from the beginning gets {steps:?}, not {expected:?}"))
}

/// P5: on a copy, one reclaim after the other runs to its end undisturbed. What none protects is gone then,
/// what somebody does is there, also after a power cut of a synced store, and others go on.
///
/// # Errors
/// The first promise that is broken.
pub fn examine_reclaimed(
    memory: &Memory,
    path: &Path,
    ledger: &Ledger,
    cut: Option<&Choices>,
) -> Result<(), String> {
    let copy = memory.fork();
    let Some(store) = open(&copy, path, 8)? else { return Ok(()) };
    let failed = |error| format!("P5: an undisturbed reclaim fails: {error}");
    let first = store.reclaim(&ReclaimOptions::new()).map_err(failed)?;
    // What is staged of control records is litter once it is seen again.
    let again = ReclaimOptions::new().control_seen(first.control_seen);
    store.reclaim(&again).map_err(failed)?;
    let Some(truth) = truth(&copy, path)? else { return Ok(()) };
    check_floor(&truth)?;
    check_freed(&copy, path, &truth, u64::from(store.options().segment_size))?;
    let examined = |left, memory: &Memory| {
        let examined = super::examine::examine_what(left, memory, path, ledger).map(drop);
        examined.and_then(|()| goes_on_with(left, memory, path, ledger))
    };
    examined(Left::All, &copy).map_err(|what| format!("after a reclaim: {what}"))?;
    let Some(choices) = cut else { return Ok(()) };
    let odds = *choices.one_of(&[0, 2, 4, 1]);
    copy.power_cut_keeping(|_| choices.chance(odds));
    examined(Left::Durable, &copy).map_err(|what| format!("after a reclaim and a power cut: {what}"))
}

/// The floor is the lowest step that a live group needs.
fn check_floor(truth: &Truth) -> Result<(), String> {
    let needed = truth.model.groups.values().filter_map(super::known::Reading::needs).min();
    match needed.filter(|needed| *needed != truth.model.floor) {
        None => Ok(()),
        Some(needed) => {
            Err(format!("P5: step {needed} is needed, and the floor stays at {}", truth.model.floor))
        }
    }
}

/// What none protects is freed, up to a slack: segments, their indexes, and staged control files.
fn check_freed(memory: &Memory, path: &Path, truth: &Truth, size: u64) -> Result<(), String> {
    let live = truth.first_live() / size;
    for (name, slack) in [("log", SLACK), ("index", SLACK)] {
        let names = memory.names_in(path.join(name));
        let below: Vec<u64> =
            names.iter().filter_map(|name| name.parse().ok()).filter(|k| *k < live).collect();
        if below.len() > slack {
            return Err(format!("P5: {name} {below:?} are left, though the first live segment is {live}"));
        }
    }
    let staged = memory.names_in(path.join("stage"));
    let control = |name: &&String| {
        let parsed = batchweave::format::names::parse_staged(std::ffi::OsStr::new(name.as_str()));
        matches!(parsed, Some(batchweave::format::names::Staged::Control { .. }))
    };
    match staged.iter().find(control) {
        Some(name) => Err(format!("P5: stage/{name} is nobody's, and is left")),
        None => Ok(()),
    }
}
