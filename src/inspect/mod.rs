//! Looking into a store: its commits one by one, and whether every byte is what was written.
//!
//! - Nothing is ever modified, not even the doorbell; a read-only mount will do.
//! - What is found is told, never mended, and nothing is hidden: verification goes on after a fault where it
//!   can.
//! - Memory is bounded: slices pass through in blocks of 1 MiB, indexes by section, and the list of faults
//!   has an end.
//! - What a store that is being written shows for a moment isn't a fault: all is judged as of the call.

mod commit;
mod index;
mod known;
mod layout;
mod listing;
mod litter;
mod replayer;
mod sink;
mod tree;
mod verify;

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::error::Result;
use crate::id::{Checksum, Generation, Incarnation, Nonce, Step, Version};
use crate::name::Name;
use crate::store::Store;

/// One commit of the log; see [`Store::commits`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CommitInfo {
    /// Its place in the log.
    pub version: Version,
    /// What its record is.
    pub kind: String,
    /// The producer or group that it is about.
    pub who: Option<Name>,
    /// The incarnation that wrote it, or that it begins.
    pub incarnation: Option<Incarnation>,
    /// The first step that it has parts of.
    pub first_step: Option<Step>,
    /// The last step that it has parts of.
    pub last_step: Option<Step>,
    /// Number of parts.
    pub parts: u32,
    /// Number of slices in all parts.
    pub slices: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Samples in all parts, as the producer counted them.
    pub samples: u64,
    /// Tokens in all parts, as the producer counted them.
    pub tokens: u64,
    /// Why it has no effect; none if it has.
    pub void: Option<String>,
    /// The generation that it was written for.
    pub generation: Generation,
    /// Tells it from every other commit.
    pub nonce: Nonce,
    /// Its record checksum.
    pub checksum: Checksum,
    /// What else its record says, in words.
    pub detail: Option<String>,
    /// For people: microseconds since 1970 by its writer's clock.
    pub wall_us: u64,
    /// For people: its writer's host.
    pub host: String,
    /// For people: its writer's process.
    pub pid: u32,
    /// For people: its writer's batch job.
    pub job: String,
    /// For people: the library that wrote it.
    pub library: String,
}

/// How far a verification has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Versions that were looked at.
    pub versions_done: u64,
    /// Versions that the log holds.
    pub versions_total: u64,
    /// Bytes that were read.
    pub bytes: u64,
}

/// What a verification found; see [`Store::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Commits that were read.
    pub commits: u64,
    /// Parts in them.
    pub parts: u64,
    /// Slices in these.
    pub slices: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Indexes that were read.
    pub indexes: u64,
    /// What isn't as it has to be.
    pub findings: Vec<VerifyFinding>,
    /// What lies about. It harms nothing.
    pub litter: Vec<Litter>,
}

impl VerifyReport {
    /// Whether nothing is wrong. Litter isn't a fault.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Something that isn't as it has to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifyFinding {
    /// Where, relative to the store's directory.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// The commit that it is about.
    pub version: Option<Version>,
    /// The step that can't be trusted.
    pub step: Option<Step>,
    /// What is wrong: a sentence without its full stop.
    pub what: String,
}

/// Something that lies about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Litter {
    /// Where, relative to the store's directory.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// What it is, and whether anyone may still need it.
    pub why: String,
}

/// A report has to be readable whatever bytes a stranger's name has.
fn lossy<S: Serializer>(path: impl AsRef<Path>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.as_ref().display())
}

impl Store {
    /// The commits from `from` on, or from the first that is retained, to the head as of this call, in order.
    ///
    /// An item is an error where a commit can't be read or isn't the one that the log speaks of; the commits
    /// after it still come, but what they do may not be known before the next segment, and their
    /// [`CommitInfo::void`] says so then.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` or `Io` when the log's end can't be read; [`Store::verify`] says what is
    /// wrong then.
    pub fn commits(&self, from: Version) -> Result<impl Iterator<Item = Result<CommitInfo>> + '_> {
        let tail = self.log().current_at_once()?;
        listing::Listing::new(self.log(), &tail, from)
    }

    /// Reads every byte of every commit and index, and holds it against its checksums, its neighbours and
    /// replay; what is compressed is unpacked, if this build can.
    ///
    /// It may run beside writers and readers. `progress` is called after each commit, and while a large one
    /// is read.
    ///
    /// # Errors
    /// `Io` when the store's directory can't be listed; all else that is wrong is in the report.
    pub fn verify(&self, mut progress: impl FnMut(Progress)) -> Result<VerifyReport> {
        self.log().check_forked()?;
        verify::verify(self.log(), &mut progress)
    }
}
