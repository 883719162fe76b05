//! Every schedule of a small case, one run after the other, each state once.
//!
//! - A run is replayed up to a decision and then takes the next answer there: depth first, no state is kept
//!   but as a digest.
//! - A thread's future depends on the filesystem, on its node's caches and on what it has seen so far, and on
//!   nothing else: what others do to it shows in these, its clock stands unless it sleeps, its entropy is its
//!   own. So a state that was met before, by whatever order, needs no second look.
//! - A call that no other process can notice, and that notices none, is made at once: every order of it is as
//!   good.
//! - This holds for processes of one thread; memory that several share isn't in the digest.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::schedule::{Style, mix};
use crate::{Choices, End, Method};

/// Whether another process can notice a call on something, or the call what another process does.
pub type Notices = Arc<dyn Fn(Method, &str) -> bool + Send + Sync>;

/// How a case is searched.
#[derive(Clone)]
pub struct Search {
    /// Runs at most.
    pub runs_max: u64,
    /// Whether a state that was met before is given up.
    pub prunes: bool,
    /// Which calls others can notice.
    pub is_noticed: Notices,
}

/// What a search came to.
#[derive(Debug)]
pub struct Explored {
    /// Runs that were made, pruned ones included.
    pub runs: u64,
    /// Different states at which there was a choice.
    pub states: usize,
    /// Different ends.
    pub ends: BTreeSet<u64>,
    /// Whether all were explored.
    pub complete: bool,
    /// The first run that went wrong: its decisions, and what happened.
    pub failure: Option<(Vec<u32>, String)>,
}

/// A digest of all that isn't in the threads' histories: the filesystem, caches, what is known to the case.
pub type Fingerprint = Arc<dyn Fn() -> u64 + Send + Sync>;

/// One run of a search.
pub struct Step {
    search: Search,
    met: Arc<Mutex<HashSet<(u64, u64)>>>,
    replayed: usize,
    fingerprint: Fingerprint,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step(after {} decisions)", self.replayed)
    }
}

impl Step {
    /// Whether this state was met before; not asked while an earlier run is repeated.
    pub(crate) fn was_here(&self, decisions: usize, threads: &[u64]) -> bool {
        if decisions < self.replayed {
            return false;
        }
        let elsewhere = (self.fingerprint)();
        let digest = |seed: u64| threads.iter().fold(mix(seed, elsewhere), |digest, part| mix(digest, *part));
        !self.met.lock().insert((digest(1), digest(2))) && self.search.prunes
    }

    pub(crate) fn is_noticed(&self, method: Method, on: &str) -> bool {
        (self.search.is_noticed)(method, on)
    }
}

/// Makes every run of a case until one goes wrong.
///
/// `run` gets the decisions and a way to make the style of its world, from the [`Fingerprint`] of the rest.
/// It judges what is left where the run came to its end, and says by that digest which end it was.
pub fn explore(
    search: &Search,
    mut run: impl FnMut(&Choices, &dyn Fn(Fingerprint) -> Style) -> (End, u64),
) -> Explored {
    let met = Arc::new(Mutex::new(HashSet::new()));
    let mut prefix: Vec<u32> = Vec::new();
    let mut explored = Explored { runs: 0, states: 0, ends: BTreeSet::new(), complete: false, failure: None };
    while explored.runs < search.runs_max {
        let choices = Choices::replay(prefix.clone());
        let style = |fingerprint| {
            let met = Arc::clone(&met);
            Style::Every(Arc::new(Step { search: search.clone(), met, replayed: prefix.len(), fingerprint }))
        };
        let (end, digest) = run(&choices, &style);
        explored.runs += 1;
        explored.states = met.lock().len();
        let taken = choices.taken();
        if let Some(trouble) = end.trouble {
            explored.failure = Some((taken.iter().map(|taken| taken.answer).collect(), trouble));
            return explored;
        }
        if !end.pruned {
            explored.ends.insert(digest);
        }
        let Some(last) = taken.iter().rposition(|taken| taken.answer + 1 < taken.of) else {
            explored.complete = true;
            return explored;
        };
        prefix = taken[..last].iter().map(|taken| taken.answer).collect();
        prefix.push(taken[last].answer + 1);
    }
    explored
}

#[cfg(test)]
mod tests;
