//! The raw system calls that the engine is held against, call by call as a careful program would make them.
//!
//! - Durable: write, fdatasync, link, unlink, fsync of the directory. Nothing less would survive a power cut.
//! - It checks no checksum on disk, knows no order, no identity and no crash: what it can't do, it needn't
//!   pay for.
//! - The command's only `unsafe` is here: mapping files that this very run has made.

#![expect(unsafe_code, reason = "mmap; each block has its SAFETY note")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use memmap2::{Mmap, MmapMut, MmapOptions};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::thread::futex::{self, Timespec};
use rustix::time::{ClockId, clock_gettime};

const COMMITS_PER_MARK: u64 = 256;
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Nanoseconds of the machine's monotonic clock: the same in every process of it.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// A directory of finished files, and one of staged ones.
#[derive(Debug)]
pub(super) struct RawLog {
    root: OwnedFd,
    stage: OwnedFd,
    log: OwnedFd,
    next: u64,
}

impl RawLog {
    /// Makes it, with a directory of marks that holds one.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        for made in [path.to_owned(), path.join("stage"), path.join("log"), path.join("marks")] {
            std::fs::create_dir(made)?;
        }
        File::create_new(path.join("marks/000000000000"))?;
        Self::open(path)
    }

    /// Opens one that is there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?;
        let stage = rustix::fs::openat(&root, "stage", DIRECTORY, Mode::empty())?;
        let log = rustix::fs::openat(&root, "log", DIRECTORY, Mode::empty())?;
        Ok(Self { root, stage, log, next: 0 })
    }

    /// Creates a staged file, writes it in one go, syncs it if told, links it under its number and unlinks
    /// the staged name; syncs the directory if told.
    pub(super) fn commit(&mut self, bytes: &[u8], synced: bool) -> io::Result<u64> {
        let staged = format!("draft-{:016x}", self.next);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.stage, &staged, flags, Mode::from_raw_mode(0o666))?;
        write_all(&file, bytes, 0)?;
        if synced {
            rustix::fs::fdatasync(&file)?;
        }
        drop(file);
        let number = self.next;
        rustix::fs::linkat(&self.stage, &staged, &self.log, name(number), AtFlags::empty())?;
        rustix::fs::unlinkat(&self.stage, &staged, AtFlags::empty())?;
        if synced {
            rustix::fs::fsync(&self.log)?;
        }
        self.next += 1;
        Ok(number)
    }

    /// What the protocol adds to a commit: the marks listed by a directory opened anew, an absent mark
    /// opened by name, and the next number, absent, opened too. There are as many marks as a store of as
    /// many commits has.
    pub(super) fn look(&self) -> io::Result<usize> {
        let marks = rustix::fs::openat(&self.root, "marks", DIRECTORY, Mode::empty())?;
        if self.next.is_multiple_of(COMMITS_PER_MARK) {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mark = format!("{:012}", self.next / COMMITS_PER_MARK);
            rustix::fs::openat(&marks, mark, flags, Mode::from_raw_mode(0o666))?;
        }
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = RawDir::new(&marks, buffer.spare_capacity_mut());
        let mut found = 0;
        while let Some(entry) = entries.next() {
            found += usize::from(!entry?.file_name().to_bytes().starts_with(b"."));
        }
        absent(&marks, "none")?;
        absent(&self.log, &name(self.next))?;
        Ok(found)
    }

    /// Maps a finished file whole: open, fstat, mmap.
    pub(super) fn map(&self, number: u64) -> io::Result<Mmap> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        map(&File::from(rustix::fs::openat(&self.log, name(number), flags, Mode::empty())?), false)
    }
}

fn name(number: u64) -> String {
    format!("{number:020}")
}

fn absent(dir: impl AsFd, name: &str) -> io::Result<()> {
    match rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

fn write_all(file: impl AsFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::pwrite(&file, bytes, offset)?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Writes `times` the same bytes to a new file, then syncs it.
pub(super) fn write_file(path: &Path, bytes: &[u8], times: usize) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(0o666))?;
    for time in 0..times {
        write_all(&file, bytes, (time * bytes.len()) as u64)?;
    }
    Ok(rustix::fs::fdatasync(&file)?)
}

/// Maps a file whole; `populate` has the kernel fault all of it in at once.
pub(super) fn map(file: &File, populate: bool) -> io::Result<Mmap> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut options = MmapOptions::new();
    options.len(length);
    if populate {
        options.populate();
    }
    // SAFETY: the file is one of this run's own in its private directory; once finished it is never written
    // again.
    unsafe { options.map(file) }
}

/// A buffer that begins at a page.
pub(super) fn aligned(length: usize) -> io::Result<MmapMut> {
    MmapMut::map_anon(length)
}

/// What the two processes of a ping share: two words to wait on, and the answer's time.
#[derive(Debug)]
pub(super) struct Words(MmapMut);

impl Words {
    const PING: usize = 0;
    const PONG: usize = 64;
    const STAMP: usize = 128;

    /// Makes the file and maps it.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        File::create_new(path)?.set_len(4096)?;
        Self::open(path)
    }

    /// Maps a file that [`Words::create`] has made.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        // SAFETY: both processes use the bytes as atomics only, and nobody truncates the file.
        let map = unsafe { MmapOptions::new().len(4096).map_mut(&file) }?;
        Ok(Self(map))
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        let start = self.0[at..at + 4].as_ptr().cast::<u32>().cast_mut();
        // SAFETY: a page's start plus a multiple of 64 is aligned, lies within the writable mapping, and is
        // only ever used as an atomic, for as long as the borrow of `self`.
        unsafe { AtomicU32::from_ptr(start) }
    }

    fn stamp(&self) -> &AtomicU64 {
        let start = self.0[Self::STAMP..Self::STAMP + 8].as_ptr().cast::<u64>().cast_mut();
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(start) }
    }

    /// Says that ping `number` is there.
    pub(super) fn ping(&self, number: u32) -> io::Result<()> {
        ring(self.word(Self::PING), number)
    }

    /// Waits for ping `number`; gives what is said, which may be another one; none after `patience`.
    pub(super) fn await_ping(&self, last: u32, patience: Duration) -> io::Result<Option<u32>> {
        await_change(self.word(Self::PING), last, patience)
    }

    /// Answers ping `number`, seen at `at_ns`.
    pub(super) fn pong(&self, number: u32, at_ns: u64) -> io::Result<()> {
        self.stamp().store(at_ns, Ordering::Release);
        ring(self.word(Self::PONG), number)
    }

    /// Waits for an answer other than `last`: its number and time; none after `patience`.
    pub(super) fn await_pong(&self, last: u32, patience: Duration) -> io::Result<Option<(u32, u64)>> {
        let number = await_change(self.word(Self::PONG), last, patience)?;
        Ok(number.map(|number| (number, self.stamp().load(Ordering::Acquire))))
    }
}

fn ring(word: &AtomicU32, value: u32) -> io::Result<()> {
    word.store(value, Ordering::Release);
    futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs())?;
    Ok(())
}

fn await_change(word: &AtomicU32, last: u32, patience: Duration) -> io::Result<Option<u32>> {
    let deadline = now_ns() + u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX / 2);
    loop {
        let said = word.load(Ordering::Acquire);
        if said != last {
            return Ok(Some(said));
        }
        let left = Duration::from_nanos(deadline.saturating_sub(now_ns()));
        if left.is_zero() {
            return Ok(None);
        }
        match futex::wait(word, futex::Flags::empty(), last, Timespec::try_from(left).ok().as_ref()) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
