//! A filesystem in memory, with the live state apart from the durable one.
//!
//! - Errnos are those of Linux; names are as fresh as on a local disk.
//! - Handles hold their inode, not its name. After a power cut all of them are dead: `ESTALE`.
//! - [`Word`]s are live views of the file; `wait` blocks until a `wake`, as futex(2): a write alone wakes
//!   nobody.
//! - One lock over all: calls are atomic and in one order.
//! - A mapping is a copy of what the file held; what has its final name doesn't change (R1).

mod archive;
mod inode;
mod outside;
#[cfg(test)]
mod outside_tests;
mod pages;
mod power;
#[cfg(test)]
mod tests;
mod tree;
mod word;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use batchweave::storage::{Access, Dir, File, Kind, Mapping, Mount, Names, Space, Storage, Word};
use parking_lot::{Condvar, Mutex, MutexGuard};

pub(crate) use self::inode::Left;
use self::pages::PAGE_BYTES;
pub use self::power::Unsynced;
pub(crate) use self::tree::Id;
use self::tree::{Body, State};
use self::word::{LiveWord, word_of};
use crate::errno::{self, error};

/// The capacity unless told: more than any test writes.
const BYTES_MAX: u64 = 1 << 40;

/// What one `copy_range` copies at most, so that who doesn't loop is found out.
const COPY_BYTES_MAX: u64 = 1 << 20;

/// Longer than any test; keeps deadlines inside what the clock can say.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The filesystem. A clone is the same filesystem: another process's view of it.
///
/// ```
/// use batchweave::storage::Storage;
/// let memory = batchweave_sim::Memory::new();
/// let root = memory.open_root("/".as_ref()).unwrap();
/// memory.make_dir(&root, "log").unwrap();
/// memory.power_cut();
/// let root = memory.open_root("/".as_ref()).unwrap();
/// assert!(memory.list(&root).unwrap().is_empty(), "nobody synced the root");
/// ```
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    woken: Condvar,
    /// Nodes that have mounted it.
    clients: AtomicU64,
}

impl Shared {
    fn new(state: State) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), woken: Condvar::new(), clients: AtomicU64::new(0) })
    }
}

/// What a [`Dir`] or [`File`] of this storage is.
struct Handle {
    shared: Arc<Shared>,
    id: Id,
    epoch: u64,
    /// Its place among all handles.
    number: u64,
    /// The newest failed sync that was told through it.
    told: AtomicU64,
    writable: bool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if state.epoch == self.epoch {
            state.release(self.id);
        }
    }
}

impl Memory {
    /// Holds the directory `/` only; says it is ext4, of 1 TiB.
    pub fn new() -> Self {
        let mount = Mount {
            kind: "ext4".to_owned(),
            magic: 0xef53,
            options: "rw,relatime".to_owned(),
            point: OsString::from("/"),
        };
        Self { shared: Shared::new(State::new(mount, BYTES_MAX)) }
    }

    /// What [`Storage::mount`] says from now on.
    pub fn set_mount(&self, mount: Mount) {
        self.shared.state.lock().mount = mount;
    }

    /// Room for bytes, in pages of 4096. Holes take none, and what is there already stays.
    pub fn set_capacity(&self, bytes: u64) {
        self.shared.state.lock().pages_max = bytes / PAGE_BYTES as u64;
    }

    /// Room for inodes, the root included.
    pub fn set_inodes(&self, inodes: u64) {
        self.shared.state.lock().inodes_max = Some(inodes);
    }

    fn handle(&self, state: &mut State, id: Id, writable: bool) -> Handle {
        state.node(id).handles += 1;
        state.opened += 1;
        let (epoch, number) = (state.epoch, state.opened);
        Handle { shared: Arc::clone(&self.shared), id, epoch, number, told: AtomicU64::new(0), writable }
    }

    /// The node of a handle that isn't dead.
    fn id(&self, state: &State, handle: Option<&Handle>) -> io::Result<Id> {
        let handle = handle.filter(|handle| Arc::ptr_eq(&handle.shared, &self.shared));
        let handle = handle.ok_or_else(|| error(errno::EBADF))?;
        if handle.epoch != state.epoch {
            return Err(error(errno::ESTALE));
        }
        Ok(handle.id)
    }

    fn with_dir(&self, dir: &Dir) -> io::Result<(MutexGuard<'_, State>, Id)> {
        let state = self.shared.state.lock();
        let id = self.id(&state, dir.get())?;
        Ok((state, id))
    }

    fn with_dirs(&self, from: &Dir, to: &Dir) -> io::Result<(MutexGuard<'_, State>, Id, Id)> {
        let (state, from) = self.with_dir(from)?;
        let to = self.id(&state, to.get())?;
        Ok((state, from, to))
    }

    fn with_file(&self, file: &File) -> io::Result<(MutexGuard<'_, State>, Id)> {
        let state = self.shared.state.lock();
        let id = self.id(&state, file.get())?;
        Ok((state, id))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl Storage for Memory {
    fn open_root(&self, path: &Path) -> io::Result<Dir> {
        let mut state = self.shared.state.lock();
        let (dir, name) = state.walk(path)?;
        let id = name.map_or(Ok(dir), |name| state.lookup(dir, name))?;
        state.directory(id)?;
        state.readable(id)?;
        Ok(Dir::new(self.handle(&mut state, id, false)))
    }

    fn make_root(&self, path: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let (dir, name) = state.walk(path)?;
        let name = name.ok_or_else(|| error(errno::EEXIST))?;
        state.make(dir, name, "make_dir", Body::directory(dir)).map(drop)
    }

    fn rename_root(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let ((from, from_name), (to, to_name)) = (state.walk(from)?, state.walk(to)?);
        let whole = || error(errno::EBUSY);
        state.rename((from, from_name.ok_or_else(whole)?), (to, to_name.ok_or_else(whole)?), true)
    }

    fn open_dir(&self, parent: &Dir, name: &str) -> io::Result<Dir> {
        let (mut state, parent) = self.with_dir(parent)?;
        let id = state.lookup(parent, name)?;
        state.directory(id)?;
        state.readable(id)?;
        Ok(Dir::new(self.handle(&mut state, id, false)))
    }

    fn create_exclusive(&self, dir: &Dir, name: &str) -> io::Result<File> {
        let (mut state, dir) = self.with_dir(dir)?;
        let id = state.make(dir, name, "create", Body::file())?;
        Ok(File::new(self.handle(&mut state, id, true)))
    }

    fn open(&self, dir: &Dir, name: &str, access: Access) -> io::Result<File> {
        let (mut state, dir) = self.with_dir(dir)?;
        let id = state.lookup(dir, name)?;
        state.readable(id)?;
        let writable = access == Access::Update;
        if writable {
            state.file(id)?;
        }
        Ok(File::new(self.handle(&mut state, id, writable)))
    }

    fn close(&self, file: File) -> io::Result<()> {
        self.with_file(&file).map(drop)?;
        match file.into_inner::<Handle>() {
            Some(_) => Ok(()),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is shared, so this isn't its close",
            )),
        }
    }

    fn size(&self, file: &File) -> io::Result<u64> {
        let (mut state, id) = self.with_file(file)?;
        Ok(state.file(id).map_or(PAGE_BYTES as u64, |content| content.live.length()))
    }

    fn kind(&self, dir: &Dir, name: &str) -> io::Result<Kind> {
        let (state, dir) = self.with_dir(dir)?;
        let id = state.lookup(dir, name)?;
        Ok(if state.is_directory(id) { Kind::Directory } else { Kind::File })
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (mut state, id) = self.with_file(file)?;
        state.readable(id)?;
        Ok(state.file(id)?.live.read(buffer, offset))
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let (mut state, id) = self.with_file(file)?;
        check_writable(file)?;
        state.write(id, bytes, offset)
    }

    fn copy_range(
        &self,
        from: &File,
        from_offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        let (mut state, from) = self.with_file(from)?;
        let to_id = self.id(&state, to.get())?;
        check_writable(to)?;
        if from == to_id && from_offset.abs_diff(to_offset) < length {
            return Err(error(errno::EINVAL));
        }
        state.readable(from)?;
        let live = &state.file(from)?.live;
        let length = length.min(live.length().saturating_sub(from_offset)).min(COPY_BYTES_MAX);
        let mut bytes = vec![0; length as usize];
        live.read(&mut bytes, from_offset);
        state.write(to_id, &bytes, to_offset).map(|written| written as u64)
    }

    /// Beyond the end there is nothing to map; [`Storage::populate`] says so.
    fn map(&self, file: &File, length: u64) -> io::Result<Mapping> {
        let (mut state, id) = self.with_file(file)?;
        if length == 0 {
            return Err(error(errno::EINVAL));
        }
        state.readable(id)?;
        let live = &state.file(id).map_err(|_| error(errno::ENODEV))?.live;
        let length = usize::try_from(length.min(live.length())).map_err(|_| error(errno::ENOMEM))?;
        let mut bytes = vec![0; length];
        live.read(&mut bytes, 0);
        Ok(Mapping::of_memory(bytes))
    }

    fn populate(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        if range.end > mapping.len() as u64 {
            return Err(error(errno::EFAULT));
        }
        Ok(())
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        let (mut state, id) = self.with_file(file)?;
        state.sync_file(id);
        Ok(())
    }

    fn link(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (mut state, from, to) = self.with_dirs(from, to)?;
        state.link(from, from_name, to, to_name)
    }

    fn rename(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (mut state, from, to) = self.with_dirs(from, to)?;
        state.rename((from, from_name), (to, to_name), true)
    }

    fn rename_noreplace(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (mut state, from, to) = self.with_dirs(from, to)?;
        state.rename((from, from_name), (to, to_name), false)
    }

    fn list(&self, dir: &Dir) -> io::Result<Names> {
        let (state, dir) = self.with_dir(dir)?;
        state.readable(dir)?;
        Ok(state.directory(dir)?.live.keys().collect())
    }

    fn make_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        let (mut state, parent) = self.with_dir(parent)?;
        state.make(parent, name, "make_dir", Body::directory(parent)).map(drop)
    }

    fn remove_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        let (mut state, parent) = self.with_dir(parent)?;
        state.remove(parent, name, true)
    }

    fn sync_dir(&self, dir: &Dir) -> io::Result<()> {
        let handle = dir.get::<Handle>();
        let (mut state, id) = self.with_dir(dir)?;
        let Some(handle) = handle else { return Err(error(errno::EBADF)) };
        let failed = state.newest_failure(id).filter(|opened| handle.number <= *opened);
        if failed.is_some_and(|failed| handle.told.fetch_max(failed, Ordering::Relaxed) < failed) {
            return Err(error(errno::EIO));
        }
        state.sync_dir(id, handle.number);
        Ok(())
    }

    fn remove(&self, dir: &Dir, name: &str) -> io::Result<()> {
        let (mut state, dir) = self.with_dir(dir)?;
        state.remove(dir, name, false)
    }

    fn space(&self, dir: &Dir) -> io::Result<Space> {
        let (state, _) = self.with_dir(dir)?;
        let free = state.pages_max.saturating_sub(state.pages_used);
        Ok(Space {
            bytes_free: free * PAGE_BYTES as u64,
            bytes_total: state.pages_max * PAGE_BYTES as u64,
            inodes_free: state.inodes_max.map_or(u64::MAX, |max| max.saturating_sub(state.inodes_used)),
            inodes_total: state.inodes_max.unwrap_or(u64::MAX),
        })
    }

    fn mount(&self, dir: &Dir) -> io::Result<Mount> {
        let (state, _) = self.with_dir(dir)?;
        Ok(state.mount.clone())
    }

    fn map_word(&self, file: &File) -> io::Result<Arc<dyn Word>> {
        let (mut state, id) = self.with_file(file)?;
        state.file(id).map_err(|_| error(errno::ENODEV))?;
        Ok(Arc::new(LiveWord(self.handle(&mut state, id, false))))
    }

    #[expect(clippy::disallowed_methods, reason = "stands for futex(2), which blocks in the storage")]
    fn wait(&self, word: &dyn Word, seen: u32, timeout: Duration) -> io::Result<()> {
        let handle = word.as_any().downcast_ref::<LiveWord>().map(|word| &word.0);
        let mut state = self.shared.state.lock();
        let id = self.id(&state, handle)?;
        let wakes = state.file(id)?.wakes;
        if word_of(&mut state, id) != seen {
            return Ok(());
        }
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        loop {
            let passed = self.shared.woken.wait_until(&mut state, deadline).timed_out();
            let id = self.id(&state, handle)?;
            if passed || state.file(id)?.wakes != wakes {
                return Ok(());
            }
        }
    }

    fn wake(&self, word: &dyn Word) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let id = self.id(&state, word.as_any().downcast_ref::<LiveWord>().map(|word| &word.0))?;
        state.file(id)?.wakes += 1;
        drop(state);
        self.shared.woken.notify_all();
        Ok(())
    }
}

fn check_writable(file: &File) -> io::Result<()> {
    match file.get::<Handle>() {
        Some(handle) if handle.writable => Ok(()),
        _ => Err(error(errno::EBADF)),
    }
}
