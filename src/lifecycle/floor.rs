//! Where the floor may go, and raising it: checkpoints dropped first, then the Floor record.
//!
//! - The floor is the lowest step that a live group needs (P5), as of the state that the record is judged by:
//!   it is made anew after every lost race, and one that a group needs can't be linked (R5).
//! - A Drop is written under its group's current incarnation as replayed: nobody is fenced (P4).
//! - An effect that is there already, by whomever, is done.

use super::reclaimed::{DroppedCheckpoint, Holder, ReclaimOptions};
use crate::commit::retention;
use crate::commit::writer::{Settled, append_control};
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::format::record::Record;
use crate::id::{Checksum, Generation, Nonce, Step, Version};
use crate::limits::LOOK_AGAIN_MAX;
use crate::log::apply::Commit;
use crate::log::groups::GroupState;
use crate::log::past::Past;
use crate::log::state::State;
use crate::log::tail::Tail;
use crate::log::{Log, marks};
use crate::planted::{Bug, is_planted};

/// A checkpoint that is to be dropped.
#[derive(Debug)]
pub(super) struct Spare {
    version: Version,
    told: DroppedCheckpoint,
}

/// The checkpoints that the options let go, of all live groups.
///
/// # Errors
/// `Invalid` when a group would be left without any, and nobody said that it may.
pub(super) fn spare(log: &Log, state: &State, options: &ReclaimOptions) -> Result<Vec<Spare>> {
    let Some(keep) = options.keep else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for (group, known) in state.live_groups() {
        let spare = retention::choose(group, known, keep, options.allow_no_checkpoint)
            .map_err(|error| error.at(&log.path))?;
        all.extend(spare.into_iter().map(|kept| Spare {
            version: kept.version,
            told: DroppedCheckpoint { group: group.clone(), name: kept.name.clone(), step: kept.step },
        }));
    }
    Ok(all)
}

/// The Drop of a checkpoint, as long as that can go: after a change of history, or when others were dropped
/// meanwhile, it may be its group's last.
///
/// # Errors
/// As [`spare`].
fn drop_of(log: &Log, state: &State, spare: &Spare, options: &ReclaimOptions) -> Result<Option<Record>> {
    let (group, keep) = (&spare.told.group, options.keep.unwrap_or_default());
    let Some(known) = state.groups.get(group) else { return Ok(None) };
    let Some(incarnation) = known.incarnation else { return Ok(None) };
    let chosen = retention::choose(group, known, keep, options.allow_no_checkpoint)
        .map_err(|error| error.at(&log.path))?;
    let still = chosen.iter().any(|kept| kept.version == spare.version);
    Ok(still.then(|| Record::Drop { group: group.clone(), incarnation, checkpoint: spare.version }))
}

/// Writes the Drops; gives those that were written here.
///
/// # Errors
/// As [`spare`], as of the state that each is judged by; `Contended`, `Full`, `Io`, ...
pub(super) fn drop_all(
    log: &Log,
    tail: &mut Tail,
    spare: Vec<Spare>,
    options: &ReclaimOptions,
) -> Result<Vec<DroppedCheckpoint>> {
    let mut dropped = Vec::new();
    for one in spare {
        let make = |state: &State| drop_of(log, state, &one, options);
        if append_control(log, tail, make, |_, _| Settled::Open)?.is_some() {
            dropped.push(one.told);
        }
    }
    Ok(dropped)
}

/// How far the floor may rise, and what keeps it from rising further.
///
/// # Errors
/// `Invalid` for a step that isn't published, where that alone decides.
pub(super) fn aim(log: &Log, state: &State, up_to: Option<Step>) -> Result<(Step, Holder)> {
    let needed = state.needed().and_then(|(step, name)| Some((step, name, state.groups.get(name)?)));
    let told = |step: Step| Holder { group: None, step, why: "it was told to go no further".to_owned() };
    match (needed, up_to) {
        (None, None) => {
            let why = "no group lives, so nothing is freed unless a step is told".to_owned();
            Ok((state.floor, Holder { group: None, step: state.floor, why }))
        }
        (None, Some(step)) if step > state.next_step() => {
            let next = state.next_step();
            let what = format!("the floor can't rise beyond the end of the store, whose next step is {next}");
            Err(Error::new(ErrorKind::Invalid, what).step(step).at(&log.path))
        }
        (Some((needed, _, _)), Some(step)) if step < needed => Ok((step.min(state.next_step()), told(step))),
        (None, Some(step)) => Ok((step, told(step))),
        (Some((step, name, known)), _) => {
            let holder = Holder { group: Some(name.clone()), step, why: why(known, step) };
            Ok((step.min(state.next_step()), holder))
        }
    }
}

/// Why a group needs a step.
fn why(known: &GroupState, step: Step) -> String {
    match known.checkpoints.iter().find(|kept| kept.step == step) {
        Some(kept) if kept.pinned => format!("its checkpoint {}, which is pinned", kept.name),
        Some(kept) => format!("its checkpoint {}", kept.name),
        None if known.start == step => "it began there and has no checkpoint yet".to_owned(),
        None => "it has no checkpoint left".to_owned(),
    }
}

/// What a Floor record says, and the generation that it is written for.
#[derive(Clone, Copy, Debug)]
struct Floor {
    step: Step,
    lineage: Checksum,
    bytes_before: u64,
    generation: Generation,
}

impl Floor {
    fn record(&self) -> Record {
        let Self { step, lineage, bytes_before, .. } = *self;
        Record::Floor { step, lineage, bytes_before }
    }
}

/// The floor that may be raised as of a state; none if it is there already.
fn wanted(log: &Log, tail: &Tail, state: &State, up_to: Option<Step>) -> Result<Option<Floor>> {
    let (step, _) = aim(log, state, up_to)?;
    if step <= state.floor {
        return Ok(None);
    }
    let past = Past::before(log, tail, step.first_part(state.parts_per_step))?;
    Ok(Some(Floor {
        step,
        lineage: log.lineage(tail, step)?,
        bytes_before: past.state.bytes_written,
        generation: state.generation,
    }))
}

/// Raises the floor as far as it may go.
///
/// # Errors
/// `Contended`, `Corrupt`, `Full`, `Io`, ...
pub(super) fn raise(log: &Log, tail: &mut Tail, up_to: Option<Step>) -> Result<()> {
    for _ in 0..LOOK_AGAIN_MAX {
        let Some(floor) = tail.read(log, |tail| wanted(log, tail, &tail.state, up_to))? else {
            return Ok(());
        };
        secure(log, tail)?;
        let make = |state: &State| {
            if state.floor >= floor.step {
                return Ok(None);
            }
            // Lineage and bytes are those of one history, and a group that came since may need more.
            if state.generation != floor.generation || aim(log, state, up_to)?.0 < floor.step {
                let what = "what live groups need has changed while the floor was raised";
                return Err(Error::new(ErrorKind::Contended, what).step(floor.step).at(&log.path));
            }
            Ok(Some(floor.record()))
        };
        match append_control(log, tail, make, |_, _| Settled::Open) {
            Err(error) if error.kind() == ErrorKind::Contended => {
                tracing::debug!(%error, "the floor is found anew");
            }
            appended => return appended.map(drop),
        }
    }
    let what = "what live groups need changes faster than the floor can be raised";
    Err(Error::new(ErrorKind::Contended, what).at(&log.path))
}

/// Makes durable, on a synced store, all that removal leans on: marks, indexes, segments' directories and the
/// newest commits, the Floor among them. What is removed is gone for good, so nothing by which it is dead may
/// be undone by a power cut (P6), nor the marks by which a sleeper learns of it (R6).
///
/// # Errors
/// `Io`: nothing may be removed then (R3).
pub(super) fn secure(log: &Log, tail: &Tail) -> Result<()> {
    if !log.is_synced() || is_planted(Bug::FloorUnsynced) {
        return Ok(());
    }
    for name in [names::MARKS, names::INDEX, names::LOG] {
        let synced = log.directory(name).and_then(|dir| log.storage.sync_dir(&dir));
        synced.map_err(|error| Error::io("can't sync a directory", error).at(log.path_of([name])))?;
    }
    let Some(newest) = tail.newest() else { return Ok(()) };
    let segment = newest.segment(log.segment_size());
    // Without it, it was removed: then it was complete and durable long ago (R4).
    let Some(dir) = log.open_segment(segment)? else { return Ok(()) };
    match log.storage.sync_dir(&dir) {
        // ... or is being.
        Err(error) if marks::explain(log, segment, &error) => Ok(()),
        synced => synced.map_err(|error| {
            Error::io("can't sync the newest segment", error)
                .at(log.path_of([names::LOG, &names::segment(segment)]))
        }),
    }
}

/// The state that there would be after the Drops and the Floor: replay itself says it, of records that nobody
/// writes.
///
/// # Errors
/// As [`raise`], but for what only writing gives.
pub(super) fn pretend(
    log: &Log,
    tail: &Tail,
    spare: &[Spare],
    options: &ReclaimOptions,
) -> Result<(State, Vec<DroppedCheckpoint>)> {
    let mut state = tail.state.clone();
    let mut dropped = Vec::new();
    for one in spare {
        if let Some(record) = drop_of(log, &state, one, options)?
            && apply(&mut state, record)?
        {
            dropped.push(one.told.clone());
        }
    }
    if let Some(floor) = wanted(log, tail, &state, options.up_to)? {
        apply(&mut state, floor.record())?;
    }
    Ok((state, dropped))
}

fn apply(state: &mut State, record: Record) -> Result<bool> {
    let commit = Commit {
        nonce: Nonce::new([0; 16]),
        checksum: Checksum::ZERO,
        kind: record.kind().number(),
        generation: state.generation,
        attempt_us: 0,
        record: Some(record),
    };
    state.apply(state.next_version, &commit).map(|void| void.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_s_need_is_said_in_words() {
        let known = GroupState {
            incarnation: None,
            last_group: Version::ZERO,
            nonce: Nonce::new([0; 16]),
            start: Step::new(3),
            holds: Some(Step::new(3)),
            checkpoints: Vec::new(),
        };
        assert_eq!(why(&known, Step::new(3)), "it began there and has no checkpoint yet");
        assert_eq!(why(&known, Step::new(5)), "it has no checkpoint left");
    }
}
