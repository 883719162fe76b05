//! Clock, entropy, sleep and threads of one simulated process.
//!
//! - Its entropy depends on the seed and the process alone, not on who runs when.
//! - Its wall clock may be wrong by years.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use batchweave::env::{Env, Signal, Task, Who};
use parking_lot::Mutex;

use super::Node;
use super::baton::{On, Shared, has_ended};
use crate::random::Random;

/// The wall clock at time zero where it is right: in 2026, so that dates look like dates.
const WALL_US_START: i64 = 1_767_225_600_000_000;
const YEAR_US: i64 = 365 * 24 * 3600 * 1_000_000;

/// What a process has instead of a system.
pub(super) struct ProcessEnv {
    shared: Arc<Shared>,
    process: usize,
    node: usize,
    wall_us_start: u64,
    random: Mutex<Random>,
}

impl ProcessEnv {
    pub(super) fn new(shared: Arc<Shared>, process: usize, node: &Node) -> Self {
        let random = Random::new(shared.seed ^ (process as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let wall_us_start = WALL_US_START.saturating_add(node.years_off.saturating_mul(YEAR_US));
        Self {
            shared,
            process,
            node: node.number,
            wall_us_start: wall_us_start.unsigned_abs(),
            random: Mutex::new(random),
        }
    }
}

impl fmt::Debug for ProcessEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessEnv({})", self.process)
    }
}

impl Env for ProcessEnv {
    fn now(&self) -> Duration {
        self.shared.now(self.process)
    }

    fn wall_us(&self) -> u64 {
        self.wall_us_start.saturating_add(self.now().as_micros() as u64)
    }

    fn who(&self) -> Who {
        Who { host: format!("node{}", self.node), pid: self.process as u32 + 1, job: String::new() }
    }

    fn entropy(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.random.lock().fill(bytes);
        Ok(())
    }

    fn sleep(&self, duration: Duration) {
        self.shared.block(On::Sleep, Some(duration), || false);
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Task>> {
        let (number, handle) = self.shared.spawn(self.process, name, body)?;
        Ok(Box::new(Spawned { shared: Arc::clone(&self.shared), number, handle }))
    }

    fn signal(&self) -> Arc<dyn Signal> {
        let number = self.shared.state.lock().number();
        Arc::new(Count { shared: Arc::clone(&self.shared), number, count: Mutex::new(0) })
    }
}

struct Spawned {
    shared: Arc<Shared>,
    number: u64,
    handle: std::thread::JoinHandle<()>,
}

impl Task for Spawned {
    fn join(self: Box<Self>) -> bool {
        // The dead don't block: so again and again, handing the baton on each time.
        while !has_ended(&self.shared.state.lock(), self.number) {
            let ended = || has_ended(&self.shared.state.lock(), self.number);
            self.shared.block(On::Task(self.number), None, ended);
        }
        self.handle.join().is_ok()
    }
}

struct Count {
    shared: Arc<Shared>,
    number: u64,
    count: Mutex<u64>,
}

impl Signal for Count {
    fn current(&self) -> u64 {
        *self.count.lock()
    }

    fn wait(&self, seen: u64, timeout: Option<Duration>) -> bool {
        self.shared.block(On::Signal(self.number), timeout, || self.current() != seen);
        self.current() != seen
    }

    fn notify(&self) {
        let mut count = self.count.lock();
        *count = count.wrapping_add(1);
        drop(count);
        self.shared.state.lock().release(On::Signal(self.number));
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Count({})", self.current())
    }
}
