//! Every schedule of a small case, one run after the other, each state once.
//!
//! - A run is replayed up to a decision and then takes the next answer there: depth first, no state is kept
//!   but as a digest.
//! - A thread's future depends on the filesystem and on what it has seen so far, and on nothing else: its
//!   clock stands, its entropy is its own. So a state that was met before, by whatever order, needs no second
//!   look.
//! - This holds for processes of one thread; memory that several share isn't in the digest.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::schedule::{Style, mix};
use crate::{Choices, End};

/// What a search came to.
#[derive(Debug)]
pub struct Explored {
    /// Runs that were made, pruned ones included.
    pub runs: u64,
    /// Different states at which there was a choice.
    pub states: usize,
    /// Whether all were explored.
    pub complete: bool,
    /// The first run that went wrong: its decisions, and what happened.
    pub failure: Option<(Vec<u32>, String)>,
}

/// One run of a search.
pub struct Step {
    met: Arc<Mutex<HashSet<(u64, u64)>>>,
    replayed: usize,
    fingerprint: Box<dyn Fn() -> u64 + Send + Sync>,
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
        let filesystem = (self.fingerprint)();
        let digest =
            |seed: u64| threads.iter().fold(mix(seed, filesystem), |digest, part| mix(digest, *part));
        !self.met.lock().insert((digest(1), digest(2)))
    }
}

/// Makes every run of a case, `runs_max` at most, until one goes wrong.
///
/// `run` gets the decisions and a way to make the style of its world, from the fingerprint of its filesystem.
pub fn explore(
    runs_max: u64,
    mut run: impl FnMut(&Choices, &dyn Fn(Box<dyn Fn() -> u64 + Send + Sync>) -> Style) -> End,
) -> Explored {
    let met = Arc::new(Mutex::new(HashSet::new()));
    let mut prefix: Vec<u32> = Vec::new();
    let mut explored = Explored { runs: 0, states: 0, complete: false, failure: None };
    while explored.runs < runs_max {
        let choices = Choices::replay(prefix.clone());
        let style = |fingerprint| {
            Style::Every(Arc::new(Step { met: Arc::clone(&met), replayed: prefix.len(), fingerprint }))
        };
        let end = run(&choices, &style);
        explored.runs += 1;
        explored.states = met.lock().len();
        let taken = choices.taken();
        if let Some(trouble) = end.trouble {
            explored.failure = Some((taken.iter().map(|taken| taken.answer).collect(), trouble));
            return explored;
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
