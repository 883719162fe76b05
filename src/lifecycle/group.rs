//! Groups: who reads the store, from where on it is needed, and its checkpoints.
//!
//! - Opening a name fences its older incarnations (P4). Operators speak under the current incarnation as it
//!   was replayed, and open one only if there is none: they never fence.
//! - A checkpoint is written for the generation that its run has seen: history that was changed since makes
//!   it void, not wrong (P2).
//! - An effect that is there already is done, so every word can be repeated after any crash (R6).

use crate::commit::writer::{Settled, append_control};
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::{Checkpoint, Record};
use crate::id::{Generation, Incarnation, Step};
use crate::limits::{CHECKPOINTS_MAX, GROUPS_MAX, METADATA_BYTES_MAX, STATES_BYTES_MAX};
use crate::log::Log;
use crate::log::groups::{GroupState, Kept};
use crate::log::state::State;
use crate::log::tail::Tail;
use crate::name::Name;
use crate::options::CheckpointOptions;
use crate::planted::{Bug, is_planted};
use crate::position::Position;

/// Under whose name a word is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// A run's: of this incarnation, for the generation that it reads.
    Run(Incarnation, Generation),
    /// An operator's: under whatever incarnation is current.
    Operator,
}

/// Opens a group's name, at `start` or else at the floor; fences its older incarnations. An operator opens
/// only a group that nobody runs, whenever it turns out that somebody does.
///
/// # Errors
/// `Reclaimed` for a start below the floor, `Invalid` for one beyond the head, `Rewound` when history is
/// changed meanwhile, `Contended` when another opens the name meanwhile: who slept fences nobody newer;
/// `Full`, `Io`.
pub(crate) fn open(
    log: &Log,
    tail: &mut Tail,
    name: &Name,
    start: Option<Step>,
    by_operator: bool,
) -> Result<Incarnation> {
    let generation = tail.state.generation;
    let last_of = |state: &State| state.groups.get(name).map(|known| known.last_group);
    let last = last_of(&tail.state);
    let make = |state: &State| {
        if by_operator && current(state, name).is_some() {
            return Ok(None);
        }
        if state.generation != generation {
            return Err(changed(log, generation, state));
        }
        if last_of(state) != last {
            return Err(opened_by_another(log, name));
        }
        let start = start.unwrap_or(state.floor);
        check_start(log, state, name, start)?;
        Ok(Some(Record::Group { group: name.clone(), last, start }))
    };
    let opened = append_control(log, tail, make, |state, staged| {
        match state.groups.get(name).filter(|known| known.nonce == staged.commit.nonce) {
            Some(known) => Settled::In(known.last_group),
            None => Settled::Open,
        }
    })?;
    match (opened, current(&tail.state, name)) {
        (None, Some(current)) => Ok(current),
        (Some(appended), Some(current)) if current == appended.version.incarnation() => {
            tracing::info!(group = %name, incarnation = %current, "opened a group");
            Ok(current)
        }
        _ => Err(opened_by_another(log, name)),
    }
}

fn opened_by_another(log: &Log, name: &Name) -> Error {
    let what = format!("group {name} was opened by another while this call was under way");
    Error::new(ErrorKind::Contended, what).at(&log.path)
}

fn check_start(log: &Log, state: &State, name: &Name, start: Step) -> Result<()> {
    if start < state.floor {
        let what = format!("group {name} can't start below the floor, which is {}", state.floor);
        return Err(Error::new(ErrorKind::Reclaimed, what).step(start).at(&log.path));
    }
    if start > state.next_step() {
        let next = state.next_step();
        let what = format!("group {name} can't start beyond the end of the store, whose next step is {next}");
        return Err(Error::new(ErrorKind::Invalid, what).step(start).at(&log.path));
    }
    if !state.groups.contains_key(name) && state.groups.len() >= GROUPS_MAX {
        let what = format!("the store knows {GROUPS_MAX} groups, which is the most");
        return Err(Error::new(ErrorKind::Full, what).at(&log.path));
    }
    Ok(())
}

/// Writes a checkpoint of a group, or finds it there: of the same name at the same step.
///
/// # Errors
/// `Fenced` when a newer incarnation has taken over or the group was retired; `Rewound` when history was
/// changed;
/// `Reclaimed`, `Invalid` for a position that isn't one of this store, a name that is taken, or too long
/// metadata; `Full`, `Contended`, `Io`.
pub(crate) fn checkpoint(
    log: &Log,
    group: &Name,
    speaker: Speaker,
    position: &Position,
    name: &Name,
    options: &CheckpointOptions,
) -> Result<Kept> {
    let refuse = |kind, what: String| Error::new(kind, what).step(position.step).at(&log.path);
    if options.metadata.len() > METADATA_BYTES_MAX {
        let bytes = options.metadata.len();
        let what = format!("metadata of {bytes} bytes is longer than {METADATA_BYTES_MAX}");
        return Err(refuse(ErrorKind::Invalid, what));
    }
    let mut tail = log.current()?;
    // Lineage is compared here; replay doesn't judge it (design, section 6). Before a group is opened for it:
    // one that was refused would go on protecting the floor.
    log.check_position(&tail, position)?;
    if speaker == Speaker::Operator && current(&tail.state, group).is_none() {
        open(log, &mut tail, group, None, true)?;
    }
    let lineage = position.lineage;
    let generation = tail.state.generation;
    let make = |state: &State| {
        let (known, incarnation) = speaking(log, state, group, speaker)?;
        // A position that was good is good as long as history is the same.
        if state.generation != generation {
            return Err(changed(log, generation, state));
        }
        if position.step < state.floor {
            let what = format!("the step is below the floor, which is {}", state.floor);
            return Err(refuse(ErrorKind::Reclaimed, what));
        }
        if let Some(taken) = known.checkpoint(name) {
            return match otherwise(group, taken, position, options) {
                None => Ok(None),
                Some(what) => Err(refuse(ErrorKind::Invalid, what)),
            };
        }
        check_room(log, state, known, options)?;
        Ok(Some(Record::Checkpoint(Checkpoint {
            group: group.clone(),
            incarnation,
            step: position.step,
            lineage,
            name: name.clone(),
            pinned: options.pinned,
            metadata: options.metadata.clone(),
        })))
    };
    // In, if it is this incarnation's, of this history: who was fenced since is told that (P4), whoever's
    // checkpoint of that name stands there now.
    append_control(log, &mut tail, make, |state, staged| {
        let Some(Record::Checkpoint(own)) = &staged.commit.record else { return Settled::Open };
        let known = state.groups.get(group).filter(|known| known.incarnation == Some(own.incarnation));
        let same = |kept: &&Kept| {
            (kept.step, kept.lineage, kept.generation) == (own.step, own.lineage, staged.commit.generation)
                && kept.version.incarnation() > own.incarnation
        };
        match known.and_then(|known| known.checkpoint(name)).filter(same) {
            Some(kept) => Settled::In(kept.version),
            None => Settled::Open,
        }
    })?;
    let kept = tail.state.groups.get(group).and_then(|known| known.checkpoint(name)).cloned();
    kept.ok_or_else(|| {
        let what = format!("checkpoint {name} of group {group} was dropped again meanwhile");
        refuse(ErrorKind::Contended, what)
    })
}

/// How a checkpoint of that name that is there differs from what is asked for; none if it is just that.
fn otherwise(group: &Name, taken: &Kept, position: &Position, options: &CheckpointOptions) -> Option<String> {
    let name = &taken.name;
    if (taken.step, taken.lineage) != (position.step, position.lineage) {
        return Some(format!("group {group} has a checkpoint {name} at step {} already", taken.step));
    }
    let same = (taken.pinned, &taken.metadata) == (options.pinned, &options.metadata);
    (!same).then(|| {
        format!(
            "group {group} has a checkpoint {name} there already, but not pinned alike or with other \
             metadata: drop it first"
        )
    })
}

/// Drops a checkpoint by its name. False if the group has none of that name.
///
/// # Errors
/// `Fenced` when this isn't the group's incarnation any more, `Invalid` when there is no such group; `Full`,
/// `Contended`, `Io`.
pub(crate) fn drop_checkpoint(log: &Log, group: &Name, speaker: Speaker, name: &Name) -> Result<bool> {
    let mut tail = log.current()?;
    let make = |state: &State| {
        let (known, incarnation) = speaking(log, state, group, speaker)?;
        let drop = |kept: &Kept| Record::Drop { group: group.clone(), incarnation, checkpoint: kept.version };
        Ok(known.checkpoint(name).map(drop))
    };
    let appended = append_control(log, &mut tail, make, |state, staged| match &staged.commit.record {
        Some(Record::Drop { checkpoint, .. }) if !has(state, group, *checkpoint) => {
            // By whom doesn't matter; where, only to sync it: what was replayed last comes after it.
            tail_version(state)
        }
        _ => Settled::Open,
    })?;
    Ok(appended.is_some())
}

/// The checkpoint that [`drop_checkpoint`] would drop for an operator. Nothing is changed.
///
/// # Errors
/// `Invalid` when there is no such group, or it is retired; `Corrupt`, `Io`.
pub(crate) fn preview_drop(log: &Log, group: &Name, name: &Name) -> Result<Option<Kept>> {
    let tail = log.current()?;
    let (known, _) = speaking(log, &tail.state, group, Speaker::Operator)?;
    Ok(known.checkpoint(name).cloned())
}

/// Drops every checkpoint that isn't named, but for pinned ones; gives the names of those that went.
///
/// # Errors
/// As [`drop_checkpoint`].
pub(crate) fn retain(log: &Log, group: &Name, speaker: Speaker, names: &[Name]) -> Result<Vec<Name>> {
    let doomed: Vec<Name> = {
        let tail = log.current()?;
        let (known, _) = speaking(log, &tail.state, group, speaker)?;
        let doomed = known.checkpoints.iter().filter(|kept| !kept.pinned && !names.contains(&kept.name));
        doomed.map(|kept| kept.name.clone()).collect()
    };
    for name in &doomed {
        drop_checkpoint(log, group, speaker, name)?;
    }
    Ok(doomed)
}

/// Retires a group: it protects nothing any more. False if it was retired already.
///
/// # Errors
/// `Invalid` when there is no such group; `Full`, `Contended`, `Io`.
pub(crate) fn retire(log: &Log, group: &Name) -> Result<bool> {
    let mut tail = log.current()?;
    let make = |state: &State| {
        let known = state.groups.get(group).ok_or_else(|| unknown(log, group))?;
        Ok(known.incarnation.map(|incarnation| Record::RetireGroup { group: group.clone(), incarnation }))
    };
    let appended = append_control(log, &mut tail, make, |state, _| match current(state, group) {
        None => tail_version(state),
        Some(_) => Settled::Open,
    })?;
    Ok(appended.is_some())
}

fn current(state: &State, group: &Name) -> Option<Incarnation> {
    state.groups.get(group).and_then(|known| known.incarnation)
}

fn has(state: &State, group: &Name, checkpoint: crate::id::Version) -> bool {
    let known = state.groups.get(group);
    known.is_some_and(|known| known.checkpoints.iter().any(|kept| kept.version == checkpoint))
}

/// An effect that replay shows is in by the newest version at the latest.
fn tail_version(state: &State) -> Settled {
    match state.next_version.get().checked_sub(1) {
        Some(newest) => Settled::In(newest.into()),
        None => Settled::Open,
    }
}

/// The group and the incarnation under which a speaker may speak.
fn speaking<'s>(
    log: &Log,
    state: &'s State,
    group: &Name,
    speaker: Speaker,
) -> Result<(&'s GroupState, Incarnation)> {
    let known = state.groups.get(group).ok_or_else(|| unknown(log, group))?;
    match (known.incarnation, speaker) {
        (Some(current), Speaker::Run(incarnation, generation)) if current == incarnation => {
            if state.generation != generation {
                return Err(changed(log, generation, state));
            }
            Ok((known, incarnation))
        }
        (_, Speaker::Run(incarnation, _)) if is_planted(Bug::CheckpointLate) => Ok((known, incarnation)),
        (Some(current), Speaker::Operator) => Ok((known, current)),
        (Some(current), Speaker::Run(..)) => {
            let what = format!("group {group} was opened anew, as incarnation {current}");
            Err(Error::new(ErrorKind::Fenced, what).at(&log.path))
        }
        (None, _) => {
            let what = format!("group {group} is retired");
            let kind = if speaker == Speaker::Operator { ErrorKind::Invalid } else { ErrorKind::Fenced };
            Err(Error::new(kind, what).at(&log.path))
        }
    }
}

fn unknown(log: &Log, group: &Name) -> Error {
    Error::new(ErrorKind::Invalid, format!("there is no group {group}")).at(&log.path)
}

fn changed(log: &Log, was: Generation, state: &State) -> Error {
    let is = state.generation;
    let what =
        format!("history was changed: generation {is} has followed {was}; start again from a checkpoint");
    Error::new(ErrorKind::Rewound, what).at(&log.path)
}

/// Checkpoints are bounded, and their metadata with the producers' states: every index carries them.
fn check_room(log: &Log, state: &State, known: &GroupState, options: &CheckpointOptions) -> Result<()> {
    let full = |what: String| Err(Error::new(ErrorKind::Full, what).at(&log.path));
    if known.checkpoints.len() >= CHECKPOINTS_MAX {
        return full(format!("the group has {CHECKPOINTS_MAX} checkpoints, which is the most: drop some"));
    }
    if state.bytes_carried().saturating_add(options.metadata.len() as u64) <= STATES_BYTES_MAX {
        return Ok(());
    }
    full(format!(
        "the states of producers and the metadata of checkpoints would be more than {STATES_BYTES_MAX} bytes"
    ))
}
