//! One simulated process: its storage, its environment, and the hand-over before each of its calls.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use batchweave::env::Env;
use batchweave::storage::Storage;

use super::World;
use crate::fault::{Call, Fate, Fault, Judge, Method, Outcome};

/// A simulated process.
#[derive(Clone)]
pub struct Process {
    /// The world it lives in.
    pub world: World,
    /// Its number in that world.
    pub number: usize,
    /// Its node's number.
    pub node: usize,
    /// What the story calls it.
    pub name: String,
    pub(super) fault: Arc<Fault>,
    pub(super) env: Arc<dyn Env>,
}

impl Process {
    /// The filesystem, as this process sees it.
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.fault) as Arc<dyn Storage>
    }

    /// Its environment.
    pub fn env(&self) -> Arc<dyn Env> {
        Arc::clone(&self.env)
    }

    /// How many of its calls were made to fail so far.
    pub fn struck(&self) -> u64 {
        self.world.0.state.lock().processes.get(self.number).map_or(0, |living| living.struck)
    }

    /// Whether it has died: what it is told from then on means nothing.
    pub fn is_dead(&self) -> bool {
        self.fault.is_stopped()
    }
}

/// Judges the calls of a process by the scheduler and by the world's fates.
pub(super) struct Judged {
    pub(super) world: World,
    pub(super) process: usize,
}

impl Judge for Judged {
    fn before(&self, method: Method, on: &str) -> Fate {
        self.world.0.turn_to_call(method, on);
        if self.world.is_dead(self.process) {
            return Fate::default();
        }
        let fate = self.world.0.fates.decide(&self.world, self.process, method, on);
        if fate.failure.is_some()
            && let Some(living) = self.world.0.state.lock().processes.get_mut(self.process)
        {
            living.struck += 1;
        }
        fate
    }

    fn after(&self, call: Call) {
        let mut hasher = DefaultHasher::new();
        (call.method, &call.on, call.outcome.words()).hash(&mut hasher);
        self.world.0.saw(hasher.finish());
        let mut state = self.world.0.state.lock();
        let stopped = call.outcome == Outcome::Stopped;
        state.story.call(self.process, call);
        if stopped {
            state.kill(self.process);
        }
    }

    fn saw(&self, digest: u64) {
        self.world.0.saw(digest);
    }

    fn looks(&self) {
        self.world.0.turn_to_look();
    }
}
