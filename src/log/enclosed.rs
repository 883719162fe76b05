//! Storage of a store that publishes by renaming directories (primitive 3): where files can't be linked and a
//! rename can't be told to leave a taken name alone, that of a directory onto one that isn't empty fails.
//!
//! - What has a staged or a final name is a directory with one file, `c`. Only STORE says so; everything
//!   above works with names and files as on any other mount.
//! - Enclosed is what lies in stage/, index/ and the segments, and STORE. Marks, hints, the doorbell and the
//!   ballast are plain files: none of them is published.
//! - A rename onto an empty directory succeeds: that is a name that is being removed, which is as good as
//!   free and settled by the marks (R6).
//! - A staged file is durable once its directory is too; that is synced with it (R3).

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::format::names;
use crate::storage::{
    Access, Dir, File, Kind, Mapping, Mount, Names, PROBE_PREFIX, Space, Storage, Word, absent_is_fine,
};

/// The file in a published directory.
pub const CONTENT: &str = "c";

/// The storage behind, with enclosed files.
pub struct Enclosed(Arc<dyn Storage>);

impl Enclosed {
    /// Over the storage of a store's mount.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self(inner)
    }

    /// As this storage's: a root that was opened by the one behind.
    pub fn root(root: Dir) -> Dir {
        Dir::new(Within { dir: root, holds: Holds::Store })
    }

    fn enclosing(&self, within: &Within, name: &str) -> bool {
        match within.holds {
            Holds::Files => !name.starts_with(PROBE_PREFIX),
            // And what is to become STORE (R9).
            Holds::Store => name == names::STORE || names::parse_beside(OsStr::new(name)).is_some(),
            Holds::Segments | Holds::Plain => false,
        }
    }
}

impl fmt::Debug for Enclosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Enclosed").field(&self.0).finish()
    }
}

/// What a directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// The root: STORE is enclosed.
    Store,
    /// log/.
    Segments,
    /// stage/, index/, or a segment: enclosed files.
    Files,
    /// Others.
    Plain,
}

struct Within {
    dir: Dir,
    holds: Holds,
}

/// A file that was created here, and the directory that encloses it.
struct Created {
    file: Mutex<Option<File>>,
    dir: Dir,
}

fn within(dir: &Dir) -> io::Result<&Within> {
    dir.get::<Within>().ok_or_else(foreign)
}

fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the handle is another storage's")
}

/// The file behind.
fn bare(file: &File) -> io::Result<File> {
    match file.get::<Created>() {
        Some(created) => created.file.lock().clone().ok_or_else(foreign),
        None => Ok(file.clone()),
    }
}

/// What says that a name is taken.
fn taken(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => {
            io::ErrorKind::AlreadyExists.into()
        }
        _ => error,
    }
}

#[deny(clippy::missing_trait_methods)]
impl Storage for Enclosed {
    fn open_root(&self, path: &Path) -> io::Result<Dir> {
        self.0.open_root(path).map(Self::root)
    }

    fn make_root(&self, path: &Path) -> io::Result<()> {
        self.0.make_root(path)
    }

    fn rename_root(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename_root(from, to)
    }

    fn open_dir(&self, parent: &Dir, name: &str) -> io::Result<Dir> {
        let parent = within(parent)?;
        let holds = match (parent.holds, name) {
            (Holds::Store, names::STAGE | names::INDEX) | (Holds::Segments, _) => Holds::Files,
            (Holds::Store, names::LOG) => Holds::Segments,
            _ => Holds::Plain,
        };
        Ok(Dir::new(Within { dir: self.0.open_dir(&parent.dir, name)?, holds }))
    }

    fn create_exclusive(&self, dir: &Dir, name: &str) -> io::Result<File> {
        let within = within(dir)?;
        if !self.enclosing(within, name) {
            return self.0.create_exclusive(&within.dir, name);
        }
        self.0.make_dir(&within.dir, name)?;
        let inner = self.0.open_dir(&within.dir, name)?;
        let file = self.0.create_exclusive(&inner, CONTENT)?;
        Ok(File::new(Created { file: Mutex::new(Some(file)), dir: inner }))
    }

    fn open(&self, dir: &Dir, name: &str, access: Access) -> io::Result<File> {
        let within = within(dir)?;
        if !self.enclosing(within, name) {
            return self.0.open(&within.dir, name, access);
        }
        self.0.open(&self.0.open_dir(&within.dir, name)?, CONTENT, access)
    }

    fn close(&self, file: File) -> io::Result<()> {
        let created = file.get::<Created>().map(|created| created.file.lock().take());
        match created {
            Some(Some(inner)) => self.0.close(inner),
            Some(None) => Err(foreign()),
            None => self.0.close(file),
        }
    }

    fn size(&self, file: &File) -> io::Result<u64> {
        self.0.size(&bare(file)?)
    }

    fn kind(&self, dir: &Dir, name: &str) -> io::Result<Kind> {
        let within = within(dir)?;
        if !self.enclosing(within, name) {
            return self.0.kind(&within.dir, name);
        }
        if self.0.kind(&within.dir, name)? != Kind::Directory {
            return Ok(Kind::Other);
        }
        // One without content is a name that is being removed: nothing is there.
        let inner = self.0.open_dir(&within.dir, name)?;
        Ok(if self.0.kind(&inner, CONTENT)? == Kind::File { Kind::File } else { Kind::Other })
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(&bare(file)?, buffer, offset)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(&bare(file)?, bytes, offset)
    }

    fn copy_range(
        &self,
        from: &File,
        from_offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        self.0.copy_range(&bare(from)?, from_offset, &bare(to)?, to_offset, length)
    }

    fn map(&self, file: &File, length: u64) -> io::Result<Mapping> {
        self.0.map(&bare(file)?, length)
    }

    fn populate(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        self.0.populate(mapping, range)
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        self.0.sync_file(&bare(file)?)?;
        match file.get::<Created>() {
            Some(created) => self.0.sync_dir(&created.dir),
            None => Ok(()),
        }
    }

    /// There are none where this is needed.
    fn link(&self, _: &Dir, _: &str, _: &Dir, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Replaces the content, so that no reader finds the name without one.
    fn rename(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (from, to) = (within(from)?, within(to)?);
        if !self.enclosing(from, from_name) || !self.enclosing(to, to_name) {
            return self.0.rename(&from.dir, from_name, &to.dir, to_name);
        }
        let there = match self.0.open_dir(&to.dir, to_name) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.0.rename(&from.dir, from_name, &to.dir, to_name);
            }
            Err(error) => return Err(error),
        };
        let here = self.0.open_dir(&from.dir, from_name)?;
        self.0.rename(&here, CONTENT, &there, CONTENT)?;
        self.0.sync_dir(&there)?;
        absent_is_fine(self.0.remove_dir(&from.dir, from_name))
    }

    fn rename_noreplace(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (from, to) = (within(from)?, within(to)?);
        self.0.rename(&from.dir, from_name, &to.dir, to_name).map_err(taken)
    }

    fn list(&self, dir: &Dir) -> io::Result<Names> {
        self.0.list(&within(dir)?.dir)
    }

    fn make_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        self.0.make_dir(&within(parent)?.dir, name)
    }

    fn remove_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        self.0.remove_dir(&within(parent)?.dir, name)
    }

    fn sync_dir(&self, dir: &Dir) -> io::Result<()> {
        self.0.sync_dir(&within(dir)?.dir)
    }

    /// First what is in it: an empty directory is what a stop in between leaves, and is removed by the next.
    fn remove(&self, dir: &Dir, name: &str) -> io::Result<()> {
        let within = within(dir)?;
        if !self.enclosing(within, name) {
            return self.0.remove(&within.dir, name);
        }
        let inner = self.0.open_dir(&within.dir, name)?;
        absent_is_fine(self.0.remove(&inner, CONTENT))?;
        self.0.remove_dir(&within.dir, name)
    }

    fn space(&self, dir: &Dir) -> io::Result<Space> {
        self.0.space(&within(dir)?.dir)
    }

    fn mount(&self, dir: &Dir) -> io::Result<Mount> {
        self.0.mount(&within(dir)?.dir)
    }

    fn map_word(&self, file: &File) -> io::Result<Arc<dyn Word>> {
        self.0.map_word(&bare(file)?)
    }

    fn wait(&self, word: &dyn Word, seen: u32, timeout: Duration) -> io::Result<()> {
        self.0.wait(word, seen, timeout)
    }

    fn wake(&self, word: &dyn Word) -> io::Result<()> {
        self.0.wake(word)
    }
}
