//! A run: a view of the log from which ranks read the same steps.

use std::sync::Arc;

use crate::consumer::{Consumer, ConsumerOptions, Reader, View};
use crate::error::{Error, ErrorKind, Result};
use crate::id::Step;
use crate::position::Position;
use crate::share::Share;

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

/// What was saved last, or the beginning if nothing was.
impl From<Option<Position>> for Start {
    fn from(saved: Option<Position>) -> Self {
        saved.map_or(Self::Beginning, Self::Position)
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
}

impl Run {
    pub(crate) fn begin(reader: Arc<Reader>, start: Start) -> Result<Self> {
        let until = reader.log.patient_until();
        let (view, position) =
            reader.log.outlast("beginning a run", until, |_| Self::view(&reader, start))?;
        Ok(Self { reader, view, position })
    }

    /// The view as of now, and where a run from it starts.
    fn view(reader: &Reader, start: Start) -> Result<(View, Position)> {
        let log = &reader.log;
        let tail = log.current_at_once()?;
        let view = View::of(&tail.state);
        let step = match start {
            Start::Beginning => tail.state.floor,
            Start::Step(step) => step,
            Start::Position(position) => log.check_position(&tail, &position)?,
        };
        if step < tail.state.floor {
            return Err(log.reclaimed(step, &tail));
        }
        if step > tail.state.next_step() {
            let what = format!(
                "the start lies beyond the end of the store, whose next step is {}",
                tail.state.next_step()
            );
            return Err(Error::new(ErrorKind::Invalid, what).step(step).at(&log.path));
        }
        let lineage = log.lineage(&tail, step)?;
        let position = Position { store: log.identity.uuid, generation: view.generation, step, lineage };
        Ok((view, position))
    }

    /// Where it starts.
    pub fn position(&self) -> Position {
        self.position
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
        Ok(Consumer::new(Arc::clone(&self.reader), self.view.clone(), self.position, share, options))
    }
}
