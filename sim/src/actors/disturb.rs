//! Actors that nobody would miss: who looks at everything now and then, and who lets segments pass.

use std::sync::Arc;
use std::time::Duration;

use batchweave::format::names::parse_beside;
use batchweave::storage::Storage;
use batchweave::{Counts, ReclaimOptions, Settings, Step, Store};

use super::Stage;
use crate::oracle::{Ledger, examine, examine_after_power_cut, goes_on, state, text, texts_of};
use crate::{Memory, Process, Seeded};

/// Looks at everything, `times` times, on a copy of the filesystem.
///
/// # Errors
/// A promise is broken.
pub fn inspect(process: &Process, stage: &Stage, times: u32, synced: bool) -> Result<(), String> {
    let choices = process.world.choices().clone();
    for _ in 0..times {
        process.env().sleep(Duration::from_millis(u64::from(choices.pick(40))));
        if process.is_dead() {
            return Ok(());
        }
        examine(&stage.memory, &stage.path, &stage.ledger)?;
        goes_on(&stage.memory, &stage.path, &stage.ledger)?;
        if synced {
            examine_after_power_cut(&stage.memory, &stage.path, &stage.ledger, &choices)?;
        }
    }
    Ok(())
}

/// Asks for the end of the stream again and again: no answer is older than what was acknowledged before it
/// was asked for.
///
/// # Errors
/// One is.
pub fn watch(process: &Process, stage: &Stage, times: u32) -> Result<(), String> {
    let mut left = times;
    stage.persist(process, || {
        let Some(store) = stage.open_existing(process)? else { return Ok(()) };
        let per_step = u64::from(store.options().parts_per_step);
        while left > 0 {
            left -= 1;
            let known = stage.ledger.acknowledged_parts() / per_step;
            let said = store.info()?.next_step.get();
            if said < known && !process.is_dead() {
                return Err(format!("P6: step {known} was acknowledged up to, the store says {said}").into());
            }
            process.env().sleep(Duration::from_millis(u64::from(process.world.choices().pick(40))));
        }
        Ok(())
    })
}

/// Closes the stream for good, with whatever step is open.
///
/// # Errors
/// A promise is broken.
pub fn close(process: &Process, stage: &Stage) -> Result<(), String> {
    stage.persist(process, || {
        let store = stage.open_or_create(process)?;
        store.close(true)?;
        if !process.is_dead() {
            stage.ledger.close();
        }
        Ok(())
    })
}

/// How often, and when, it is looked whether the stream is open again.
const LOOKS: u32 = 400;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Waits until others can publish, of whom the next moment is; whether that is so. Only where history changes
/// is a stream reopened.
///
/// # Errors
/// A promise is broken.
pub fn await_open(process: &Process, stage: &Stage) -> Result<bool, String> {
    for _ in 0..LOOKS {
        if process.is_dead() {
            return Ok(false);
        }
        if stage.ledger.annals().is_none() || stage.truth()?.model.stream.closed().is_none() {
            return Ok(true);
        }
        process.env().sleep(LOOK_AGAIN);
    }
    Ok(false)
}

/// In one moment: others publish until two segments have passed after the newest one, and every segment that
/// may be removed (R6: mark k+2 exists) is. What a sleeping writer finds then is what reclaim leaves.
///
/// # Errors
/// Others can't publish.
pub fn pass_segments(memory: &Memory, stage: &Stage, name: &str, seed: u64) -> Result<(), String> {
    let said = |error: batchweave::Error| format!("others can't publish: {error}");
    let env = Arc::new(Seeded::new(seed));
    let store = Store::open_on(&stage.path, Arc::new(memory.clone()), env, &Settings::new()).map_err(said)?;
    let size = u64::from(store.options().segment_size);
    let mut producer = store.producer(name).map_err(said)?;
    for _ in 0..2 * size {
        let text = text(name, producer.next_sequence().get(), usize::MAX);
        let mut draft = producer.draft().map_err(said)?;
        for _ in 0..store.options().divisor {
            draft.add_slice(text.as_bytes(), Counts { samples: 1, tokens: 1 }).map_err(said)?;
        }
        let published = producer.publish_now(draft, state(&text)).map_err(|failed| said(failed.error))?;
        stage.ledger.acknowledge(&text, producer.incarnation(), published)?;
    }
    if stage.ledger.annals().is_some() {
        // A group holds the floor, and where none does it rises to a step or two before the end.
        let head = store.info().map_err(said)?.next_step.get();
        let up_to = Step::new(head.saturating_sub(seed % 3));
        return store.reclaim(&ReclaimOptions::new().up_to(up_to)).map(drop).map_err(said);
    }
    read_new(&store, &stage.ledger)?;
    remove_passed(memory, stage).map_err(|error| format!("a passed segment can't be removed: {error}"))
}

/// Somebody reads every step that nobody has got yet: when it is removed, it is known what it held.
fn read_new(store: &Store, ledger: &Ledger) -> Result<(), String> {
    let first = ledger.delivered().last_key_value().map_or(0, |(last, _)| last + 1);
    let head = store.info().map_err(|error| format!("no info: {error}"))?.next_step;
    for step in first..head.get() {
        let batch = store.batch(Step::new(step)).map_err(|error| format!("P1: step {step}: {error}"))?;
        ledger.deliver(step, texts_of(&batch, store.options().parts_per_step as usize)?)?;
    }
    Ok(())
}

fn remove_passed(memory: &Memory, stage: &Stage) -> std::io::Result<()> {
    let root = memory.open_root(&stage.path)?;
    let marks = memory.open_dir(&root, "marks")?;
    let log = memory.open_dir(&root, "log")?;
    let numbers = |names: batchweave::storage::Names| -> Vec<u64> {
        names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect()
    };
    let newest = numbers(memory.list(&marks)?).into_iter().max().unwrap_or(0);
    for segment in numbers(memory.list(&log)?).into_iter().filter(|segment| segment + 2 <= newest) {
        let name = format!("{segment:012}");
        let dir = memory.open_dir(&log, &name)?;
        let held = memory.list(&dir)?;
        // A staged file beside its place: a reclaim moves it back first (R9), so this one comes later.
        if held.iter().any(|name| parse_beside(name).is_some()) {
            continue;
        }
        for version in held {
            memory.remove(&dir, version.to_str().unwrap_or_default())?;
        }
        memory.remove_dir(&log, &name)?;
    }
    Ok(())
}
