//! What goes wrong, as the trials set it; and what the mounts have seen.
//!
//! - A rule is about one operation that the kernel asks for, from its `nth` on, `times` in a row.
//! - The order in which things become durable is watched (R3, R4): a file that is given a commit's name has
//!   to be synced, and so has every directory of the log, the indexes and the marks when a later segment gets
//!   a commit. A directory whose sync failed is synced only through a handle that was opened after that.
//! - Names that one mount makes may be hidden from the others' look-ups, until their directory is opened
//!   afresh, as NFS clients do: counted, never timed.

use std::collections::{BTreeMap, HashMap, HashSet};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::control::Seen;

/// What a kernel asks a filesystem for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Operation {
    Lookup,
    Getattr,
    Open,
    Read,
    Write,
    Create,
    Flush,
    Fsync,
    Opendir,
    Readdir,
    Fsyncdir,
    Link,
    Unlink,
    Rename,
    Mkdir,
    Rmdir,
    Statfs,
}

/// How it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// Nothing is done, and this errno is the answer.
    Fail(i32),
    /// It is done, and this errno is the answer all the same: a lost reply.
    LoseReply(i32),
    /// At most so many bytes are read or written.
    Short(usize),
    /// The server is restarted right before: all that is open, or known by number, is ESTALE from now on, but
    /// the mounts' roots.
    Restart,
}

/// Something that goes wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rule {
    operation: Operation,
    what: What,
    nth: u64,
    times: u64,
    path: Option<String>,
    met: u64,
}

impl Rule {
    /// The first of these, once.
    pub(crate) fn new(operation: Operation, what: What) -> Self {
        Self { operation, what, nth: 1, times: 1, path: None, met: 0 }
    }

    /// The `nth` from now on, counted from 1.
    pub(crate) fn nth(self, nth: u64) -> Self {
        Self { nth, ..self }
    }

    /// This one and all after it.
    pub(crate) fn always(self) -> Self {
        Self { times: u64::MAX, ..self }
    }

    /// Only those whose path has this in it.
    pub(crate) fn path(self, part: &str) -> Self {
        Self { path: Some(part.to_owned()), ..self }
    }

    fn meets(&mut self, operation: Operation, path: &str) -> bool {
        if self.operation != operation || self.path.as_ref().is_some_and(|part| !path.contains(part)) {
            return false;
        }
        self.met += 1;
        self.met >= self.nth && self.met - self.nth < self.times
    }
}

/// The rules of all mounts of a directory, and what was seen there.
#[derive(Default)]
pub(super) struct Rules(Mutex<State>);

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    is_set: bool,
    asked: BTreeMap<Operation, u64>,
    /// What went wrong, in words, and how often anything did.
    last: String,
    fired: u64,
    /// Files with bytes that aren't synced, by inode; directories with names that aren't.
    files: HashSet<u64>,
    directories: HashMap<String, Unsynced>,
    clock: u64,
    violations: Vec<String>,
    /// Look-ups for which a new name is hidden from other mounts than its maker's, and those left.
    delay: u64,
    hidden: HashMap<(usize, String), u64>,
    /// Mounts there are, and how often all their handles have become stale.
    mounts: usize,
    restarts: u64,
}

/// A directory that isn't synced: since when a sync proves something.
#[derive(Default)]
struct Unsynced {
    proves_after: u64,
}

impl Rules {
    /// Forgets all that was set and seen, and goes by these from now on.
    pub(super) fn set(&self, rules: Vec<Rule>) {
        let mut state = self.0.lock();
        let (mounts, restarts, clock) = (state.mounts, state.restarts, state.clock);
        *state = State { rules, is_set: true, mounts, restarts, clock, ..State::default() };
    }

    /// Nothing goes wrong any more; what was seen stays.
    pub(super) fn lift(&self) {
        let mut state = self.0.lock();
        state.rules.clear();
        state.is_set = false;
        state.delay = 0;
        state.hidden.clear();
    }

    /// What was seen since they were set.
    pub(super) fn seen(&self) -> Seen {
        let unsynced = self.unsynced();
        let state = self.0.lock();
        Seen { asked: state.asked.clone(), fired: state.fired, last: state.last.clone(), unsynced }
    }

    /// From now on the other mounts don't find a new name for so many look-ups, or until its directory is
    /// opened.
    pub(super) fn delay(&self, lookups: u64) {
        self.0.lock().delay = lookups;
    }

    /// A name that was made before its time, or one in the log that isn't durable.
    fn unsynced(&self) -> Option<String> {
        let state = self.0.lock();
        let in_log = || state.directories.keys().find(|path| path.contains("/log/"));
        let acknowledged = || in_log().map(|path| format!("R3: acknowledged before {path} was synced"));
        state.violations.first().cloned().or_else(acknowledged)
    }

    // --- What the mounts say and ask.

    /// The number of a new mount.
    pub(super) fn mount(&self) -> usize {
        let mut state = self.0.lock();
        state.mounts += 1;
        state.mounts
    }

    pub(super) fn restarts(&self) -> u64 {
        self.0.lock().restarts
    }

    /// What is to go wrong with this operation.
    pub(super) fn ask(&self, operation: Operation, path: &str) -> Option<What> {
        let mut state = self.0.lock();
        if state.is_set {
            *state.asked.entry(operation).or_default() += 1;
        }
        // Each counts, also where another comes first.
        let met = |rule: &mut Rule| rule.meets(operation, path).then_some(rule.what);
        let what = state.rules.iter_mut().filter_map(met).reduce(|first, _| first)?;
        state.fired += 1;
        state.restarts += u64::from(what == What::Restart);
        state.last = format!("{operation:?} of {path}: {what:?}");
        Some(what)
    }

    /// Whether a look-up by this mount doesn't find the name.
    pub(super) fn hides(&self, mount: usize, path: &str) -> bool {
        let mut state = self.0.lock();
        let Some(left) = state.hidden.get_mut(&(mount, path.to_owned())).filter(|left| **left > 0) else {
            return false;
        };
        *left -= 1;
        state.fired += 1;
        true
    }

    /// A directory is opened afresh: so the mount asks for its names anew.
    pub(super) fn opened(&self, mount: usize, directory: &str) {
        let is_in = |path: &str| path.rsplit_once('/').is_some_and(|(parent, _)| parent == directory);
        self.0.lock().hidden.retain(|(by, path), _| *by != mount || !is_in(path));
    }

    /// A name was made by this mount, of a file of this inode, or of a directory.
    pub(super) fn made(&self, mount: usize, path: &str, inode: Option<u64>) {
        let mut state = self.0.lock();
        let (directory, _) = path.rsplit_once('/').unwrap_or_default();
        let is_commit = is_commit(path);
        if is_commit && inode.is_some_and(|inode| state.files.contains(&inode)) {
            state.violations.push(format!("R3: {path} was given to a file that isn't synced"));
        }
        if is_commit {
            let (root, _) = path.split_once("/log/").unwrap_or_default();
            let guarded = |other: &str| {
                let inside = other.strip_prefix(root).and_then(|rest| rest.strip_prefix('/'));
                inside
                    .is_some_and(|inside| inside.starts_with("log") || inside == "index" || inside == "marks")
            };
            let unsynced =
                state.directories.keys().find(|other| *other != directory && guarded(other)).cloned();
            if let Some(unsynced) = unsynced {
                state.violations.push(format!("R4: {path} was made before {unsynced} was synced"));
            }
        }
        state.directories.entry(directory.to_owned()).or_default();
        if state.delay > 0 {
            let delay = state.delay;
            for other in (1..=state.mounts).filter(|other| *other != mount) {
                state.hidden.insert((other, path.to_owned()), delay);
            }
        }
    }

    pub(super) fn wrote(&self, inode: u64) {
        self.0.lock().files.insert(inode);
    }

    pub(super) fn synced(&self, inode: u64) {
        self.0.lock().files.remove(&inode);
    }

    /// The moment, for a handle of a directory that is opened now.
    pub(super) fn now(&self) -> u64 {
        let mut state = self.0.lock();
        state.clock += 1;
        state.clock
    }

    /// A directory was synced through a handle of that age; or that failed.
    pub(super) fn synced_directory(&self, path: &str, opened: u64, synced: bool) {
        let mut state = self.0.lock();
        let clock = state.clock;
        let Some(unsynced) = state.directories.get_mut(path) else { return };
        if !synced {
            unsynced.proves_after = clock;
        } else if opened > unsynced.proves_after {
            state.directories.remove(path);
        }
    }
}

/// Whether a path is a commit's: log/<12 digits>/<20 digits>.
fn is_commit(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    path.contains("/log/") && name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_meets_the_nth_of_its_kind_and_as_many_as_it_says() {
        let rules = Rules::default();
        rules.set(vec![Rule::new(Operation::Link, What::Fail(5)).nth(2).path("log/")]);
        let link = || rules.ask(Operation::Link, "s/log/0/1");
        assert_eq!(rules.ask(Operation::Link, "s/index/0"), None, "of another path");
        assert_eq!((link(), rules.ask(Operation::Write, "s/log/0/1")), (None, None));
        assert_eq!((link(), link()), (Some(What::Fail(5)), None));
        assert_eq!((rules.seen().fired, rules.seen().asked[&Operation::Link]), (1, 4));
        rules.set(vec![Rule::new(Operation::Link, What::Short(1)).nth(2).always()]);
        assert_eq!((link(), link(), link()), (None, Some(What::Short(1)), Some(What::Short(1))));
    }

    #[test]
    fn what_is_named_before_it_is_synced_is_said() {
        let commit = "s/log/000000000001/00000000000000000016";
        let said = |steps: &dyn Fn(&Rules)| {
            let rules = Rules::default();
            steps(&rules);
            rules.unsynced().unwrap_or_default()
        };
        let fine = said(&|rules| {
            rules.wrote(7);
            rules.synced(7);
            rules.made(1, commit, Some(7));
            rules.synced_directory("s/log/000000000001", rules.now(), true);
        });
        assert_eq!(fine, "");
        let file = said(&|rules| {
            rules.wrote(7);
            rules.made(1, commit, Some(7));
        });
        assert!(file.starts_with("R3") && file.contains("isn't synced"), "{file}");
        let mark = said(&|rules| {
            rules.made(1, "s/marks/000000000001", Some(6));
            rules.made(1, commit, Some(7));
        });
        assert!(mark.starts_with("R4") && mark.contains("s/marks"), "{mark}");
        let again = said(&|rules| {
            rules.made(1, commit, Some(7));
            let opened = rules.now();
            rules.synced_directory("s/log/000000000001", opened, false);
            rules.synced_directory("s/log/000000000001", opened, true);
        });
        assert!(again.starts_with("R3: acknowledged before"), "{again}");
    }
}
