//! Reclaiming by a store's handle: when asked, or by a thread of its own.
//!
//! - No thread runs unless asked for; its handle stops it and waits for its end.
//! - A pass that fails is told of and tried again after the interval: reclaim goes on where it stopped.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::env::{Signal, Task};
use crate::error::{Error, ErrorKind, Result};
use crate::lifecycle::reclaim;
use crate::lifecycle::reclaimed::{ReclaimOptions, Reclaimed};
use crate::log::Log;
use crate::store::Store;

impl Store {
    /// Frees what no live group needs: drops checkpoints as told, raises the floor to the lowest step that
    /// is still needed, and removes the segments, indexes and staged files that nobody needs then.
    ///
    /// Steps below the floor are [`ErrorKind::Reclaimed`] from then on. Whole segments are freed, so up to
    /// three segments' commits below the floor stay. It may run beside producers, consumers and other
    /// reclaims, on any node, and be stopped at any moment: another one goes on. It never fences a group.
    /// Its cost is in proportion to what it frees.
    ///
    /// ```
    /// use batchweave::{Options, ReclaimOptions, Step, Store};
    /// # fn main() -> batchweave::Result<()> {
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::create(directory.path().join("train"), Options::new())?;
    /// let plan = store.reclaim(&ReclaimOptions::new().keep(2).dry_run(true))?;
    /// println!("{plan}"); // what would go, and what holds the floor
    /// assert_eq!((plan.floor, plan.segments.bytes), (Step::new(0), 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` when a group would be left without any checkpoint, unless
    /// [`ReclaimOptions::allow_no_checkpoint`], or when [`ReclaimOptions::up_to`] lies beyond the end;
    /// nothing was changed then. `Contended`, `Corrupt`, `Full`, `Io`: what was done before stands.
    pub fn reclaim(&self, options: &ReclaimOptions) -> Result<Reclaimed> {
        self.log().once(|| reclaim::reclaim(self.log(), options))
    }

    /// Starts a thread that reclaims at once, and then again whenever `interval` has passed since. It carries
    /// the staged control files that it has seen from one pass to the next.
    ///
    /// # Errors
    /// `Invalid` for an interval of zero; `Io` when the system has no thread for it.
    pub fn reclaim_in_background(&self, options: ReclaimOptions, interval: Duration) -> Result<Reclaimer> {
        self.log().check_forked()?;
        if interval.is_zero() {
            let what = "a reclaim in the background needs an interval above zero";
            return Err(Error::new(ErrorKind::Invalid, what).at(self.path()));
        }
        let log = Arc::clone(self.log());
        let signal = log.env.signal();
        let shared = Arc::new(Shared { signal, stop: AtomicBool::new(false), last: Mutex::default() });
        let (of_log, of_thread) = (Arc::clone(&log), Arc::clone(&shared));
        let body = Box::new(move || run(&of_log, options, interval, &of_thread));
        let task = log.env.spawn("reclaim", body).map_err(|error| {
            Error::io("can't start the thread that reclaims in the background", error).at(self.path())
        })?;
        Ok(Reclaimer { log, shared, task: Some(task) })
    }
}

/// A thread that reclaims; see [`Store::reclaim_in_background`]. Dropping it lets a pass that runs come to
/// its end, and stops it.
pub struct Reclaimer {
    log: Arc<Log>,
    shared: Arc<Shared>,
    task: Option<Box<dyn Task>>,
}

struct Shared {
    signal: Arc<dyn Signal>,
    stop: AtomicBool,
    last: Mutex<Last>,
}

/// What the last passes have come to.
#[derive(Debug, Default)]
struct Last {
    error: Option<Arc<Error>>,
    report: Option<Reclaimed>,
}

impl Reclaimer {
    /// Why the last pass failed; none if it went well, or none has ended yet.
    pub fn last_error(&self) -> Option<Arc<Error>> {
        self.shared.last.lock().error.clone()
    }

    /// What the last pass that went well has freed; none before the first.
    pub fn last_report(&self) -> Option<Reclaimed> {
        self.shared.last.lock().report.clone()
    }
}

impl fmt::Debug for Reclaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaimer").field("last", &self.shared.last).finish_non_exhaustive()
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        if self.log.is_forked() {
            // Its thread is the parent's, and its number may be that of another one here by now.
            std::mem::forget(self.task.take());
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.signal.notify();
        if self.task.take().is_some_and(|task| !task.join()) {
            tracing::error!("the thread that reclaims in the background has panicked");
        }
    }
}

fn run(log: &Log, mut options: ReclaimOptions, interval: Duration, shared: &Shared) {
    loop {
        // Before the look at `stop`, so that a stop between the two ends the wait.
        let seen = shared.signal.current();
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        match log.once(|| reclaim::reclaim(log, &options)) {
            Ok(report) => {
                options.control_seen.clone_from(&report.control_seen);
                *shared.last.lock() = Last { error: None, report: Some(report) };
            }
            Err(error) => {
                tracing::warn!(%error, path = %log.path.display(), "a reclaim failed, and is tried again");
                shared.last.lock().error = Some(Arc::new(error));
            }
        }
        shared.signal.wait(seen, Some(interval));
    }
}
