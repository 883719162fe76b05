//! Commits that were removed from a store's log: what an oracle needs to know all that ever was in it.
//!
//! - A commit is kept when its name is first taken away, as it is then, under the path it had. What that
//!   name held was in the log: a segment is removed only when it is complete, so each of its names was given
//!   by who won it; and none of them was free before its first removal.
//! - What has a name again later isn't in the log (R6): it is never kept, only counted.
//! - A name that moves out of the log to another directory isn't removed: where a rename publishes, a writer
//!   takes back so what he has linked where nobody reads.
//! - It is no part of the filesystem: a power cut leaves it. A removal that was undone by one gives the same
//!   file back; and a commit that was removed was durable (R4, R6), or a promise is broken, and seen to be.

use std::collections::BTreeMap;
use std::path::Path;

use super::tree::{Body, Content, Edit, State};
use super::{Memory, Shared};

/// What was removed from logs.
#[derive(Clone, Debug, Default)]
pub(super) struct Archive {
    commits: BTreeMap<String, Content>,
    /// How often such a name was given again.
    given_again: u64,
}

/// Whether a path is that of a commit: `.../log/SEGMENT/VERSION`.
fn is_commit(path: &str) -> bool {
    let digits = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let mut names = path.rsplit('/');
    matches!((names.next(), names.next(), names.next()),
        (Some(version), Some(segment), Some("log")) if digits(version) && digits(segment))
}

impl State {
    /// Notes what a change is about to do to the names of commits.
    pub(super) fn archive(&mut self, edits: &[Edit]) {
        for edit in edits {
            let path = self.label(edit.dir, &edit.name);
            if !is_commit(&path) {
                continue;
            }
            if edit.node.is_some() {
                self.archive.given_again += u64::from(self.archive.commits.contains_key(&path));
                continue;
            }
            let moves_out = edits.iter().any(|other| other.node.is_some() && other.dir != edit.dir);
            let Ok(Some(id)) = self.find(edit.dir, &edit.name) else { continue };
            if let (Body::File(content), false) = (&self.nodes[&id].body, moves_out) {
                let content = content.clone();
                self.archive.commits.entry(path).or_insert(content);
            }
        }
    }
}

impl Memory {
    /// Another filesystem, as [`Memory::fork`], in which every commit that was removed is back, in the place
    /// of whatever has its name now.
    #[must_use]
    pub fn fork_with_removed(&self) -> Self {
        let mut state = self.shared.state.lock().fork();
        for (path, content) in std::mem::take(&mut state.archive.commits) {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", &path));
            let mut dir = super::tree::ROOT;
            for part in above.split('/') {
                let found = state.find(dir, part).expect("the directories of a store");
                dir = found.unwrap_or_else(|| {
                    let body = Body::directory(dir);
                    state.make(dir, part, "make_dir", body).expect("a free name")
                });
            }
            if state.find(dir, name).is_ok_and(|found| found.is_some()) {
                state.remove(dir, name, false).expect("a file");
            }
            state.make(dir, name, "create", Body::File(content)).expect("a free name");
        }
        Self { shared: Shared::new(state) }
    }

    /// The paths of the commits that were removed from logs.
    pub fn removed_commits(&self) -> Vec<String> {
        self.shared.state.lock().archive.commits.keys().cloned().collect()
    }

    /// How often the name of a removed commit was given again: by writers who slept through its removal.
    pub fn names_given_again(&self) -> u64 {
        self.shared.state.lock().archive.given_again
    }

    /// The names in a directory, by its path; none if there is no such directory.
    pub fn names_in(&self, path: impl AsRef<Path>) -> Vec<String> {
        let state = self.shared.state.lock();
        let found = state.walk(path.as_ref());
        let found = found.and_then(|(dir, name)| name.map_or(Ok(dir), |name| state.lookup(dir, name)));
        let names = found.and_then(|id| Ok(state.directory(id)?.live.keys().cloned().collect()));
        names.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use batchweave::storage::{Access, Storage};

    use super::*;

    #[test]
    fn what_was_removed_first_is_back_whatever_came_after_it() {
        let memory = Memory::new();
        let root = memory.open_root(Path::new("/")).unwrap();
        memory.make_dir(&root, "log").unwrap();
        memory.make_dir(&root, "stage").unwrap();
        let log = memory.open_dir(&root, "log").unwrap();
        let write = |text: &str| {
            let dir = memory.open_dir(&log, "00").unwrap();
            let file = memory.create_exclusive(&dir, "7").unwrap();
            memory.write_at(&file, text.as_bytes(), 0).unwrap();
            dir
        };
        memory.make_dir(&log, "00").unwrap();
        let dir = write("first");
        memory.remove(&dir, "7").unwrap();
        memory.remove_dir(&log, "00").unwrap();
        assert_eq!(memory.names_given_again(), 0);
        memory.make_dir(&log, "00").unwrap();
        let dir = write("second");
        assert_eq!((memory.names_given_again(), memory.removed_commits().len()), (1, 1));
        let read = |memory: &Memory| {
            let dir = memory.open_root(Path::new("/log/00")).unwrap();
            let file = memory.open(&dir, "7", Access::Read).unwrap();
            let mut bytes = [0; 16];
            let read = memory.read_at(&file, &mut bytes, 0).unwrap();
            String::from_utf8_lossy(&bytes[..read]).into_owned()
        };
        assert_eq!((read(&memory), read(&memory.fork_with_removed())), ("second".into(), "first".into()));
        memory.remove(&dir, "7").unwrap();
        assert_eq!(read(&memory.fork_with_removed()), "first");
        assert!(memory.names_in("/log/00").is_empty());
        memory.power_cut();
        assert_eq!(read(&memory.fork_with_removed()), "first", "a power cut leaves it");
    }

    #[test]
    fn what_moves_out_of_the_log_is_not_removed() {
        let memory = Memory::new();
        let root = memory.open_root(Path::new("/")).unwrap();
        let log = ["log", "stage"].map(|name| {
            memory.make_dir(&root, name).unwrap();
            memory.open_dir(&root, name).unwrap()
        });
        memory.make_dir(&log[0], "00").unwrap();
        let dir = memory.open_dir(&log[0], "00").unwrap();
        drop(memory.create_exclusive(&dir, "1").unwrap());
        memory.rename(&dir, "1", &log[1], "staged").unwrap();
        assert!(memory.removed_commits().is_empty());
        drop(memory.create_exclusive(&dir, "2").unwrap());
        memory.rename(&dir, "2", &dir, ".nfs1").unwrap();
        assert_eq!(memory.removed_commits(), ["log/00/2"], "a client that has it open renames it only");
    }
}
