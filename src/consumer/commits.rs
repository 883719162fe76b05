//! Commits that are being read: opened once for all consumers of a handle, known by nonce and record
//! checksum.
//!
//! - A file is that commit only if its nonce and record checksum are those of its entry (R7); that is
//!   checked before anything of it is handed out.
//! - Mapped whole and lazily, its size checked first; a small one that was waited for is read instead. The
//!   descriptor is closed by whoever is about to wait, one at most stays open. In copy mode a read that comes
//!   short tells the same.
//! - A mount that can't map is read instead, with one warning.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::format::part::PartDescriptor;
use crate::format::record::Record;
use crate::id::{Checksum, Nonce, Version};
use crate::limits::{COMMIT_CACHE, READ_UNASKED_BYTES, WHOLE_COMMIT_BYTES};
use crate::log::locate::Located;
use crate::log::{Log, read};
use crate::name::Name;
use crate::options::ReadMode;
use crate::storage::{File, Mapping, read_exact_at};

/// An open commit that holds parts.
#[derive(Debug)]
pub(super) struct OpenCommit {
    version: Version,
    nonce: Nonce,
    checksum: Checksum,
    pub(super) producer: Name,
    pub(super) parts: Vec<PartDescriptor>,
    pub(super) body: Body,
}

/// Its bytes.
#[derive(Debug)]
pub(super) enum Body {
    /// Mapped whole; if it is small, faulted in whole too.
    Mapped(Arc<Mapping>),
    /// To be read.
    File(File),
}

impl OpenCommit {
    fn is(&self, located: &Located) -> bool {
        (self.version, self.nonce, self.checksum) == (located.version, located.nonce, located.checksum)
    }

    /// Reads `buffer.len()` bytes at `offset`, by either way.
    pub(super) fn read(&self, log: &Log, buffer: &mut [u8], offset: u64) -> Result<()> {
        match &self.body {
            Body::File(file) => read_exact_at(&*log.storage, file, buffer, offset).map_err(read::short),
            Body::Mapped(mapping) => {
                let end = offset.saturating_add(buffer.len() as u64);
                let bytes = faulted(log, mapping, offset..end)?;
                buffer.copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Before memory is taken for much that is to be read: does the file reach that far?
    pub(super) fn check_reach(&self, log: &Log, offset: u64, length: u64) -> Result<()> {
        let Body::File(file) = &self.body else { return Ok(()) };
        if length <= READ_UNASKED_BYTES {
            return Ok(());
        }
        let size =
            log.storage.size(file).map_err(|error| Error::io("can't ask for a commit's size", error))?;
        if offset.checked_add(length).is_some_and(|end| end <= size) {
            return Ok(());
        }
        Err(cut_short())
    }
}

/// A range of a mapping, faulted in, so that what is missing is an error and not a SIGBUS.
pub(super) fn faulted<'m>(log: &Log, mapping: &'m Mapping, range: Range<u64>) -> Result<&'m [u8]> {
    let bytes = of_mapping(mapping, range.clone())?;
    if mapping.len() as u64 > WHOLE_COMMIT_BYTES {
        log.storage.populate(mapping, range).map_err(read::unreadable)?;
    }
    Ok(bytes)
}

/// A range of a mapping that is faulted in already, as part of a larger one.
pub(super) fn of_mapping(mapping: &Mapping, range: Range<u64>) -> Result<&[u8]> {
    let start = usize::try_from(range.start).map_err(|_| cut_short())?;
    let end = usize::try_from(range.end).map_err(|_| cut_short())?;
    mapping.get(start..end).ok_or_else(cut_short)
}

fn cut_short() -> Error {
    Error::new(ErrorKind::Corrupt, "the file is cut short")
}

/// The commits that were read last.
#[derive(Debug, Default)]
pub(super) struct Commits {
    recent: Mutex<VecDeque<Arc<OpenCommit>>>,
    /// The file that was mapped last: closing costs, so it is done by who is about to wait.
    mapped: Mutex<Option<File>>,
    /// Mapping failed once, so everything is read.
    unmappable: AtomicBool,
    /// Populating worked once, so the kernel has it.
    populates: AtomicBool,
}

impl Commits {
    /// The commit that holds a located part.
    ///
    /// `waiting` is its file, already open and read, if the tail has just come by it.
    pub(super) fn get(
        &self,
        log: &Log,
        located: &Located,
        waiting: Option<(File, read::Read)>,
    ) -> Result<Arc<OpenCommit>> {
        if let Some(open) = self.recent.lock().iter().find(|open| open.is(located)) {
            return Ok(Arc::clone(open));
        }
        let path = || log.commit_path(located.version);
        let opened = self.open(log, located, waiting);
        let commit = Arc::new(opened.map_err(|error| error.version(located.version).at(path()))?);
        let forgotten = {
            let mut recent = self.recent.lock();
            recent.push_back(Arc::clone(&commit));
            // Beyond twice the number, without waiting for a quiet moment.
            if recent.len() > COMMIT_CACHE * 2 { recent.pop_front() } else { None }
        };
        drop(forgotten);
        Ok(commit)
    }

    /// Forgets older commits. Unmapping costs, so it is done by who is about to wait.
    pub(super) fn trim(&self) {
        let forgotten: Vec<_> = {
            let mut recent = self.recent.lock();
            let more = recent.len().saturating_sub(COMMIT_CACHE);
            recent.drain(..more).collect()
        };
        drop(forgotten);
        let closed = self.mapped.lock().take();
        drop(closed);
    }

    /// Forgets all: what is open may have outlived what it stands for.
    pub(super) fn forget(&self) {
        let forgotten = std::mem::take(&mut *self.recent.lock());
        let closed = self.mapped.lock().take();
        drop((forgotten, closed));
    }

    fn open(&self, log: &Log, located: &Located, waiting: Option<(File, read::Read)>) -> Result<OpenCommit> {
        let (file, read) = match waiting {
            Some(waiting) => waiting,
            None => {
                let file = log.open_behind(located.version).map_err(missing)?;
                let read = read::commit(log, &file, located.version)?;
                (file, read)
            }
        };
        if (read.header.nonce, read.checksum) != (located.nonce, located.checksum) {
            let what = "the file isn't the commit that the log has there: another one has its name";
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        let Some(Record::Parts(record)) = read.record else {
            return Err(Error::new(ErrorKind::Corrupt, "the index names a commit that holds no parts"));
        };
        let body = match read.whole {
            Some(whole) => self.mapped(file, whole),
            None => self.body(log, file, read.header.length)?,
        };
        Ok(OpenCommit {
            version: located.version,
            nonce: located.nonce,
            checksum: located.checksum,
            producer: record.producer,
            parts: record.parts,
            body,
        })
    }

    fn body(&self, log: &Log, file: File, length: u64) -> Result<Body> {
        if log.mode == ReadMode::Copy || self.unmappable.load(Ordering::Relaxed) {
            return Ok(Body::File(file));
        }
        let size =
            log.storage.size(&file).map_err(|error| Error::io("can't ask for a commit's size", error))?;
        if size != length {
            let what = format!("the file has {size} bytes, its header says {length}");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        match self.map(log, &file, length) {
            Ok(mapping) => Ok(self.mapped(file, Arc::new(mapping))),
            Err(error) if read::is_fault(&error) => Err(read::unreadable(error)),
            Err(error) => {
                if !self.unmappable.swap(true, Ordering::Relaxed) {
                    let path = log.path.display();
                    tracing::warn!(%error, %path, "commits can't be mapped here, so they are read");
                }
                Ok(Body::File(file))
            }
        }
    }

    fn mapped(&self, file: File, mapping: Arc<Mapping>) -> Body {
        let before = self.mapped.lock().replace(file);
        drop(before);
        Body::Mapped(mapping)
    }

    /// Maps a commit; a small one is faulted in whole. Before Linux 5.14, where nothing says that a page
    /// can't be read but a SIGBUS, it is an error.
    fn map(&self, log: &Log, file: &File, length: u64) -> io::Result<Mapping> {
        let mapping = log.storage.map(file, length)?;
        let small = length <= WHOLE_COMMIT_BYTES;
        if small || !self.populates.load(Ordering::Relaxed) {
            log.storage.populate(&mapping, 0..if small { length } else { 1 })?;
            self.populates.store(true, Ordering::Relaxed);
        }
        Ok(mapping)
    }
}

fn missing(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound {
        return Error::new(ErrorKind::Corrupt, "the commit is missing, likely purged").caused_by(error);
    }
    Error::io("can't open a commit", error)
}
