//! The seam to everything that isn't storage and isn't a function of its arguments: time, entropy, sleep,
//! threads and blocking.
//!
//! - No promise rests on the clock (P8): it paces waiting, and dates commits for people.
//! - Engine threads are started by [`Env::spawn`] and block only in [`Signal::wait`], [`Env::sleep`] and
//!   storage's `wait`, so a simulator can schedule them like any other call.
//! - A [`Signal`] is an event count: read [`Signal::current`], look at the condition, then wait for a
//!   change of what was read. A notification between the look and the wait is never lost.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};

/// What a started thread leaves behind; dropping it doesn't stop the thread.
pub trait Task: Send + Sync {
    /// Waits for its end; false if it panicked.
    fn join(self: Box<Self>) -> bool;
}

/// An event count that threads block on.
pub trait Signal: Send + Sync + fmt::Debug {
    /// The number of notifications so far.
    fn current(&self) -> u64;

    /// Waits until the number differs from `seen`; false when `timeout` passed first.
    fn wait(&self, seen: u64, timeout: Option<Duration>) -> bool;

    /// Counts one more and wakes all that wait.
    fn notify(&self);
}

/// Who this process is, for people only: nothing rests on it (P8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The host's name.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The batch job; empty outside one.
    pub job: String,
}

/// Clock, entropy, sleep and threads.
pub trait Env: Send + Sync + fmt::Debug {
    /// Time since some fixed moment; never goes back.
    fn now(&self) -> Duration;

    /// The wall clock in microseconds since 1970, for people only.
    fn wall_us(&self) -> u64;

    /// Who this process is.
    fn who(&self) -> Who;

    /// Fills a buffer with random bytes.
    ///
    /// # Errors
    /// What the system's generator says.
    fn entropy(&self, bytes: &mut [u8]) -> io::Result<()>;

    /// Sleeps.
    fn sleep(&self, duration: Duration);

    /// Starts a thread.
    ///
    /// # Errors
    /// The system has no more threads.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Task>>;

    /// A new signal.
    fn signal(&self) -> Arc<dyn Signal>;
}

/// The running system.
#[derive(Debug)]
pub struct System {
    started: Instant,
    drawn: Mutex<Drawn>,
}

/// Random bytes that were drawn ahead: a nonce is drawn with every part, and a call for each costs a
/// twentieth of an unsynced commit.
struct Drawn {
    bytes: [u8; DRAWN_BYTES],
    /// How many of them are left, at the end.
    left: usize,
    /// Whose they are: after a fork the child must not draw what its parent draws.
    pid: u32,
}

const DRAWN_BYTES: usize = 512;

impl fmt::Debug for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drawn({} bytes left)", self.left)
    }
}

impl Drawn {
    /// Fills a small buffer; what is given once is gone.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let pid = std::process::id();
        if self.left < bytes.len() || self.pid != pid {
            fill(&mut self.bytes)?;
            (self.left, self.pid) = (DRAWN_BYTES, pid);
        }
        let start = DRAWN_BYTES.saturating_sub(self.left);
        let end = start.saturating_add(bytes.len());
        if let Some(given) = self.bytes.get_mut(start..end) {
            bytes.copy_from_slice(given);
            given.fill(0);
        }
        self.left = self.left.saturating_sub(bytes.len());
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "the one room that draws entropy")]
fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))
}

impl System {
    /// The clock starts at zero now.
    #[expect(clippy::disallowed_methods, reason = "the one room that reads the clock")]
    pub fn new() -> Self {
        let drawn = Drawn { bytes: [0; DRAWN_BYTES], left: 0, pid: 0 };
        Self { started: Instant::now(), drawn: Mutex::new(drawn) }
    }
}

impl Default for System {
    fn default() -> Self {
        Self::new()
    }
}

impl Env for System {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "the one room that reads the clock")]
    fn wall_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn who(&self) -> Who {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let jobs = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"];
        let job = jobs.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
        Who { host: host.trim().to_owned(), pid: std::process::id(), job }
    }

    fn entropy(&self, bytes: &mut [u8]) -> io::Result<()> {
        if bytes.len() > DRAWN_BYTES / 8 { fill(bytes) } else { self.drawn.lock().fill(bytes) }
    }

    #[expect(clippy::disallowed_methods, reason = "the one room that sleeps")]
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    #[expect(clippy::disallowed_methods, reason = "the one room that starts threads")]
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Task>> {
        let handle = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Box::new(Thread(handle)))
    }

    fn signal(&self) -> Arc<dyn Signal> {
        Arc::new(EventCount::default())
    }
}

struct Thread(std::thread::JoinHandle<()>);

impl Task for Thread {
    fn join(self: Box<Self>) -> bool {
        self.0.join().is_ok()
    }
}

#[derive(Debug, Default)]
struct EventCount {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Signal for EventCount {
    fn current(&self) -> u64 {
        *self.count.lock()
    }

    #[expect(clippy::disallowed_methods, reason = "the one room that blocks and reads the clock for it")]
    fn wait(&self, seen: u64, timeout: Option<Duration>) -> bool {
        // A deadline, so that a spurious wake-up doesn't prolong the wait.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut count = self.count.lock();
        while *count == seen {
            match deadline {
                None => self.changed.wait(&mut count),
                Some(deadline) => {
                    if self.changed.wait_until(&mut count, deadline).timed_out() {
                        return *count != seen;
                    }
                }
            }
        }
        true
    }

    fn notify(&self) {
        let mut count = self.count.lock();
        *count = count.wrapping_add(1);
        drop(count);
        self.changed.notify_all();
    }
}

/// A value that one thread at a time takes out, waiting by a [`Signal`]: a mutex that may be held over
/// storage calls, which under a simulator a plain mutex may not.
pub struct Exclusive<T> {
    /// Boxed: what moves back and forth is a pointer.
    value: Mutex<Option<Box<T>>>,
    back: Arc<dyn Signal>,
}

impl<T> Exclusive<T> {
    /// Wraps a value.
    pub fn new(env: &dyn Env, value: T) -> Self {
        Self { value: Mutex::new(Some(Box::new(value))), back: env.signal() }
    }

    /// Takes it, waiting for whoever has it.
    pub fn take(&self) -> Taken<'_, T> {
        loop {
            let seen = self.back.current();
            if let Some(value) = self.value.lock().take() {
                return Taken { home: self, value: Some(value) };
            }
            self.back.wait(seen, None);
        }
    }
}

impl<T> fmt::Debug for Exclusive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exclusive(..)")
    }
}

/// A value taken out of an [`Exclusive`]; it goes back when this is dropped, also by a panic.
#[derive(Debug)]
pub struct Taken<'a, T> {
    home: &'a Exclusive<T>,
    value: Option<Box<T>>,
}

impl<T> std::ops::Deref for Taken<'_, T> {
    type Target = T;

    #[expect(clippy::expect_used, reason = "only drop takes the value out")]
    fn deref(&self) -> &T {
        self.value.as_ref().expect("taken until dropped")
    }
}

impl<T> std::ops::DerefMut for Taken<'_, T> {
    #[expect(clippy::expect_used, reason = "only drop takes the value out")]
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("taken until dropped")
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        *self.home.value.lock() = self.value.take();
        self.home.back.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_drawn_ahead_is_given_once() {
        let system = System::new();
        let mut given = std::collections::BTreeSet::new();
        for _ in 0..3 * DRAWN_BYTES / 16 {
            let mut nonce = [0; 16];
            system.entropy(&mut nonce).unwrap();
            assert!(given.insert(nonce), "a nonce came twice");
        }
        let mut long = [0; DRAWN_BYTES];
        system.entropy(&mut long).unwrap();
        assert_ne!(long, [0; DRAWN_BYTES]);
    }

    #[test]
    fn a_forked_child_draws_anew() {
        let mut parent = Drawn { bytes: [0; DRAWN_BYTES], left: 0, pid: 0 };
        parent.fill(&mut [0; 16]).unwrap();
        // What a child has after a fork: the same bytes, which its parent goes on to give.
        let mut child = Drawn { bytes: parent.bytes, left: parent.left, pid: parent.pid.wrapping_add(1) };
        let (mut of_parent, mut of_child) = ([0; 16], [0; 16]);
        parent.fill(&mut of_parent).unwrap();
        child.fill(&mut of_child).unwrap();
        assert_ne!(of_parent, of_child);
        assert_eq!(child.pid, std::process::id());
    }
}
