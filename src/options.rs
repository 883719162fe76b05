//! What a user chooses: for ever at creation ([`Options`]), and for one handle ([`Settings`]).
//!
//! - Options are written into STORE and never change; settings change nothing on disk.
//! - Nothing here can weaken durability or verification after creation (R3).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::limits;

/// Whether what is acknowledged survives a power cut. Fixed at creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Durability {
    /// File and directory are synced before a publish is acknowledged.
    #[default]
    Synced,
    /// No sync is ever issued: for tmpfs, tests and data that can be made again.
    Unsynced,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Synced => "synced",
            Self::Unsynced => "unsynced",
        })
    }
}

/// How a finished file gets its version name, exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Primitive {
    /// `link(2)`.
    Link,
    /// `renameat2(RENAME_NOREPLACE)`.
    RenameNoreplace,
    /// Rename of a directory that holds the file.
    RenameDirectory,
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Link => "link",
            Self::RenameNoreplace => "renameat2(RENAME_NOREPLACE)",
            Self::RenameDirectory => "rename of a directory",
        })
    }
}

/// What a mount is like for readers on other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MountClass {
    /// One host's page cache: ext4, xfs, btrfs, tmpfs, overlay. Mapped, with a doorbell.
    Local,
    /// Several nodes, coherent: Lustre, GPFS, CephFS, Gluster, BeeGFS. Copied and polled.
    Coherent,
    /// Several nodes, coherent when a file is opened anew: NFS, SMB. Copied and polled with fresh
    /// directories.
    CloseToOpen,
}

impl MountClass {
    /// Whether other nodes may write here.
    pub fn is_remote(self) -> bool {
        self != Self::Local
    }
}

impl fmt::Display for MountClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Local => "local",
            Self::Coherent => "coherent remote",
            Self::CloseToOpen => "close-to-open remote",
        })
    }
}

/// The fixed choices of a store, made at creation.
///
/// ```
/// use batchweave::Options;
/// let options = Options::new().divisor(32).parts_per_step(2);
/// assert_eq!(options.segment_size, 256);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Options {
    /// Every part's number of slices is a multiple of this (default 1). Take the largest data-parallel size
    /// that will read the store: every share count that divides it is then accepted for ever.
    pub divisor: u32,
    /// Parts that make a step (default 1). More mixes several producers into each step.
    pub parts_per_step: u32,
    /// Versions in a segment, 16..=4096 (default 256): the unit of reclaim. Smaller frees space sooner when
    /// commits are large, larger costs fewer directory syncs.
    pub segment_size: u32,
    /// Whether acknowledged data survives a power cut (default [`Durability::Synced`]).
    pub durability: Durability,
    /// Accept a FUSE filesystem that isn't known to keep creation exclusive, or sshfs, whose listings are
    /// fresh only with `-o dir_cache=no` (default false). Isn't recorded.
    #[serde(skip)]
    pub allow_unknown_fuse: bool,
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            divisor: 1,
            parts_per_step: 1,
            segment_size: limits::SEGMENT_SIZE_DEFAULT,
            durability: Durability::Synced,
            allow_unknown_fuse: false,
        }
    }

    /// Sets [`Options::divisor`].
    #[must_use]
    pub fn divisor(mut self, divisor: u32) -> Self {
        self.divisor = divisor;
        self
    }

    /// Sets [`Options::parts_per_step`].
    #[must_use]
    pub fn parts_per_step(mut self, parts: u32) -> Self {
        self.parts_per_step = parts;
        self
    }

    /// Sets [`Options::segment_size`].
    #[must_use]
    pub fn segment_size(mut self, versions: u32) -> Self {
        self.segment_size = versions;
        self
    }

    /// Sets [`Options::durability`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets [`Options::allow_unknown_fuse`].
    #[must_use]
    pub fn allow_unknown_fuse(mut self, allow: bool) -> Self {
        self.allow_unknown_fuse = allow;
        self
    }

    /// Holds every choice against its bounds.
    pub(crate) fn check(&self) -> Result<()> {
        let in_range = |name: &str, value: u32, min: u32, max: u32| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(Error::new(ErrorKind::Invalid, format!("the {name} is {value}, but has to be {min}..={max}")))
        };
        in_range("divisor", self.divisor, 1, limits::DIVISOR_MAX)?;
        in_range("number of parts per step", self.parts_per_step, 1, limits::PARTS_PER_STEP_MAX)?;
        in_range("segment size", self.segment_size, limits::SEGMENT_SIZE_MIN, limits::SEGMENT_SIZE_MAX)
    }

    /// The choices in which `self`, what is asked for, differs from what `store` was made with, in words.
    pub(crate) fn differences(&self, store: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |name: &str, asked: String, has: String| {
            if asked != has {
                found.push(format!("{name} is {has}, not {asked}"));
            }
        };
        compare("divisor", self.divisor.to_string(), store.divisor.to_string());
        compare("parts per step", self.parts_per_step.to_string(), store.parts_per_step.to_string());
        compare("segment size", self.segment_size.to_string(), store.segment_size.to_string());
        compare("durability", self.durability.to_string(), store.durability.to_string());
        found
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// How bytes reach a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ReadMode {
    /// Commit files are mapped; slices are the page cache itself. The default on local mounts.
    Map,
    /// Slices are read into pooled buffers. The default on remote mounts, where a page fault can be a SIGBUS.
    Copy,
}

/// What a checkpoint says beside its step; see [`Run::checkpoint_with`](crate::Run::checkpoint_with).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointOptions {
    /// It stays until it is dropped by its name: no rule about the newest ones takes it.
    pub pinned: bool,
    /// The trainer's own, at most 64 KiB: a path of the model, its loss.
    pub metadata: Vec<u8>,
}

impl CheckpointOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`CheckpointOptions::pinned`].
    #[must_use]
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// Sets [`CheckpointOptions::metadata`].
    #[must_use]
    pub fn metadata(mut self, metadata: impl Into<Vec<u8>>) -> Self {
        self.metadata = metadata.into();
        self
    }
}

/// What a producer waits for before it publishes, so that a disk isn't filled faster than it is read; see
/// [`Producer::set_bounds`](crate::Producer::set_bounds).
///
/// They are judged between steps, as of what is known then: a step once begun may always be completed, every
/// bound admits one step, and producers that publish at once may each go over by one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// At most this many bytes of parts above the floor; none by default.
    pub retained_bytes: Option<u64>,
    /// At most this many published steps that the slowest live group hasn't delivered yet; none by default.
    /// Groups tell of their progress once a second; one that doesn't isn't waited for.
    pub lead_steps: Option<u64>,
    /// How long to wait, for room or for a turn, before that is a `Timeout` (default 30 min).
    pub timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { retained_bytes: None, lead_steps: None, timeout: limits::NEXT_BATCH_TIMEOUT }
    }
}

impl Bounds {
    /// No bounds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`Bounds::retained_bytes`].
    #[must_use]
    pub fn retained_bytes(mut self, bytes: u64) -> Self {
        self.retained_bytes = Some(bytes);
        self
    }

    /// Sets [`Bounds::lead_steps`].
    #[must_use]
    pub fn lead_steps(mut self, steps: u64) -> Self {
        self.lead_steps = Some(steps);
        self
    }

    /// Sets [`Bounds::timeout`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Choices of one handle; they change nothing on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Map or copy; by default what suits the mount.
    pub read_mode: Option<ReadMode>,
    /// Treat the mount as of this class, instead of what it says it is.
    pub mount_class: Option<MountClass>,
    /// How long one operation that reads outlasts EIO, ESTALE, ESHUTDOWN, ENOTCONN, ETIMEDOUT and EREMOTEIO:
    /// it opens everything afresh and tries again, with a warning, before that is an error. By default 120 s
    /// on remote mounts, where a failing-over server or an evicted client is back by then and a job would
    /// have died of it, and zero on local ones, where a disk that says EIO means it.
    ///
    /// A consumer's timeout is about steps that aren't published; a mount that is away may make a call last
    /// this much longer.
    pub io_patience: Option<Duration>,
}

impl Settings {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`Settings::read_mode`].
    #[must_use]
    pub fn read_mode(mut self, mode: ReadMode) -> Self {
        self.read_mode = Some(mode);
        self
    }

    /// Sets [`Settings::mount_class`].
    #[must_use]
    pub fn mount_class(mut self, class: MountClass) -> Self {
        self.mount_class = Some(class);
        self
    }

    /// Sets [`Settings::io_patience`].
    #[must_use]
    pub fn io_patience(mut self, patience: Duration) -> Self {
        self.io_patience = Some(patience);
        self
    }
}
