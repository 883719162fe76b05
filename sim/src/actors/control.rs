//! Operators who close the stream, reopen it, and drop names: what they are told is so at some moment of
//! their call.

use batchweave::{ErrorKind, Store};

use super::{Meets, Producing, Stage, Trouble, produce};
use crate::oracle::Said;
use crate::{Met, Process};

/// Parts that whoever begins a name anew publishes, at most.
const ANEW: u32 = 4;

/// Closes the stream, mostly with whatever step is open.
pub(super) fn close(process: &Process, stage: &Stage, store: &Store) -> Result<(), Trouble> {
    let open_step = !process.world.choices().chance(3);
    let before = stage.truth()?;
    let since = before.state.next_version.get();
    let told = store.close(open_step);
    if process.is_dead() {
        return Ok(());
    }
    let after = stage.truth()?;
    let (moved, stream) = (after.state.next_version.get() > since, &after.model.stream);
    match told {
        Ok(done) => {
            let by_whom = stream.closes.iter().map(|(version, _)| *version).find(|version| *version >= since);
            let version = if done { by_whom } else { stream.closed_since(since) };
            let unknown = || format!("P6: a close says {done}, and the log has {stream:?} since {since}");
            stage.annals().say(Said::Close, version.ok_or_else(unknown)?);
            stage.coverage.met(Met::Closed, u64::from(done));
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Invalid => {
            if !open_step && (moved || before.model.has_open_step()) {
                return Ok(());
            }
            Err(format!("P7: the stream can't be closed, though no step is open: {error}").into())
        }
        Err(error) if error.kind() == ErrorKind::Rewound => {
            if after.model.rewinds.iter().any(|(version, ..)| *version >= since) {
                stage.coverage.met(Met::CloseRewound, 1);
                return Ok(());
            }
            Err(format!("P2: nobody has rewound the store since {since}: {error}").into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Reopens it, whoever has closed it.
pub(super) fn reopen(process: &Process, stage: &Stage, store: &Store) -> Result<(), Trouble> {
    let before = stage.truth()?;
    let since = before.state.next_version.get();
    let done = store.reopen();
    if process.is_dead() {
        return Ok(());
    }
    let done = done?;
    let stream = stage.truth()?.model.stream;
    let version = stream.reopened_since(since);
    match version {
        Some(version) => stage.annals().say(Said::Reopen, version),
        None if !done && before.model.stream.closed().is_none() => {}
        None => {
            return Err(format!("P6: a reopen says {done}, and the log has {stream:?} since {since}").into());
        }
    }
    stage.coverage.met(Met::Reopened, u64::from(done));
    Ok(())
}

/// Drops one of the names that there are, having retired it now and then.
pub(super) fn forget(process: &Process, stage: &Stage, store: &Store) -> Result<(), Trouble> {
    let choices = process.world.choices();
    let listed = store.producers()?;
    if process.is_dead() || listed.is_empty() {
        return Ok(());
    }
    let known = choices.one_of(&listed);
    let name = known.name.as_str();
    let before = stage.truth()?;
    let since = before.state.next_version.get();
    // Who still publishes is fenced by it.
    let is_idle = !["a", "b"].contains(&name);
    if !known.finished && (is_idle || choices.chance(4)) {
        match store.retire(name) {
            _ if process.is_dead() => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Invalid => {
                let model = stage.truth()?.model;
                let gone = model.forgotten.iter().any(|(_, forgotten)| forgotten == name);
                if gone || model.stream.closed_since(since).is_some() {
                    return Ok(());
                }
                return Err(format!("P7: {name} can't be retired: {error}").into());
            }
            retired => retired?,
        };
    }
    let told = store.forget(name);
    if process.is_dead() {
        return Ok(());
    }
    let after = stage.truth()?;
    let mut forgotten = after.model.forgotten.iter();
    let forgotten = forgotten.find(|(version, forgotten)| *version >= since && forgotten == name);
    match told {
        Ok(done) => {
            match forgotten {
                Some((version, _)) => stage.annals().say(Said::Forget, *version),
                None if !done && before.model.names().all(|known| known != name) => {}
                None => return Err(format!("P6: {name} was forgotten: {done}, and the log hasn't").into()),
            }
            stage.coverage.met(Met::Forgotten, u64::from(done));
            Ok(())
        }
        // It still publishes, or what it has published is retained.
        Err(error) if error.kind() == ErrorKind::Invalid => {
            let moved = after.state.next_version.get() > since;
            if moved || !after.model.may_forget(name) {
                return Ok(());
            }
            Err(format!("P7: {name} is finished and below the floor, and can't be forgotten: {error}").into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Publishes a few parts by a name that was forgotten, if there is one: it begins anew.
pub(super) fn publish_anew(process: &Process, stage: &Stage) -> Result<(), String> {
    let choices = process.world.choices();
    let names: Vec<String> = stage.truth()?.model.forgotten.into_iter().map(|(_, name)| name).collect();
    if process.is_dead() || names.is_empty() {
        return Ok(());
    }
    let plan = Producing {
        name: choices.one_of(&names).clone(),
        parts: 1 + u64::from(choices.pick(ANEW)),
        slices: stage.options.divisor,
        padding: 0,
        finishes: choices.chance(2),
        meets: Meets::Never,
        ahead: 0,
        ring: Vec::new(),
        parts_per_turn: 0,
    };
    produce(process, stage, &plan)
}
