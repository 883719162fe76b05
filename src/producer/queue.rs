//! A producer's queue: what is published and not yet committed, and who commits it.
//!
//! - Whoever is there commits: the thread, which a publish wakes, or a caller who waits for a commit anyway.
//!   One at a time, in the order of the sequences.
//! - After a failure nothing is tried again until somebody asks for it, by a flush or a publish; nothing of
//!   the queue is lost meanwhile, and what is surely not in the log can be had back.
//! - A panic of whoever commits poisons the producer, so that nobody waits for the dead.
//! - No lock is held over a storage call but the turn to commit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::committer::{Committer, Driven};
use super::draft::Draft;
use super::ticket::{Outcome, Published};
use crate::env::{Exclusive, Signal, Taken};
use crate::error::{Error, ErrorKind, Result};
use crate::format::part::PartDescriptor;
use crate::id::Sequence;
use crate::limits::QUEUE_PARTS_DEFAULT;
use crate::log::Log;
use crate::name::Name;
use crate::options::Bounds;

/// What a producer, its tickets and its thread share.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) log: Arc<Log>,
    pub(super) name: Name,
    pub(super) line: Mutex<Line>,
    committer: Exclusive<Committer>,
    /// The thread looks again.
    work: Arc<dyn Signal>,
    /// Whoever waits for a commit looks again.
    done: Arc<dyn Signal>,
}

/// A part that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) draft: Draft,
    pub(super) part: PartDescriptor,
    pub(super) state: Vec<u8>,
    pub(super) bytes: u64,
    pub(super) since: Duration,
    pub(super) outcome: Outcome,
}

/// The parts that wait, and what is known of the last that doesn't.
#[derive(Debug)]
pub(super) struct Line {
    /// In the order of their sequences.
    pub(super) waiting: VecDeque<Waiting>,
    /// How many more are in the commit that is being made.
    pub(super) taken: usize,
    /// The bytes of all these.
    pub(super) bytes: u64,
    /// The sequence of the first of all these.
    pub(super) next: Sequence,
    /// The state of the part before it.
    pub(super) state: Vec<u8>,
    /// Bytes that every index carries beside this name's state, as of the last attempt.
    pub(super) carried_beside: u64,
    /// How many may wait.
    pub(super) room: usize,
    /// How long the next of them may wait for its turn.
    pub(super) turn_timeout: Duration,
    /// The write buffer of a draft that is done, to be used again.
    pub(super) spare: Vec<u8>,
    /// Why nothing is tried any more, and whether anybody was told; none while it is.
    failure: Option<(Error, bool)>,
    /// Why nothing will ever be tried again.
    poison: Option<&'static str>,
    /// The thread runs.
    has_thread: bool,
    /// The producer is gone.
    stopped: bool,
}

impl Line {
    /// How many parts aren't known to be in.
    pub(super) fn len(&self) -> usize {
        self.waiting.len().saturating_add(self.taken)
    }

    /// Whether the application has to wait before it may publish.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.room
    }

    /// Whether nothing may be tried.
    pub(super) fn is_stuck(&self) -> bool {
        self.failure.is_some() || self.poison.is_some()
    }

    /// Nothing is tried until somebody asks.
    pub(super) fn fail(&mut self, error: &Error) {
        self.failure.get_or_insert_with(|| (error.again(), false));
    }

    /// The sequence of the next part that is published.
    pub(super) fn end(&self) -> Sequence {
        Sequence::new(self.next.get().saturating_add(self.len() as u64))
    }
}

impl Queue {
    /// Of a producer that goes on at `next`, after `state`.
    pub(super) fn new(
        log: Arc<Log>,
        committer: Committer,
        name: Name,
        next: Sequence,
        state: Vec<u8>,
        carried_beside: u64,
    ) -> Self {
        let line = Line {
            waiting: VecDeque::new(),
            taken: 0,
            bytes: 0,
            next,
            state,
            carried_beside,
            room: QUEUE_PARTS_DEFAULT,
            turn_timeout: Bounds::default().timeout,
            spare: Vec::new(),
            failure: None,
            poison: None,
            has_thread: false,
            stopped: false,
        };
        let env = Arc::clone(&log.env);
        let committer = Exclusive::new(&*env, committer);
        let (work, done) = (env.signal(), env.signal());
        Self { log, name, line: Mutex::new(line), committer, work, done }
    }

    /// Puts a part at the end.
    pub(super) fn push(&self, waiting: Waiting) {
        let mut line = self.line.lock();
        line.bytes = line.bytes.saturating_add(waiting.bytes);
        line.waiting.push_back(waiting);
    }

    /// Has what failed tried again, if its failure was told.
    ///
    /// # Errors
    /// A failure of which nobody was told yet.
    pub(super) fn resume(&self) -> Result<()> {
        let mut line = self.line.lock();
        match &mut line.failure {
            Some((error, told)) if !*told => {
                *told = true;
                Err(error.again())
            }
            _ => {
                line.failure = None;
                Ok(())
            }
        }
    }

    /// Whether a commit has failed and nothing was tried since.
    pub(super) fn has_failed(&self) -> bool {
        self.line.lock().failure.is_some()
    }

    /// # Errors
    /// `Io` once the producer is poisoned; `Invalid` in a forked child.
    pub(super) fn check_poison(&self) -> Result<()> {
        self.log.check_forked()?;
        self.line.lock().poison.map_or(Ok(()), |why| Err(self.poisoned(why)))
    }

    fn poisoned(&self, why: &str) -> Error {
        let what = format!("producer {} is poisoned {why}: open it anew to see what is in", self.name);
        Error::new(ErrorKind::Io, what).at(&self.log.path)
    }

    /// For a ticket whose part nobody knows any more.
    pub(super) fn nothing_known(&self) -> Error {
        let what =
            format!("producer {} is gone, and what has become of the part isn't known here", self.name);
        Error::new(ErrorKind::Io, what).at(&self.log.path)
    }

    /// Nothing will be tried any more; whoever waits is told.
    pub(super) fn poison(&self, why: &'static str) {
        self.line.lock().poison.get_or_insert(why);
        self.done.notify();
    }

    /// A commit has failed: nothing is tried until somebody asks.
    pub(super) fn fail(&self, error: &Error) {
        self.line.lock().fail(error);
        self.done.notify();
    }

    /// # Errors
    /// A failure of which nobody was told yet; else that the producer is poisoned.
    pub(super) fn check(&self) -> Result<()> {
        if let Some((error, told)) = &mut self.line.lock().failure
            && !std::mem::replace(told, true)
        {
            return Err(error.again());
        }
        self.check_poison()
    }

    /// Parts are in.
    pub(super) fn committed(&self) {
        self.done.notify();
    }

    /// Commits, or waits for whoever does, until `is_done`.
    ///
    /// # Errors
    /// What keeps the next part from being committed.
    pub(super) fn settle(&self, is_done: impl Fn(&Line) -> bool) -> Result<()> {
        self.settle_until(Duration::MAX, is_done)
    }

    /// As [`Queue::settle`]; `Timeout` once `until` is over.
    pub(super) fn settle_until(&self, until: Duration, is_done: impl Fn(&Line) -> bool) -> Result<()> {
        self.log.check_forked()?;
        loop {
            let seen = self.done.current();
            let has_thread = {
                let mut line = self.line.lock();
                if is_done(&line) {
                    return Ok(());
                }
                let poison = line.poison;
                if let Some((error, told)) = &mut line.failure
                    && !(*told && poison.is_some())
                {
                    *told = true;
                    return Err(error.again());
                }
                if let Some(why) = poison {
                    return Err(self.poisoned(why));
                }
                if line.stopped && line.len() == 0 {
                    return Err(self.nothing_known());
                }
                line.has_thread
            };
            let left = until.saturating_sub(self.log.env.now());
            if left.is_zero() {
                let what = format!("producer {} has parts that couldn't be committed in time", self.name);
                return Err(Error::new(ErrorKind::Timeout, what).at(&self.log.path));
            }
            // What fails is told by the next look.
            match self.drive().unwrap_or(Driven::Tried) {
                Driven::Hold(time) if has_thread => _ = self.done.wait(seen, Some(time.min(left))),
                Driven::Hold(time) => self.log.env.sleep(time.min(left)),
                Driven::Idle | Driven::Tried => {}
            }
        }
    }

    /// Asks the policy, and makes an attempt if it says so.
    fn drive(&self) -> Result<Driven> {
        let mut committer = self.committer.take();
        let _alive = Alive(self);
        committer.drive(self)
    }

    /// The one who commits, once nobody else is at it.
    pub(super) fn committer(&self) -> Taken<'_, Committer> {
        self.committer.take()
    }

    /// Has the thread commit.
    ///
    /// # Errors
    /// `Io` when the system has no more threads.
    pub(super) fn wake(self: &Arc<Self>) -> Result<()> {
        if !std::mem::replace(&mut self.line.lock().has_thread, true) {
            let queue = Arc::clone(self);
            let spawned = self.log.env.spawn("batchweave-commit", Box::new(move || live(&queue)));
            if let Err(error) = spawned {
                self.line.lock().has_thread = false;
                let what = format!("can't start the thread by which producer {} commits", self.name);
                return Err(Error::io(what, error).at(&self.log.path));
            }
        }
        self.work.notify();
        Ok(())
    }

    /// Takes everything back that is surely not in, in order; its tickets are told.
    pub(super) fn withdraw(&self) -> Vec<Waiting> {
        let given_back = self.committer.take().give_back(&self.log);
        let mut line = self.line.lock();
        line.taken = line.taken.saturating_sub(given_back.len());
        let all: Vec<_> = given_back.into_iter().chain(std::mem::take(&mut line.waiting)).collect();
        for waiting in &all {
            line.bytes = line.bytes.saturating_sub(waiting.bytes);
        }
        if line.taken == 0 {
            line.failure = None;
        }
        drop(line);
        for waiting in &all {
            let what = format!("the part was taken back by producer {} before it was committed", self.name);
            waiting.outcome.is(Err(Error::new(ErrorKind::Invalid, what).at(&self.log.path)));
        }
        self.done.notify();
        all
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.line.lock().stopped = true;
        self.work.notify();
        self.done.notify();
    }

    /// Says where the parts of a commit stand, in order, and that they don't wait any more. Their drafts are
    /// done.
    #[must_use]
    pub(super) fn tell(&self, group: Vec<Waiting>, stand: impl Fn(u64) -> Published) -> Vec<Draft> {
        let mut line = self.line.lock();
        let mut drafts = Vec::with_capacity(group.len());
        for (place, waiting) in (0u64..).zip(group) {
            line.taken = line.taken.saturating_sub(1);
            line.bytes = line.bytes.saturating_sub(waiting.bytes);
            line.next = line.next.next();
            line.state = waiting.state;
            waiting.outcome.is(Ok(stand(place)));
            drafts.push(waiting.draft);
        }
        drafts
    }
}

/// Poisons the producer if whoever commits panics: nobody knows then what has become of its parts.
struct Alive<'q>(&'q Queue);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("by a panic while it committed");
        }
    }
}

/// The thread's life.
fn live(queue: &Queue) {
    loop {
        let seen = queue.work.current();
        let (stopped, idle) = {
            let line = queue.line.lock();
            let idle = line.is_stuck() || line.len() == 0;
            (line.stopped, idle)
        };
        if stopped {
            return;
        }
        if idle {
            queue.work.wait(seen, None);
            continue;
        }
        match queue.drive() {
            Ok(Driven::Hold(time)) => _ = queue.work.wait(seen, Some(time)),
            Ok(Driven::Idle | Driven::Tried) => {}
            Err(error) => tracing::warn!(%error, producer = %queue.name, "nothing is committed until asked"),
        }
    }
}
