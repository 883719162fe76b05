//! Mapped files: the only room with `unsafe`, one operation a block.
//!
//! - Only immutable bytes are mapped: a published commit or index is never opened for writing and never
//!   truncated (R1), so a `&[u8]` into a mapping doesn't change while it lives. The doorbell, which does, is
//!   read as an atomic.
//! - The size is checked before mapping; what can't be read is found by [`Mapping::populate`], as an error
//!   value.
//! - One page isn't a file's: a fork wipes it, so that a child knows itself without a system call.

#![expect(unsafe_code, reason = "mmap and madvise; each block has its SAFETY note")]

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use memmap2::{Mmap, MmapOptions};
use rustix::mm::{Advice, madvise};

use super::Word;

/// The bytes of a file for reading, for as long as this lives.
pub struct Mapping(Inner);

enum Inner {
    File(Mmap),
    Memory(Box<dyn AsRef<[u8]> + Send + Sync>),
}

impl Mapping {
    /// Maps the first `length` bytes of a file, lazily.
    pub(super) fn of_file(file: impl AsFd, length: u64) -> io::Result<Self> {
        let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let file = file.as_fd();
        // SAFETY: what is mapped has its final name, and such a file is never written or truncated again
        // (R1); a file cut short by others is found by `populate` before its bytes are touched.
        let map = unsafe { MmapOptions::new().len(length).map(&file) }?;
        Ok(Self(Inner::File(map)))
    }

    /// The same out of memory: for storages that have no files, and for what is read instead.
    pub fn of_memory(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Inner::Memory(Box::new(bytes)))
    }

    /// Faults `range` in (MADV_POPULATE_READ): EFAULT for what the file no longer has, EINVAL before Linux
    /// 5.14.
    pub(super) fn populate(&self, range: Range<u64>) -> io::Result<()> {
        let Inner::File(map) = &self.0 else { return Ok(()) };
        let outside = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let start = usize::try_from(range.start).map_err(|_| outside())?;
        let end = usize::try_from(range.end).map_err(|_| outside())?;
        if start >= end {
            return Ok(());
        }
        if end > map.len() {
            return Err(outside());
        }
        map.advise_range(memmap2::Advice::PopulateRead, start, end - start)
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::File(map) => map,
            Inner::Memory(bytes) => (**bytes).as_ref(),
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.len())
    }
}

/// By which a forked child is told from the process that made this.
#[derive(Debug)]
pub struct ForkMark {
    /// None before Linux 4.14, which wipes nothing.
    page: Option<Mmap>,
    pid: u32,
}

impl Default for ForkMark {
    fn default() -> Self {
        Self { page: Self::page().ok(), pid: std::process::id() }
    }
}

impl ForkMark {
    /// A page with something in it that a fork wipes (MADV_WIPEONFORK).
    fn page() -> io::Result<Mmap> {
        let mut page = MmapOptions::new().len(1).map_anon()?;
        // SAFETY: it is a private mapping of its own, and nothing in it has been shown to anybody yet.
        unsafe { madvise(page.as_mut_ptr().cast(), page.len(), Advice::LinuxWipeOnFork) }?;
        page.fill(1);
        page.make_read_only()
    }

    /// The process that made it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether a fork has brought it here.
    pub fn is_forked(&self) -> bool {
        let Some(page) = &self.page else { return std::process::id() != self.pid };
        // SAFETY: a mapped byte, which nobody writes any more but the kernel, and that for a child only; read
        // anew each time.
        unsafe { page.as_ptr().read_volatile() == 0 }
    }
}

/// The doorbell's word in a shared mapping.
#[derive(Debug)]
pub(super) struct MappedWord {
    map: Mmap,
    file: OwnedFd,
}

impl MappedWord {
    /// Maps the first 4 bytes of a file.
    pub(super) fn of_file(file: impl AsFd) -> io::Result<Self> {
        let file = file.as_fd();
        // SAFETY: the bytes do change under the map, so they are only ever read as an atomic (`word`), never
        // as a slice.
        let map = unsafe { MmapOptions::new().len(size_of::<u32>()).map(&file) }?;
        Ok(Self { map, file: file.try_clone_to_owned()? })
    }

    /// The word, for the kernel to compare and to wait on: it answers EFAULT where a touch would be a SIGBUS.
    pub(super) fn word(&self) -> &AtomicU32 {
        let start = self.map.as_ptr().cast::<u32>().cast_mut();
        // SAFETY: a mapping begins at a page, hence aligned, and is 4 bytes long; it is only
        // waited on, and lives as long as the borrow of `self`.
        unsafe { AtomicU32::from_ptr(start) }
    }
}

impl Word for MappedWord {
    /// Read from the file, not from the map: whoever cuts a doorbell short must not kill a trainer.
    fn load(&self) -> u32 {
        let mut word = [0; size_of::<u32>()];
        match rustix::io::pread(&self.file, &mut word, 0) {
            Ok(read) if read == word.len() => u32::from_le_bytes(word),
            _ => 0,
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
