//! Syncing, and the power cut: which of the unsynced is left.
//!
//! - What was synced is always left; what wasn't is left or lost by choice.
//! - *Legal*: names change in the order of the calls. Whoever keeps a change has kept every earlier one of
//!   the same directory, as journals do, and of the directories above a rename's target. So `sync_dir` of one
//!   side of a rename makes both durable.
//! - A sync that fails gives up what it was to write. Each handle of a directory that was open
//!   then is told once, by its next sync; after that it syncs well, without what was given up. A cut may
//!   keep it all the same.
//! - A file's length and each of its pages are kept or lost apart: a cut may leave zeros where bytes were
//!   written.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::mem;

use super::pages::PAGE_BYTES;
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
            content.sync();
        }
    }

    /// What is dirty is marked clean and forgotten, as by a kernel that couldn't write it: errors come once.
    pub(super) fn fail_sync_file(&mut self, id: Id) {
        if let Body::File(content) = &mut self.node(id).body {
            content.lost = Some(content.live.clone());
        }
    }

    /// Makes a directory's entries durable, and what they need, by the handle of this number.
    pub(super) fn sync_dir(&mut self, id: Id, handle: u64) {
        let failed = self.failed(handle);
        self.settle(|change| changes(change, id), &failed);
    }

    /// How many handles had been opened when a sync of this directory last gave something up that is still
    /// unsynced.
    pub(super) fn newest_failure(&self, id: Id) -> Option<u64> {
        self.pending.iter().filter(|change| changes(change, id)).filter_map(|change| change.failed).max()
    }

    pub(super) fn fail_sync_dir(&mut self, id: Id) {
        let opened = self.opened;
        for change in self.pending.iter_mut().filter(|change| changes(change, id)) {
            change.failed = Some(opened);
        }
    }

    /// What a kernel does in its own time: everything becomes durable but what a failed sync gave up.
    pub(super) fn write_back(&mut self) {
        let failed = self.failed(0);
        self.settle(|_| true, &failed);
        for node in self.nodes.values_mut() {
            if let Body::File(content) = &mut node.body {
                content.sync();
            }
        }
    }

    /// Removes a file's name, and that is durable whatever failed before.
    pub(super) fn purge(&mut self, dir: Id, name: &str) -> io::Result<()> {
        self.remove(dir, name, false)?;
        let purged = (dir, name.to_owned());
        self.settle(|change| change.edits.iter().any(|edit| key(edit) == purged), &BTreeSet::new());
        Ok(())
    }

    /// Which pending changes no sync by a handle makes durable: those that a failed one gave up when it was
    /// open, and what needs them.
    fn failed(&self, handle: u64) -> BTreeSet<usize> {
        let mut failed = BTreeSet::new();
        let mut lost = Lost::default();
        for (place, change) in self.pending.iter().enumerate() {
            if change.failed.is_some_and(|opened| handle <= opened) || !lost.allows(change) {
                lost.add(change);
                failed.insert(place);
            }
        }
        failed
    }

    /// Makes the wanted changes durable, and what they need, but for some. One pass backwards finds all,
    /// since a change needs earlier ones only.
    fn settle(&mut self, wanted: impl Fn(&Change) -> bool, but: &BTreeSet<usize>) {
        let mut names: BTreeSet<(Id, String)> = BTreeSet::new();
        let mut nodes: BTreeSet<Id> = BTreeSet::new();
        let needed = |change: &Change, names: &BTreeSet<_>, nodes: &BTreeSet<Id>| {
            change
                .edits
                .iter()
                .any(|edit| names.contains(&key(edit)) || edit.node.is_some_and(|node| nodes.contains(&node)))
        };
        let (mut settled, mut left) = (Vec::new(), Vec::new());
        for (place, change) in mem::take(&mut self.pending).into_iter().enumerate().rev() {
            if !but.contains(&place) && (wanted(&change) || needed(&change, &names, &nodes)) {
                names.extend(change.edits.iter().map(key));
                nodes.extend(&change.under);
                settled.push(change);
            } else {
                left.push(change);
            }
        }
        left.reverse();
        self.pending = left;
        for change in settled.iter().rev() {
            self.make_durable(change);
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
        let mut lost = Lost::default();
        for change in mem::take(&mut self.pending) {
            if lost.allows(&change) && lost.in_order(&change) && keep(&Unsynced::Names(change.words.clone()))
            {
                self.make_durable(&change);
            } else {
                lost.add(&change);
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

/// What changes that are lost take with them.
#[derive(Default)]
struct Lost {
    names: BTreeSet<(Id, String)>,
    nodes: BTreeSet<Id>,
    directories: BTreeSet<Id>,
}

impl Lost {
    /// Whether nothing that came before a later change in its directory is lost.
    fn in_order(&self, change: &Change) -> bool {
        !change.edits.iter().any(|edit| self.directories.contains(&edit.dir))
    }

    /// Whether a later change can be durable all the same.
    fn allows(&self, change: &Change) -> bool {
        !change.edits.iter().any(|edit| self.names.contains(&key(edit)))
            && !change.under.iter().any(|id| self.nodes.contains(id))
    }

    fn add(&mut self, change: &Change) {
        self.names.extend(change.edits.iter().map(key));
        self.nodes.extend(change.edits.iter().filter_map(|edit| edit.node));
        self.directories.extend(change.edits.iter().map(|edit| edit.dir));
    }
}

fn key(edit: &Edit) -> (Id, String) {
    (edit.dir, edit.name.clone())
}

fn changes(change: &Change, dir: Id) -> bool {
    change.edits.iter().any(|edit| edit.dir == dir)
}

impl Content {
    /// Makes the bytes durable, but for pages and growth that a failed sync gave up and nobody wrote again.
    fn sync(&mut self) {
        let Self { live, durable, lost, .. } = self;
        let Some(lost) = lost else {
            *durable = live.clone();
            self.durable_stamp = self.stamp;
            return;
        };
        let mut length = if live.length() == lost.length() { durable.length() } else { live.length() };
        for page in live.changed_since(durable) {
            if !live.shares_page(lost, page) {
                durable.take_page(live, page);
                length = length.max(live.length().min((page + 1) * PAGE_BYTES as u64));
            }
        }
        durable.set_length(length);
        self.durable_stamp = durable.digest();
    }
}

fn cut_bytes(file: &str, content: &mut Content, keep: &mut dyn FnMut(&Unsynced) -> bool) {
    let Content { live, durable, .. } = content;
    let changed = live.changed_since(durable);
    if changed.is_empty() && live.length() == durable.length() {
        content.lost = None;
        return;
    }
    let mut kept = false;
    let mut keep = |unsynced: &Unsynced| {
        let keeps = keep(unsynced);
        kept |= keeps;
        keeps
    };
    let mut length = durable.length();
    if live.length() != length {
        let growth = Unsynced::Length { file: file.to_owned(), durable: length, live: live.length() };
        if keep(&growth) {
            length = live.length();
        }
    }
    for page in changed {
        let inside = page * (PAGE_BYTES as u64) < length;
        if inside && keep(&Unsynced::Page { file: file.to_owned(), page }) {
            durable.take_page(live, page);
        }
    }
    durable.set_length(length);
    *live = durable.clone();
    if kept {
        content.durable_stamp = live.digest();
    }
    content.stamp = content.durable_stamp;
    content.lost = None;
}
