//! What a publish gives: where the part stands, or why it isn't acknowledged and what becomes of its draft.

use super::draft::Draft;
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

/// The promise of a publish; see [`Producer::publish`](crate::Producer::publish).
#[derive(Debug)]
pub struct Ticket {
    pub(super) published: Published,
}

impl Ticket {
    /// Waits until the part is committed, and says where.
    ///
    /// # Errors
    /// What kept it from being committed.
    pub fn wait(self) -> Result<Published> {
        Ok(self.published)
    }

    /// Where the part stands, if it is committed by now.
    pub fn published(&self) -> Option<Published> {
        Some(self.published)
    }
}

/// A publish that wasn't acknowledged.
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
