//! Removing what is dead, name by name.
//!
//! - A name that is gone is another reclaimer's work, never an error.
//! - Only names that the store gives are removed; a directory that holds others, or gets new ones time and
//!   again from writers that slept, stays for the next reclaim.
//! - Where a file is a directory with one file (primitive 3), one that holds a client's own name for what a
//!   reader has open is moved to stage/: it can't be removed yet, and is in nobody's way there.
//! - Nothing is synced afterwards: a removal that a power cut undoes brings back what is dead, which the next
//!   reclaim removes again.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;

use super::reclaimed::Freed;
use crate::error::{Error, Result};
use crate::format::names;
use crate::format::record::Record;
use crate::id::{Nonce, Segment, Version};
use crate::limits::LOOK_AGAIN_MAX;
use crate::log::{Log, may_be_stale, read};
use crate::storage::{Access, Dir, File, is_not_empty};

/// What a staged name says of a directory that was moved there since a client keeps something in it.
pub(super) const REMOVED: &str = "removed";

/// Removes names of one of the store's directories, or says what would go.
#[derive(Debug)]
pub(super) struct Remover<'l> {
    log: &'l Log,
    parent: &'static str,
    dir: Dir,
    dry_run: bool,
    /// Control files that were moved back to stage/.
    moved: RefCell<Vec<String>>,
}

impl<'l> Remover<'l> {
    /// In log/, index/ or stage/.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn new(log: &'l Log, parent: &'static str, dry_run: bool) -> Result<Self> {
        let failed =
            |error| Error::io("can't open a directory of the store", error).at(log.path_of([parent]));
        let dir = log.directory(parent).map_err(failed)?;
        Ok(Self { log, parent, dir, dry_run, moved: RefCell::default() })
    }

    /// Removes a file.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn file(&self, name: &str) -> Result<Freed> {
        self.file_in(&self.dir, name).map_err(|error| error.at(self.log.path_of([self.parent, name])))
    }

    fn file_in(&self, dir: &Dir, name: &str) -> Result<Freed> {
        let storage = &*self.log.storage;
        // What can't be read can be dead all the same, and so is a directory that a stop has left without its
        // file (primitive 3).
        let opened = storage.open(dir, name, Access::Read);
        let is_gone = |error: &io::Error| {
            may_be_stale(error) && storage.open_dir(dir, name).is_err_and(|error| may_be_stale(&error))
        };
        if self.dry_run && opened.as_ref().is_err_and(is_gone) {
            return Ok(Freed::default());
        }
        let bytes = opened.and_then(|file| storage.size(&file)).unwrap_or(0);
        let removed = if self.dry_run { Ok(()) } else { storage.remove(dir, name) };
        match removed {
            Ok(()) => Ok(Freed { count: 1, bytes }),
            Err(error) if may_be_stale(&error) => Ok(Freed::default()),
            Err(error) if is_not_empty(&error) && self.move_out(dir, name) => Ok(Freed { count: 1, bytes }),
            Err(error) if is_not_empty(&error) => Ok(Freed::default()),
            Err(error) => Err(Error::io("can't remove what nobody needs", error)),
        }
    }

    /// Where a file is a directory with one file (primitive 3), some clients keep what a reader has open in
    /// there, under a name of their own. In its place it would pass for a file that somebody else has
    /// removed, so it goes to stage/, where it is litter: gone with the reclaim after the reader is. A mount
    /// that refuses keeps it until then. True if it was moved.
    fn move_out(&self, dir: &Dir, name: &str) -> bool {
        if self.parent == names::STAGE {
            return false;
        }
        let moved = self.log.nonce().and_then(|nonce| {
            let stage = self.log.directory(names::STAGE);
            let staged = names::staged_control(REMOVED, nonce);
            stage
                .and_then(|stage| self.log.storage.rename(dir, name, &stage, &staged))
                .map_err(|error| Error::io("can't move what a reader has open to stage/", error))
        });
        if let Err(error) = &moved {
            tracing::debug!(%error, name, "it stays in its place until nobody has it open");
        }
        moved.is_ok()
    }

    /// Removes a segment: its commits, then its directory.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn segment(&self, segment: Segment) -> Result<Freed> {
        let name = names::segment(segment);
        let mut freed = Freed::default();
        self.segment_named(segment, &name, &mut freed)
            .map_err(|error| error.at(self.log.path_of([self.parent, &name])))?;
        Ok(freed)
    }

    /// R9: moves files that were left beside their places in this directory back to stage/, where they are
    /// judged as any other: their owners may live, and not know what has become of them.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn move_back(&self) -> Result<()> {
        let failed = |error| Error::io("can't list a directory of the store", error);
        let listed = self.log.storage.list(&self.dir).map_err(failed)?;
        listed.iter().try_for_each(|name| self.moved_back(&self.dir, name).map(drop))
    }

    /// The same of one name; false for what is no such file.
    fn moved_back(&self, from: &Dir, name: &OsStr) -> Result<bool> {
        let (Some(nonce), Some(name)) = (names::parse_beside(name), name.to_str()) else { return Ok(false) };
        if self.dry_run {
            return Ok(true);
        }
        let storage = &*self.log.storage;
        let staged = match storage.open(from, name, Access::Read) {
            Err(error) if may_be_stale(&error) => return Ok(true),
            opened => self.staged_name(&opened, nonce),
        };
        let stage = self.log.directory(names::STAGE);
        match stage.and_then(|stage| storage.rename(from, name, &stage, &staged)) {
            Err(error) if !may_be_stale(&error) => {
                Err(Error::io("can't move a staged file back from beside its place", error))
            }
            _ => {
                if names::is_staged_control(&staged) {
                    self.moved.borrow_mut().push(staged);
                }
                Ok(true)
            }
        }
    }

    /// The control files that were moved back: they have been seen once.
    pub(super) fn moved(self) -> Vec<String> {
        self.moved.into_inner()
    }

    /// The staged name that a file had, by what it says itself.
    fn staged_name(&self, file: &io::Result<File>, nonce: Nonce) -> String {
        if self.parent == names::INDEX {
            return names::staged_control("index", nonce);
        }
        let read = file.as_ref().ok().and_then(|file| read::commit(self.log, file, Version::ZERO).ok());
        match read.and_then(|read| read.record) {
            Some(Record::Parts(parts)) => {
                names::staged_draft(&parts.producer, parts.incarnation, parts.first, nonce)
            }
            Some(record) => names::staged_control(record.kind().word(), nonce),
            None => names::staged_control("unreadable", nonce),
        }
    }

    fn segment_named(&self, segment: Segment, name: &str, freed: &mut Freed) -> Result<()> {
        let storage = &*self.log.storage;
        let failed = |error| Error::io("can't remove a segment that nobody needs", error);
        for _ in 0..LOOK_AGAIN_MAX {
            let listed = storage.open_dir(&self.dir, name).and_then(|dir| Ok((storage.list(&dir)?, dir)));
            let (listed, dir) = match listed {
                Ok(listed) => listed,
                Err(error) if may_be_stale(&error) => return Ok(()),
                Err(error) => return Err(failed(error)),
            };
            let mut strangers = false;
            for version in listed.iter() {
                let own = names::parse_version(version)
                    .filter(|version| version.segment(self.log.segment_size()) == segment);
                match own {
                    Some(version) => {
                        let gone = self.file_in(&dir, &names::version(version))?;
                        freed.bytes = freed.bytes.saturating_add(gone.bytes);
                    }
                    None => strangers |= !self.moved_back(&dir, version)?,
                }
            }
            if strangers {
                break;
            }
            match if self.dry_run { Ok(()) } else { storage.remove_dir(&self.dir, name) } {
                Ok(()) => {
                    freed.count = 1;
                    return Ok(());
                }
                Err(error) if may_be_stale(&error) => return Ok(()),
                // A writer that slept has linked into it meanwhile (R6), or the listing was old.
                Err(error) if is_not_empty(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        tracing::info!(%segment, "a removed segment's directory holds other names, so it stays for now");
        Ok(())
    }
}
