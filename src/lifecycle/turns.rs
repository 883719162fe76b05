//! Setting and ending the ring of producers that take turns.
//!
//! - It acts on the ring that was there when it was called: another that came between is told, never
//!   replaced unseen.
//! - An effect that is there already is done, not an error, so that every producer of a job may say at its
//!   start who takes turns.

use std::collections::BTreeSet;

use crate::commit::writer::{Settled, append_control};
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::Record;
use crate::limits::PRODUCERS_MAX;
use crate::log::Log;
use crate::log::state::State;
use crate::name::Name;

/// A ring, as an operator says it; without names its end.
#[derive(Debug)]
pub(crate) struct Wanted {
    names: Vec<Name>,
    parts_per_turn: u32,
}

impl Wanted {
    /// A ring of these members.
    ///
    /// # Errors
    /// `Invalid` for a bad name, none, too many, one that is there twice, or turns without parts.
    pub(crate) fn ring(
        log: &Log,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        parts_per_turn: u32,
    ) -> Result<Self> {
        let invalid = |what: String| Err(Error::new(ErrorKind::Invalid, what).at(&log.path));
        let (mut taken, mut members) = (BTreeSet::new(), Vec::new());
        for name in names {
            let name = Name::new(name.as_ref())?;
            if members.len() >= PRODUCERS_MAX {
                return invalid(format!("a ring of turns has at most {PRODUCERS_MAX} members"));
            }
            if !taken.insert(name.clone()) {
                return invalid(format!("{name} is in the ring of turns twice"));
            }
            members.push(name);
        }
        if members.is_empty() {
            return invalid("a ring of turns needs a member; it is ended by another call".to_owned());
        }
        if parts_per_turn == 0 {
            return invalid("a turn needs a part at least".to_owned());
        }
        Ok(Self { names: members, parts_per_turn })
    }

    /// No ring any more.
    pub(crate) fn end() -> Self {
        Self { names: Vec::new(), parts_per_turn: 0 }
    }

    /// Whether it is so already.
    fn is_so(&self, state: &State) -> bool {
        match &state.ring {
            Some(ring) => ring.names == self.names && ring.parts_per_turn == self.parts_per_turn,
            None => self.names.is_empty(),
        }
    }
}

/// Sets or ends the ring. False if it was so already.
///
/// # Errors
/// `Contended` when another ring came between; `Rewound`, `Full`, `Io`, ...
pub(crate) fn set(log: &Log, wanted: &Wanted) -> Result<bool> {
    let last = |state: &State| state.ring.as_ref().map(|ring| ring.last);
    let mut tail = log.current()?;
    let began = last(&tail.state);
    let make = |state: &State| {
        if wanted.is_so(state) {
            return Ok(None);
        }
        if last(state) != began {
            let what = "another ring of turns was set meanwhile: look at it, and decide anew";
            return Err(Error::new(ErrorKind::Contended, what).at(&log.path));
        }
        let (names, parts_per_turn) = (wanted.names.clone(), wanted.parts_per_turn);
        Ok(Some(Record::Turns { last: began, names, parts_per_turn }))
    };
    // What is there already, by whomever, is found when the record is made anew.
    let appended = append_control(log, &mut tail, make, |_, _| Settled::Open)?;
    if let Some(appended) = appended {
        let members = wanted.names.len();
        let (version, parts) = (appended.version, wanted.parts_per_turn);
        tracing::info!(%version, members, parts, "set who takes turns");
    }
    Ok(appended.is_some())
}

/// Whether it would change anything now. Nothing is changed.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `Io`.
pub(crate) fn preview(log: &Log, wanted: &Wanted) -> Result<bool> {
    Ok(!wanted.is_so(&log.current()?.state))
}
