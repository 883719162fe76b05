//! Damage from outside: commits that are purged, or can't be read, while others use them.
//!
//! - What is purged is kept aside: when a run is over it is put back, and if its name has been taken meanwhile
//!   a hole in the log was taken for its head (R8).
//! - The newest commit isn't purged: that there was one, nobody could know.

use std::path::Path;

use batchweave::storage::Storage;
use parking_lot::Mutex;

use crate::Memory;

/// Where what is purged is kept.
const ASIDE: &str = "/purged";

/// What was damaged.
#[derive(Debug, Default)]
pub struct Damage {
    purged: Mutex<Vec<(String, String)>>,
    unreadable: Mutex<Vec<String>>,
}

impl Damage {
    /// Purges a commit by its path, unless it is the newest or isn't there; whether it did.
    pub fn purge(&self, memory: &Memory, path: &str) -> bool {
        let later = format!("{}/", path.rsplit_once('/').map_or("", |(above, _)| above));
        let is_newest = !memory.paths().iter().any(|other| {
            let beside =
                other.starts_with(&later) && !other.rsplit('/').next().unwrap_or("").starts_with('.');
            beside && other.as_str() > path
        });
        let mut purged = self.purged.lock();
        let kept = format!("{}", purged.len());
        if is_newest || rename(memory, path, &format!("{ASIDE}/{kept}")).is_err() {
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
        for path in self.unreadable.lock().drain(..) {
            memory.unreadable(&path, false);
        }
        for (path, kept) in self.purged.lock().drain(..) {
            if memory.paths().contains(&path) {
                return Err(format!("R8: {path} was purged, and another commit has its name now"));
            }
            rename(memory, &format!("{ASIDE}/{kept}"), &path).map_err(|error| format!("{path}: {error}"))?;
        }
        Ok(())
    }
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
