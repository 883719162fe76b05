//! Who looks at everything while others write and reclaim: what is found is no fault, and as of some moment
//! of the look.

use std::collections::BTreeSet;

use batchweave::{ErrorKind, ProducerInfo, Store};

use super::{Stage, Trouble};
use crate::oracle::Truth;
use crate::{Met, Process};

/// Verifies, and asks for all that can be listed, in either order.
pub(super) fn look(process: &Process, stage: &Stage, store: &Store) -> Result<(), Trouble> {
    let verifies_first = process.world.choices().chance(2);
    if verifies_first {
        verify(process, stage, store)?;
    }
    if !process.is_dead() {
        ask(process, stage, store)?;
    }
    if !verifies_first && !process.is_dead() {
        verify(process, stage, store)?;
    }
    Ok(())
}

/// Nothing that others do, or leave when they die, is a fault of the store.
fn verify(process: &Process, stage: &Stage, store: &Store) -> Result<(), Trouble> {
    let removed = || stage.memory.names_in(stage.path.join("log")).into_iter().min();
    let (struck, first) = (process.struck(), removed());
    let report = store.verify(|_| ())?;
    if process.is_dead() {
        return Ok(());
    }
    match report.findings.first() {
        // What it was kept from reading it names.
        Some(finding) if process.struck() > struck => {
            process.world.say(format!("{} was kept from verifying: {finding:?}", process.name));
            Ok(())
        }
        Some(finding) => Err(format!("P5: verify, beside others, finds: {finding:?}").into()),
        None => {
            stage.coverage.met(Met::Verified, 1);
            stage.coverage.met(Met::VerifyOvertaken, u64::from(removed() > first));
            Ok(())
        }
    }
}

/// What is listed was so at some moment since it was asked for.
fn ask(process: &Process, stage: &Stage, store: &Store) -> Result<(), Trouble> {
    let before = stage.truth()?;
    info(process, stage, store, &before)?;
    let (groups, producers) = (store.groups()?, store.producers()?);
    for group in ["g", "h"] {
        match store.group(group)?.checkpoints() {
            // Nobody has begun it yet.
            Err(error) if error.kind() == ErrorKind::Invalid && !before.model.groups.contains_key(group) => {}
            listed => drop(listed?),
        }
    }
    if process.is_dead() {
        return Ok(());
    }
    let after = stage.truth()?;
    // No group is forgotten.
    let (least, most) = (before.model.groups.len(), after.model.groups.len());
    if groups.len() < least || groups.len() > most {
        return Err(format!("P6: {} groups are listed, from {least} to {most}", groups.len()).into());
    }
    check_names(&producers, &before, &after)?;
    // Nothing has happened meanwhile, so all of it can be told.
    if before.state.next_version != after.state.next_version {
        return Ok(());
    }
    for listed in &groups {
        let Some(group) = after.model.groups.get(listed.name.as_str()) else { continue };
        let kept = listed.checkpoints.iter().map(|kept| (kept.version.get(), kept.position.step.get()));
        let expected = group.kept.iter().map(|kept| (kept.version, kept.step));
        if listed.needs.map(|step| step.get()) != group.needs() || kept.ne(expected) {
            return Err(format!("P5: group {listed:?} is listed, and has to be {group:?}").into());
        }
    }
    for listed in &producers {
        let last = after.model.last_of(listed.name.as_str());
        let (next, state) = last.map_or((0, None), |held| (held.sequence + 1, Some(held.state.checksum)));
        let said = (!listed.state.is_empty()).then(|| batchweave::format::checksum::of(&listed.state));
        if (listed.sequence.get(), said) != (next, state) {
            return Err(format!("P3: producer {listed:?} is listed, and goes on at {next}: {last:?}").into());
        }
    }
    Ok(())
}

/// Who was there all the time is listed, and nobody who never was.
fn check_names(listed: &[ProducerInfo], before: &Truth, after: &Truth) -> Result<(), String> {
    let since = before.state.next_version.get();
    let listed: BTreeSet<&str> = listed.iter().map(|known| known.name.as_str()).collect();
    let forgotten = |name: &str| {
        after.model.forgotten.iter().any(|(version, forgotten)| *version >= since && forgotten == name)
    };
    let lacks = before.model.names().find(|name| !listed.contains(name) && !forgotten(name));
    let opened = after.model.opens.range(since..).map(|(_, opened)| opened.name.as_str());
    let there: BTreeSet<&str> = before.model.names().chain(opened).collect();
    let strange = listed.iter().find(|name| !there.contains(*name));
    if lacks.is_none() && strange.is_none() {
        return Ok(());
    }
    Err(format!("P6: producers {listed:?} are listed, which lacks {lacks:?} and has {strange:?}"))
}

/// It says what was so after its newest commit, which is none that was old when it was asked for.
fn info(process: &Process, stage: &Stage, store: &Store, before: &Truth) -> Result<(), Trouble> {
    let info = store.info()?;
    if process.is_dead() {
        return Ok(());
    }
    let versions = info.head_version.map_or(0, |version| version.get() + 1);
    if versions < before.state.next_version.get() {
        let next = before.state.next_version;
        return Err(format!("P6: version {next} was next, and who asks is told of {versions}").into());
    }
    let truth = stage.truth_at(versions)?;
    let model = &truth.model;
    let closed = info.closed.map(|step| step.get());
    let says = (info.next_step.get(), info.floor.get(), info.generation.get(), closed);
    let closed = model.stream.closed().map(|(_, step)| step);
    let expected = (model.head(), model.floor, model.generation, closed);
    if says == expected {
        return Ok(());
    }
    let what = "(next step, floor, generation, closed) is";
    Err(format!("P2: {what} told as {says:?} of {versions} versions, and has to be {expected:?}").into())
}
