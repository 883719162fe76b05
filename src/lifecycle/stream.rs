//! What an operator says of the stream and its producers: retire, close, reopen.
//!
//! - Every command acts on what it has replayed and fences nobody.
//! - An effect that is there already is done, not an error, so that a command can be repeated after any
//!   crash.

use crate::commit::writer::{Settled, append_control};
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::Record;
use crate::log::Log;
use crate::log::state::State;
use crate::name::Name;

/// Retires a producer under its current incarnation. False if it was finished already.
///
/// # Errors
/// `Invalid` when there is no such producer; `Full`, `Io`, ...
pub(crate) fn retire(log: &Log, name: &Name) -> Result<bool> {
    let unknown = || Error::new(ErrorKind::Invalid, format!("there is no producer {name}")).at(&log.path);
    let make = |state: &State| {
        let producer = state.producers.get(name).ok_or_else(unknown)?;
        let retire = |incarnation| Record::Retire { producer: name.clone(), incarnation };
        Ok(producer.incarnation.map(retire))
    };
    let mut tail = log.current()?;
    let appended = append_control(log, &mut tail, make, |state, _| {
        match state.producers.get(name).filter(|producer| producer.finished) {
            Some(producer) => Settled::In(producer.last_version),
            None => Settled::Open,
        }
    })?;
    Ok(appended.is_some())
}

/// Ends the stream at the next step. False if it was closed already.
///
/// # Errors
/// `Invalid` when parts of the next step are published, unless `open_step`; `Full`, `Io`, ...
pub(crate) fn close(log: &Log, open_step: bool) -> Result<bool> {
    let mut tail = log.current()?;
    let make = |state: &State| {
        if state.closed.is_some() {
            return Ok(None);
        }
        let step = state.next_step();
        if state.has_open_step() && !open_step {
            let begun = state.next_part.get() - step.first_part(state.parts_per_step).get();
            let all = state.parts_per_step;
            let what =
                format!("{begun} of {all} parts of the next step are published; say so to leave it open");
            return Err(Error::new(ErrorKind::Invalid, what).step(step).at(&log.path));
        }
        Ok(Some(Record::Close { step, closes: state.closes(), open_step }))
    };
    let appended = append_control(log, &mut tail, make, |_, _| Settled::Open)?;
    Ok(appended.is_some())
}

/// Goes on after an end. False if the stream was open already.
///
/// # Errors
/// `Full`, `Io`, ...
pub(crate) fn reopen(log: &Log) -> Result<bool> {
    let mut tail = log.current()?;
    let make = |state: &State| Ok(state.closed.map(|_| Record::Reopen { closes: state.closes() }));
    let appended = append_control(log, &mut tail, make, |_, _| Settled::Open)?;
    Ok(appended.is_some())
}
