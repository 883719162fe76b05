//! Syncing, and the power cut: which of the unsynced is left.
//!
//! - What was synced is always left; what wasn't is left or lost by choice.
//! - *Legal*: names change in the order of the calls. Whoever keeps a change has kept every earlier one of
//!   the same name, and of the directories above a rename's target. So `sync_dir` of one side of a rename
//!   makes both durable.
//! - A file's length and each of its pages are kept or lost apart: a cut may leave zeros where bytes were
//!   written.

use std::collections::BTreeSet;
use std::fmt;
use std::mem;

use super::tree::{Body, Change, Content, Edit, Id, ROOT, State};

/// Something that a power cut may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// What one call did to names, in words: `link stage/x -> log/0/1`.
    Names(String),
    /// A file's growth.
    Length {
        /// The newest name of the file.
        file: String,
        /// Its length when it was last synced; 0 if never.
        durable: u64,
        /// Its length before the cut.
        live: u64,
    },
    /// The bytes of one page of 4096.
    Page {
        /// The newest name of the file.
        file: String,
        /// Which page, from 0.
        page: u64,
    },
}

impl fmt::Display for Unsynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(words) => f.write_str(words),
            Self::Length { file, durable, live } => {
                write!(f, "growth of {file} from {durable} to {live} bytes")
            }
            Self::Page { file, page } => write!(f, "page {page} of {file}"),
        }
    }
}

impl State {
    pub(super) fn sync_file(&mut self, id: Id) {
        if let Body::File(content) = &mut self.node(id).body {
            content.durable = content.live.clone();
        }
    }

    /// Makes a directory's entries durable, and what they need. One pass backwards finds all, since a change
    /// needs earlier ones only.
    pub(super) fn sync_dir(&mut self, id: Id) {
        let mut names: BTreeSet<(Id, String)> = BTreeSet::new();
        let mut nodes: BTreeSet<Id> = BTreeSet::new();
        let needed = |change: &Change, names: &BTreeSet<_>, nodes: &BTreeSet<Id>| {
            change.edits.iter().any(|edit| {
                edit.dir == id
                    || names.contains(&key(edit))
                    || edit.node.is_some_and(|node| nodes.contains(&node))
            })
        };
        let (mut synced, mut left) = (Vec::new(), Vec::new());
        for change in mem::take(&mut self.pending).into_iter().rev() {
            if needed(&change, &names, &nodes) {
                names.extend(change.edits.iter().map(key));
                nodes.extend(&change.under);
                synced.push(change);
            } else {
                left.push(change);
            }
        }
        left.reverse();
        self.pending = left;
        for change in synced.iter().rev() {
            self.make_durable(change);
        }
    }

    /// What a kernel does in its own time: everything becomes durable.
    pub(super) fn write_back(&mut self) {
        for change in mem::take(&mut self.pending) {
            self.make_durable(&change);
        }
        for node in self.nodes.values_mut() {
            if let Body::File(content) = &mut node.body {
                content.durable = content.live.clone();
            }
        }
    }

    /// Cuts the power: first the names are settled, then the bytes of the files that are left.
    pub(super) fn cut(&mut self, keep: &mut dyn FnMut(&Unsynced) -> bool) {
        self.cut_names(keep);
        let mut left = BTreeSet::new();
        let mut reach = vec![(ROOT, ROOT, String::new())];
        for node in self.nodes.values_mut() {
            node.names = 0;
            node.handles = 0;
        }
        while let Some((id, parent, label)) = reach.pop() {
            let node = self.node(id);
            node.names += 1;
            node.label.clone_from(&label);
            left.insert(id);
            let Body::Directory(entries) = &mut node.body else { continue };
            entries.parent = parent;
            entries.live = entries.durable.clone();
            let path =
                |name: &str| if label.is_empty() { name.to_owned() } else { format!("{label}/{name}") };
            reach.extend(entries.durable.iter().map(|(name, child)| (*child, id, path(name))));
        }
        self.nodes.retain(|id, _| left.contains(id));
        self.pages_used = 0;
        for node in self.nodes.values_mut() {
            let Body::File(content) = &mut node.body else { continue };
            cut_bytes(&node.label, content, keep);
            self.pages_used += content.live.allocated();
        }
        self.inodes_used = self.nodes.len() as u64;
        self.epoch += 1;
    }

    fn cut_names(&mut self, keep: &mut dyn FnMut(&Unsynced) -> bool) {
        let mut lost_names = BTreeSet::new();
        let mut lost_nodes = BTreeSet::new();
        for change in mem::take(&mut self.pending) {
            let possible = !change.edits.iter().any(|edit| lost_names.contains(&key(edit)))
                && !change.under.iter().any(|id| lost_nodes.contains(id));
            if possible && keep(&Unsynced::Names(change.words.clone())) {
                self.make_durable(&change);
            } else {
                lost_names.extend(change.edits.iter().map(key));
                lost_nodes.extend(change.edits.iter().filter_map(|edit| edit.node));
            }
        }
    }

    fn make_durable(&mut self, change: &Change) {
        for edit in &change.edits {
            let durable = &mut self.entries(edit.dir).durable;
            match edit.node {
                Some(id) => durable.insert(edit.name.clone(), id),
                None => durable.remove(&edit.name),
            };
        }
    }
}

fn key(edit: &Edit) -> (Id, String) {
    (edit.dir, edit.name.clone())
}

fn cut_bytes(file: &str, content: &mut Content, keep: &mut dyn FnMut(&Unsynced) -> bool) {
    let Content { live, durable, wakes: _ } = content;
    let changed = live.changed_since(durable);
    let mut length = durable.length();
    if live.length() != length {
        let growth = Unsynced::Length { file: file.to_owned(), durable: length, live: live.length() };
        if keep(&growth) {
            length = live.length();
        }
    }
    for page in changed {
        let inside = page * (super::pages::PAGE_BYTES as u64) < length;
        if inside && keep(&Unsynced::Page { file: file.to_owned(), page }) {
            durable.take_page(live, page);
        }
    }
    durable.set_length(length);
    *live = durable.clone();
}
