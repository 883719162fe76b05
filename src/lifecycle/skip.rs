//! Passing over published steps, and dropping a finished producer's name.
//!
//! - A skip changes what every later run delivers, so it begins a generation; no step is dropped or
//!   renumbered.
//! - A name is dropped only when nothing of it can be read any more: then nobody can tell that it is gone.
//! - An effect that is there already is done, not an error, so that a command can be repeated after any
//!   crash.

use super::rewind::check_history;
use crate::commit::writer::{Settled, append_control, append_made, given_up};
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::Record;
use crate::id::{Step, Version};
use crate::limits::REASON_BYTES_MAX;
use crate::log::Log;
use crate::log::history::past;
use crate::log::state::State;
use crate::log::tail::Tail;
use crate::name::Name;

/// Passes over published steps. False if all of them were skipped already.
///
/// # Errors
/// `Reclaimed`, `Invalid`, `Rewound` as the documentation of the facade says; `Full`, `Io`, ...
pub(crate) fn skip(log: &Log, first: Step, last: Step, reason: &str) -> Result<bool> {
    check_reason(log, reason)?;
    let mut tail = log.current()?;
    let began = tail.state.history.last_rewind;
    let make = |tail: &mut Tail| {
        check_history(log, &tail.state, began, first)?;
        check(log, tail, first, last)?;
        let done = past(&tail.state.history.skips, first) > last;
        let record = || Record::Skip { first, last, reason: reason.to_owned() };
        Ok((!done).then(|| record().into()))
    };
    let appended = append_made(log, &mut tail, make, |state, staged| {
        if state.history.last_skip == Some(staged.commit.nonce) {
            return Settled::In(newest(state));
        }
        match state.judge(&staged.commit) {
            Ok(None) => Settled::Open,
            Ok(Some(_)) => given_up(),
            Err(error) => Settled::Never(error),
        }
    })?;
    if appended.is_some() {
        tracing::warn!(%first, %last, reason, "steps are passed over from now on");
    }
    Ok(appended.is_some())
}

/// Whether a skip would change anything now. Nothing is changed.
///
/// # Errors
/// As [`skip`].
pub(crate) fn preview(log: &Log, first: Step, last: Step, reason: &str) -> Result<bool> {
    check_reason(log, reason)?;
    let tail = log.current()?;
    check(log, &tail, first, last)?;
    Ok(past(&tail.state.history.skips, first) <= last)
}

fn check_reason(log: &Log, reason: &str) -> Result<()> {
    if reason.len() <= REASON_BYTES_MAX {
        return Ok(());
    }
    let what = format!("a reason of {} bytes is longer than {REASON_BYTES_MAX}", reason.len());
    Err(Error::new(ErrorKind::Invalid, what).at(&log.path))
}

fn check(log: &Log, tail: &Tail, first: Step, last: Step) -> Result<()> {
    let invalid = |step, what: String| Err(Error::new(ErrorKind::Invalid, what).step(step).at(&log.path));
    let next = tail.state.next_step();
    if first > last {
        invalid(first, format!("there are no steps from {first} to {last}"))
    } else if first < tail.state.floor {
        Err(log.reclaimed(first, tail))
    } else if last >= next {
        invalid(last, format!("only published steps can be skipped, and the next one is {next}"))
    } else if tail.state.generation.next() == tail.state.generation {
        invalid(first, "no generation is left for another change of history".to_owned())
    } else {
        Ok(())
    }
}

/// Drops a finished producer's name. False if there is no such name.
///
/// # Errors
/// `Invalid` when it hasn't finished, or has parts that are retained; `Full`, `Io`, ...
pub(crate) fn forget(log: &Log, name: &Name) -> Result<bool> {
    let refuse = |what: String| Err(Error::new(ErrorKind::Invalid, what).at(&log.path));
    let make = |state: &State| {
        let Some(known) = state.producers.get(name) else { return Ok(None) };
        if !known.finished {
            return refuse(format!("producer {name} hasn't finished: retire it first"));
        }
        let last = known.last_part.map(|part| part.step(state.parts_per_step));
        if let Some(last) = last.filter(|last| *last >= state.floor) {
            let floor = state.floor;
            return refuse(format!(
                "producer {name} has parts that are retained: its last one is of step {last}, the floor is \
                 {floor}"
            ));
        }
        if state.is_in_ring(name) {
            return refuse(format!(
                "producer {name} is in the ring of turns, which would wait for it: set a ring without it"
            ));
        }
        Ok(Some(Record::Forget { producer: name.clone(), incarnation: known.last_open.incarnation() }))
    };
    let mut tail = log.current()?;
    let appended = append_control(log, &mut tail, make, |state, _| match state.producers.get(name) {
        Some(_) => Settled::Open,
        // It was there when the record was made.
        None => Settled::In(newest(state)),
    })?;
    Ok(appended.is_some())
}

/// The newest commit: with its directory, all that is in the log is durable (R4).
fn newest(state: &State) -> Version {
    Version::new(state.next_version.get().saturating_sub(1))
}
