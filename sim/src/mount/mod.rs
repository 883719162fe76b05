//! What one node's client makes of the shared filesystem: who asks, gets what this node would see.
//!
//! - [`Memory`] is the truth. A mount may answer with an older one, as its class allows and by choice; it
//!   never makes one up.
//! - Processes of one node share it: a clone is the same client, with the same caches.
//! - Every decision is drawn from [`Choices`], and only where the answers differ.
//! - No lock is held where others are let go on ([`Pause`]).

mod bytes;
#[cfg(test)]
mod bytes_tests;
mod calls;
mod class;
mod fingerprint;
mod names;
#[cfg(test)]
mod names_tests;
mod pause;
#[cfg(test)]
mod probe_tests;
#[cfg(test)]
mod tests;
mod word;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use batchweave::storage::{Dir, File};
use parking_lot::{Mutex, MutexGuard};

use self::bytes::Opened;
pub use self::class::{Class, Links, Traits};
pub(crate) use self::fingerprint::{dir_digest, file_digest};
pub use self::pause::{Alone, Pause};
use crate::choice::Choices;
use crate::errno::{self, error};
use crate::memory::{Id, Left, Memory};

/// One node's client of a [`Memory`] that several nodes share. A clone is the same client.
///
/// ```
/// use std::sync::Arc;
/// use batchweave::storage::{Access, Storage};
/// use batchweave_sim::{Alone, Choices, Class, Memory, Mount};
/// let memory = Memory::new();
/// let node = |choices| Mount::new(memory.clone(), Class::CloseToOpen, choices, Arc::new(Alone));
/// let (a, b) = (node(Choices::replay(vec![])), node(Choices::replay(vec![1])));
/// let root_of_b = b.open_root("/".as_ref()).unwrap();
/// b.open(&root_of_b, "new", Access::Read).unwrap_err();
/// let root_of_a = a.open_root("/".as_ref()).unwrap();
/// a.close(a.create_exclusive(&root_of_a, "new").unwrap()).unwrap();
/// b.open(&root_of_b, "new", Access::Read).expect_err("the wild choice: what was missing still is");
/// let afresh = b.open_root("/".as_ref()).unwrap();
/// b.open(&afresh, "new", Access::Read).unwrap();
/// ```
#[derive(Clone)]
pub struct Mount {
    shared: Arc<Shared>,
}

struct Shared {
    memory: Memory,
    class: Class,
    traits: Traits,
    choices: Choices,
    pause: Arc<dyn Pause>,
    node: u64,
    cache: Mutex<Cache>,
    /// How the next sync fails; 0 if it doesn't.
    sync_fails: AtomicI32,
}

/// What this node remembers.
#[derive(Default)]
struct Cache {
    /// Counts crashes of the node; a handle of an earlier boot is dead.
    boot: u64,
    /// That of the memory: a power cut leaves nothing to remember.
    epoch: u64,
    /// What look-ups in a directory found, nothing included.
    names: BTreeMap<Id, BTreeMap<String, Option<Id>>>,
    /// Counts this node's own changes to a directory.
    changes: BTreeMap<Id, u64>,
    /// Files that this node has open.
    open: BTreeMap<Id, Opened>,
}

/// What a [`Dir`] of this storage is.
struct OpenDir {
    shared: Arc<Shared>,
    inner: Dir,
    id: Id,
    boot: u64,
    /// What this handle listed last, and how many changes of this node's it came after.
    listed: Mutex<Option<(u64, Vec<OsString>)>>,
}

/// What a [`File`] of this storage is.
struct OpenFile {
    shared: Arc<Shared>,
    inner: File,
    id: Id,
    boot: u64,
    epoch: u64,
    writable: bool,
}

impl Mount {
    /// A node mounts the filesystem.
    pub fn new(memory: Memory, class: Class, choices: Choices, pause: Arc<dyn Pause>) -> Self {
        Self::with_traits(memory, class, class.traits(), choices, pause)
    }

    /// The same, with other traits than the class's usual ones.
    pub fn with_traits(
        memory: Memory,
        class: Class,
        traits: Traits,
        choices: Choices,
        pause: Arc<dyn Pause>,
    ) -> Self {
        let node = memory.next_client();
        let cache = Mutex::new(Cache { epoch: memory.epoch(), ..Cache::default() });
        Self {
            shared: Arc::new(Shared {
                memory,
                class,
                traits,
                choices,
                pause,
                node,
                cache,
                sync_fails: AtomicI32::new(0),
            }),
        }
    }

    /// The node dies: what it hadn't flushed is lost, its caches are empty, its handles are dead.
    pub fn crash(&self) {
        let mut cache = self.shared.cache();
        *cache = Cache { boot: cache.boot + 1, epoch: cache.epoch, ..Cache::default() };
    }

    /// The next sync of this node fails with this errno: what it was to make durable is as good as lost,
    /// and a later sync that goes well doesn't bring it back.
    pub fn fail_next_sync(&self, errno: i32) {
        self.shared.sync_fails.store(errno, Ordering::Relaxed);
    }

    /// What `sync_file` does when it is to fail. The caller answers EIO.
    ///
    /// # Errors
    /// What the sync answers without any fault: the handle is dead, the disk is full.
    pub fn fail_sync_file(&self, file: &File) -> io::Result<()> {
        let file = self.shared.file(file)?;
        self.shared.flush(file.id)?;
        self.shared.memory.fail_sync_file(&file.inner)
    }

    /// The same for `sync_dir`.
    ///
    /// # Errors
    /// What the sync answers without any fault.
    pub fn fail_sync_dir(&self, dir: &Dir) -> io::Result<()> {
        self.shared.memory.fail_sync_dir(&self.shared.dir(dir)?.inner)
    }
}

impl Shared {
    /// Whether the next sync is to fail, and how.
    fn next_sync_fails(&self) -> Option<i32> {
        let errno = self.sync_fails.swap(0, Ordering::Relaxed);
        (errno != 0).then_some(errno)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        let mut cache = self.cache.lock();
        let epoch = self.memory.epoch();
        if cache.epoch != epoch {
            *cache = Cache { boot: cache.boot, epoch, ..Cache::default() };
        }
        cache
    }

    fn is_close_to_open(&self) -> bool {
        self.class == Class::CloseToOpen
    }

    /// Whether this time it isn't tame.
    fn wild(&self) -> bool {
        self.choices.chance(self.traits.wild_one_in)
    }

    /// What isn't of a mount for reading only.
    fn may_change(&self) -> io::Result<()> {
        if self.traits.read_only { Err(error(errno::EROFS)) } else { Ok(()) }
    }

    /// A directory's handle, unless it is dead. On remote mounts the server doesn't know a removed directory
    /// any more: ESTALE.
    fn dir<'a>(self: &Arc<Self>, dir: &'a Dir) -> io::Result<&'a OpenDir> {
        let open = dir.get::<OpenDir>().filter(|open| Arc::ptr_eq(&open.shared, self));
        let open = open.ok_or_else(|| error(errno::EBADF))?;
        let is_gone = || self.class != Class::Local && self.memory.left_of(open.id) != Left::Named;
        if open.boot != self.cache().boot || is_gone() {
            return Err(error(errno::ESTALE));
        }
        Ok(open)
    }

    /// A file's handle, unless it is dead.
    fn file<'a>(self: &Arc<Self>, file: &'a File) -> io::Result<&'a OpenFile> {
        let open = file.get::<OpenFile>().filter(|open| Arc::ptr_eq(&open.shared, self));
        let open = open.ok_or_else(|| error(errno::EBADF))?;
        if open.boot != self.cache().boot {
            return Err(error(errno::ESTALE));
        }
        Ok(open)
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mount({:?} of node {})", self.shared.class, self.shared.node)
    }
}
