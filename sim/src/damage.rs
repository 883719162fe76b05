//! Damage from outside: commits that are purged, or can't be read, while others use them.
//!
//! - What is purged is kept aside: when a run is over it is put back, and if its name has been taken
//!   meanwhile a hole in the log was taken for its head (R8).
//! - Only what was there before the run is purged, but for the newest commit: that there was one, nobody
//!   could know. Nor could a writer that hasn't read a commit yet when it vanishes: it looks beyond its head
//!   on opening only (R8), and its successors see by `seen` that it has filled a hole (R10).

use std::path::Path;

use batchweave::storage::Storage;
use parking_lot::Mutex;

use crate::Memory;

/// Where what is purged is kept.
const ASIDE: &str = "/purged";

/// What was damaged.
#[derive(Debug, Default)]
pub struct Damage {
    /// How many versions there were before the run.
    versions: u64,
    purged: Mutex<Vec<(String, String)>>,
    unreadable: Mutex<Vec<String>>,
}

impl Damage {
    /// None yet, to a store of so many versions.
    pub fn new(versions: u64) -> Self {
        Self { versions, ..Self::default() }
    }

    /// Purges a commit by its path, if it is old enough and there; whether it did.
    pub fn purge(&self, memory: &Memory, path: &str) -> bool {
        let is_old = name_of(path).parse::<u64>().is_ok_and(|version| version + 1 < self.versions);
        let mut purged = self.purged.lock();
        let kept = format!("{}", purged.len());
        if !is_old || rename(memory, path, &format!("{ASIDE}/{kept}")).is_err() {
            return false;
        }
        purged.push((path.to_owned(), kept));
        true
    }

    /// Makes a file unreadable, on every node.
    pub fn spoil(&self, memory: &Memory, path: &str) {
        memory.unreadable(path, true);
        self.unreadable.lock().push(path.to_owned());
    }

    /// Undoes all.
    ///
    /// # Errors
    /// The name of what was purged has been taken.
    pub fn mend(&self, memory: &Memory) -> Result<(), String> {
        for (path, kept) in self.purged.lock().drain(..) {
            if versions_beside(memory, &path).iter().any(|name| name == name_of(&path)) {
                return Err(format!("R8: {path} was purged, and another commit has its name now"));
            }
            rename(memory, &format!("{ASIDE}/{kept}"), &path).map_err(|error| format!("{path}: {error}"))?;
        }
        for path in self.unreadable.lock().drain(..) {
            memory.unreadable(&path, false);
        }
        Ok(())
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The names of the commits in a commit's directory.
fn versions_beside(memory: &Memory, path: &str) -> Vec<String> {
    let above = path.rsplit_once('/').map_or("/", |(above, _)| above);
    let listed = memory.open_root(Path::new(above)).and_then(|dir| memory.list(&dir));
    let names = listed.into_iter().flatten().filter_map(|name| name.into_string().ok());
    names.filter(|name| !name.starts_with('.')).collect()
}

fn rename(memory: &Memory, from: &str, to: &str) -> std::io::Result<()> {
    let open = |path: &str| {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = memory.open_root(Path::new(if above.is_empty() { "/" } else { above }));
        dir.map(|dir| (dir, name.to_owned()))
    };
    let root = memory.open_root(Path::new("/"))?;
    // It is there from the second time on.
    let _ = memory.make_dir(&root, ASIDE.trim_start_matches('/'));
    let ((from, from_name), (to, to_name)) = (open(from)?, open(to)?);
    memory.rename(&from, &from_name, &to, &to_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(memory: &Memory, versions: &[&str]) {
        let root = memory.open_root(Path::new("/")).unwrap();
        memory.make_dir(&root, "log").unwrap();
        let log = memory.open_dir(&root, "log").unwrap();
        versions.iter().for_each(|name| drop(memory.create_exclusive(&log, name).unwrap()));
    }

    #[test]
    fn what_is_purged_comes_back_unless_its_name_is_taken() {
        let memory = Memory::new();
        log(&memory, &["0", "1", "2"]);
        let damage = Damage::new(3);
        assert!(!damage.purge(&memory, "/log/2"), "the newest one");
        assert!(damage.purge(&memory, "/log/1"));
        assert!(!damage.purge(&memory, "/log/1"), "it is gone");
        assert_eq!(versions_beside(&memory, "/log/0"), ["0", "2"]);
        damage.mend(&memory).unwrap();
        assert_eq!(versions_beside(&memory, "/log/0"), ["0", "1", "2"]);
        assert!(damage.purge(&memory, "/log/0"));
        let dir = memory.open_root(Path::new("/log")).unwrap();
        drop(memory.create_exclusive(&dir, "0").unwrap());
        assert!(damage.mend(&memory).unwrap_err().contains("R8"));
    }
}
