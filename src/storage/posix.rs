//! The storage of the running system: each method is one system call on a descriptor.
//!
//! - No call is retried and no error is judged here; EINTR goes up like any other.
//! - Descriptors are closed on exec, and the last component of a name is never followed if it is a symbolic
//!   link.
//! - A listing moves its descriptor's cursor, so two threads that list one handle take turns.
//! - Must not know a name's meaning, nor which mounts can be trusted (`class`, `probe`).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, SeekFrom};
use rustix::io::Errno;
use rustix::thread::futex::{self, Timespec};

use super::mapping::MappedWord;
use super::{Access, Dir, File, Kind, Mapping, Mount, Names, Space, Storage, Word, mountinfo};
use crate::limits;
use crate::planted::{Bug, is_planted};

/// Bytes of directory entries taken from the kernel in one call, so that marks and segments come with one or
/// two.
const LIST_BYTES: usize = 16 << 10;

const OPEN_DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const OPEN_FILE: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);

/// The running system's filesystems.
#[derive(Clone, Copy, Debug, Default)]
pub struct Posix;

impl Posix {
    /// The storage; it has nothing of its own.
    pub fn new() -> Self {
        Self
    }
}

/// What a [`Dir`] of this storage holds.
struct Directory {
    descriptor: OwnedFd,
    /// Held while listing: the cursor is the descriptor's, and two listings at once would each see a part
    /// only.
    cursor: Mutex<()>,
}

impl Directory {
    fn wrap(descriptor: OwnedFd) -> Dir {
        Dir::new(Self { descriptor, cursor: Mutex::new(()) })
    }
}

fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the handle was made by another storage")
}

fn directory(dir: &Dir) -> io::Result<&Directory> {
    dir.get().ok_or_else(foreign)
}

fn dir_fd(dir: &Dir) -> io::Result<&OwnedFd> {
    Ok(&directory(dir)?.descriptor)
}

fn file_fd(file: &File) -> io::Result<&OwnedFd> {
    file.get().ok_or_else(foreign)
}

fn mapped(word: &dyn Word) -> io::Result<&MappedWord> {
    word.as_any().downcast_ref().ok_or_else(foreign)
}

/// At most as much as the kernel takes in one call; what remains is the caller's next call (R3).
fn chunk(length: usize) -> usize {
    length.min(limits::IO_CHUNK_BYTES)
}

impl Storage for Posix {
    fn open_root(&self, path: &Path) -> io::Result<Dir> {
        // The root alone may be reached through a symbolic link: its path is the user's.
        Ok(Directory::wrap(rustix::fs::open(path, OPEN_DIR, Mode::empty())?))
    }

    fn make_root(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(0o777))?)
    }

    fn rename_root(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(rustix::fs::renameat(CWD, from, CWD, to)?)
    }

    fn open_dir(&self, parent: &Dir, name: &str) -> io::Result<Dir> {
        let flags = OPEN_DIR.union(OFlags::NOFOLLOW);
        Ok(Directory::wrap(rustix::fs::openat(dir_fd(parent)?, name, flags, Mode::empty())?))
    }

    fn create_exclusive(&self, dir: &Dir, name: &str) -> io::Result<File> {
        let flags = OPEN_FILE.union(OFlags::RDWR).union(OFlags::CREATE).union(OFlags::EXCL);
        Ok(File::new(rustix::fs::openat(dir_fd(dir)?, name, flags, Mode::from_raw_mode(0o666))?))
    }

    fn open(&self, dir: &Dir, name: &str, access: Access) -> io::Result<File> {
        let flags = match access {
            Access::Read => OPEN_FILE.union(OFlags::RDONLY),
            Access::Update => OPEN_FILE.union(OFlags::RDWR),
        };
        Ok(File::new(rustix::fs::openat(dir_fd(dir)?, name, flags, Mode::empty())?))
    }

    fn close(&self, file: File) -> io::Result<()> {
        let Some(descriptor) = file.into_inner::<OwnedFd>() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is shared, or another storage's",
            ));
        };
        // Linux has released the descriptor whatever this says, so nothing is left to close again.
        let closed = nix::unistd::close(descriptor);
        if is_planted(Bug::CloseIgnored) { Ok(()) } else { Ok(closed?) }
    }

    fn size(&self, file: &File) -> io::Result<u64> {
        let stat = rustix::fs::fstat(file_fd(file)?)?;
        u64::try_from(stat.st_size).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn kind(&self, dir: &Dir, name: &str) -> io::Result<Kind> {
        let stat = rustix::fs::statat(dir_fd(dir)?, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            _ => Kind::Other,
        })
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = chunk(buffer.len());
        let buffer = buffer.get_mut(..length).unwrap_or_default();
        Ok(rustix::io::pread(file_fd(file)?, buffer, offset)?)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let bytes = bytes.get(..chunk(bytes.len())).unwrap_or_default();
        let written = rustix::io::pwrite(file_fd(file)?, bytes, offset)?;
        Ok(if is_planted(Bug::ShortWriteWhole) { bytes.len() } else { written })
    }

    fn copy_range(
        &self,
        from: &File,
        mut from_offset: u64,
        to: &File,
        mut to_offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        let length = chunk(usize::try_from(length).unwrap_or(usize::MAX));
        let (from, to) = (file_fd(from)?, file_fd(to)?);
        let copied =
            rustix::fs::copy_file_range(from, Some(&mut from_offset), to, Some(&mut to_offset), length)?;
        Ok(copied as u64)
    }

    fn map(&self, file: &File, length: u64) -> io::Result<Mapping> {
        Mapping::of_file(file_fd(file)?, length)
    }

    fn populate(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        mapping.populate(range)
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        let synced = rustix::fs::fdatasync(file_fd(file)?);
        if is_planted(Bug::FileSyncIgnored) { Ok(()) } else { Ok(synced?) }
    }

    fn link(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        Ok(rustix::fs::linkat(dir_fd(from)?, from_name, dir_fd(to)?, to_name, AtFlags::empty())?)
    }

    fn rename(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(dir_fd(from)?, from_name, dir_fd(to)?, to_name)?)
    }

    fn rename_noreplace(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (from, to) = (dir_fd(from)?, dir_fd(to)?);
        Ok(rustix::fs::renameat_with(from, from_name, to, to_name, RenameFlags::NOREPLACE)?)
    }

    fn list(&self, dir: &Dir) -> io::Result<Names> {
        let directory = directory(dir)?;
        let _cursor = directory.cursor.lock();
        // Also before the first listing: btrfs lists what there was when the directory was opened or gone
        // back in.
        rustix::fs::seek(&directory.descriptor, SeekFrom::Start(0))?;
        let mut buffer = [MaybeUninit::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(&directory.descriptor, &mut buffer);
        let mut names = Names::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name));
            }
        }
        Ok(names)
    }

    fn make_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(dir_fd(parent)?, name, Mode::from_raw_mode(0o777))?)
    }

    fn remove_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(dir_fd(parent)?, name, AtFlags::REMOVEDIR)?)
    }

    fn sync_dir(&self, dir: &Dir) -> io::Result<()> {
        Ok(rustix::fs::fsync(dir_fd(dir)?)?)
    }

    fn remove(&self, dir: &Dir, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(dir_fd(dir)?, name, AtFlags::empty())?)
    }

    fn space(&self, dir: &Dir) -> io::Result<Space> {
        let found = rustix::fs::fstatvfs(dir_fd(dir)?)?;
        // A filesystem that has nothing in all doesn't count: btrfs its inodes, an unbounded tmpfs its blocks
        // too.
        let counted = |free: u64, total: u64| if total == 0 { u64::MAX } else { free };
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space {
            bytes_free: counted(bytes(found.f_bavail), found.f_blocks),
            bytes_total: counted(bytes(found.f_blocks), found.f_blocks),
            inodes_free: counted(found.f_favail, found.f_files),
            inodes_total: counted(found.f_files, found.f_files),
        })
    }

    fn mount(&self, dir: &Dir) -> io::Result<Mount> {
        let descriptor = dir_fd(dir)?;
        let magic = rustix::fs::fstatfs(descriptor)?.f_type as u64;
        let device = rustix::fs::fstat(descriptor)?.st_dev;
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        // The mount's own number is exact where the device isn't: a btrfs subvolume's stat shows a device
        // that no mount has, and a bind mount shares its own. Without /proc the magic has to do.
        let descriptor =
            fs::read(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd())).unwrap_or_default();
        let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let entry = mountinfo::find(&table, mountinfo::mount_id(&descriptor), device).unwrap_or_default();
        Ok(Mount { kind: entry.kind, magic, options: entry.options, point: entry.point })
    }

    fn map_word(&self, file: &File) -> io::Result<Arc<dyn Word>> {
        Ok(Arc::new(MappedWord::of_file(file_fd(file)?)?))
    }

    fn wait(&self, word: &dyn Word, seen: u32, timeout: Duration) -> io::Result<()> {
        let word = mapped(word)?.word();
        // Too long for the kernel's clock is for ever.
        let timeout = Timespec::try_from(timeout).ok();
        // Not PRIVATE: the one that wakes is another process.
        match futex::wait(word, futex::Flags::empty(), seen, timeout.as_ref()) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn wake(&self, word: &dyn Word) -> io::Result<()> {
        // The kernel counts in an i32: all of them.
        let woken = futex::wake(mapped(word)?.word(), futex::Flags::empty(), i32::MAX.unsigned_abs())?;
        // Whoever slept has nothing else to do, and the waker has. The kernel often queues the woken behind
        // the waker on its own core, and more often on a virtual machine, where an idle core may count as
        // taken while its host has put it to sleep.
        if woken > 0 {
            std::thread::yield_now();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Env, System};
    use crate::storage::write_all_at;
    use std::collections::BTreeSet;
    use std::ffi::OsString;

    fn root() -> (tempfile::TempDir, Dir) {
        let home = tempfile::tempdir().expect("a directory");
        let root = Posix.open_root(home.path()).expect("it opens");
        (home, root)
    }

    #[derive(Debug)]
    struct NoWord;

    impl Word for NoWord {
        fn load(&self) -> u32 {
            0
        }

        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }

    #[test]
    fn another_storages_handles_are_invalid_input() {
        let (_home, root) = root();
        let (dir, file) = (Dir::new(7u8), File::new(7u8));
        let errors = [
            Posix.list(&dir).map(drop),
            Posix.link(&root, "a", &dir, "b"),
            Posix.size(&file).map(drop),
            Posix.close(file),
            Posix.wait(&NoWord, 0, Duration::ZERO),
        ];
        for error in errors {
            assert_eq!(error.expect_err("foreign").kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_shared_file_cannot_be_closed_and_stays_open() {
        let (_home, root) = root();
        let file = Posix.create_exclusive(&root, "a").expect("a is free");
        let error = Posix.close(file.clone()).expect_err("another handle would lose its descriptor");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        write_all_at(&Posix, &file, b"still open", 0).expect("it is written");
        Posix.close(file).expect("the last one closes");
    }

    #[test]
    fn names_that_are_symbolic_links_are_not_followed_and_the_root_may_be_one() {
        let (home, root) = root();
        drop(Posix.create_exclusive(&root, "file").expect("free"));
        Posix.make_dir(&root, "dir").expect("free");
        for (to, name) in [("file", "to-file"), ("dir", "to-dir"), ("nothing", "to-nothing")] {
            std::os::unix::fs::symlink(home.path().join(to), home.path().join(name))
                .expect("a symbolic link");
            assert_eq!(Posix.kind(&root, name).expect("it is there"), Kind::Other);
        }
        assert_eq!(Posix.open(&root, "to-file", Access::Read).expect_err("a link").raw_os_error(), Some(40));
        Posix.open_dir(&root, "to-dir").expect_err("a link");
        let error = Posix.create_exclusive(&root, "to-nothing").expect_err("a link has the name");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        Posix.open_root(&home.path().join("to-dir")).expect("the user's path is followed");
    }

    #[test]
    fn descriptors_are_closed_on_exec() {
        let (_home, root) = root();
        Posix.make_dir(&root, "dir").expect("free");
        let dir = Posix.open_dir(&root, "dir").expect("there");
        let created = Posix.create_exclusive(&root, "file").expect("free");
        let opened = Posix.open(&root, "file", Access::Update).expect("there");
        for descriptor in [dir_fd(&root), dir_fd(&dir), file_fd(&created), file_fd(&opened)] {
            let flags = rustix::io::fcntl_getfd(descriptor.expect("its own")).expect("open");
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn listings_of_one_handle_are_whole_also_when_threads_share_it() {
        let (_home, root) = root();
        let expected: BTreeSet<OsString> = (0..2_000).map(|number| format!("{number:020}").into()).collect();
        for name in &expected {
            drop(Posix.create_exclusive(&root, name.to_str().expect("digits")).expect("free"));
        }
        let list = || Posix.list(&root).expect("listed").into_iter().collect::<BTreeSet<_>>() == expected;
        let whole = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..50).all(|_| list()))).collect();
            threads.into_iter().all(|thread| thread.join().expect("no panic"))
        });
        assert!(whole, "a listing missed a name");
    }

    #[test]
    fn a_word_is_woken_through_another_mapping_of_its_file() {
        let (_home, root) = root();
        let file = Posix.create_exclusive(&root, "HEAD").expect("free");
        write_all_at(&Posix, &file, &7u32.to_le_bytes(), 0).expect("written");
        let mine = Posix.map_word(&file).expect("mapped");
        assert_eq!(mine.load(), 7);
        Posix.wait(&*mine, 6, Duration::MAX).expect("it differs already");
        Posix.wait(&*mine, 7, Duration::from_nanos(1)).expect("a timeout isn't an error");
        let (theirs, watched) = (Posix.map_word(&file).expect("mapped"), Arc::clone(&mine));
        let waiter = System::new().spawn(
            "waiter",
            Box::new(move || {
                while watched.load() == 7 {
                    Posix.wait(&*watched, 7, Duration::MAX).expect("woken");
                }
            }),
        );
        write_all_at(&Posix, &file, &8u32.to_le_bytes(), 0).expect("written");
        Posix.wake(&*theirs).expect("woken");
        assert!(waiter.expect("a thread").join());
    }

    #[test]
    fn the_mount_is_the_one_that_the_system_shows() {
        let root = Posix.open_root(Path::new("/dev/shm")).expect("it is there");
        let mount = Posix.mount(&root).expect("known");
        assert_eq!((mount.kind.as_str(), mount.magic), ("tmpfs", 0x0102_1994));
        assert_eq!(mount.point, "/dev/shm");
        assert!(mount.options.split(',').any(|option| option == "rw"), "{}", mount.options);
        let space = Posix.space(&root).expect("known");
        assert!(0 < space.bytes_free && space.bytes_free <= space.bytes_total && space.inodes_free > 0);
    }
}
