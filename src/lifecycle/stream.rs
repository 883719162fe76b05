//! What an operator says of the stream and its producers: retire, close, reopen.
//!
//! - Every command acts on what it has replayed and fences nobody: who has no incarnation is given one only
//!   where nobody else has one.
//! - An effect that is there already is done, not an error, so that a command can be repeated after any
//!   crash.

use super::rewind::check_history;
use crate::commit::staged::Staged;
use crate::commit::writer::{Settled, append_control, given_up};
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::Record;
use crate::limits::LOOK_AGAIN_MAX;
use crate::log::Log;
use crate::log::state::State;
use crate::name::Name;

/// Retires a producer under its current incarnation. False if it was finished already.
///
/// One that a rewind has set back has none until somebody opens it: then it is opened here, which fences
/// nobody, and retired under that.
///
/// # Errors
/// `Invalid` when there is no such producer, or when one that was set back would have to be opened in a
/// closed stream; `Full`, `Io`, ...
pub(crate) fn retire(log: &Log, name: &Name) -> Result<bool> {
    let refuse = |what: String| Error::new(ErrorKind::Invalid, what).at(&log.path);
    let make = |state: &State| {
        let unknown = || refuse(format!("there is no producer {name}"));
        let known = state.producers.get(name).ok_or_else(unknown)?;
        let producer = || name.clone();
        Ok(match known.incarnation {
            Some(incarnation) => Some(Record::Retire { producer: producer(), incarnation }),
            None if known.finished => None,
            None if state.closed.is_some() => {
                return Err(refuse(format!(
                    "producer {name} was set back by a rewind and nobody has opened it since, and the stream \
                     is closed: reopen it to retire {name}"
                )));
            }
            None => Some(Record::Open { producer: producer(), last: Some(known.last_open) }),
        })
    };
    let mut tail = log.current()?;
    let mut wrote = false;
    for _ in 0..LOOK_AGAIN_MAX {
        let appended =
            append_control(log, &mut tail, make, |state, staged| match state.producers.get(name) {
                Some(known) if known.finished => Settled::In(known.last_version),
                Some(known) if known.open_nonce == staged.commit.nonce => Settled::In(known.last_open),
                _ => Settled::Open,
            })?;
        wrote |= appended.is_some();
        // After an Open comes the Retire, unless another rewind has come between.
        if tail.state.producers.get(name).is_none_or(|known| known.finished) {
            return Ok(wrote);
        }
    }
    let what = format!("producer {name} is set back by rewinds faster than it can be retired");
    Err(Error::new(ErrorKind::Contended, what).at(&log.path))
}

/// Ends the stream at the next step. False if it was closed already.
///
/// # Errors
/// `Invalid` when parts of the next step are published, unless `open_step`; `Rewound` when another has
/// rewound the store meanwhile: its end is then another one than its caller has looked at; `Full`, `Io`, ...
pub(crate) fn close(log: &Log, open_step: bool) -> Result<bool> {
    let mut tail = log.current()?;
    let began = tail.state.history.last_rewind;
    let make = |state: &State| {
        if state.closed.is_some() {
            return Ok(None);
        }
        let step = state.next_step();
        check_history(log, state, began, step)?;
        if state.has_open_step() && !open_step {
            let begun = state.next_part.get() - step.first_part(state.parts_per_step).get();
            let all = state.parts_per_step;
            let what =
                format!("{begun} of {all} parts of the next step are published; say so to leave it open");
            return Err(Error::new(ErrorKind::Invalid, what).step(step).at(&log.path));
        }
        Ok(Some(Record::Close { step, closes: state.closes(), open_step }))
    };
    let appended = append_control(log, &mut tail, make, of_this_generation)?;
    Ok(appended.is_some())
}

/// Goes on after an end. False if the stream was open already.
///
/// # Errors
/// `Full`, `Io`, ...
pub(crate) fn reopen(log: &Log) -> Result<bool> {
    let mut tail = log.current()?;
    let make = |state: &State| Ok(state.closed.map(|_| Record::Reopen { closes: state.closes() }));
    let appended = append_control(log, &mut tail, make, of_this_generation)?;
    Ok(appended.is_some())
}

/// A skip that comes between takes nothing from what a close or a reopen says: it is made anew for the
/// generation that there is now.
fn of_this_generation(state: &State, staged: &Staged) -> Settled {
    if staged.commit.generation == state.generation { Settled::Open } else { given_up() }
}
