//! Where a mount lets others go on.

use std::fmt;
use std::time::Duration;

/// Whoever schedules the processes. A mount holds no lock when it calls this, and the call may not come back:
/// a process can be stopped in it.
pub trait Pause: Send + Sync + fmt::Debug {
    /// Others may run now, in the middle of a call that isn't atomic. `seen` is a digest of what the call has
    /// got so far.
    fn pause(&self, seen: u64);

    /// The caller sleeps until somebody wakes `key`, or the timeout has passed; or less.
    fn wait_on(&self, key: u64, timeout: Duration);

    /// Wakes all that wait on `key`. Every doorbell of every node has a key of its own.
    fn wake(&self, key: u64);
}

/// Nobody to let go on: calls are in one piece, and who waits wakes for nothing at once.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Pause for Alone {
    fn pause(&self, _seen: u64) {}

    fn wait_on(&self, _key: u64, _timeout: Duration) {}

    fn wake(&self, _key: u64) {}
}
