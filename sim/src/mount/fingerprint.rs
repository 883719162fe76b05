//! What a node's future answers depend on besides the filesystem: by digests that are the same in whatever
//! order inodes were made.

use std::hash::{DefaultHasher, Hash, Hasher};

use batchweave::storage::{Dir, File};

use super::bytes::Opened;
use super::{Mount, OpenDir, OpenFile};
use crate::memory::Id;

/// Which directory a handle of a mount stands for, and what its node had changed there by then.
pub(crate) fn dir_digest(dir: &Dir) -> u64 {
    let Some(open) = dir.get::<OpenDir>() else { return 0 };
    let changes = open.shared.cache().changes.get(&open.id).copied();
    digest(&(open.shared.memory.birth_of(open.id), changes))
}

/// Which file a handle of a mount stands for, and what it holds.
pub(crate) fn file_digest(file: &File) -> u64 {
    let Some(open) = file.get::<OpenFile>() else { return 0 };
    digest(&open.shared.memory.birth_of(open.id))
}

impl Mount {
    /// A hash of what this node remembers.
    pub fn fingerprint(&self) -> u64 {
        let birth = |id: &Id| self.shared.memory.birth_of(*id);
        let cache = self.shared.cache();
        let mut names: Vec<_> = cache
            .names
            .iter()
            .flat_map(|(dir, names)| {
                names.iter().map(|(name, id)| (birth(dir), name, id.as_ref().map(birth)))
            })
            .collect();
        names.sort_unstable();
        let mut changes: Vec<_> = cache.changes.iter().map(|(dir, count)| (birth(dir), count)).collect();
        changes.sort_unstable();
        let mut open: Vec<_> =
            cache.open.iter().map(|(file, opened)| (birth(file), opened.fingerprint())).collect();
        open.sort_unstable();
        digest(&(cache.boot, names, changes, open))
    }
}

impl Opened {
    fn fingerprint(&self) -> u64 {
        let dirty: Vec<_> = self.dirty.iter().map(|write| (&write.bytes, write.offset)).collect();
        digest(&(self.handles, self.size, dirty, self.kept.is_some()))
    }
}

fn digest(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
