//! Dropping the newest steps: a rewind takes the stream and its producers back to where they were right
//! before a step came in.
//!
//! - Its record is self-contained: sequence, state and all else of every producer as of that step, never as
//!   of now, so that replay looks at nothing but state and record.
//! - It depends on the head: what came between staging and link makes it void (a producer that it doesn't
//!   speak of, another ring of turns, another generation), and then it is made anew.
//! - It acts on the history that was there when it was called. Another rewind that came first is told, never
//!   rewound in its turn: what that one left isn't what the caller has looked at.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use serde::Serialize;

use crate::commit::staged::Control;
use crate::commit::writer::{Settled, append_made, given_up};
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum;
use crate::format::part::Item;
use crate::format::record::{Record, Rewind, Rewound};
use crate::id::{Checksum, Generation, Nonce, Part, Sequence, Step, Version};
use crate::limits::COMMIT_HEADER_BYTES;
use crate::log::Log;
use crate::log::past::Past;
use crate::log::state::{ProducerState, State};
use crate::log::tail::Tail;
use crate::name::Name;
use crate::planted::{Bug, is_planted};

/// How a store is rewound; see [`Store::rewind`](crate::Store::rewind).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RewindOptions {
    /// Rewind although two or more groups read the store: all of them lose what lies beyond the step
    /// (default: refuse).
    pub even_with_groups: bool,
}

impl RewindOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`RewindOptions::even_with_groups`].
    #[must_use]
    pub fn even_with_groups(mut self, even: bool) -> Self {
        self.even_with_groups = even;
        self
    }
}

/// What a rewind drops, or would drop; see [`Store::rewind`](crate::Store::rewind).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RewindReport {
    /// The next step after it.
    pub step: Step,
    /// The next step before it: the steps from `step` up to this one are dropped.
    pub next_step: Step,
    /// How many parts are dropped, those of an incomplete step among them.
    pub parts: u64,
    /// How many bytes these have.
    pub bytes: u64,
    /// The generation that it begins.
    pub generation: Generation,
    /// Whether it opens a stream that was closed.
    pub reopens: bool,
    /// The checkpoints beyond the step, which are dropped, by group.
    pub checkpoints: BTreeMap<Name, Vec<Name>>,
    /// The producers that are set back. All others have to be opened anew as well.
    pub producers: Vec<SetBack>,
}

/// A producer that a rewind sets back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SetBack {
    /// Its name.
    pub producer: Name,
    /// The sequence at which it goes on.
    pub sequence: Sequence,
    /// How many of its parts are dropped.
    pub parts: u64,
    /// Whether it had finished, and now hasn't.
    pub unfinished: bool,
}

/// Rewinds: the steps from `step` on are dropped.
///
/// # Errors
/// `Reclaimed`, `Invalid`, `Rewound` as the documentation of the facade says; `Corrupt`, `Full`, `Io`, ...
pub(crate) fn rewind(log: &Log, step: Step, options: RewindOptions) -> Result<RewindReport> {
    let mut tail = log.current()?;
    let began = tail.state.history.last_rewind;
    let first = step.first_part(log.parts_per_step());
    let described = RefCell::new(None);
    // It may be read from a log that was replayed anew, with another rewind in it: so that is looked at as
    // often.
    let make = |tail: &mut Tail| {
        let described = |tail: &Tail| {
            check_history(log, &tail.state, began, step)?;
            check(log, tail, step, options)?;
            described.replace(Some(Basis::of(&tail.state, first)));
            describe(log, tail, step, options)
        };
        tail.read(log, described).map(Some)
    };
    // What it drops is what the log has right before it: as of the last time that it was found not to be in.
    let drops = Cell::new(None);
    append_made(log, &mut tail, make, |state, staged| {
        if state.history.last_rewind == Some(staged.commit.nonce) {
            return Settled::In(version_of(state));
        }
        let is_so = described.borrow().as_ref() == Some(&Basis::of(state, first));
        match (state.judge(&staged.commit), &staged.commit.record) {
            (Ok(None), Some(Record::Rewind(record))) if is_so => {
                drops.set(Some(report(state, record)));
                Settled::Open
            }
            (Err(error), _) => Settled::Never(error),
            _ => given_up(),
        }
    })?;
    let unsettled = || Error::new(ErrorKind::Contended, "the rewind wasn't tried").at(&log.path);
    let report = drops.take().ok_or_else(unsettled)?;
    tracing::warn!(
        step = %report.step, from = %report.next_step, generation = %report.generation, parts = report.parts,
        "rewound the store"
    );
    Ok(report)
}

/// What a rewind's record rests on, and replay can't judge: another state of it wants another record.
#[derive(Debug, PartialEq, Eq)]
struct Basis {
    /// Where nothing is dropped the step is now: so it is another record once somebody finishes or begins
    /// again, or a part comes, since what came before that is right before the step then.
    finished: Option<Vec<bool>>,
    /// Since when the producers have their names: one that was forgotten and begun anew isn't who was there.
    anew: Vec<Option<Version>>,
    ring: Option<Version>,
}

impl Basis {
    fn of(state: &State, first: Part) -> Self {
        let known = || state.producers.values();
        Self {
            finished: (state.next_part <= first).then(|| known().map(|one| one.finished).collect()),
            anew: known().map(|one| one.anew).collect(),
            ring: state.ring.as_ref().map(|ring| ring.last),
        }
    }
}

/// What a rewind would drop now.
///
/// # Errors
/// As [`rewind`].
pub(crate) fn preview(log: &Log, step: Step, options: RewindOptions) -> Result<RewindReport> {
    let mut tail = log.current()?;
    let control = tail.read(log, |tail| {
        check(log, tail, step, options)?;
        describe(log, tail, step, options)
    })?;
    match &control.record {
        Record::Rewind(record) => Ok(report(&tail.state, record)),
        _ => Err(Error::new(ErrorKind::Invalid, "no rewind was described").at(&log.path)),
    }
}

/// A change of history between a command's first look and its record is another history than the one that its
/// caller has looked at.
///
/// # Errors
/// `Rewound`.
pub(super) fn check_history(log: &Log, state: &State, began: Option<Nonce>, step: Step) -> Result<()> {
    if state.history.last_rewind == began {
        return Ok(());
    }
    let what = format!(
        "the store was rewound by another meanwhile, to generation {}: look at what there is now, and decide \
         anew",
        state.generation
    );
    Err(Error::new(ErrorKind::Rewound, what).step(step).at(&log.path))
}

fn check(log: &Log, tail: &Tail, step: Step, options: RewindOptions) -> Result<()> {
    let (state, invalid) =
        (&tail.state, |what: String| Err(Error::new(ErrorKind::Invalid, what).step(step).at(&log.path)));
    if step < state.floor {
        return Err(log.reclaimed(step, tail));
    }
    if step > state.next_step() {
        let next = state.next_step();
        return invalid(format!("the store can't be rewound to what lies beyond its next step, {next}"));
    }
    let groups: Vec<_> = state.live_groups().map(|(name, _)| name.as_str()).collect();
    if groups.len() > 1 && !options.even_with_groups {
        let groups = groups.join(", ");
        return invalid(format!(
            "{groups} all read the store, and each would lose what lies beyond the step: say so to rewind it \
             under all of them"
        ));
    }
    Ok(())
}

/// The record, and the states that it describes: everything as it was right before the first part that it
/// drops.
///
/// # Errors
/// `Corrupt`, `Unsupported` or `Io` when that can't be read.
pub(super) fn describe(log: &Log, tail: &Tail, step: Step, options: RewindOptions) -> Result<Control> {
    let past = Past::before(log, tail, step.first_part(log.parts_per_step()))?;
    let newest = tail.state.next_part;
    let mut states = match is_planted(Bug::RewindOfNow) {
        true => Past::before(log, tail, newest)?.producer_states(log)?,
        false => past.producer_states(log)?,
    };
    let (mut payload, mut producers) = (Vec::new(), Vec::new());
    for (name, now) in &tail.state.producers {
        // Who had the name before it was forgotten is gone for good: whoever has it now hadn't begun then.
        let same = |then: &&ProducerState| then.anew == now.anew || is_planted(Bug::ForgottenRewound);
        let known = past.state.producers.get(name).filter(same);
        let bytes = known.and_then(|_| states.remove(name)).unwrap_or_default();
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let of = |then: fn(&ProducerState) -> Checksum| known.map_or(Checksum::ZERO, then);
        producers.push(Rewound {
            producer: name.clone(),
            next: known.map_or(Sequence::ZERO, |known| known.next),
            last: of(|known| known.last_checksum),
            last_part: known.and_then(|known| known.last_part),
            finished: known.is_some_and(|known| known.finished),
            place: COMMIT_HEADER_BYTES.saturating_add(payload.len() as u64),
            state: Item { length, checksum: checksum::of(&bytes) },
        });
        payload.extend(bytes);
    }
    let record = Record::Rewind(Rewind {
        generation: tail.state.generation.next(),
        step,
        lineage: log.lineage(tail, step)?,
        bytes_before: past.state.bytes_written,
        many_groups: options.even_with_groups,
        turn: tail.state.turn_as_of(&past.state),
        producers,
    });
    Ok(Control { record, payload })
}

/// What a record that takes effect in a state drops.
fn report(state: &State, record: &Rewind) -> RewindReport {
    let first = record.step.first_part(state.parts_per_step);
    let set_back = |(now, then): (&ProducerState, &Rewound)| {
        let parts = now.next.get().saturating_sub(then.next.get());
        let unfinished = now.finished && !then.finished;
        let changed = parts > 0 || unfinished;
        changed.then(|| SetBack { producer: then.producer.clone(), sequence: then.next, parts, unfinished })
    };
    let beyond = |group: &crate::log::groups::GroupState| -> Vec<Name> {
        let beyond = group.checkpoints.iter().filter(|kept| kept.step > record.step);
        beyond.map(|kept| kept.name.clone()).collect()
    };
    let checkpoints = state.groups.iter().map(|(name, group)| (name.clone(), beyond(group)));
    RewindReport {
        step: record.step,
        next_step: state.next_step(),
        parts: state.next_part.get().saturating_sub(first.get()),
        bytes: state.bytes_written.saturating_sub(record.bytes_before),
        generation: record.generation,
        reopens: state.closed.is_some(),
        checkpoints: checkpoints.filter(|(_, dropped)| !dropped.is_empty()).collect(),
        producers: state.producers.values().zip(&record.producers).filter_map(set_back).collect(),
    }
}

/// Where the newest valid Rewind is: the piece that it began is the last one.
fn version_of(state: &State) -> Version {
    let after = state.history.pieces.last().map_or(0, |piece| piece.version.get());
    Version::new(after.saturating_sub(1))
}
