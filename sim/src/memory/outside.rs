//! What no process does: power cuts, faults of the disk, deletions by others, and a look at the whole.

use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use batchweave::storage::{Dir, File};

use super::power::Unsynced;
use super::tree::{Body, Id, ROOT, State};
use super::{Handle, Memory, Shared};
use crate::schedule::mix;

/// Which side of the filesystem is looked at.
#[derive(Clone, Copy)]
enum Side {
    Live,
    /// Live, and which inode is where.
    Whole,
    Durable,
}

impl Memory {
    /// Cuts the power: what isn't durable is lost, handles are dead.
    pub fn power_cut(&self) {
        self.power_cut_keeping(|_| false);
    }

    /// Cuts the power; of what isn't durable, what `keep` says is left. It is asked in the order of the
    /// calls, in the same order for the same history, and only for what can still be left given its answers
    /// so far.
    pub fn power_cut_keeping(&self, mut keep: impl FnMut(&Unsynced) -> bool) {
        self.shared.state.lock().cut(&mut keep);
        self.shared.woken.notify_all();
    }

    /// Another filesystem, in the state that this one is in now: what a crash at this moment leaves, to be
    /// looked at in as many ways as there are forks. Its cost is that of the names; bytes are shared until
    /// written to.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = self.shared.state.lock().fork();
        Self { shared: Shared::new(state) }
    }

    /// Makes everything durable, as a kernel does in its own time.
    pub fn write_back(&self) {
        self.shared.state.lock().write_back();
    }

    /// All live paths, sorted; a directory's ends with `/`.
    pub fn paths(&self) -> Vec<String> {
        let state = self.shared.state.lock();
        let mut found = Vec::new();
        let mut reach = vec![(ROOT, String::new())];
        while let Some((id, path)) = reach.pop() {
            let Body::Directory(entries) = &state.nodes[&id].body else {
                found.push(path);
                continue;
            };
            reach.extend(entries.live.iter().map(|(name, child)| {
                let slash = if state.is_directory(*child) { "/" } else { "" };
                (*child, format!("{path}{name}{slash}"))
            }));
            if id != ROOT {
                found.push(path);
            }
        }
        found.sort();
        found
    }

    /// What a `sync_file` does that is to fail: the dirty pages and the growth count as written, so a later
    /// sync goes well without them; only what is written anew is dirty again. The caller answers EIO.
    ///
    /// # Errors
    /// The handle is dead, which is then what the sync answers.
    pub fn fail_sync_file(&self, file: &File) -> io::Result<()> {
        let (mut state, id) = self.with_file(file)?;
        state.fail_sync_file(id);
        Ok(())
    }

    /// The same for a `sync_dir`: what was changed in the directory so far is made durable by no later sync
    /// through a handle that is open now, of whatever directory, nor is what needs it. Later changes of other
    /// names are, and so is all by a handle that is opened later.
    ///
    /// # Errors
    /// The handle is dead.
    pub fn fail_sync_dir(&self, dir: &Dir) -> io::Result<()> {
        let (mut state, id) = self.with_dir(dir)?;
        state.fail_sync_dir(id);
        if let (Some(handle), Some(failed)) = (dir.get::<Handle>(), state.newest_failure(id)) {
            handle.told.fetch_max(failed, Ordering::Relaxed);
        }
        Ok(())
    }

    /// From now on opening and reading what has this path is EIO for everyone, under whatever name and also
    /// after power cuts; or no longer. Names can still be changed, and bytes written. Gives whether anything
    /// has the path.
    pub fn unreadable(&self, path: impl AsRef<Path>, unreadable: bool) -> bool {
        let mut state = self.shared.state.lock();
        let found = state.walk(path.as_ref());
        let found = found.and_then(|(dir, name)| name.map_or(Ok(dir), |name| state.lookup(dir, name)));
        let Ok(id) = found else { return false };
        state.node(id).unreadable = unreadable;
        true
    }

    /// Deletes a file as a site's purge does, durable at once. Gives whether there was one.
    pub fn purge(&self, path: impl AsRef<Path>) -> bool {
        let mut state = self.shared.state.lock();
        match state.walk(path.as_ref()) {
            Ok((dir, Some(name))) => state.purge(dir, name).is_ok(),
            _ => false,
        }
    }

    /// A hash of what everyone sees: each path with its kind, its number of names, and for a file a hash of
    /// what was written to it, call by call. Equal contents that came by other calls may differ in it.
    ///
    /// Inode numbers, the order of calls on different files, handles and what only they hold, and whatever is
    /// durable don't count. Costs O(names).
    pub fn fingerprint(&self) -> u64 {
        self.shared.state.lock().fingerprint(Side::Live)
    }

    /// The same, which inode has which name, and what is held without a name: all that a call's answer may
    /// depend on.
    pub fn whole_fingerprint(&self) -> u64 {
        let state = self.shared.state.lock();
        let held = state.nodes.values().filter(|node| node.names == 0 && node.handles > 0);
        let mut held: Vec<u64> = held.map(|node| node.birth).collect();
        held.sort_unstable();
        held.into_iter().fold(state.fingerprint(Side::Whole), mix)
    }

    /// The same of what a power cut leaves if it leaves nothing unsynced.
    pub fn durable_fingerprint(&self) -> u64 {
        self.shared.state.lock().fingerprint(Side::Durable)
    }
}

impl State {
    /// The same filesystem with nobody at it: no handle is open.
    pub(super) fn fork(&self) -> Self {
        let mut state = self.clone();
        let held: Vec<Id> =
            state.nodes.iter().filter(|(_, node)| node.handles > 0).map(|(id, _)| *id).collect();
        for id in held {
            state.node(id).handles = 0;
            state.free_if_gone(id);
        }
        state
    }

    fn fingerprint(&self, side: Side) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(ROOT, side, &mut hasher);
        hasher.finish()
    }

    fn hash(&self, id: Id, side: Side, hasher: &mut DefaultHasher) {
        let node = &self.nodes[&id];
        hasher.write_u8(u8::from(node.unreadable));
        if matches!(side, Side::Whole) {
            hasher.write_u64(node.birth);
        }
        match (&node.body, side) {
            (Body::File(content), Side::Live | Side::Whole) => {
                hasher.write_usize(node.names);
                hasher.write_u64(content.stamp);
            }
            (Body::File(content), Side::Durable) => hasher.write_u64(content.durable_stamp),
            (Body::Directory(entries), _) => {
                let names = match side {
                    Side::Live | Side::Whole => &entries.live,
                    Side::Durable => &entries.durable,
                };
                // No file has so many names: a directory isn't mistaken for one.
                hasher.write_usize(usize::MAX - names.len());
                for (name, child) in names {
                    hasher.write_usize(name.len());
                    hasher.write(name.as_bytes());
                    self.hash(*child, side, hasher);
                }
            }
        }
    }
}
