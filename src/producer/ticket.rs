//! What a publish gives: where the part stands once it is committed, or why it isn't.

use std::sync::Arc;

use parking_lot::Mutex;

use super::draft::Draft;
use super::queue::Queue;
use crate::error::{Error, Result};
use crate::id::{Part, Sequence, Step, Version};

/// Where a part came to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Published {
    /// The commit that holds it.
    pub version: Version,
    /// Its place in the stream.
    pub part: Part,
    /// The step it belongs to; visible once all parts of the step are.
    pub step: Step,
    /// Its sequence among the producer's parts.
    pub sequence: Sequence,
}

/// What has become of a published part; none while it waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome(Arc<Mutex<Option<Result<Published>>>>);

impl Outcome {
    /// Says it.
    pub(super) fn is(&self, known: Result<Published>) {
        *self.0.lock() = Some(known);
    }

    pub(super) fn is_known(&self) -> bool {
        self.0.lock().is_some()
    }

    /// To whoever asks, as often as he does.
    fn told(&self) -> Option<Result<Published>> {
        let known = self.0.lock();
        known.as_ref().map(|known| known.as_ref().map(|published| *published).map_err(Error::again))
    }
}

/// The promise of a publish; see [`Producer::publish`](crate::Producer::publish).
///
/// Dropping it changes nothing.
#[derive(Debug)]
pub struct Ticket {
    queue: Arc<Queue>,
    outcome: Outcome,
}

impl Ticket {
    pub(super) fn new(queue: Arc<Queue>, outcome: Outcome) -> Self {
        Self { queue, outcome }
    }

    /// Waits until the part is committed, and on a synced store durable, and says where it stands.
    ///
    /// # Errors
    /// What keeps it, or a part before it, from being committed: it is still queued then, unless it is
    /// `Fenced`, and a later flush or publish tries again.
    pub fn wait(&self) -> Result<Published> {
        self.queue.settle(|_| self.outcome.is_known())?;
        self.outcome.told().unwrap_or_else(|| Err(self.queue.nothing_known()))
    }

    /// Where the part stands, if it is committed by now. Never waits.
    pub fn published(&self) -> Option<Published> {
        self.outcome.told()?.ok()
    }
}

/// A publish that wasn't acknowledged, or not even queued.
///
/// If nothing of it is in the log, the draft comes back: to be published again, as the same file with the
/// same state, or dropped; one whose file failed says that it has to be written anew. If that can't be
/// told, the producer keeps the commit, and [`Producer::flush`](crate::Producer::flush), or the next
/// publish, tries the same one again.
#[derive(Debug)]
pub struct PublishError {
    /// What happened.
    pub error: Error,
    /// The draft, to be published again or dropped.
    pub draft: Option<Box<Draft>>,
}

impl std::fmt::Display for PublishError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for PublishError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

impl From<PublishError> for Error {
    fn from(publish: PublishError) -> Self {
        publish.error
    }
}
