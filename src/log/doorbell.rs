//! HEAD, the doorbell of one host: a word that a writer changes and readers sleep on.
//!
//! - It only shortens waits: it may be missing, old, or a lie, and the log is probed all the same.
//! - Only local mounts have one: another node's write doesn't show in a mapping everywhere.
//! - The word is the low half of the next version. It may go back when two writers ring at once; a reader
//!   that sees it change looks at the log.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::format::names;
use crate::id::Version;
use crate::storage::{Access, Dir, File, Storage, Word, write_all_at};

/// The size of HEAD in bytes.
pub const DOORBELL_BYTES: u64 = 8;

/// One handle's way to the doorbell.
#[derive(Debug)]
pub struct Doorbell {
    word: Option<Arc<dyn Word>>,
    file: OnceLock<Option<File>>,
}

impl Doorbell {
    /// For a mount without one.
    pub fn none() -> Self {
        Self { word: None, file: OnceLock::from(None) }
    }

    /// Maps it for waiting; without one, if it can't be.
    pub fn open(storage: &dyn Storage, root: &Dir) -> Self {
        let word = storage.open(root, names::HEAD, Access::Read).and_then(|file| {
            if storage.size(&file)? < DOORBELL_BYTES {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            storage.map_word(&file)
        });
        match word {
            Ok(word) => Self { word: Some(word), file: OnceLock::new() },
            Err(error) => {
                tracing::debug!(%error, "no doorbell: waiting polls instead");
                Self::none()
            }
        }
    }

    /// What it says now; none without one.
    pub fn load(&self) -> Option<u32> {
        self.word.as_ref().map(|word| word.load())
    }

    /// Sleeps until it says something else than `said`, at most `timeout`.
    pub fn wait(&self, storage: &dyn Storage, said: u32, timeout: Duration) {
        let Some(word) = &self.word else { return };
        // An error only means that the wait is over early; the caller counts its probes.
        if let Err(error) = storage.wait(&**word, said, timeout) {
            tracing::debug!(%error, "waiting on the doorbell failed");
        }
    }

    /// Rings: everything before `next` is in the log.
    pub fn ring(&self, storage: &dyn Storage, root: &Dir, next: Version) {
        let Some(word) = &self.word else { return };
        let file = self.file.get_or_init(|| storage.open(root, names::HEAD, Access::Update).ok());
        let Some(file) = file else { return };
        let rung =
            write_all_at(storage, file, &next.get().to_le_bytes(), 0).and_then(|()| storage.wake(&**word));
        if let Err(error) = rung {
            tracing::debug!(%error, "ringing the doorbell failed; readers find the commit by polling");
        }
    }
}

/// What it says when all before `next` is in the log.
#[expect(clippy::cast_possible_truncation, reason = "the low half is what a futex compares")]
pub fn saying(next: Version) -> u32 {
    next.get() as u32
}
