//! A storage that serialises the names given in a segment's directory, as a metadata server or an object
//! store does.
//!
//! - Each attempt at such a name, won or lost, holds an exclusive lock on a file beside the store for a fixed
//!   time, then asks the storage behind; so attempts of all processes queue, in about the order they came.
//! - Nothing else is slowed down: a store whose every call is slow shows less of what pacing is for.
//! - Changes no argument, no result and no handle.

use std::fs::File as Lock;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use batchweave::Mount;
use batchweave::env::{Env, System};
use batchweave::format::names::parse_version;
use batchweave::storage::{Access, Dir, File, Kind, Mapping, Names, Space, Storage, Word};
use rustix::fs::{FlockOperation, flock};

/// Another storage, one attempt at a time.
#[derive(Debug)]
pub(super) struct Serialized {
    inner: Arc<dyn Storage>,
    env: System,
    /// Threads of one process share the descriptor, so they take the mutex first.
    lock: Mutex<Lock>,
    hold: Duration,
}

impl Serialized {
    /// Each attempt holds the lock at `lock`, made if it isn't there, for `hold`.
    pub(super) fn new(inner: Arc<dyn Storage>, lock: &Path, hold: Duration) -> io::Result<Self> {
        let lock = Lock::options().create(true).truncate(false).write(true).open(lock)?;
        Ok(Self { inner, env: System::new(), lock: Mutex::new(lock), hold })
    }

    /// Asks the storage behind; when it is for a commit's name, after everybody who came before.
    fn in_turn(&self, name: &str, ask: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if parse_version(name.as_ref()).is_none() {
            return ask();
        }
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // A signal may interrupt the wait, which begins anew then.
        while let Err(error) = flock(&*lock, FlockOperation::LockExclusive) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        self.env.sleep(self.hold);
        let answer = ask();
        flock(&*lock, FlockOperation::Unlock)?;
        answer
    }
}

#[deny(clippy::missing_trait_methods)]
impl Storage for Serialized {
    fn open_root(&self, path: &Path) -> io::Result<Dir> {
        self.inner.open_root(path)
    }

    fn make_root(&self, path: &Path) -> io::Result<()> {
        self.inner.make_root(path)
    }

    fn rename_root(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename_root(from, to)
    }

    fn open_dir(&self, parent: &Dir, name: &str) -> io::Result<Dir> {
        self.inner.open_dir(parent, name)
    }

    fn create_exclusive(&self, dir: &Dir, name: &str) -> io::Result<File> {
        self.inner.create_exclusive(dir, name)
    }

    fn open(&self, dir: &Dir, name: &str, access: Access) -> io::Result<File> {
        self.inner.open(dir, name, access)
    }

    fn close(&self, file: File) -> io::Result<()> {
        self.inner.close(file)
    }

    fn size(&self, file: &File) -> io::Result<u64> {
        self.inner.size(file)
    }

    fn kind(&self, dir: &Dir, name: &str) -> io::Result<Kind> {
        self.inner.kind(dir, name)
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(file, buffer, offset)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.inner.write_at(file, bytes, offset)
    }

    fn copy_range(
        &self,
        from: &File,
        from_offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        self.inner.copy_range(from, from_offset, to, to_offset, length)
    }

    fn map(&self, file: &File, length: u64) -> io::Result<Mapping> {
        self.inner.map(file, length)
    }

    fn populate(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        self.inner.populate(mapping, range)
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        self.inner.sync_file(file)
    }

    fn link(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        self.in_turn(to_name, || self.inner.link(from, from_name, to, to_name))
    }

    fn rename(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        self.inner.rename(from, from_name, to, to_name)
    }

    fn rename_noreplace(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        self.in_turn(to_name, || self.inner.rename_noreplace(from, from_name, to, to_name))
    }

    fn list(&self, dir: &Dir) -> io::Result<Names> {
        self.inner.list(dir)
    }

    fn make_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        self.inner.make_dir(parent, name)
    }

    fn remove_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        self.inner.remove_dir(parent, name)
    }

    fn sync_dir(&self, dir: &Dir) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn remove(&self, dir: &Dir, name: &str) -> io::Result<()> {
        self.inner.remove(dir, name)
    }

    fn space(&self, dir: &Dir) -> io::Result<Space> {
        self.inner.space(dir)
    }

    fn mount(&self, dir: &Dir) -> io::Result<Mount> {
        self.inner.mount(dir)
    }

    fn map_word(&self, file: &File) -> io::Result<Arc<dyn Word>> {
        self.inner.map_word(file)
    }

    fn wait(&self, word: &dyn Word, seen: u32, timeout: Duration) -> io::Result<()> {
        self.inner.wait(word, seen, timeout)
    }

    fn wake(&self, word: &dyn Word) -> io::Result<()> {
        self.inner.wake(word)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use batchweave::storage::Posix;

    use super::*;

    #[test]
    fn a_commits_name_waits_for_the_lock_and_no_other_does() {
        let home = tempfile::tempdir().unwrap();
        let lock = home.path().join("lock");
        let hold = Duration::from_millis(1);
        let storage = Arc::new(Serialized::new(Arc::new(Posix::new()), &lock, hold).unwrap());
        let root = storage.open_root(home.path()).unwrap();
        let other = Lock::open(&lock).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        storage.link(&root, "lock", &root, "mark").unwrap();
        let link = {
            let (storage, root) = (Arc::clone(&storage), root.clone());
            move || storage.link(&root, "lock", &root, "00000000000000000007").unwrap()
        };
        let linking = System::new().spawn("link", Box::new(link)).unwrap();
        let inode = format!(":{} ", std::fs::metadata(&lock).unwrap().ino());
        let waits = |line: &str| line.contains("-> FLOCK") && line.contains(&inode);
        while !std::fs::read_to_string("/proc/locks").unwrap().lines().any(waits) {
            assert!(storage.kind(&root, "00000000000000000007").is_err(), "it hasn't waited");
            std::thread::yield_now();
        }
        flock(&other, FlockOperation::Unlock).unwrap();
        assert!(linking.join());
        storage.kind(&root, "00000000000000000007").unwrap();
        let lost = storage.link(&root, "lock", &root, "00000000000000000007").unwrap_err();
        assert_eq!(lost.kind(), io::ErrorKind::AlreadyExists);
        flock(&other, FlockOperation::NonBlockingLockExclusive).expect("a loser lets go too");
    }
}
