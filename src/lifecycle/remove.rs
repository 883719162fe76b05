//! Removing what is dead, name by name.
//!
//! - A name that is gone is another reclaimer's work, never an error.
//! - Only names that the store gives are removed; a directory that holds others, or gets new ones time and
//!   again from writers that slept, stays for the next reclaim.
//! - Nothing is synced afterwards: a removal that a power cut undoes brings back what is dead, which the next
//!   reclaim removes again.

use std::io;

use super::reclaimed::Freed;
use crate::error::{Error, Result};
use crate::format::names;
use crate::id::Segment;
use crate::limits::LOOK_AGAIN_MAX;
use crate::log::{Log, may_be_stale};
use crate::storage::{Access, Dir};

/// Removes names of one of the store's directories, or says what would go.
#[derive(Debug)]
pub(super) struct Remover<'l> {
    log: &'l Log,
    parent: &'static str,
    dir: Dir,
    dry_run: bool,
}

impl<'l> Remover<'l> {
    /// In log/, index/ or stage/.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn new(log: &'l Log, parent: &'static str, dry_run: bool) -> Result<Self> {
        let failed =
            |error| Error::io("can't open a directory of the store", error).at(log.path_of([parent]));
        let dir = log.storage.open_dir(&log.root(), parent).map_err(failed)?;
        Ok(Self { log, parent, dir, dry_run })
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
        let bytes = match storage.open(dir, name, Access::Read).and_then(|file| storage.size(&file)) {
            Ok(bytes) => bytes,
            Err(error) if may_be_stale(&error) => return Ok(Freed::default()),
            // What can't be read can be dead all the same.
            Err(_) => 0,
        };
        let removed = if self.dry_run { Ok(()) } else { storage.remove(dir, name) };
        match removed {
            Ok(()) => Ok(Freed { count: 1, bytes }),
            Err(error) if may_be_stale(&error) => Ok(Freed::default()),
            Err(error) => Err(Error::io("can't remove what nobody needs", error)),
        }
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
                    None => strangers = true,
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

/// What rmdir(2) says of a directory that has names.
fn is_not_empty(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
}
