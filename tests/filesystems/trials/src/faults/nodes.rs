//! The inodes and handles that a mount has told the kernel of.
//!
//! - An inode's number is this mount's own, and never used again: after a restart the same file has another,
//!   and whatever was known by the old one is ESTALE, as after a server's restart.
//! - An inode holds a descriptor that only names it (O_PATH), so it lives as long as the kernel knows it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};

/// ESTALE.
const STALE: i32 = 116;
pub(super) const ROOT: u64 = 1;

/// An inode.
pub(super) struct Node {
    pub(super) descriptor: OwnedFd,
    /// From the mount's root, as it was last found.
    pub(super) path: String,
    identity: (u64, u64),
    lookups: u64,
    restarts: u64,
}

impl Node {
    /// A path by which it can be opened, wherever its name is.
    pub(super) fn reopened(&self) -> String {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd())
    }
}

/// Something that is open.
pub(super) struct Open {
    pub(super) file: File,
    pub(super) inode: u64,
    pub(super) path: String,
    pub(super) writable: bool,
    /// When it was opened, by the rules' clock.
    pub(super) opened: u64,
    pub(super) entries: Vec<(u64, fuser::FileType, OsString)>,
    restarts: u64,
}

/// All inodes and handles of a mount.
pub(super) struct Nodes {
    nodes: HashMap<u64, Node>,
    numbers: HashMap<(u64, u64), u64>,
    handles: HashMap<u64, Open>,
    next: u64,
    restarts: u64,
}

fn stale() -> io::Error {
    io::Error::from_raw_os_error(STALE)
}

impl Nodes {
    pub(super) fn new(root: OwnedFd) -> Self {
        let node = Node { descriptor: root, path: String::new(), identity: (0, 0), lookups: 1, restarts: 0 };
        Self {
            nodes: HashMap::from([(ROOT, node)]),
            numbers: HashMap::new(),
            handles: HashMap::new(),
            next: ROOT + 1,
            restarts: 0,
        }
    }

    /// Whatever was found before so many restarts is stale.
    pub(super) fn restarted(&mut self, restarts: u64) {
        if self.restarts != restarts {
            self.restarts = restarts;
            self.numbers.clear();
        }
    }

    pub(super) fn node(&self, number: u64) -> io::Result<&Node> {
        let found = self.nodes.get(&number).ok_or_else(stale)?;
        if number == ROOT || found.restarts == self.restarts { Ok(found) } else { Err(stale()) }
    }

    /// Finds a name in a directory, and counts that the kernel was told.
    pub(super) fn find(&mut self, parent: u64, name: &str) -> io::Result<(u64, Stat)> {
        let parent = self.node(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&parent.descriptor, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&descriptor)?;
        let path = below(&parent.path, name);
        let identity = (stat.st_dev, stat.st_ino);
        let number = *self.numbers.entry(identity).or_insert(self.next);
        if number == self.next {
            self.next += 1;
            let restarts = self.restarts;
            self.nodes.insert(number, Node { descriptor, path, identity, lookups: 1, restarts });
        } else if let Some(node) = self.nodes.get_mut(&number) {
            node.path = path;
            node.lookups += 1;
        }
        Ok((number, stat))
    }

    /// The path of a name in a directory.
    pub(super) fn path(&self, parent: u64, name: &str) -> String {
        below(self.nodes.get(&parent).map_or("?", |node| &node.path), name)
    }

    /// An inode's path, as it was last found.
    pub(super) fn place(&self, number: u64) -> String {
        self.nodes.get(&number).map_or_else(|| "?".to_owned(), |node| node.path.clone())
    }

    pub(super) fn forget(&mut self, number: u64, lookups: u64) {
        let Some(node) = self.nodes.get_mut(&number).filter(|_| number != ROOT) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0 {
            let identity = node.identity;
            self.nodes.remove(&number);
            if self.numbers.get(&identity) == Some(&number) {
                self.numbers.remove(&identity);
            }
        }
    }

    /// Forgets all that is below a directory of the root, or below one whose name begins so.
    pub(super) fn let_go(&mut self, directory: &str) {
        let is_below = |path: &str| path.starts_with(directory);
        self.nodes.retain(|_, node| !is_below(&node.path));
        let nodes = &self.nodes;
        self.numbers.retain(|_, number| nodes.contains_key(number));
    }

    /// Keeps what was opened; gives its handle.
    pub(super) fn open(&mut self, file: File, path: String, opened: u64) -> io::Result<u64> {
        let inode = rustix::fs::fstat(&file)?.st_ino;
        let writable = rustix::fs::fcntl_getfl(&file)?.intersects(OFlags::RDWR | OFlags::WRONLY);
        let handle = self.next;
        self.next += 1;
        let restarts = self.restarts;
        self.handles
            .insert(handle, Open { file, inode, path, writable, opened, entries: Vec::new(), restarts });
        Ok(handle)
    }

    pub(super) fn handle(&mut self, handle: u64) -> io::Result<&mut Open> {
        let restarts = self.restarts;
        self.handles.get_mut(&handle).filter(|open| open.restarts == restarts).ok_or_else(stale)
    }

    pub(super) fn release(&mut self, handle: u64) {
        self.handles.remove(&handle);
    }

    pub(super) fn stat(&self, number: u64) -> io::Result<Stat> {
        let node = self.node(number)?;
        Ok(rustix::fs::statat(&node.descriptor, "", AtFlags::EMPTY_PATH)?)
    }
}

fn below(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") }
}
