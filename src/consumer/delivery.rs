//! A consumer as its user holds it: the next batch, waited for or not, and the position after it.
//!
//! - What is delivered advances the position, what is read ahead doesn't: a position is delivered steps only.
//! - A consumer that waits gets a new step at first hand: it waits on the log itself, and reads the step
//!   that it waited for; the thread then stays out of its way.
//! - A consumer that needs the step that the thread is reading helps it (see `together`).
//! - A step that can't be had is an error at its turn, each time it is asked for; the position doesn't move.
//! - A change of history is noticed before the next hand-out (P2).

use std::sync::Arc;
use std::time::Duration;

use super::batch::Batch;
use super::options::ConsumerOptions;
use super::reader::{Horizon, Reader, View, same_history};
use super::waiting::{Patience, Wait};
use super::window::{Hungry, Shared, prefetch};
use crate::error::{Error, ErrorKind, Result};
use crate::id::Step;
use crate::limits::HISTORY_AGE_MAX;
use crate::log::patience::may_pass;
use crate::log::progress::Teller;
use crate::planted::{Bug, is_planted};
use crate::position::Position;
use crate::share::Share;

/// What [`Consumer::try_next`] found.
#[derive(Debug)]
#[non_exhaustive]
pub enum Next {
    /// The next batch.
    Batch(Batch),
    /// The next step isn't published yet.
    Pending,
    /// The stream ends here, on every rank.
    Closed,
}

/// One share's reader of a run; see [`Run::consumer`](crate::Run::consumer).
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    /// Tells how far its group has come, if this is the handle that opened it.
    teller: Option<Arc<Teller>>,
    options: ConsumerOptions,
    position: Position,
    started: bool,
}

impl Consumer {
    pub(crate) fn new(
        reader: Arc<Reader>,
        view: View,
        position: Position,
        share: Share,
        options: ConsumerOptions,
        teller: Option<Arc<Teller>>,
    ) -> Self {
        let shared = Arc::new(Shared::new(reader, view, share, position.step));
        Self { shared, teller, options, position, started: false }
    }

    /// The position of the next step to be delivered: what has been delivered, never what is read ahead.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The step that is delivered next: what the view passes over isn't.
    fn due(&self) -> Step {
        self.shared.view.past(self.position.step)
    }

    fn tell(&self, hungry: bool) {
        if let Some(teller) = &self.teller {
            teller.tell(self.due(), self.shared.share.count(), hungry);
        }
    }

    /// The share that it reads.
    pub fn share(&self) -> Share {
        self.shared.share
    }

    /// The next batch, waiting for it as long as the options say. None once the stream is closed: at the
    /// same step on every rank.
    ///
    /// # Errors
    /// `Timeout` when the step isn't published in time; `Rewound` when history was changed; `Invalid` when
    /// the share's count doesn't divide the step's slices; `Reclaimed`, `Corrupt`; `Io`, when
    /// [`Settings::io_patience`](crate::Settings::io_patience) hasn't helped. The position doesn't move.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        self.next_batch_timeout(self.options.timeout)
    }

    /// As [`Consumer::next_batch`], waiting at most `timeout` for a step that isn't published; a mount that
    /// is away has its own patience.
    ///
    /// # Errors
    /// As [`Consumer::next_batch`].
    pub fn next_batch_timeout(&mut self, timeout: Duration) -> Result<Option<Batch>> {
        self.start()?;
        match self.poll(None)? {
            Next::Batch(batch) => Ok(Some(batch)),
            Next::Closed => Ok(None),
            Next::Pending => self.await_batch(timeout),
        }
    }

    /// Waits on the log itself for the next step.
    fn await_batch(&mut self, timeout: Duration) -> Result<Option<Batch>> {
        let shared = Arc::clone(&self.shared);
        let began = shared.reader.log.env.now();
        let mut patience = Patience::new();
        // Until this call is over: a thread that is woken before the hand-out only gets in its way.
        let _hungry = Hungry::new(&shared, self.due());
        loop {
            let waited = shared.reader.log.env.now().saturating_sub(began);
            let left = timeout.saturating_sub(waited);
            if left.is_zero() {
                let what = format!("waited {} s for a step that isn't published", timeout.as_secs_f64());
                return Err(self.about(Error::new(ErrorKind::Timeout, what)));
            }
            patience.speak(&shared.reader, self.due(), waited);
            self.tell(true);
            let until = shared.reader.until(Some(began));
            let grown = shared.reader.await_growth(self.due(), &Wait { waited, at_most: left, until });
            grown.map_err(|error| self.about(error))?;
            match self.poll(Some(began))? {
                Next::Batch(batch) => return Ok(Some(batch)),
                Next::Closed => return Ok(None),
                Next::Pending => {}
            }
        }
    }

    /// The next batch if it is published, without waiting.
    ///
    /// # Errors
    /// As [`Consumer::next_batch`].
    pub fn try_next(&mut self) -> Result<Next> {
        self.start()?;
        match self.poll(None)? {
            Next::Pending => {
                let looked = self.shared.reader.look_if_due(self.due());
                looked.map_err(|error| self.about(error))?;
                self.poll(None)
            }
            other => Ok(other),
        }
    }

    /// One look at what is known, without I/O unless the step is visible and nobody has read it. `began` is
    /// when the caller began to wait, if it has.
    fn poll(&mut self, began: Option<Duration>) -> Result<Next> {
        if self.shared.reader.is_fresh(self.shared.view.generation)
            && let Some(taken) = self.take_ready()?
        {
            return self.hand_out(self.or_here(taken, || self.shared.reader.until(began)));
        }
        let horizon = self.check_history(began)?;
        let step = self.due();
        if self.shared.view.end(&horizon).is_some_and(|end| end <= step) {
            return Ok(Next::Closed);
        }
        let taken = match self.take_ready()? {
            Some(taken) => self.or_here(taken, || self.shared.reader.until(began)),
            None if horizon.next_step <= step => return Ok(Next::Pending),
            None => self.claim_or_await(step, began)?,
        };
        self.hand_out(taken)
    }

    fn hand_out(&mut self, taken: Result<Batch>) -> Result<Next> {
        let step = self.due();
        match taken {
            Ok(mut batch) => {
                debug_assert_eq!(batch.step, step, "steps are delivered one after another");
                self.position = batch.position;
                self.tell(false);
                if is_planted(Bug::PositionReadAhead)
                    && let Some((_, Ok(ahead))) = self.shared.window.lock().ready.back()
                {
                    batch.position = ahead.position;
                }
                Ok(Next::Batch(batch))
            }
            Err(error) => {
                // It stays at its turn: the window begins again at this step.
                let mut window = self.shared.window.lock();
                window.ready.clear();
                window.bytes = 0;
                window.next = step;
                Err(error)
            }
        }
    }

    /// A change of generation is noticed before the next hand-out (P2).
    fn check_history(&self, began: Option<Duration>) -> Result<Horizon> {
        let reader = &self.shared.reader;
        let mut horizon = reader.horizon();
        if horizon.age(reader.log.env.now()) > HISTORY_AGE_MAX {
            reader.look(reader.until(began)).map_err(|error| self.about(error))?;
            horizon = reader.horizon();
        }
        self.check_generation(&horizon)?;
        Ok(horizon)
    }

    fn check_generation(&self, horizon: &Horizon) -> Result<()> {
        same_history(self.shared.view.generation, horizon.generation).map_err(|error| self.about(error))
    }

    fn take_ready(&self) -> Result<Option<Result<Batch>>> {
        let mut window = self.shared.window.lock();
        if window.poisoned {
            let what = "the thread that reads ahead has panicked; its message is in the log";
            return Err(self.about(Error::new(ErrorKind::Io, what)));
        }
        let Some((bytes, taken)) = window.ready.pop_front() else { return Ok(None) };
        window.bytes = window.bytes.saturating_sub(bytes);
        // Waking the thread costs more than a hand-out; a quarter of the window is enough to go on from.
        let low = window.ready.len().saturating_mul(4) <= self.options.window_steps;
        drop(window);
        if low {
            self.shared.work.notify();
        }
        Ok(Some(taken))
    }

    /// What the thread has read; or if a mount that was away has kept it from that, the step read here, by
    /// this caller's own patience: it mustn't hear of an outage that was over before it asked.
    fn or_here(&self, taken: Result<Batch>, until: impl FnOnce() -> Duration) -> Result<Batch> {
        match taken {
            Err(error) if may_pass(&error) => {
                let until = until();
                let over = until <= self.shared.reader.log.env.now();
                if over { Err(error) } else { self.load_here(self.due(), until) }
            }
            taken => taken,
        }
    }

    fn load_here(&self, step: Step, until: Duration) -> Result<Batch> {
        let batch = self.shared.load(step, None, until)?;
        // Between two attempts the log was looked at, which may have shown another history (P2).
        self.check_generation(&self.shared.reader.horizon())?;
        Ok(batch)
    }

    /// Reads a visible step here and now, unless the thread is at it: then helps it, and waits for the rest.
    fn claim_or_await(&self, step: Step, began: Option<Duration>) -> Result<Result<Batch>> {
        let until = self.shared.reader.until(began);
        loop {
            let seen = self.shared.ready.current();
            if let Some(taken) = self.take_ready()? {
                return Ok(self.or_here(taken, || until));
            }
            let (claimed, hungry) = {
                let mut window = self.shared.window.lock();
                let free = !window.loading && window.ready.is_empty();
                if free {
                    window.next = self.shared.after(step);
                }
                (free, window.hungry.is_some())
            };
            if claimed {
                // The thread may read on from the step after this one meanwhile. While a consumer waits for
                // the log the thread looks by itself, so it is woken only if there is something to read
                // already.
                if !hungry || self.shared.reader.horizon().next_step > self.shared.after(step) {
                    self.shared.work.notify();
                }
                return Ok(self.load_here(step, until));
            }
            // Reading some of it is better than only waiting for it.
            if !self.shared.desk.help(&self.shared.reader) {
                self.shared.ready.wait(seen, None);
            }
        }
    }

    /// Starts the thread, once, and takes the first look at the log. In a forked child there is no thread.
    fn start(&mut self) -> Result<()> {
        self.shared.reader.log.check_forked()?;
        if self.started {
            return Ok(());
        }
        let reader = &self.shared.reader;
        let looked = reader.advance_for(self.due(), reader.log.patient_until());
        looked.map_err(|error| self.about(error))?;
        if self.options.window_steps > 0 {
            let (shared, options) = (Arc::clone(&self.shared), self.options);
            let body = Box::new(move || prefetch(&shared, &options));
            let env = &self.shared.reader.log.env;
            env.spawn("batchweave-prefetch", body)
                .map_err(|error| self.about(Error::io("can't start a thread to read ahead", error)))?;
        }
        self.started = true;
        Ok(())
    }

    fn about(&self, error: Error) -> Error {
        error.step(self.due()).at(&self.shared.reader.log.path)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if self.shared.reader.log.is_forked() {
            return;
        }
        self.shared.window.lock().stopped = true;
        self.shared.work.notify();
    }
}

/// The batches of a consumer to its end; see [`Consumer::next_batch`].
///
/// A type of its own: an iterator has a method `position`, which would hide [`Consumer::position`].
#[derive(Debug)]
pub struct Batches<'c>(&'c mut Consumer);

impl Iterator for Batches<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        self.0.next_batch().transpose()
    }
}

impl<'c> IntoIterator for &'c mut Consumer {
    type Item = Result<Batch>;
    type IntoIter = Batches<'c>;

    fn into_iter(self) -> Batches<'c> {
        Batches(self)
    }
}
