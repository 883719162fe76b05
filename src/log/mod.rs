//! The order of things: the log of a store, its replay, its indexes and marks.
//!
//! - [`Log`] is what one handle shares: storage, environment, identity, the directories, the tail and the
//!   indexes in use.
//! - Everything above appends or reads through it; nothing here writes but the doorbell.
//! - State is replayed ([`state`], [`apply`]), places are found ([`locate`]), and what is read is trusted
//!   only on the conditions of R7, R8 and R10 ([`tail`]).

pub mod apply;
#[cfg(test)]
mod apply_tests;
mod beyond;
pub mod build;
pub mod doorbell;
pub mod enclosed;
mod encoding;
pub mod groups;
#[cfg(test)]
mod groups_tests;
pub mod history;
pub mod index;
pub mod known;
pub mod locate;
pub mod marks;
pub mod open;
pub mod past;
pub mod patience;
pub mod progress;
pub mod read;
pub mod rebuild;
mod restore;
pub mod snapshot;
pub mod state;
pub mod tail;
pub mod turns;
#[cfg(test)]
mod turns_tests;
pub mod void;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::env::{Env, Exclusive};
use crate::error::{Error, ErrorKind, Result};
use crate::format::commit::People;
use crate::format::names;
use crate::format::store::Identity;
use crate::id::{Nonce, Segment, Version};
use crate::options::{Durability, MountClass, Primitive, ReadMode};
use crate::planted::{Bug, is_planted};
use crate::storage::{Dir, File, ForkMark, Pool, Storage};
use doorbell::Doorbell;
use index::Indexes;
use tail::Tail;

/// One handle's view of a store's log, shared by all that use the handle.
#[derive(Debug)]
pub struct Log {
    /// The calls, by which this store's files are found.
    pub storage: Arc<dyn Storage>,
    /// The calls as they are: for what isn't in this store.
    pub outside: Arc<dyn Storage>,
    /// Clock, entropy, threads.
    pub env: Arc<dyn Env>,
    /// The store's directory, for error messages.
    pub path: PathBuf,
    /// Who the store is, and its fixed choices.
    pub identity: Identity,
    /// What the mount is like.
    pub class: MountClass,
    /// Whether commits and indexes are mapped or copied.
    pub mode: ReadMode,
    /// How long reading outlasts errors that may pass.
    pub io_patience: Duration,
    /// The directories that it looks into by names.
    held: Mutex<Held>,
    /// These have failed, so they are looked after before the next attempt.
    held_is_old: AtomicBool,
    /// What is known of the log's end.
    pub tail: Exclusive<Tail>,
    /// Indexes in use.
    pub indexes: Indexes,
    /// The doorbell.
    pub doorbell: Doorbell,
    /// Buffers to read into.
    pub pool: Arc<Pool>,
    /// The directory of the segment that was read last behind the tail.
    segment_dir: Mutex<Option<(Segment, Dir)>>,
    /// Whether STORE and the root were made durable through this handle.
    secured: AtomicBool,
    /// The ballast was given up through this handle, so it makes it anew.
    pub ballast_given: AtomicBool,
    /// The mount refuses the primitive between two directories (R9).
    pub puts_beside: AtomicBool,
    /// Who this process is, for the people's fields.
    people: People,
    /// Tells it from its children.
    mark: ForkMark,
}

/// The directories that a handle holds from its beginning.
#[derive(Clone, Debug)]
struct Held {
    /// The store's directory.
    root: Dir,
    /// The directory of segments.
    log: Dir,
    /// See [`Log::mounts`].
    mounts: u64,
}

impl Log {
    /// The store's directory.
    pub fn root(&self) -> Dir {
        self.held.lock().root.clone()
    }

    /// How often the store's directory was found anew, since the one that was held had outlived its mount:
    /// what was opened under another number may have done so too.
    pub fn mounts(&self) -> u64 {
        self.held.lock().mounts
    }

    /// Opens one of the store's directories.
    ///
    /// # Errors
    /// The system's. It isn't looked for elsewhere: who meets a mount that was mounted anew has to hear of
    /// it, and to compare what was replayed, before anything is written there (R10).
    pub fn directory(&self, name: &str) -> io::Result<Dir> {
        self.storage.open_dir(&self.root(), name)
    }

    /// Before the first write through this handle: the names of STORE and of the root itself are made
    /// durable, whoever made them and died before. A synced store has nothing acknowledged that a power cut
    /// takes with its root (P6).
    ///
    /// # Errors
    /// `Io`.
    pub fn secure(&self) -> Result<()> {
        let secured = self.secured.load(Ordering::Acquire) || is_planted(Bug::StoreUnsynced);
        if !self.is_synced() || secured {
            return Ok(());
        }
        let failed = |error| Error::io("can't make the store's directory durable", error).at(&self.path);
        // Opened anew: one that was open when a sync of it failed may sync well now, and prove nothing (R3).
        let root = self.storage.open_root(&self.path).map_err(failed)?;
        self.storage.sync_dir(&root).map_err(failed)?;
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        match self.storage.open_root(parent.unwrap_or(Path::new("."))) {
            Ok(parent) => self.storage.sync_dir(&parent).map_err(failed)?,
            // A parent that this user may not open isn't this user's to sync.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(failed(error)),
        }
        // A dead disk may say that it has synced a directory, but it opens none (XFS, once it has shut down).
        self.storage.open_root(&self.path).map_err(failed)?;
        self.secured.store(true, Ordering::Release);
        Ok(())
    }

    /// Versions in a segment.
    pub fn segment_size(&self) -> u32 {
        self.identity.options.segment_size
    }

    /// Parts in a step.
    pub fn parts_per_step(&self) -> u32 {
        self.identity.options.parts_per_step
    }

    /// Whether syncs are issued (R3).
    pub fn is_synced(&self) -> bool {
        self.identity.options.durability == Durability::Synced
    }

    /// A path under the store's directory, for error messages.
    pub fn path_of<const N: usize>(&self, names: [&str; N]) -> PathBuf {
        names.iter().fold(self.path.clone(), |path, name| path.join(name))
    }

    /// The path of a commit's file.
    pub fn commit_path(&self, version: Version) -> PathBuf {
        let segment = version.segment(self.segment_size());
        let path = self.path_of([names::LOG, &names::segment(segment), &names::version(version)]);
        if self.identity.primitive == Primitive::RenameDirectory {
            path.join(enclosed::CONTENT)
        } else {
            path
        }
    }

    /// Opens a segment's directory by opening its parent anew, so that both look-ups are fresh; none if it
    /// is absent.
    ///
    /// # Errors
    /// `Io`.
    pub fn open_segment(&self, segment: Segment) -> Result<Option<Dir>> {
        let name = names::segment(segment);
        let open = || {
            let log = self.directory(names::LOG)?;
            self.storage.open_dir(&log, &name)
        };
        let opened = match open() {
            // Removed between look-up and opening: the next look-up says that it is absent.
            Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => open(),
            opened => opened,
        };
        match opened {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("can't open a segment", error).at(self.path_of([names::LOG, &name]))),
        }
    }

    /// Opens anew the directory of a segment that was there, which makes look-ups in it fresh.
    ///
    /// # Errors
    /// `Io`.
    pub fn reopen_segment(&self, segment: Segment) -> Result<Option<Dir>> {
        let log = self.held.lock().log.clone();
        match self.storage.open_dir(&log, &names::segment(segment)) {
            Ok(dir) => Ok(Some(dir)),
            Err(_) => self.open_segment(segment),
        }
    }

    /// Opens a commit of a segment behind the tail, whose directory is kept open from one to the next.
    ///
    /// # Errors
    /// The system's.
    pub fn open_behind(&self, version: Version) -> io::Result<File> {
        let segment = version.segment(self.segment_size());
        let kept =
            self.segment_dir.lock().as_ref().filter(|kept| kept.0 == segment).map(|kept| kept.1.clone());
        if let Some(dir) = kept {
            match read::open(self, &dir, version) {
                // The directory may have been another one's of that name: look once more by a fresh handle.
                Err(error) if may_be_stale(&error) => *self.segment_dir.lock() = None,
                other => return other,
            }
        }
        let log = self.directory(names::LOG)?;
        let dir = self.storage.open_dir(&log, &names::segment(segment))?;
        let file = read::open(self, &dir, version)?;
        *self.segment_dir.lock() = Some((segment, dir));
        Ok(file)
    }

    /// 128 random bits.
    ///
    /// # Errors
    /// `Io` when the system has none.
    pub fn nonce(&self) -> Result<Nonce> {
        let mut bytes = [0; 16];
        self.env.entropy(&mut bytes).map_err(|error| Error::io("can't draw a nonce", error))?;
        Ok(Nonce::new(bytes))
    }

    /// Whether a fork has brought this handle to another process: its memory, but none of the threads that
    /// serve it, and perhaps with locks that nobody will ever release.
    pub fn is_forked(&self) -> bool {
        self.mark.is_forked()
    }

    /// Before anything is taken that might never come back.
    ///
    /// # Errors
    /// `Invalid` in a forked child.
    pub fn check_forked(&self) -> Result<()> {
        if !self.is_forked() {
            return Ok(());
        }
        let what = format!(
            "process {} has opened this handle, and a fork can't take it along: process {} has to open the \
             store anew",
            self.mark.pid(),
            std::process::id()
        );
        Err(Error::new(ErrorKind::Invalid, what).at(&self.path))
    }

    /// The people's fields of a commit that is written now.
    pub fn people(&self) -> People {
        People { wall_us: self.env.wall_us(), ..self.people.clone() }
    }
}

/// Whether an error may come from a handle or a cache that has outlived what it stands for.
pub fn may_be_stale(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::StaleNetworkFileHandle
}
