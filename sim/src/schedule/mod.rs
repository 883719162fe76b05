//! Simulated processes, one thread of them at a time, in an order that is drawn from [`Choices`].
//!
//! - Every thread of every process is a real one, but only the one that holds the *baton* runs. It hands the
//!   baton on before each call of the storage, when it blocks, and when it ends: so a run is a function of
//!   its seed, and a sleep of any length lies between any two calls.
//! - Time is virtual: a call takes [`CALL_COST`], and when nobody can run it moves to the earliest deadline.
//! - A process that dies has no further effect: its calls answer [`Stopped`](crate::Stopped), its threads
//!   block no more, and are seen out before anybody living goes on.
//! - Who waits for ever, and who never ends, is *trouble*: the run is halted and says so.

mod baton;
mod env;
mod process;
mod state;
mod story;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use batchweave::storage::Storage;
use parking_lot::{Condvar, Mutex};

use self::baton::Shared;
pub(crate) use self::baton::mix;
pub use self::baton::{On, Style};
pub use self::process::Process;
use self::state::{Living, State};
pub use self::story::{Event, Story};
use crate::fault::{Fate, Fault, Method, Plan};
use crate::{Choices, Memory};

/// How long a call takes.
pub const CALL_COST: Duration = Duration::from_micros(20);

/// What may happen to a call, decided by whoever plays fate.
pub trait Fates: Send + Sync {
    /// What happens to a call of a process, by its number, that now has the baton.
    fn decide(&self, world: &World, process: usize, method: Method, on: &str) -> Fate;
}

/// Nothing goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Calm;

impl Fates for Calm {
    fn decide(&self, _: &World, _: usize, _: Method, _: &str) -> Fate {
        Fate::default()
    }
}

/// All that runs in one simulation.
#[derive(Clone)]
pub struct World(pub(crate) Arc<Shared>);

/// A world that isn't kept alive: for what the world itself holds.
#[derive(Clone, Debug)]
pub struct Absent(Weak<Shared>);

impl Absent {
    /// The world, while it lasts.
    pub fn upgrade(&self) -> Option<World> {
        self.0.upgrade().map(World)
    }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct End {
    /// What went wrong; none if nothing did.
    pub trouble: Option<String>,
    /// Whether the run was given up because its state had been met before.
    pub pruned: bool,
    /// Storage calls of all processes.
    pub calls: u64,
    /// The virtual time that passed.
    pub took: Duration,
}

/// Where a process runs.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its number, from 0: processes of one node die together.
    pub number: usize,
    /// The filesystem as this node sees it.
    pub storage: Arc<dyn Storage>,
    /// By how much its wall clock is wrong, in years: nothing may rest on it (P8).
    pub years_off: i64,
}

impl World {
    /// A world in which nothing runs yet. `calls_max` bounds a run: what isn't over then never ends.
    pub fn new(choices: Choices, style: Style, seed: u64, calls_max: u64, fates: Arc<dyn Fates>) -> Self {
        let state = Mutex::new(State::new(style, calls_max));
        Self(Arc::new(Shared { state, choices, seed, over: Condvar::new(), fates }))
    }

    /// This world, without keeping it.
    pub fn downgrade(&self) -> Absent {
        Absent(Arc::downgrade(&self.0))
    }

    /// The decisions of this world.
    pub fn choices(&self) -> &Choices {
        &self.0.choices
    }

    /// Adds a process that does `body`, to run once the world does. If it dies, another one takes its place
    /// and does `body` from the beginning, `restarts` times at most. An error of a living one is trouble.
    pub fn add(
        &self,
        node: &Node,
        name: &str,
        restarts: u32,
        body: impl Fn(&Process) -> Result<(), String> + Send + 'static,
    ) {
        let first = self.new_process(node, name, 0);
        let world = self.clone();
        let node = node.clone();
        let (thread, name) = (name.to_owned(), name.to_owned());
        let number = first.number;
        let run = move || {
            let mut process = first;
            for life in 1..=restarts.saturating_add(1) {
                let ended = catch_unwind(AssertUnwindSafe(|| body(&process)));
                if !process.is_dead() {
                    match ended {
                        Ok(Ok(())) => {}
                        Ok(Err(trouble)) => world.trouble(format!("{}: {trouble}", process.name)),
                        Err(panic) => world.trouble(format!("{}: {}", process.name, words_of(&*panic))),
                    }
                    return;
                }
                if life > restarts || world.is_halted() {
                    return;
                }
                process = world.new_process(&node, &name, life);
                world.0.adopt(process.number);
            }
        };
        // A simulation that can't have a thread can't go on.
        self.0.spawn(number, &thread, Box::new(run)).expect("the system has threads");
    }

    fn new_process(&self, node: &Node, name: &str, life: u32) -> Process {
        let name = if life == 0 { name.to_owned() } else { format!("{name}, life {}", life + 1) };
        let mut state = self.0.state.lock();
        let number = state.story.processes.len();
        state.story.processes.push(format!("node {} / {name}", node.number));
        drop(state);
        let env = Arc::new(env::ProcessEnv::new(self.0.clone(), number, node));
        let judge = process::Judged { world: self.clone(), process: number };
        let fault =
            Fault::with_env(Arc::clone(&node.storage), Plan::new(), env.clone()).judged_by(Arc::new(judge));
        let fault = Arc::new(fault);
        self.0.state.lock().processes.push(Living {
            node: node.number,
            fault: Arc::clone(&fault),
            dead: false,
            struck: 0,
            since_death: Duration::ZERO,
        });
        Process { world: self.clone(), number, node: node.number, name, fault, env }
    }

    /// Runs until every process has ended.
    pub fn run(&self) -> End {
        self.0.begin();
        let mut state = self.0.state.lock();
        self.0.await_end(&mut state);
        // They know the world, and it knows them: or neither would ever be freed.
        let ended = std::mem::take(&mut state.processes);
        let end =
            End { trouble: state.trouble.clone(), pruned: state.pruned, calls: state.calls, took: state.now };
        drop(state);
        drop(ended);
        end
    }

    /// What happened so far.
    pub fn story(&self) -> Story {
        self.0.state.lock().story.clone()
    }

    /// What happened, when all is over: the world forgets it.
    pub fn take_story(&self) -> Story {
        std::mem::take(&mut self.0.state.lock().story)
    }

    /// Says that something is wrong, and ends the run. The first word counts.
    pub fn trouble(&self, what: String) {
        let mut state = self.0.state.lock();
        state.say(format!("TROUBLE: {what}"));
        state.trouble.get_or_insert(what);
        state.halt();
    }

    /// Storage calls so far.
    pub fn calls(&self) -> u64 {
        self.0.state.lock().calls
    }

    /// Adds a line to the story.
    pub fn say(&self, what: String) {
        self.0.state.lock().say(what);
    }

    /// Whether the run is being ended.
    pub fn is_halted(&self) -> bool {
        self.0.state.lock().halted
    }

    /// Whether a process has died.
    pub fn is_dead(&self, process: usize) -> bool {
        self.0.state.lock().processes.get(process).is_none_or(|living| living.dead)
    }

    /// The node of a process.
    pub fn node_of(&self, process: usize) -> usize {
        self.0.state.lock().processes[process].node
    }

    /// Kills a process: it has no further effect.
    pub fn kill(&self, process: usize) {
        self.0.state.lock().kill(process);
    }

    /// Kills all processes of a node.
    pub fn kill_node(&self, node: usize) {
        self.0.state.lock().kill_where(|living| living.node == node);
    }

    /// Cuts the power of everything: all processes die, and what isn't durable is lost or kept by choice.
    pub fn power_cut(&self, memory: &Memory) {
        self.0.state.lock().kill_where(|_| true);
        // Drawn once how much is kept: all or nothing are as likely as any mixture.
        let odds = *self.choices().one_of(&[0, 2, 4, 1]);
        memory.power_cut_keeping(|_| self.choices().chance(odds));
        self.say("the power is cut".to_owned());
    }

    /// Hands the baton on, and gets it back some time. `seen` is a digest of what the caller has got since
    /// its last call.
    pub fn pause(&self, seen: u64) {
        self.0.saw(seen);
        self.0.turn();
    }

    /// How many come to [`World::meet`]. Until all are there, who came first goes on: one after the other.
    pub fn expect(&self, processes: usize) {
        self.0.state.lock().awaited = processes;
    }

    /// Whether all that were expected have met.
    pub fn has_met(&self) -> bool {
        self.0.state.lock().awaited == 0
    }

    /// Blocks the calling thread until all that are expected are here; from then on the order is open.
    pub fn meet(&self) {
        self.0.meet();
    }

    /// Blocks the calling thread until [`World::wake`] of the same key, or `timeout`.
    pub fn wait_on(&self, key: u64, timeout: Duration) {
        self.0.block(On::Word(key), Some(timeout), || false);
    }

    /// Wakes all that wait on a key.
    pub fn wake(&self, key: u64) {
        self.0.state.lock().release(On::Word(key));
    }
}

/// What a panic said.
pub(crate) fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words
        .or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()))
        .unwrap_or("a panic".to_owned())
}

#[cfg(test)]
mod tests;
