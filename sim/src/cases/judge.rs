//! What holds at the end of every schedule.
//!
//! The model's two properties, by what readers see: the steps that are there, and those that somebody had
//! read before they were removed. Besides, all that the oracle knows.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave::{Settings, Step, Store};

use super::{Case, Mishap};
use crate::Seeded;
use crate::actors::Stage;
use crate::oracle::{examine, examine_tail, goes_on, parse, texts_of};

/// Holds what is left against the properties.
///
/// # Errors
/// The first that is broken.
pub(super) fn judge(case: &Case, stage: &Stage) -> Result<(), String> {
    let log = log_as_read(stage)?;
    an_acknowledged_batch_is_in_the_log(stage, &log)?;
    no_batch_is_in_the_log_twice(&log)?;
    if case.passes > 0 {
        return examine_tail(&stage.memory, &stage.path, &stage.ledger);
    }
    examine(&stage.memory, &stage.path, &stage.ledger)?;
    goes_on(&stage.memory, &stage.path, &stage.ledger)?;
    if case.mishap == Mishap::Death { a_third_opens(case, stage) } else { Ok(()) }
}

fn an_acknowledged_batch_is_in_the_log(stage: &Stage, log: &[String]) -> Result<(), String> {
    for (text, part) in stage.ledger.acknowledged_texts() {
        let is_in = match part {
            Some(part) => usize::try_from(part).ok().and_then(|part| log.get(part)) == Some(&text),
            None => log.contains(&text),
        };
        if !is_in {
            return Err(format!("{text} was acknowledged and is not in the log"));
        }
    }
    Ok(())
}

/// A batch is a producer's part, whoever wrote it.
fn no_batch_is_in_the_log_twice(log: &[String]) -> Result<(), String> {
    let mut known = BTreeSet::new();
    for text in log {
        let (producer, sequence, _) = parse(text)?;
        if !known.insert((producer, sequence)) {
            return Err(format!("{producer}/{sequence} is in the log twice"));
        }
    }
    Ok(())
}

/// The texts of all steps. Every part of these cases is a step.
fn log_as_read(stage: &Stage) -> Result<Vec<String>, String> {
    let store = reopen(stage)?;
    let removed = stage.ledger.delivered();
    let head = store.info().map_err(|error| format!("P7: no info: {error}"))?.next_step.get();
    (0..head)
        .map(|step| {
            if let Some(texts) = removed.get(&step) {
                return Ok(texts.concat());
            }
            let batch = store.batch(Step::new(step));
            let batch = batch.map_err(|error| format!("P1: step {step} can't be read: {error}"))?;
            texts_of(&batch, 1).map(|texts| texts.concat())
        })
        .collect()
}

/// The name of the dead is opened anew, and gets what was last in (P3).
fn a_third_opens(case: &Case, stage: &Stage) -> Result<(), String> {
    let Some(dead) = case.writers.first() else { return Ok(()) };
    let producer = reopen(stage)?.producer(dead.name);
    let producer = producer.map_err(|error| format!("P7: {} can't be opened: {error}", dead.name))?;
    stage.ledger.open(dead.name, producer.incarnation(), producer.next_sequence().get(), &producer.state())
}

/// The store on a copy, by somebody who comes alone.
fn reopen(stage: &Stage) -> Result<Store, String> {
    let (storage, env) = (Arc::new(stage.memory.fork()), Arc::new(Seeded::new(4)));
    Store::open_on(&stage.path, storage, env, &Settings::new())
        .map_err(|error| format!("the store can't be opened: {error}"))
}
