//! A run: a view of the log from which ranks read the same steps.

use std::sync::Arc;

use serde::Serialize;

use crate::consumer::{Consumer, ConsumerOptions, Reader, View};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, Step, Version};
use crate::lifecycle::group::{self, Speaker};
use crate::log::Log;
use crate::log::groups::Kept;
use crate::log::progress::Teller;
use crate::log::tail::Tail;
use crate::name::Name;
use crate::options::CheckpointOptions;
use crate::position::Position;
use crate::share::Share;
use crate::snapshot::{self, Snapshot};

/// Where a run starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// The first step that is still retained.
    Beginning,
    /// This step.
    Step(Step),
    /// A saved position: it is checked that the store still has that history.
    Position(Position),
}

impl From<Step> for Start {
    fn from(step: Step) -> Self {
        Self::Step(step)
    }
}

impl From<Position> for Start {
    fn from(position: Position) -> Self {
        Self::Position(position)
    }
}

impl From<&Checkpoint> for Start {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self::Position(checkpoint.position)
    }
}

/// What was saved last, or the beginning if nothing was.
impl From<Option<Position>> for Start {
    fn from(saved: Option<Position>) -> Self {
        saved.map_or(Self::Beginning, Self::Position)
    }
}

/// A step that a group needs, marked when a model was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Its name within the group.
    pub name: Name,
    /// Where a run goes on from it.
    pub position: Position,
    /// Whether it stays until it is dropped by its name.
    pub pinned: bool,
    /// The trainer's own.
    pub metadata: Vec<u8>,
    /// Its commit.
    pub version: Version,
}

impl Checkpoint {
    pub(crate) fn of(log: &Log, kept: Kept) -> Self {
        let Kept { version, generation, step, lineage, name, pinned, metadata } = kept;
        let position = Position { store: log.identity.uuid, generation, step, lineage };
        Self { name, position, pinned, metadata, version }
    }
}

/// A view of a store at one moment, from which any number of consumers read; see
/// [`Store::run`](crate::Store::run).
///
/// All consumers of a run deliver the same steps, each its share, and end at the same step.
#[derive(Clone, Debug)]
pub struct Run {
    reader: Arc<Reader>,
    view: View,
    position: Position,
    /// The group that it belongs to, and as which incarnation.
    group: Option<(Name, Incarnation)>,
    /// Tells how far the group has come: only the handle that opened it does.
    teller: Option<Arc<Teller>>,
}

impl Run {
    pub(crate) fn begin(reader: Arc<Reader>, start: Start) -> Result<Self> {
        let until = reader.log.patient_until();
        let (view, position) = reader.log.outlast("beginning a run", until, |_| {
            let tail = reader.log.current_at_once()?;
            reader.witness(&tail);
            Self::view(&reader.log, &tail, start)
        })?;
        Ok(Self { reader, view, position, group: None, teller: None })
    }

    /// Opens a group's name and begins its run.
    pub(crate) fn begin_as(reader: Arc<Reader>, name: &Name, start: Start) -> Result<Self> {
        let log = Arc::clone(&reader.log);
        let mut tail = log.current()?;
        let (_, position) = Self::view(&log, &tail, start)?;
        let beginning = matches!(start, Start::Beginning);
        let incarnation = group::open(&log, &mut tail, name, (!beginning).then_some(position.step), false)?;
        // As of the Group record, or of what came right after it: nothing before it is missed.
        let (view, position) = Self::view(&log, &tail, start)?;
        reader.witness(&tail);
        drop(tail);
        let teller = Some(Arc::new(Teller::new(log, name.clone(), incarnation)));
        Ok(Self { reader, view, position, group: Some((name.clone(), incarnation)), teller })
    }

    /// The run of a snapshot.
    pub(crate) fn of_snapshot(reader: Arc<Reader>, bytes: &[u8]) -> Result<Self> {
        let log = &reader.log;
        let Snapshot { position, view, group, tail } = snapshot::decode(bytes, log.parts_per_step())?;
        log.adopt(tail)?;
        Ok(Self { reader, view, position, group, teller: None })
    }

    /// The view of a tail, and where a run from it starts.
    fn view(log: &Log, tail: &Tail, start: Start) -> Result<(View, Position)> {
        let view = View::of(&tail.state);
        let step = match start {
            Start::Beginning => tail.state.floor,
            Start::Step(step) => step,
            Start::Position(position) => log.check_position(tail, &position)?,
        };
        if step < tail.state.floor {
            return Err(log.reclaimed(step, tail));
        }
        if step > tail.state.next_step() {
            let what = format!(
                "the start lies beyond the end of the store, whose next step is {}",
                tail.state.next_step()
            );
            return Err(Error::new(ErrorKind::Invalid, what).step(step).at(&log.path));
        }
        let lineage = log.lineage(tail, step)?;
        let position = Position { store: log.identity.uuid, generation: view.generation, step, lineage };
        Ok((view, position))
    }

    /// Where it starts.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The group that it belongs to; none if it was begun without one, by [`Store::run`](crate::Store::run).
    pub fn group(&self) -> Option<&Name> {
        self.group.as_ref().map(|(name, _)| name)
    }

    /// The incarnation of its group as which it speaks; none if it was begun without a group.
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.group.as_ref().map(|(_, incarnation)| *incarnation)
    }

    /// What the other ranks need to start from the same view with a handful of calls: bytes for the trainer's
    /// own broadcast, to be given to [`Run::join`](crate::Run::join). They are for now, not for keeping.
    ///
    /// They take about 100 bytes for each producer, and 40 for each of at most two segments of commits.
    pub fn snapshot(&self) -> Vec<u8> {
        let log = &self.reader.log;
        let tail = log.tail.take();
        snapshot::encode(&self.position, &self.view, self.group.as_ref(), log.parts_per_step(), &tail)
    }

    /// Marks a step as needed by a model that is saved: it and all after it are kept until the checkpoint is
    /// dropped. To be called by one rank, after the trainer's own barrier, once the model is saved; all that
    /// was delivered before is durable when it returns.
    ///
    /// The same name at the same step is there already when a call is repeated, which is no error.
    ///
    /// # Errors
    /// `Fenced` when the group was opened anew by another job, or retired: stop; `Rewound` when history was
    /// changed; `Invalid` for a run without a group, a position that isn't this store's, or a name that is
    /// taken;
    /// `Reclaimed` below the floor; `Full`, `Contended`, `Io` (a read-only mount is EROFS).
    pub fn checkpoint(&self, position: Position, name: &str) -> Result<Checkpoint> {
        self.checkpoint_with(position, name, &CheckpointOptions::default())
    }

    /// As [`Run::checkpoint`], pinned or with metadata.
    ///
    /// # Errors
    /// As [`Run::checkpoint`]; `Invalid` for metadata longer than 64 KiB.
    pub fn checkpoint_with(
        &self,
        position: Position,
        name: &str,
        options: &CheckpointOptions,
    ) -> Result<Checkpoint> {
        let (log, name) = (&self.reader.log, Name::new(name)?);
        let (group, speaker) = self.speaker()?;
        let kept = log.once(|| group::checkpoint(log, group, speaker, &position, &name, options))?;
        Ok(Checkpoint::of(log, kept))
    }

    /// Drops a checkpoint of this run's group; then its model may be deleted, not before. False if there is
    /// none of that name.
    ///
    /// # Errors
    /// As [`Run::checkpoint`].
    pub fn drop_checkpoint(&self, name: &str) -> Result<bool> {
        let (group, speaker) = self.speaker()?;
        let log = &self.reader.log;
        log.once(|| group::drop_checkpoint(log, group, speaker, &Name::new(name)?))
    }

    /// Drops all checkpoints of this run's group but those named and those that are pinned: for a trainer
    /// that knows which models still exist. Gives the names of those that went.
    ///
    /// # Errors
    /// As [`Run::checkpoint`].
    pub fn retain<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Vec<Name>> {
        let (group, speaker) = self.speaker()?;
        let names = names.into_iter().map(|name| Name::new(name.as_ref())).collect::<Result<Vec<_>>>()?;
        let log = &self.reader.log;
        log.once(|| group::retain(log, group, speaker, &names))
    }

    fn speaker(&self) -> Result<(&Name, Speaker)> {
        let none = || Error::new(ErrorKind::Invalid, "the run has no group: begin it by one's name");
        let (name, incarnation) = self.group.as_ref().ok_or_else(none)?;
        Ok((name, Speaker::Run(*incarnation, self.view.generation)))
    }

    /// A consumer of one share, from the run's start.
    ///
    /// A count that divides the store's divisor is good for every step; another is judged step by step.
    ///
    /// # Errors
    /// None today: what a share may not be, [`Share::new`] refuses.
    pub fn consumer(&self, share: Share) -> Result<Consumer> {
        self.consumer_with(share, ConsumerOptions::default())
    }

    /// As [`Run::consumer`], reading ahead and waiting by `options`.
    ///
    /// # Errors
    /// As [`Run::consumer`].
    pub fn consumer_with(&self, share: Share, options: ConsumerOptions) -> Result<Consumer> {
        let divisor = self.reader.log.identity.options.divisor;
        if !divisor.is_multiple_of(share.count()) {
            let what =
                "the count of shares doesn't divide the store's divisor: each step is judged by itself";
            tracing::warn!(%share, divisor, what);
        }
        if let Some(before) = self.teller.as_ref().and_then(|teller| teller.shares_before())
            && before != share.count()
        {
            // It is allowed, and never guessed: each step is cut into other shares than before (P2).
            tracing::warn!(%share, before, "the group is read by another count of shares than before");
        }
        let (reader, view, teller) = (Arc::clone(&self.reader), self.view.clone(), self.teller.clone());
        Ok(Consumer::new(reader, view, self.position, share, options, teller))
    }
}
