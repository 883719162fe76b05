//! Names and bytes: what the engine asks of a filesystem, one system call at a time.
//!
//! - A method of [`Storage`] is one system call that another node can see or that can fail: no retry, no
//!   identity, no judgement. So a simulator can stop anywhere, and a counter counts what a metadata server
//!   sees.
//! - Names are (directory handle, name). A name is one component, never a path.
//! - Handles are opaque: wrappers pass them through, only the storage that made one looks inside.
//! - Errors are the system's, with their errno.
//! - Metadata calls, in every budget, are all methods but `read_at`, `write_at`, `copy_range`, `close`,
//!   `map`, `populate`, `map_word`, `wait` and `wake`; failed ones count.

mod class;
mod counting;
mod listing;
mod mapping;
mod mountinfo;
#[cfg(test)]
pub(crate) mod odd;
mod pool;
mod posix;
pub(crate) mod probe;
pub(crate) mod put;

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::limits::FILE_COPY_PIECE_BYTES;

pub use class::class_of;
pub use counting::{Calls, Counting};
pub use listing::Names;
pub use mapping::{ForkMark, Mapping};
pub use pool::{Buffer, Pool};
pub use posix::Posix;
pub use probe::{Attempt, Finding, PROBE_PREFIX, Report, probe};

/// An open directory.
#[derive(Clone)]
pub struct Dir(Arc<dyn Any + Send + Sync>);

/// An open file.
#[derive(Clone)]
pub struct File(Arc<dyn Any + Send + Sync>);

macro_rules! handle {
    ($name:ident, $word:literal) => {
        impl $name {
            /// Wraps a storage's own handle.
            pub fn new<T: Any + Send + Sync>(inner: T) -> Self {
                Self(Arc::new(inner))
            }

            /// The storage's own handle; none if another storage made it.
            pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
                self.0.downcast_ref()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($word)
            }
        }
    };
}

handle!(Dir, "Dir");
handle!(File, "File");

impl File {
    /// The storage's own handle by value, for a checked close; none if it is shared or another storage's.
    pub fn into_inner<T: Any + Send + Sync>(self) -> Option<T> {
        Arc::into_inner(self.0.downcast().ok()?)
    }
}

/// The doorbell: a mapped 32-bit word that a process of the same host can change and wake.
pub trait Word: Send + Sync + fmt::Debug {
    /// Its value now.
    fn load(&self) -> u32;

    /// For the storage that made it.
    fn as_any(&self) -> &dyn Any;
}

/// What [`Storage::open`] opens a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading. Everything that has its final name is only ever opened so (R1).
    Read,
    /// Reading and writing in place: the doorbell and progress hints.
    Update,
}

/// What a name stands for, not following symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else: a symbolic link, a device.
    Other,
}

/// Room on the filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that this user can still write; `u64::MAX` where the filesystem doesn't count them.
    pub bytes_free: u64,
    /// Bytes in all; `u64::MAX` likewise.
    pub bytes_total: u64,
    /// Inodes free; `u64::MAX` where the filesystem doesn't count them.
    pub inodes_free: u64,
    /// Inodes in all; `u64::MAX` likewise.
    pub inodes_total: u64,
}

/// What the system says about a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The filesystem's type as in the mount table (`ext4`, `nfs4`, `fuse.sshfs`); empty where there is none.
    pub kind: String,
    /// `f_type` of statfs.
    pub magic: u64,
    /// Its options as in the mount table, comma separated.
    pub options: String,
    /// Where it is mounted; empty where that isn't known.
    #[serde(serialize_with = "lossy")]
    pub point: OsString,
}

/// A path for people: bytes that aren't UTF-8 are replaced, since a report has to be readable whatever the
/// path.
fn lossy<S: Serializer>(path: impl AsRef<OsStr>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.as_ref().display())
}

/// The calls. Every implementation passes the contract suite of the simulator's crate.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Opens the root directory.
    ///
    /// # Errors
    /// As open(2): `NotFound`, `NotADirectory`, ...
    fn open_root(&self, path: &Path) -> io::Result<Dir>;

    /// Makes the root directory; its parent has to exist.
    ///
    /// # Errors
    /// As mkdir(2): `AlreadyExists`, ...
    fn make_root(&self, path: &Path) -> io::Result<()>;

    /// Gives the root directory another path of the same mount, if that is free or an empty directory.
    ///
    /// # Errors
    /// As rename(2): ENOTEMPTY or EEXIST when the new path holds something, ENOTDIR when it is a file, EXDEV.
    fn rename_root(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Opens a directory, afresh: on NFS this is what makes look-ups in it fresh.
    ///
    /// # Errors
    /// As openat(2) with O_DIRECTORY.
    fn open_dir(&self, parent: &Dir, name: &str) -> io::Result<Dir>;

    /// Creates a file that doesn't exist, for reading and writing.
    ///
    /// # Errors
    /// As openat(2) with O_CREAT | O_EXCL: `AlreadyExists`, no space, no inodes, ...
    fn create_exclusive(&self, dir: &Dir, name: &str) -> io::Result<File>;

    /// Opens a file that exists.
    ///
    /// # Errors
    /// As openat(2). A symbolic link as the last component is refused.
    fn open(&self, dir: &Dir, name: &str, access: Access) -> io::Result<File>;

    /// Closes a file and says what close(2) says. Dropping a file closes it silently; a file that was written
    /// to is closed by this (R3).
    ///
    /// # Errors
    /// What the system reports at close: on some filesystems the first word of a full disk.
    fn close(&self, file: File) -> io::Result<()>;

    /// The file's size in bytes.
    ///
    /// # Errors
    /// As fstat(2).
    fn size(&self, file: &File) -> io::Result<u64>;

    /// What a name stands for, not following symbolic links.
    ///
    /// # Errors
    /// As fstatat(2) with AT_SYMLINK_NOFOLLOW.
    fn kind(&self, dir: &Dir, name: &str) -> io::Result<Kind>;

    /// Reads at an offset; may be short, 0 at the end.
    ///
    /// # Errors
    /// As pread(2).
    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at an offset; may be short.
    ///
    /// # Errors
    /// As pwrite(2).
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Copies between files inside the filesystem; may be short, 0 at the end.
    ///
    /// # Errors
    /// As copy_file_range(2).
    fn copy_range(
        &self,
        from: &File,
        from_offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> io::Result<u64>;

    /// Maps the first `length` bytes for reading, lazily. The caller has checked the size; `length` isn't 0.
    ///
    /// # Errors
    /// As mmap(2): ENODEV on some mounts.
    fn map(&self, file: &File, length: u64) -> io::Result<Mapping>;

    /// Faults a range of a mapping in, so that what can't be read is an error here, not a SIGBUS later.
    ///
    /// # Errors
    /// As madvise(2) with MADV_POPULATE_READ: EFAULT for a truncated file, EINVAL before Linux 5.14.
    fn populate(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()>;

    /// Makes the file's bytes durable.
    ///
    /// # Errors
    /// As fdatasync(2). The bytes are then to be thought lost (R3).
    fn sync_file(&self, file: &File) -> io::Result<()>;

    /// Gives a file a second name, if that is free.
    ///
    /// # Errors
    /// As linkat(2): `AlreadyExists`, `NotFound`, EPERM, EXDEV, ... An error isn't a loss (R2).
    fn link(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()>;

    /// Renames, replacing what had the name.
    ///
    /// # Errors
    /// As renameat(2).
    fn rename(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()>;

    /// Renames, if the new name is free.
    ///
    /// # Errors
    /// As renameat2(2) with RENAME_NOREPLACE: `AlreadyExists`, EINVAL where the filesystem can't.
    fn rename_noreplace(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()>;

    /// The names in a directory, but `.` and `..`, in no order.
    ///
    /// # Errors
    /// As getdents64(2).
    fn list(&self, dir: &Dir) -> io::Result<Names>;

    /// Makes a directory.
    ///
    /// # Errors
    /// As mkdirat(2).
    fn make_dir(&self, parent: &Dir, name: &str) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As unlinkat(2) with AT_REMOVEDIR.
    fn remove_dir(&self, parent: &Dir, name: &str) -> io::Result<()>;

    /// Makes a directory's entries durable.
    ///
    /// # Errors
    /// As fsync(2).
    fn sync_dir(&self, dir: &Dir) -> io::Result<()>;

    /// Removes a file's name.
    ///
    /// # Errors
    /// As unlinkat(2).
    fn remove(&self, dir: &Dir, name: &str) -> io::Result<()>;

    /// Room on the filesystem.
    ///
    /// # Errors
    /// As fstatvfs(3).
    fn space(&self, dir: &Dir) -> io::Result<Space>;

    /// What the system says about the mount.
    ///
    /// # Errors
    /// As fstatfs(2).
    fn mount(&self, dir: &Dir) -> io::Result<Mount>;

    /// Maps the word at the head of a file of at least 4 bytes (the caller has checked the size).
    ///
    /// # Errors
    /// As mmap(2).
    fn map_word(&self, file: &File) -> io::Result<Arc<dyn Word>>;

    /// Sleeps until the word differs from `seen`, someone wakes it, or `timeout` passed; may wake for
    /// nothing.
    ///
    /// # Errors
    /// As futex(2); a timeout isn't one.
    fn wait(&self, word: &dyn Word, seen: u32, timeout: Duration) -> io::Result<()>;

    /// Wakes all that wait on the word, in every process of this host.
    ///
    /// # Errors
    /// As futex(2).
    fn wake(&self, word: &dyn Word) -> io::Result<()>;
}

/// For a removal: what is gone already is as good.
///
/// # Errors
/// The removal's, but `NotFound`.
pub(crate) fn absent_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// What rmdir(2) says of a directory that has names.
pub(crate) fn is_not_empty(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
}

/// Writes all of `bytes` at `offset`: short writes are looped (R3).
///
/// # Errors
/// The first that a write reports; a write of nothing is `WriteZero`.
pub fn write_all_at(storage: &dyn Storage, file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = match storage.write_at(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        bytes = bytes.get(written..).unwrap_or_default();
        offset = offset.saturating_add(written as u64);
    }
    Ok(())
}

/// Fills `buffer` from `offset`.
///
/// # Errors
/// The first that a read reports; a file that ends before is `UnexpectedEof`.
pub fn read_exact_at(
    storage: &dyn Storage,
    file: &File,
    mut buffer: &mut [u8],
    mut offset: u64,
) -> io::Result<()> {
    while !buffer.is_empty() {
        let read = match storage.read_at(file, buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        buffer = buffer.get_mut(read..).unwrap_or_default();
        offset = offset.saturating_add(read as u64);
    }
    Ok(())
}

/// Copies all of a range between files: inside the filesystem where it can do that, else through memory.
///
/// # Errors
/// The system's; `UnexpectedEof` when the source ends before.
pub fn copy_all(
    storage: &dyn Storage,
    (from, mut from_offset): (&File, u64),
    (to, mut to_offset): (&File, u64),
    mut length: u64,
) -> io::Result<()> {
    const EXDEV: i32 = 18;
    const EINVAL: i32 = 22;
    const ENOSYS: i32 = 38;
    const EOPNOTSUPP: i32 = 95;
    let refused =
        |error: &io::Error| matches!(error.raw_os_error(), Some(EXDEV | EINVAL | ENOSYS | EOPNOTSUPP));
    let mut inside = true;
    let mut buffer = Vec::new();
    while length > 0 {
        let copied = if inside {
            match storage.copy_range(from, from_offset, to, to_offset, length) {
                // Some filesystems say nothing but copy nothing either: what is read tells.
                Ok(0) => {
                    inside = false;
                    continue;
                }
                Err(error) if refused(&error) => {
                    inside = false;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                copied => copied?,
            }
        } else {
            let piece = usize::try_from(length).unwrap_or(usize::MAX).min(FILE_COPY_PIECE_BYTES);
            buffer.resize(piece, 0);
            read_exact_at(storage, from, &mut buffer, from_offset)?;
            write_all_at(storage, to, &buffer, to_offset)?;
            piece as u64
        };
        let copied = copied.min(length);
        from_offset = from_offset.saturating_add(copied);
        to_offset = to_offset.saturating_add(copied);
        length = length.saturating_sub(copied);
    }
    Ok(())
}
