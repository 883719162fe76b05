//! Operators: they reclaim, rewind, skip, retire groups, close and reopen, forget names and look at
//! everything, from any node, at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use batchweave::{Error, ErrorKind, ReclaimOptions, RewindOptions, Step, Store};

use super::look::look;
use super::{Stage, Trouble, control};
use parking_lot::Mutex;

use crate::{Met, Process};

/// What an operator does, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Reclaims, keeping so many checkpoints of each group.
    Reclaim(usize),
    /// Rewinds to so many steps before the head.
    Rewind(u32),
    /// Skips a step or two of so many before the head.
    Skip(u32),
    /// Retires a group.
    Retire(&'static str),
    /// Verifies, and asks for all that can be listed.
    Look,
    /// Closes the stream, and reopens it after a while.
    Close,
    /// Reopens it, whoever has closed it.
    Reopen,
    /// Forgets a name that is finished, and publishes anew under one that was forgotten.
    Forget,
}

/// Reclaims that run.
#[derive(Debug, Default)]
pub struct Running(AtomicU32);

/// What an operator does.
#[derive(Debug)]
pub struct Operating {
    /// Its word.
    pub word: Word,
    /// How often it says it.
    pub times: u32,
    /// What all of them have to do with each other.
    pub running: Arc<Running>,
    /// Whether it may have closed the stream and hasn't reopened it: outlives its process.
    pub owes_reopen: AtomicBool,
}

/// Says its word again and again, at moments that are drawn.
///
/// # Errors
/// A promise is broken.
pub fn operate(process: &Process, stage: &Stage, plan: &Operating) -> Result<(), String> {
    let choices = process.world.choices().clone();
    // Staged control files that it has seen: from one reclaim to the next, as a reclaimer carries them.
    let seen = Mutex::new(Vec::new());
    if plan.owes_reopen.load(Ordering::Relaxed) {
        pay_reopen(process, stage, plan)?;
    }
    for _ in 0..plan.times {
        process.env().sleep(Duration::from_micros(u64::from(choices.pick(100)) * 500));
        stage.persist(process, || {
            let Some(store) = stage.open_existing(process)? else { return Ok(()) };
            match plan.word {
                Word::Reclaim(keep) => {
                    let options = ReclaimOptions::new().keep(keep).control_seen(seen.lock().clone());
                    *seen.lock() = reclaim(process, stage, &store, &options, &plan.running)?;
                    Ok(())
                }
                Word::Rewind(back) => rewind(process, stage, &store, back),
                Word::Skip(back) => skip(process, stage, &store, back),
                Word::Retire(group) => retire(process, stage, &store, group),
                Word::Look => look(process, stage, &store),
                Word::Close => {
                    plan.owes_reopen.store(true, Ordering::Relaxed);
                    control::close(process, stage, &store)
                }
                Word::Reopen => control::reopen(process, stage, &store),
                Word::Forget => control::forget(process, stage, &store),
            }
        })?;
        if process.is_dead() {
            return Ok(());
        }
        if plan.word == Word::Close {
            process.env().sleep(Duration::from_micros(u64::from(choices.pick(100)) * 500));
            pay_reopen(process, stage, plan)?;
        }
        if plan.word == Word::Forget && choices.chance(2) {
            control::publish_anew(process, stage)?;
        }
    }
    Ok(())
}

/// Reopens what it may have closed.
fn pay_reopen(process: &Process, stage: &Stage, plan: &Operating) -> Result<(), String> {
    stage.persist(process, || {
        let Some(store) = stage.open_existing(process)? else { return Ok(()) };
        control::reopen(process, stage, &store)
    })?;
    if !process.is_dead() {
        plan.owes_reopen.store(false, Ordering::Relaxed);
    }
    Ok(())
}

fn reclaim(
    process: &Process,
    stage: &Stage,
    store: &Store,
    options: &ReclaimOptions,
    running: &Running,
) -> Result<Vec<String>, Trouble> {
    let began = stage.newest_version();
    let others = running.0.fetch_add(1, Ordering::Relaxed);
    let reclaimed = store.reclaim(options);
    running.0.fetch_sub(1, Ordering::Relaxed);
    if process.is_dead() {
        return Ok(Vec::new());
    }
    let passed = stage.newest_version().saturating_sub(began);
    let reclaimed = reclaimed?;
    let met = |what, times| stage.coverage.met(what, times);
    met(Met::ReclaimsAtOnce, u64::from(others > 0));
    met(Met::ReclaimOvertaken, u64::from(passed >= u64::from(store.options().segment_size)));
    met(Met::SegmentRemoved, reclaimed.segments.count);
    met(Met::IndexRemoved, reclaimed.indexes.count);
    met(Met::LitterRemoved, reclaimed.litter.count);
    met(Met::CheckpointDropped, reclaimed.dropped.len() as u64);
    let truth = stage.truth()?;
    if reclaimed.floor.get() > truth.model.floor {
        return Err(
            format!("P5: the floor was raised to {}, and is {}", reclaimed.floor, truth.model.floor).into()
        );
    }
    Ok(reclaimed.control_seen)
}

fn rewind(process: &Process, stage: &Stage, store: &Store, back: u32) -> Result<(), Trouble> {
    let info = store.info()?;
    let back = u64::from(process.world.choices().pick(back));
    let step = info.next_step.get().saturating_sub(back).max(info.floor.get());
    match store.rewind(Step::new(step), RewindOptions::new().even_with_groups(true)) {
        _ if process.is_dead() => Ok(()),
        Ok(report) => {
            stage.coverage.met(Met::Rewound, 1);
            stage.annals().rewind(report.generation.get(), step, report.parts);
            Ok(())
        }
        Err(error) => overtaken(stage, step, step, info.generation.get(), error),
    }
}

fn skip(process: &Process, stage: &Stage, store: &Store, back: u32) -> Result<(), Trouble> {
    let info = store.info()?;
    let back = 1 + u64::from(process.world.choices().pick(back));
    let first = info.next_step.get().saturating_sub(back).max(info.floor.get());
    let last =
        (first + u64::from(process.world.choices().pick(2))).min(info.next_step.get().saturating_sub(1));
    if first >= info.next_step.get() {
        return Ok(());
    }
    match store.skip(Step::new(first), Step::new(last), "the loss explodes") {
        _ if process.is_dead() => Ok(()),
        Ok(done) => {
            if done {
                stage.coverage.met(Met::Skipped, 1);
                stage.annals().skip(first, last);
            }
            Ok(())
        }
        Err(error) => overtaken(stage, first, last, info.generation.get(), error),
    }
}

/// A word about steps that was too late: the truth has to say so.
fn overtaken(stage: &Stage, first: u64, last: u64, generation: u64, error: Error) -> Result<(), Trouble> {
    let model = stage.truth()?.model;
    let late = match error.kind() {
        ErrorKind::Reclaimed => model.floor > first,
        ErrorKind::Invalid | ErrorKind::Rewound => model.generation > generation,
        _ => return Err(error.into()),
    };
    if late {
        stage.coverage.met(Met::ControlOvertaken, 1);
        return Ok(());
    }
    Err(format!("an operator's word about steps {first} to {last} was refused: {error}").into())
}

/// Retires a group.
pub(super) fn retire(process: &Process, stage: &Stage, store: &Store, name: &str) -> Result<(), Trouble> {
    let group = store.group(name)?;
    let known = stage.truth()?.model.groups.contains_key(name);
    match group.retire() {
        _ if process.is_dead() => Ok(()),
        Ok(done) => {
            if done {
                stage.coverage.met(Met::GroupRetired, 1);
                stage.annals().retire_group(name);
            }
            Ok(())
        }
        // Nobody has begun it yet.
        Err(error) if error.kind() == ErrorKind::Invalid && !known => Ok(()),
        Err(error) => Err(error.into()),
    }
}
