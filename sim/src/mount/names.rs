//! Names as this node remembers them.
//!
//! - Close-to-open: what a look-up found, or didn't, is remembered for its directory until that is opened
//!   afresh, which forces the client to ask (a "no" was seen to last 30 s on NFS 4.2 with default options).
//! - What makes a name asks the server: O_EXCL, link, mkdir and rename's targets are always fresh.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use batchweave::storage::{Dir, Kind, Storage};
use parking_lot::Mutex;

use super::{Class, OpenDir, Shared};
use crate::errno::{self, error};
use crate::memory::{Id, Left};

/// What a client answers that doesn't ask.
#[derive(Clone, Copy)]
enum Stale {
    Absent,
    Gone,
    Inode(Id),
}

impl Shared {
    /// A directory that was just opened: what was remembered of its names is asked for again.
    fn opened_dir(self: &Arc<Self>, inner: Dir) -> io::Result<Dir> {
        let id = self.memory.inode_of_dir(&inner)?;
        let mut cache = self.cache();
        cache.names.remove(&id);
        Ok(Dir::new(OpenDir {
            shared: Arc::clone(self),
            inner,
            id,
            boot: cache.boot,
            listed: Mutex::new(None),
        }))
    }

    pub(super) fn open_root(self: &Arc<Self>, path: &std::path::Path) -> io::Result<Dir> {
        self.opened_dir(self.memory.open_root(path)?)
    }

    pub(super) fn open_dir(self: &Arc<Self>, parent: &OpenDir, name: &str) -> io::Result<Dir> {
        let inner = match self.remembered(parent, name)? {
            Some(old) => self.memory.open_inode_dir(old)?,
            None => {
                let inner = self.memory.open_dir(&parent.inner, name);
                self.learn(parent, name);
                inner?
            }
        };
        self.opened_dir(inner)
    }

    pub(super) fn kind(&self, dir: &OpenDir, name: &str) -> io::Result<Kind> {
        if let Some(old) = self.remembered(dir, name)? {
            return Ok(self.memory.kind_of_inode(old));
        }
        let kind = self.memory.kind(&dir.inner, name);
        self.learn(dir, name);
        kind
    }

    /// What this node answers out of its memory: an error, or an inode that had the name. None: it asks.
    ///
    /// A name that was replaced elsewhere is absent or ESTALE meanwhile: seen for up to 21 s on NFS, until
    /// the directory is opened afresh.
    pub(super) fn remembered(&self, dir: &OpenDir, name: &str) -> io::Result<Option<Id>> {
        if !self.is_close_to_open() {
            return Ok(None);
        }
        let truth = self.memory.inode_at(&dir.inner, name)?;
        let known = self.cache().names.get(&dir.id).and_then(|names| names.get(name)).copied();
        let answers = match known {
            Some(known) if known != truth => self.stale_answers(known, truth.is_some()),
            _ => return Ok(None),
        };
        if !self.wild() {
            return Ok(None);
        }
        match *self.choices.one_of(&answers) {
            Stale::Absent => Err(error(errno::ENOENT)),
            Stale::Gone => Err(error(errno::ESTALE)),
            Stale::Inode(old) => Ok(Some(old)),
        }
    }

    fn stale_answers(&self, known: Option<Id>, replaced: bool) -> Vec<Stale> {
        let Some(old) = known else { return vec![Stale::Absent] };
        let mut answers = match self.memory.left_of(old) {
            Left::Named => vec![Stale::Inode(old)],
            Left::Held => vec![Stale::Gone, Stale::Inode(old)],
            Left::Gone => vec![Stale::Gone],
        };
        if replaced {
            answers.push(Stale::Absent);
        }
        answers
    }

    /// Remembers what has a name, or that nothing has, as of now.
    pub(super) fn learn(&self, dir: &OpenDir, name: &str) {
        if !self.is_close_to_open() {
            return;
        }
        if let Ok(truth) = self.memory.inode_at(&dir.inner, name) {
            self.cache().names.entry(dir.id).or_default().insert(name.to_owned(), truth);
        }
    }

    /// This node has changed a name: it knows that, and lists the directory again.
    pub(super) fn changed(&self, dir: &OpenDir, name: &str) {
        if self.is_close_to_open() {
            self.learn(dir, name);
            *self.cache().changes.entry(dir.id).or_default() += 1;
        }
    }

    /// Whether a name may be made; that it is taken goes before that nothing can be made.
    pub(super) fn may_make(&self, dir: &OpenDir, name: &str) -> io::Result<()> {
        if self.traits.read_only && self.memory.inode_at(&dir.inner, name)?.is_some() {
            return Err(error(errno::EEXIST));
        }
        self.may_change()
    }

    /// Removes a name. NFS keeps the last name of a file that this node has open under another one in the
    /// same directory, until it is closed; if the node dies it stays.
    pub(super) fn remove(&self, dir: &OpenDir, name: &str) -> io::Result<()> {
        self.may_change()?;
        if !self.keep_open(dir, name)? {
            self.memory.remove(&dir.inner, name)?;
        }
        self.changed(dir, name);
        Ok(())
    }

    fn keep_open(&self, dir: &OpenDir, name: &str) -> io::Result<bool> {
        if !self.is_close_to_open() {
            return Ok(false);
        }
        let Some(id) = self.memory.inode_at(&dir.inner, name)? else { return Ok(false) };
        let mut cache = self.cache();
        let Some(opened) = cache.open.get_mut(&id).filter(|_| self.memory.names_of(id) == 1) else {
            return Ok(false);
        };
        let other = format!(".nfs{id:016x}{:08x}", self.node);
        if name == other {
            return Err(error(errno::EBUSY));
        }
        self.memory.rename(&dir.inner, name, &dir.inner, &other)?;
        opened.kept = Some((dir.inner.clone(), other));
        Ok(true)
    }

    /// Renames, replacing: on NFS what this node has open there gets another name first, so for a moment
    /// nothing has the name.
    pub(super) fn rename(
        &self,
        (from, from_name): (&OpenDir, &str),
        (to, to_name): (&OpenDir, &str),
    ) -> io::Result<()> {
        self.may_change()?;
        if self.is_close_to_open() {
            let source = self.memory.inode_at(&from.inner, from_name)?;
            let target = self.memory.inode_at(&to.inner, to_name)?;
            let is_file = |id| self.memory.kind_of_inode(id) == Kind::File;
            let replaces = source.is_some_and(is_file) && target.is_some_and(is_file) && source != target;
            if replaces && self.keep_open(to, to_name)? {
                self.pause.pause(1);
            }
        }
        self.memory.rename(&from.inner, from_name, &to.inner, to_name)?;
        self.changed(from, from_name);
        self.changed(to, to_name);
        Ok(())
    }

    /// Lustre, Gluster and NFS answer EINVAL to the flag; on a taken name the kernel says EEXIST before they
    /// are asked.
    pub(super) fn rename_noreplace(
        &self,
        (from, from_name): (&OpenDir, &str),
        (to, to_name): (&OpenDir, &str),
    ) -> io::Result<()> {
        self.may_change()?;
        if !self.traits.noreplace {
            let absent = self.memory.inode_at(&from.inner, from_name)?.is_none();
            let taken = self.memory.inode_at(&to.inner, to_name)?.is_some();
            return Err(error(match (absent, taken) {
                (true, _) => errno::ENOENT,
                (_, true) => errno::EEXIST,
                _ => errno::EINVAL,
            }));
        }
        self.memory.rename_noreplace(&from.inner, from_name, &to.inner, to_name)?;
        self.changed(from, from_name);
        self.changed(to, to_name);
        Ok(())
    }

    /// Lists brick by brick: a name made meanwhile is missed where its brick was listed already. A handle
    /// that has listed before may list the same again; afresh, NFS showed new names within 1 ms.
    pub(super) fn list(&self, dir: &OpenDir) -> io::Result<Vec<OsString>> {
        let bricks = match self.class {
            Class::Coherent { bricks } => u64::from(bricks.max(1)),
            Class::Local | Class::CloseToOpen => 1,
        };
        let mut names = Vec::new();
        for brick in 0..bricks {
            if brick > 0 {
                self.pause.pause(digest(&names));
            }
            let listed = self.memory.list(&dir.inner).map_err(|found| self.gone(found))?;
            names.extend(listed.into_iter().filter(|name| brick_of(name, bricks) == brick));
        }
        if self.is_close_to_open() {
            let own = self.cache().changes.get(&dir.id).copied().unwrap_or_default();
            let mut last = dir.listed.lock();
            match &*last {
                Some((then, old)) if *then == own && *old != names && self.wild() => names.clone_from(old),
                _ => *last = Some((own, names.clone())),
            }
        }
        // No order is promised; this one puts last what was first.
        if names.len() > 1 && self.traits.reorders && self.wild() {
            let half = names.len() / 2;
            names.rotate_left(half);
        }
        Ok(names)
    }

    /// What a server says of a directory that was removed in the middle of a call.
    fn gone(&self, found: io::Error) -> io::Error {
        let removed = self.class != Class::Local && found.raw_os_error() == Some(errno::ENOENT);
        if removed { error(errno::ESTALE) } else { found }
    }
}

fn digest(names: &[OsString]) -> u64 {
    let mut hasher = DefaultHasher::new();
    names.hash(&mut hasher);
    hasher.finish()
}

/// Which server holds a name: by its hash (FNV-1a).
fn brick_of(name: &OsStr, bricks: u64) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, hash) % bricks
}
