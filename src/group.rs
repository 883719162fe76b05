//! The facade of groups: opening them, joining their runs, and what an operator does with them.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::consumer::Reader;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, Step};
use crate::lifecycle::group::{self, Speaker};
use crate::log::{Log, progress};
use crate::name::Name;
use crate::options::{CheckpointOptions, Settings};
use crate::position::Position;
use crate::run::{Checkpoint, Run, Start};
use crate::snapshot;
use crate::store::Store;

/// What a store knows of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GroupInfo {
    /// Its name.
    pub name: Name,
    /// The incarnation that may checkpoint; none once retired.
    pub incarnation: Option<Incarnation>,
    /// Where that incarnation started.
    pub start: Step,
    /// The lowest step that it needs; none once retired.
    pub needs: Option<Step>,
    /// Its retained checkpoints, the newest last.
    pub checkpoints: Vec<Checkpoint>,
    /// How far it has come, as the rank that opened it said last; none if that says nothing.
    pub progress: Option<GroupProgress>,
}

impl GroupInfo {
    /// The next step that it delivers, as far as is known: as its progress says, or else its newest
    /// checkpoint since it was opened, or else its start. None once retired.
    ///
    /// For people and alerts: what it says can be a second old, or older where its rank has died.
    pub fn reached(&self) -> Option<Step> {
        let incarnation = self.incarnation?;
        let own = |kept: &&Checkpoint| kept.version.get() > incarnation.get();
        let newest = self.checkpoints.iter().rev().find(own).map(|kept| kept.position.step);
        Some(self.progress.map(|said| said.step).or(newest).unwrap_or(self.start))
    }
}

/// How far a group has come, as the rank that opened it says about once a second. A hint: nothing that is
/// promised rests on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GroupProgress {
    /// The next step that it delivers.
    pub step: Step,
    /// How many shares read each step.
    pub shares: u32,
    /// Whether it waits for that step.
    pub hungry: bool,
    /// When it said so, by the clock of its host, in microseconds since 1970.
    pub wall_us: u64,
}

fn progress_of(log: &Log, name: &Name, incarnation: Option<Incarnation>) -> Option<GroupProgress> {
    let said = progress::read(log, name).filter(|said| Some(said.incarnation) == incarnation)?;
    Some(GroupProgress { step: said.step, shares: said.shares, hungry: said.hungry, wall_us: said.wall_us })
}

/// A named training run that reads a store and owns checkpoints; see [`Store::group`].
#[derive(Clone, Debug)]
pub struct Group {
    reader: Arc<Reader>,
    name: Name,
}

impl Group {
    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Opens the name and begins its run: to be called by one rank, which gives [`Run::snapshot`] to the
    /// others.
    ///
    /// An older job of this name is fenced: it can't checkpoint any more. The start, and all after it, are
    /// kept until the first checkpoint of this run; older checkpoints stay.
    ///
    /// # Errors
    /// `Reclaimed` for a start below the floor; `Invalid` for one beyond the end, or a position of another
    /// store;
    /// `Rewound` when the store no longer has the position's history; `Fenced` when yet another job opened
    /// the name meanwhile; `Full`, `Contended`, `Corrupt`, `Io`.
    pub fn begin(&self, start: impl Into<Start>) -> Result<Run> {
        self.reader.log.once(|| Run::begin_as(Arc::clone(&self.reader), &self.name, start.into()))
    }

    /// Its retained checkpoints, the newest last.
    ///
    /// # Errors
    /// `Invalid` when there is no such group; `Corrupt`, `Unsupported`, `Io`.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        let log = &self.reader.log;
        let tail = log.current()?;
        let unknown =
            || Error::new(ErrorKind::Invalid, format!("there is no group {}", self.name)).at(&log.path);
        let known = tail.state.groups.get(&self.name).ok_or_else(unknown)?;
        Ok(known.checkpoints.iter().map(|kept| Checkpoint::of(log, kept.clone())).collect())
    }

    /// Writes a checkpoint on behalf of whoever runs the group, fencing nobody; if nobody does, the group is
    /// opened first, starting at the floor.
    ///
    /// # Errors
    /// As [`Run::checkpoint_with`].
    pub fn checkpoint(
        &self,
        position: Position,
        name: &str,
        options: &CheckpointOptions,
    ) -> Result<Checkpoint> {
        let (log, name) = (&self.reader.log, Name::new(name)?);
        let kept =
            log.once(|| group::checkpoint(log, &self.name, Speaker::Operator, &position, &name, options))?;
        Ok(Checkpoint::of(log, kept))
    }

    /// Drops a checkpoint on behalf of whoever runs the group. False if there is none of that name.
    ///
    /// # Errors
    /// `Invalid` when there is no such group or it is retired; `Full`, `Contended`, `Io`.
    pub fn drop_checkpoint(&self, name: &str) -> Result<bool> {
        let log = &self.reader.log;
        log.once(|| group::drop_checkpoint(log, &self.name, Speaker::Operator, &Name::new(name)?))
    }

    /// The checkpoint that [`Group::drop_checkpoint`] would drop now; none if there is none of that name.
    ///
    /// # Errors
    /// `Invalid` when there is no such group or it is retired; `Corrupt`, `Unsupported`, `Io`.
    pub fn preview_drop(&self, name: &str) -> Result<Option<Checkpoint>> {
        let log = &self.reader.log;
        let kept = group::preview_drop(log, &self.name, &Name::new(name)?)?;
        Ok(kept.map(|kept| Checkpoint::of(log, kept)))
    }

    /// Retires the group: it protects nothing any more, and its checkpoints are gone. False if it was
    /// retired.
    ///
    /// # Errors
    /// `Invalid` when there is no such group; `Full`, `Contended`, `Io`.
    pub fn retire(&self) -> Result<bool> {
        self.reader.log.once(|| group::retire(&self.reader.log, &self.name))
    }
}

impl Store {
    /// A group, by its name; whether it exists is asked when something is done with it.
    ///
    /// # Errors
    /// `Invalid` for a bad name.
    pub fn group(&self, name: &str) -> Result<Group> {
        Ok(Group { reader: Arc::clone(self.reader()), name: Name::new(name)? })
    }

    /// The groups that it knows, by name, as of now, with what each says of its progress.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Io`.
    pub fn groups(&self) -> Result<Vec<GroupInfo>> {
        let log = self.log();
        // The hints are read without the tail.
        let known = log.current()?.state.groups.clone();
        let groups = known.iter().map(|(name, known)| GroupInfo {
            name: name.clone(),
            incarnation: known.incarnation,
            start: known.start,
            needs: known.needs(),
            checkpoints: known.checkpoints.iter().map(|kept| Checkpoint::of(log, kept.clone())).collect(),
            progress: progress_of(log, name, known.incarnation),
        });
        Ok(groups.collect())
    }

    /// The position at a step of the history that the store has now: what a run from there begins with.
    ///
    /// # Errors
    /// `Reclaimed` for a step below the floor, `Invalid` for one beyond the end; `Corrupt`, `Unsupported`,
    /// `Io`.
    pub fn position(&self, step: Step) -> Result<Position> {
        self.run(step).map(|run| run.position())
    }

    /// Opens a store by a snapshot that another rank has taken: with a handful of calls, instead of replaying
    /// the log's end.
    ///
    /// # Errors
    /// As [`Store::open`] and [`Store::join`].
    pub fn open_from(path: impl AsRef<Path>, snapshot: &[u8]) -> Result<Self> {
        let store = Self::open_with(path, &Settings::default())?;
        store.join(snapshot)?;
        Ok(store)
    }

    /// Joins a run by the snapshot that the rank that began it has given out: reads a handful of files,
    /// writes nothing.
    ///
    /// # Errors
    /// `Invalid` when the bytes aren't a snapshot, or one of another store; `Unsupported` when another
    /// library wrote it; `Rewound` when the log here doesn't reach as far as the snapshot has seen;
    /// `Corrupt`, `Io`.
    pub fn join(&self, snapshot: &[u8]) -> Result<Run> {
        let log = self.log();
        let told = snapshot::store_of(snapshot)?;
        if told != log.identity.uuid {
            let (host, is) = (log.env.who().host, log.identity.uuid);
            let what = format!(
                "the snapshot is of store {told}, but on host {host} this path is store {is}: is it one that \
                 each host has for itself?"
            );
            return Err(Error::new(ErrorKind::Invalid, what).at(&log.path));
        }
        Run::of_snapshot(Arc::clone(self.reader()), snapshot)
    }
}

impl Run {
    /// Opens the store and joins the run that a snapshot is of: see [`Store::join`].
    ///
    /// Give the threads of one process clones of the run: they share one handle.
    ///
    /// # Errors
    /// As [`Store::open`] and [`Store::join`].
    pub fn join(path: impl AsRef<Path>, snapshot: &[u8]) -> Result<Self> {
        Store::open_with(path, &Settings::default())?.join(snapshot)
    }
}
