//! A clock that nobody else moves, entropy out of a seed, and real threads.
//!
//! - Time stands still while anyone can run. It moves by [`Seeded::advance`], and when every thread of this
//!   `Env` waits or sleeps: then to the earliest deadline. So a wait of half an hour takes no time, and times
//!   out only if nobody was left to end it.
//! - *Threads of this `Env`*: those it spawned, and the one that uses it from outside, which counts always.
//! - One thread gives the same entropy and times from the same seed; the order of several is the system's.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use batchweave::env::{Env, Signal, Task, Who};
use parking_lot::{Condvar, Mutex};

use crate::random::Random;

/// The wall clock at time zero: in 2026, so that dates look like dates.
const WALL_US_START: u64 = 1_767_225_600_000_000;

/// An [`Env`] that a seed replays.
///
/// ```
/// use std::time::Duration;
/// use batchweave::env::Env;
/// let env = batchweave_sim::Seeded::new(7);
/// assert!(!env.signal().wait(0, Some(Duration::from_secs(1800))), "nobody can notify");
/// assert_eq!(env.now(), Duration::from_secs(1800));
/// ```
pub struct Seeded {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    now: Duration,
    random: Random,
    /// Threads that can run, or are in `blocked`.
    threads: usize,
    /// Whoever waits, with what for and until when. Who is to go on is taken out by whoever lets it.
    blocked: BTreeMap<u64, Blocked>,
    next: u64,
}

struct Blocked {
    on: On,
    deadline: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Sleep,
    Signal(u64),
    Task(u64),
}

impl Seeded {
    /// Time zero, and the first of the seed's random bytes.
    pub fn new(seed: u64) -> Self {
        let state = State {
            now: Duration::ZERO,
            random: Random::new(seed),
            threads: 1,
            blocked: BTreeMap::new(),
            next: 0,
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }) }
    }

    /// Moves the clock on; whoever's deadline that passes goes on.
    pub fn advance(&self, by: Duration) {
        let mut state = self.shared.state.lock();
        state.now = state.now.saturating_add(by);
        state.release_due();
        self.shared.changed.notify_all();
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn release(&mut self, on: On) {
        self.blocked.retain(|_, blocked| blocked.on != on);
    }

    fn release_due(&mut self) {
        let now = self.now;
        self.blocked.retain(|_, blocked| blocked.deadline.is_none_or(|deadline| deadline > now));
    }

    /// If nobody can run, moves the clock to the earliest deadline.
    fn settle(&mut self) {
        if self.blocked.len() < self.threads {
            return;
        }
        if let Some(earliest) = self.blocked.values().filter_map(|blocked| blocked.deadline).min() {
            self.now = self.now.max(earliest);
            self.release_due();
        }
    }
}

impl Shared {
    /// Blocks until it is let go on; `ready` is asked under the lock that lets go.
    #[expect(clippy::disallowed_methods, reason = "an Env is what blocks")]
    fn block(&self, on: On, timeout: Option<Duration>, ready: impl Fn() -> bool) {
        let mut state = self.state.lock();
        if ready() {
            return;
        }
        let me = state.number();
        let deadline = timeout.map(|timeout| state.now.saturating_add(timeout));
        state.blocked.insert(me, Blocked { on, deadline });
        state.settle();
        self.changed.notify_all();
        while state.blocked.contains_key(&me) {
            self.changed.wait(&mut state);
        }
    }
}

impl fmt::Debug for Seeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seeded")
    }
}

impl Env for Seeded {
    fn now(&self) -> Duration {
        self.shared.state.lock().now
    }

    fn wall_us(&self) -> u64 {
        WALL_US_START + self.now().as_micros() as u64
    }

    fn who(&self) -> Who {
        Who { host: "node".to_owned(), pid: 1, job: String::new() }
    }

    fn entropy(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.shared.state.lock().random.fill(bytes);
        Ok(())
    }

    fn sleep(&self, duration: Duration) {
        self.shared.block(On::Sleep, Some(duration), || duration.is_zero());
    }

    #[expect(clippy::disallowed_methods, reason = "an Env is what starts threads")]
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Task>> {
        let number = {
            let mut state = self.shared.state.lock();
            state.threads += 1;
            state.number()
        };
        let ended = Arc::new(Mutex::new(false));
        let end = End { shared: Arc::clone(&self.shared), number, ended: Arc::clone(&ended) };
        let run = move || {
            let _end = end;
            body();
        };
        // If there are no more threads, `run` is dropped, and with it `end`, which takes the thread off the
        // count.
        let handle = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Box::new(Thread { shared: Arc::clone(&self.shared), number, ended, handle }))
    }

    fn signal(&self) -> Arc<dyn Signal> {
        let number = self.shared.state.lock().number();
        Arc::new(Count { shared: Arc::clone(&self.shared), number, count: Mutex::new(0) })
    }
}

/// Dropped when a thread ends, by a panic too.
struct End {
    shared: Arc<Shared>,
    number: u64,
    ended: Arc<Mutex<bool>>,
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        *self.ended.lock() = true;
        state.threads -= 1;
        state.release(On::Task(self.number));
        state.settle();
        self.shared.changed.notify_all();
    }
}

struct Thread {
    shared: Arc<Shared>,
    number: u64,
    ended: Arc<Mutex<bool>>,
    handle: std::thread::JoinHandle<()>,
}

impl Task for Thread {
    fn join(self: Box<Self>) -> bool {
        self.shared.block(On::Task(self.number), None, || *self.ended.lock());
        self.handle.join().is_ok()
    }
}

struct Count {
    shared: Arc<Shared>,
    number: u64,
    /// Taken under the lock of `shared` by whoever counts or waits.
    count: Mutex<u64>,
}

impl Signal for Count {
    fn current(&self) -> u64 {
        *self.count.lock()
    }

    fn wait(&self, seen: u64, timeout: Option<Duration>) -> bool {
        let changed = || *self.count.lock() != seen;
        let passed = || timeout.is_some_and(|timeout| timeout.is_zero());
        self.shared.block(On::Signal(self.number), timeout, || changed() || passed());
        changed()
    }

    fn notify(&self) {
        let mut state = self.shared.state.lock();
        let mut count = self.count.lock();
        *count = count.wrapping_add(1);
        drop(count);
        state.release(On::Signal(self.number));
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Count({})", self.current())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_seed_replays_and_another_does_not() {
        let draw = |seed| {
            let mut bytes = [0; 27];
            Seeded::new(seed).entropy(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn alone_sleeping_and_waiting_move_the_clock() {
        let env = Seeded::new(0);
        env.sleep(HOUR);
        assert!(!env.signal().wait(0, Some(HOUR)));
        env.advance(HOUR);
        assert_eq!(env.now(), 3 * HOUR);
        assert_eq!(env.wall_us() - WALL_US_START, 3 * 3600 * 1_000_000);
    }

    #[test]
    fn a_wait_does_not_time_out_while_another_can_run() {
        let env = Seeded::new(0);
        let signal = env.signal();
        let task = {
            let signal = signal.clone();
            env.spawn(
                "late",
                Box::new(move || {
                    (0..1000).for_each(|_| std::thread::yield_now());
                    signal.notify();
                }),
            )
        };
        assert!(signal.wait(0, Some(Duration::from_nanos(1))), "the clock moved while a thread could run");
        assert!(task.unwrap().join());
        assert_eq!(env.now(), Duration::ZERO);
    }

    #[test]
    fn sleepers_go_on_in_the_order_of_their_deadlines() {
        let env = Arc::new(Seeded::new(0));
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = [3, 1, 2]
            .map(|hours| {
                let (env2, order) = (env.clone(), order.clone());
                let body = move || {
                    env2.sleep(hours * HOUR);
                    order.lock().push((hours, env2.now()));
                };
                env.spawn("sleeper", Box::new(body)).unwrap()
            })
            .into();
        assert!(tasks.into_iter().all(|task| task.join()));
        assert_eq!(*order.lock(), [1, 2, 3].map(|hours| (hours, hours * HOUR)));
    }

    #[test]
    fn a_panic_is_seen_by_join() {
        let env = Seeded::new(0);
        let task = env.spawn("bad", Box::new(|| std::panic::resume_unwind(Box::new("planted")))).unwrap();
        assert!(!task.join());
        env.sleep(HOUR);
        assert_eq!(env.now(), HOUR, "the dead don't hold the clock");
    }
}
