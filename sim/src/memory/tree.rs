//! Inodes and names: what every node sees now, and beside it what would be left after a power cut.
//!
//! - A call changes live entries and live bytes only; [`State::pending`] remembers in order what isn't
//!   durable.
//! - One [`Change`] is atomic: a rename is never half there, in memory or after a cut.
//! - A directory without a live name is removed: nothing can be looked up or made in it.
//! - A node without names and handles takes no room, but stays while it may come back by a cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};

use batchweave::storage::Mount;

use super::archive::Archive;
use super::pages::{PAGE_BYTES, Pages, stamp_after};
use crate::errno::{self, error};
use crate::schedule::mix;

pub(crate) type Id = u64;

/// The node of `/`.
pub(super) const ROOT: Id = 0;

/// Nodes that pile up before what nobody can reach is looked for.
const SWEEP_SLACK: usize = 1024;

/// What Linux takes as the length of a name.
const NAME_BYTES_MAX: usize = 255;

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Its newest name, for people.
    pub(super) label: String,
    /// Open handles of this epoch.
    pub(super) handles: usize,
    /// Live names.
    pub(super) names: usize,
    /// What holds it is broken: opening and reading are EIO.
    pub(super) unreadable: bool,
    /// Tells it from every other node, whatever was made before it elsewhere: by where it was made, and for a
    /// directory how often one of that name was removed there before.
    pub(super) birth: u64,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    File(Content),
    Directory(Entries),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) live: Pages,
    pub(super) durable: Pages,
    /// What a failed sync gave up: pages that are still these aren't dirty.
    pub(super) lost: Option<Pages>,
    /// Tells `live` from other contents: a hash of what was written where.
    pub(super) stamp: u64,
    /// The same of `durable`.
    pub(super) durable_stamp: u64,
    /// Counts wakes of its first word.
    pub(super) wakes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Entries {
    pub(super) parent: Id,
    pub(super) live: BTreeMap<String, Id>,
    pub(super) durable: BTreeMap<String, Id>,
}

/// One name given to a node, or taken away.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    pub(super) dir: Id,
    pub(super) name: String,
    pub(super) node: Option<Id>,
}

/// What one call did to names.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) words: String,
    pub(super) edits: Vec<Edit>,
    /// Directories without which it can't be durable: those above a rename's target, or the file would be
    /// nowhere.
    pub(super) under: Vec<Id>,
    /// A sync of its directory failed when so many handles had been opened: none of these makes it durable
    /// any more.
    pub(super) failed: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<Id, Node>,
    pub(super) pending: Vec<Change>,
    /// Counts handles.
    pub(super) opened: u64,
    /// Counts power cuts; a handle of an earlier epoch is dead.
    pub(super) epoch: u64,
    pub(super) pages_max: u64,
    pub(super) inodes_max: Option<u64>,
    pub(super) pages_used: u64,
    pub(super) inodes_used: u64,
    pub(super) mount: Mount,
    next: Id,
    swept: usize,
    /// How often a directory of a name was removed.
    removed: BTreeMap<(Id, String), u64>,
    pub(super) archive: Archive,
}

impl State {
    pub(super) fn new(mount: Mount, bytes_max: u64) -> Self {
        let root = Node { names: 1, ..Node::new(Body::directory(ROOT)) };
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            pending: Vec::new(),
            epoch: 0,
            opened: 0,
            pages_max: bytes_max / PAGE_BYTES as u64,
            inodes_max: None,
            pages_used: 0,
            inodes_used: 1,
            mount,
            next: ROOT + 1,
            swept: 0,
            removed: BTreeMap::new(),
            archive: Archive::default(),
        }
    }

    pub(super) fn node(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).expect("what has a handle or a name is kept")
    }

    pub(super) fn file(&mut self, id: Id) -> io::Result<&mut Content> {
        match &mut self.node(id).body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(error(errno::EISDIR)),
        }
    }

    /// A directory that isn't removed.
    pub(super) fn directory(&self, id: Id) -> io::Result<&Entries> {
        match &self.nodes[&id] {
            Node { names: 0, .. } => Err(error(errno::ENOENT)),
            Node { body: Body::Directory(entries), .. } => Ok(entries),
            Node { body: Body::File(_), .. } => Err(error(errno::ENOTDIR)),
        }
    }

    /// What can't be read says so.
    pub(super) fn readable(&self, id: Id) -> io::Result<()> {
        if self.nodes[&id].unreadable { Err(error(errno::EIO)) } else { Ok(()) }
    }

    pub(super) fn is_directory(&self, id: Id) -> bool {
        matches!(self.nodes[&id].body, Body::Directory(_))
    }

    pub(super) fn find(&self, dir: Id, name: &str) -> io::Result<Option<Id>> {
        let entries = self.directory(dir)?;
        assert!(!matches!(name, "" | "." | "..") && !name.contains('/'), "{name:?} isn't one component");
        if name.len() > NAME_BYTES_MAX {
            return Err(error(errno::ENAMETOOLONG));
        }
        Ok(entries.live.get(name).copied())
    }

    pub(super) fn lookup(&self, dir: Id, name: &str) -> io::Result<Id> {
        self.find(dir, name)?.ok_or_else(|| error(errno::ENOENT))
    }

    /// The directory above a path's last component, and that.
    pub(super) fn walk<'a>(&self, path: &'a Path) -> io::Result<(Id, Option<&'a str>)> {
        let parts = path.components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
        let mut at = (ROOT, None);
        for part in parts {
            let Component::Normal(part) = part else { return Err(error(errno::EINVAL)) };
            if let (dir, Some(name)) = at {
                at.0 = self.lookup(dir, name)?;
                self.directory(at.0)?;
            }
            at.1 = Some(part.to_str().ok_or_else(|| error(errno::EINVAL))?);
        }
        Ok(at)
    }

    /// Makes a node under a free name.
    pub(super) fn make(&mut self, dir: Id, name: &str, verb: &str, body: Body) -> io::Result<Id> {
        if self.find(dir, name)?.is_some() {
            return Err(error(errno::EEXIST));
        }
        if self.inodes_max.is_some_and(|max| self.inodes_used >= max) {
            return Err(error(errno::ENOSPC));
        }
        self.sweep();
        let id = self.next;
        self.next += 1;
        self.inodes_used += 1;
        let removed = self.removed.get(&(dir, name.to_owned())).copied().unwrap_or_default();
        let birth = mix(stamp_after(self.nodes[&dir].birth, name.as_bytes(), 0), removed);
        self.nodes.insert(id, Node { birth, ..Node::new(body) });
        let words = format!("{verb} {}", self.label(dir, name));
        self.change(words, vec![Edit { dir, name: name.to_owned(), node: Some(id) }], Vec::new());
        Ok(id)
    }

    pub(super) fn link(&mut self, from: Id, from_name: &str, to: Id, to_name: &str) -> io::Result<()> {
        let id = self.lookup(from, from_name)?;
        if self.find(to, to_name)?.is_some() {
            return Err(error(errno::EEXIST));
        }
        if self.is_directory(id) {
            return Err(error(errno::EPERM));
        }
        let words = format!("link {} -> {}", self.label(from, from_name), self.label(to, to_name));
        self.change(words, vec![Edit { dir: to, name: to_name.to_owned(), node: Some(id) }], Vec::new());
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        (from, from_name): (Id, &str),
        (to, to_name): (Id, &str),
        replace: bool,
    ) -> io::Result<()> {
        self.directory(to)?;
        let id = self.lookup(from, from_name)?;
        let target = self.find(to, to_name)?;
        if target.is_some() && !replace {
            return Err(error(errno::EEXIST));
        }
        let under = self.above(to);
        if under.contains(&id) {
            return Err(error(errno::EINVAL));
        }
        if let Some(target) = target {
            if self.above(from).contains(&target) {
                return Err(error(errno::ENOTEMPTY));
            }
            if target == id {
                return Ok(());
            }
            match (self.is_directory(id), self.is_directory(target)) {
                (true, false) => return Err(error(errno::ENOTDIR)),
                (false, true) => return Err(error(errno::EISDIR)),
                (true, true) if !self.directory(target)?.live.is_empty() => {
                    return Err(error(errno::ENOTEMPTY));
                }
                _ => {}
            }
        }
        let words = format!("rename {} -> {}", self.label(from, from_name), self.label(to, to_name));
        let edits = vec![
            Edit { dir: from, name: from_name.to_owned(), node: None },
            Edit { dir: to, name: to_name.to_owned(), node: Some(id) },
        ];
        self.change(words, edits, under);
        Ok(())
    }

    pub(super) fn remove(&mut self, dir: Id, name: &str, directory: bool) -> io::Result<()> {
        let id = self.lookup(dir, name)?;
        match (directory, self.is_directory(id)) {
            (true, false) => return Err(error(errno::ENOTDIR)),
            (false, true) => return Err(error(errno::EISDIR)),
            (true, true) if !self.directory(id)?.live.is_empty() => return Err(error(errno::ENOTEMPTY)),
            _ => {}
        }
        if directory {
            *self.removed.entry((dir, name.to_owned())).or_default() += 1;
        }
        let words = format!("{} {}", if directory { "remove_dir" } else { "remove" }, self.label(dir, name));
        self.change(words, vec![Edit { dir, name: name.to_owned(), node: None }], Vec::new());
        Ok(())
    }

    pub(super) fn write(&mut self, id: Id, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(error(errno::EFBIG));
        }
        let room = self.pages_max.saturating_sub(self.pages_used);
        let content = self.file(id)?;
        let before = content.live.allocated();
        let written = content.live.write(bytes, offset, room);
        let more = content.live.allocated() - before;
        if written > 0 {
            content.stamp = stamp_after(content.stamp, &bytes[..written], offset);
        }
        self.pages_used += more;
        if written == 0 && !bytes.is_empty() {
            return Err(error(errno::ENOSPC));
        }
        Ok(written)
    }

    /// Ends a handle.
    pub(super) fn release(&mut self, id: Id) {
        let node = self.node(id);
        node.handles -= 1;
        self.free_if_gone(id);
    }

    /// A directory and all above it.
    fn above(&self, dir: Id) -> Vec<Id> {
        let mut found = vec![dir];
        let mut at = dir;
        while at != ROOT {
            let Body::Directory(entries) = &self.nodes[&at].body else { break };
            at = entries.parent;
            found.push(at);
        }
        found
    }

    pub(super) fn label(&self, dir: Id, name: &str) -> String {
        match self.nodes[&dir].label.as_str() {
            "" => name.to_owned(),
            label => format!("{label}/{name}"),
        }
    }

    /// Changes live names, and remembers that this isn't durable.
    fn change(&mut self, words: String, edits: Vec<Edit>, under: Vec<Id>) {
        self.archive(&edits);
        let mut old = Vec::new();
        for edit in &edits {
            if let Some(id) = edit.node {
                let label = self.label(edit.dir, &edit.name);
                let node = self.node(id);
                node.names += 1;
                node.label = label;
                if let Body::Directory(entries) = &mut node.body {
                    entries.parent = edit.dir;
                }
            }
            let live = &mut self.entries(edit.dir).live;
            let was = match edit.node {
                Some(id) => live.insert(edit.name.clone(), id),
                None => live.remove(&edit.name),
            };
            old.extend(was);
        }
        for id in old {
            self.node(id).names -= 1;
            self.free_if_gone(id);
        }
        self.pending.push(Change { words, edits, under, failed: None });
    }

    pub(super) fn entries(&mut self, id: Id) -> &mut Entries {
        match &mut self.node(id).body {
            Body::Directory(entries) => entries,
            Body::File(_) => unreachable!("only a directory has entries"),
        }
    }

    pub(super) fn free_if_gone(&mut self, id: Id) {
        let node = &self.nodes[&id];
        if node.names > 0 || node.handles > 0 {
            return;
        }
        self.inodes_used -= 1;
        if let Body::File(content) = &node.body {
            self.pages_used -= content.live.allocated();
        }
    }

    /// Forgets what can't be reached any more, live or after any cut; at a cost in proportion to what was
    /// made.
    fn sweep(&mut self) {
        if self.nodes.len() < 2 * self.swept + SWEEP_SLACK {
            return;
        }
        let mut reach = vec![ROOT];
        reach.extend(self.nodes.iter().filter(|(_, node)| node.handles > 0).map(|(id, _)| *id));
        let edits = self.pending.iter().flat_map(|change| &change.edits);
        reach.extend(edits.flat_map(|edit| [Some(edit.dir), edit.node]).flatten());
        let mut kept = BTreeSet::new();
        while let Some(id) = reach.pop() {
            if !kept.insert(id) {
                continue;
            }
            if let Body::Directory(entries) = &self.nodes[&id].body {
                reach.push(entries.parent);
                reach.extend(entries.live.values().chain(entries.durable.values()));
            }
        }
        self.nodes.retain(|id, _| kept.contains(id));
        self.swept = self.nodes.len();
    }
}

impl Node {
    fn new(body: Body) -> Self {
        Self { label: String::new(), handles: 0, names: 0, unreadable: false, birth: 0, body }
    }
}

impl Body {
    pub(super) fn directory(parent: Id) -> Self {
        Self::Directory(Entries { parent, live: BTreeMap::new(), durable: BTreeMap::new() })
    }

    pub(super) fn file() -> Self {
        Self::File(Content::default())
    }
}
