//! Producers: a named writer that publishes parts exactly once, over any crash (P3, P4).
//!
//! - Opening a name fences its older incarnations and gives the state committed with its last visible part.
//! - A published part waits in a queue until it is committed: by a thread of the producer, so that the next
//!   part is written meanwhile, or by whoever waits for it.
//! - When to commit, and how many parts with one commit, is a policy's ([`crate::commit::dac`]).

mod committer;
mod draft;
mod gather;
mod hints;
mod order;
mod queue;
mod room;
mod sink;
mod ticket;
mod turn;

use std::sync::Arc;

use committer::Committer;
pub use draft::{Compression, Draft, SliceWriter};
use order::Order;
use queue::{Queue, Waiting};
use room::Room;
use ticket::Outcome;
pub use ticket::{PublishError, Published, Ticket};

use crate::commit::pacer::Pacer;
use crate::commit::pacing::Pacing;
use crate::commit::staged::{Stage, Staged};
use crate::commit::writer::{Settled, append_control, append_control_paced};
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::format::record::Record;
use crate::id::{Incarnation, Sequence};
use crate::limits::{DROP_FLUSH_MAX, PRODUCERS_MAX, STATE_BYTES_MAX, STATES_BYTES_MAX};
use crate::log::state::State;
use crate::log::{Log, build};
use crate::name::Name;

/// A named writer of a store; see [`Store::producer`](crate::Store::producer).
///
/// Dropping it commits what waits, for at most a minute, or says in the log what is left.
#[derive(Debug)]
pub struct Producer {
    log: Arc<Log>,
    stage: Stage,
    name: Name,
    incarnation: Incarnation,
    was_finished: bool,
    compression: Compression,
    order: Order,
    queue: Arc<Queue>,
    room: Room,
}

impl Producer {
    /// Opens a name, fencing its older incarnations.
    pub(crate) fn open(log: Arc<Log>, name: Name) -> Result<Self> {
        // First what is outlasted: a mount that has been away may have to be found again.
        let mut tail = log.current()?;
        let stage = Stage::open(&log)?;
        let make = |state: &State| {
            check_room(&log, state, &name)?;
            let last = state.producers.get(&name).map(|producer| producer.last_open);
            Ok(Some(Record::Open { producer: name.clone(), last }))
        };
        // Retired or not is what the newest replay before one's own Open says: an Open un-finishes.
        let was_finished = std::cell::Cell::new(false);
        let noting = |state: &State| {
            was_finished.set(state.producers.get(&name).is_some_and(|producer| producer.finished));
            make(state)
        };
        let settled = |state: &State, staged: &Staged| match state
            .producers
            .get(&name)
            .filter(|producer| producer.open_nonce == staged.commit.nonce)
        {
            Some(producer) => Settled::In(producer.last_open),
            None => Settled::Open,
        };
        // Where thousands open at once, their Opens contend as their parts do.
        let mut pacer = Pacer::new(name.clone());
        let opened = append_control_paced(&log, &mut tail, noting, settled, Some(&mut pacer))?;
        let missing =
            || Error::new(ErrorKind::Fenced, format!("producer {name} was opened by another meanwhile"));
        // First, since it may replay anew: what is known then goes with the state.
        let state = tail.read(&log, |tail| build::state_of(&log, tail, &name))?;
        let known = tail.state.producers.get(&name).copied().ok_or_else(missing)?;
        let incarnation = opened.map(|opened| opened.version.incarnation()).ok_or_else(missing)?;
        if known.incarnation != Some(incarnation) {
            return Err(missing().at(&log.path));
        }
        let committer = Committer::new(stage.clone(), name.clone(), incarnation, pacer, &tail);
        let carried_beside = committer.carried_beside(&tail);
        drop(tail);
        tracing::info!(producer = %name, %incarnation, next = %known.next, "opened a producer");
        let queue = Queue::new(Arc::clone(&log), committer, name.clone(), known.next, state, carried_beside);
        let queue = Arc::new(queue);
        Ok(Self {
            log,
            stage,
            name,
            incarnation,
            was_finished: was_finished.get(),
            compression: Compression::None,
            order: Order::default(),
            queue,
            room: Room::default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Its incarnation: newer than that of everyone it fenced.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The sequence of the next part that is published: how many this name has published over all its
    /// incarnations, those that still wait among them.
    pub fn next_sequence(&self) -> Sequence {
        self.queue.line.lock().end()
    }

    /// The state committed with its last part that is in; empty before the first.
    pub fn state(&self) -> Vec<u8> {
        self.queue.line.lock().state.clone()
    }

    /// Whether this name had finished when it was opened: a requeued producer that is done sees it here.
    pub fn was_finished(&self) -> bool {
        self.was_finished
    }

    /// Stores the slices and attachments of later drafts like this.
    pub fn set_compression(&mut self, compression: Compression) {
        self.compression = compression;
    }

    /// Sets how many published parts may wait to be committed (default 16, at least 1): more let the
    /// application run on over a busy time of the store, each holds a descriptor and a write buffer.
    pub fn set_queue_parts(&mut self, parts: usize) {
        self.queue.line.lock().room = parts.max(1);
    }

    /// Commits by another policy.
    #[doc(hidden)]
    pub fn set_pacing(&mut self, pacing: Box<dyn Pacing>) {
        self.queue.committer().set_policy(pacing);
    }

    /// Begins a part: a staged file that nobody sees, removed if the draft is dropped.
    ///
    /// # Errors
    /// `Fenced` or `Io` once this producer can't go on; `Full`, `Io`.
    pub fn draft(&mut self) -> Result<Draft> {
        self.queue.check_poison()?;
        let nonce = self.log.nonce()?;
        let (first, buffer) = {
            let mut line = self.queue.line.lock();
            let first = Sequence::new(line.end().get().saturating_add(self.order.live()));
            (first, std::mem::take(&mut line.spare))
        };
        let name = names::staged_draft(&self.name, self.incarnation, first, nonce);
        self.stage.renew(&self.log)?;
        let draft = Draft::new(draft::New {
            log: Arc::clone(&self.log),
            stage: self.stage.dir().clone(),
            name,
            nonce,
            place: self.order.join(),
            compression: self.compression,
            buffer,
        });
        draft.inspect_err(|error| self.log.mistrust(error))
    }

    /// Publishes a draft, with the state that this name has after it: a later incarnation gets exactly that.
    ///
    /// It returns as soon as the part waits in the queue, from which a thread of this producer commits it:
    /// what waits is lost with the process, and written anew from the state of the next incarnation. The
    /// ticket tells when it is in; [`Producer::flush`] waits for all. When the queue is full, or a bound of
    /// [`Producer::set_bounds`] is met, this waits. Drafts are published in the order they were opened.
    ///
    /// # Errors
    /// Of this part: `Invalid` for a draft that isn't whole, isn't next, or isn't this producer's, or too
    /// long a state; `Full` when the disk is, but for a margin, or a bound can never be met; `Timeout` when
    /// it wasn't in time. Of one before it: what keeps that from being committed, as [`Producer::flush`]
    /// says. The draft comes back, see [`PublishError`].
    pub fn publish(&mut self, draft: Draft, state: impl AsRef<[u8]>) -> Result<Ticket, PublishError> {
        let outcome = self.enqueue(draft, state.as_ref())?;
        match self.queue.wake() {
            Ok(()) => Ok(Ticket::new(Arc::clone(&self.queue), outcome)),
            Err(error) => Err(PublishError { error, draft: self.take_last_back() }),
        }
    }

    /// As [`Producer::publish`], but commits the part before it returns: on a synced store it is durable
    /// then. Needs no thread.
    ///
    /// # Errors
    /// As [`Producer::publish`] and [`Producer::flush`]: `Fenced` when a newer incarnation has taken over;
    /// `Contended`, `Full`, `Io`.
    pub fn publish_now(&mut self, draft: Draft, state: impl AsRef<[u8]>) -> Result<Published, PublishError> {
        if let Err(error) = self.flush() {
            return Err(PublishError { error, draft: Some(Box::new(draft)) });
        }
        let outcome = self.enqueue(draft, state.as_ref())?;
        match Ticket::new(Arc::clone(&self.queue), outcome).wait() {
            Ok(published) => Ok(published),
            Err(error) => Err(PublishError { error, draft: self.take_last_back() }),
        }
    }

    /// Puts a draft into the queue, once there is room.
    fn enqueue(&mut self, mut draft: Draft, state: &[u8]) -> Result<Outcome, PublishError> {
        match self.complete(&mut draft, state) {
            Ok(part) => {
                draft.place.leave();
                let outcome = Outcome::default();
                self.queue.push(Waiting {
                    bytes: draft.bytes(state),
                    draft,
                    part,
                    state: state.to_vec(),
                    since: self.log.env.now(),
                    outcome: outcome.clone(),
                });
                Ok(outcome)
            }
            Err(error) => Err(PublishError { error, draft: Some(Box::new(draft)) }),
        }
    }

    /// Waits for room, and writes what comes after the draft's slices.
    fn complete(&mut self, draft: &mut Draft, state: &[u8]) -> Result<crate::format::part::PartDescriptor> {
        self.queue.check_poison()?;
        if self.queue.has_failed() {
            self.flush()?;
        }
        self.await_room(draft.bytes(state))?;
        self.queue.settle(|line| !line.is_full())?;
        if !draft.place.is_of(&self.order) {
            return Err(self.invalid("the draft is another producer's"));
        }
        if !draft.place.is_first() {
            return Err(
                self.invalid("a draft that was opened before this one isn't published or dropped yet")
            );
        }
        if state.len() > STATE_BYTES_MAX {
            return Err(
                self.invalid(&format!("a state of {} bytes is longer than {STATE_BYTES_MAX}", state.len()))
            );
        }
        self.check_states(state)?;
        draft.complete(state)
    }

    /// The part that was published last, if nothing of it is in the log.
    fn take_last_back(&mut self) -> Option<Box<Draft>> {
        self.withdraw().pop().map(Box::new)
    }

    /// Takes back what was published and is surely not in the log, in order: to be published again, each with
    /// the same state, or dropped. Their tickets say so.
    ///
    /// Of a commit whose outcome is unknown nothing is given back, nor removed: [`Producer::flush`] tries it
    /// again.
    pub fn withdraw(&mut self) -> Vec<Draft> {
        if self.log.is_forked() {
            return Vec::new();
        }
        let withdrawn = self.queue.withdraw().into_iter().map(|waiting| waiting.draft);
        withdrawn.inspect(|draft| draft.place.come_back()).collect()
    }

    /// Sees to it that everything published is committed: what failed before is tried again, a commit whose
    /// outcome was unknown as the same file.
    ///
    /// # Errors
    /// What still keeps it from being committed, or known; it stays queued then. `Fenced` when replay says
    /// that it can't be in any more. Where producers take turns
    /// ([`Store::set_turns`](crate::Store::set_turns)): `Timeout`, naming whose turn it is, when the own one
    /// hasn't come within [`Bounds::timeout`](crate::Bounds::timeout); `Invalid` outside the ring.
    pub fn flush(&mut self) -> Result<()> {
        self.queue.check_poison()?;
        self.queue.resume()?;
        self.queue.settle(|line| line.len() == 0)?;
        self.queue.check()
    }

    /// Publishes what is pending and retires the name: a requeued producer then sees that it is done.
    ///
    /// # Errors
    /// As [`Producer::flush`]; `Fenced` when a newer incarnation has taken over.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.log.once(|| self.retire())
    }

    fn retire(&self) -> Result<()> {
        let (name, incarnation) = (self.name.clone(), self.incarnation);
        let fenced = || {
            let what = format!("producer {name} was opened anew, or set back by a rewind");
            Error::new(ErrorKind::Fenced, what).at(&self.log.path)
        };
        // By its own Retire: a rewind since may call the name finished too, as it was before this
        // incarnation, whose parts it has dropped (P4).
        let retired = |state: &State| {
            let known = state.producers.get(&name).filter(|known| known.finished)?;
            let rewound = state.history.pieces.last().is_some_and(|piece| piece.version > known.last_open);
            let own = known.last_open.incarnation() == incarnation && !rewound;
            own.then_some(known.last_version)
        };
        let mut tail = self.log.current()?;
        let make = |state: &State| match state.producers.get(&name) {
            Some(producer) if producer.incarnation == Some(incarnation) => {
                Ok(Some(Record::Retire { producer: name.clone(), incarnation }))
            }
            _ if retired(state).is_some() => Ok(None),
            _ => Err(fenced()),
        };
        append_control(&self.log, &mut tail, make, |state, _| match retired(state) {
            Some(version) => Settled::In(version),
            None => Settled::Open,
        })?;
        Ok(())
    }

    /// Exchanges the write buffer of its last draft: who writes by many producers in turn hands one on.
    pub(crate) fn swap_spare(&mut self, buffer: &mut Vec<u8>) {
        std::mem::swap(&mut self.queue.line.lock().spare, buffer);
    }

    /// All states together are bounded: every index carries them.
    fn check_states(&self, state: &[u8]) -> Result<()> {
        let others = self.queue.line.lock().carried_beside;
        if others.saturating_add(state.len() as u64) <= STATES_BYTES_MAX {
            return Ok(());
        }
        let what =
            format!("all producers' states and checkpoints' metadata would pass {STATES_BYTES_MAX} bytes");
        Err(Error::new(ErrorKind::Full, what).at(&self.log.path))
    }

    fn invalid(&self, what: &str) -> Error {
        Error::new(ErrorKind::Invalid, format!("producer {}: {what}", self.name)).at(&self.log.path)
    }
}

impl Drop for Producer {
    /// Commits what waits, unless that fails, or takes more than a minute, or this thread panics: then it
    /// says what is left.
    fn drop(&mut self) {
        if self.log.is_forked() {
            // What waits is the parent's to commit.
            return;
        }
        if !std::thread::panicking() && !self.queue.has_failed() && self.queue.check_poison().is_ok() {
            let until = self.log.env.now().saturating_add(DROP_FLUSH_MAX);
            if let Err(error) = self.queue.settle_until(until, |line| line.len() == 0) {
                tracing::warn!(%error, producer = %self.name, "what was published last isn't committed");
            }
        }
        self.queue.stop();
        let (uncertain, left) = {
            let committer = self.queue.committer();
            (committer.uncertain().map(str::to_owned), self.queue.line.lock().len())
        };
        if let Some(file) = uncertain {
            tracing::warn!(
                producer = %self.name, parts = left, file,
                "a producer is dropped with a commit whose outcome is unknown; opening it anew tells"
            );
        } else if left > 0 {
            tracing::warn!(
                producer = %self.name, parts = left,
                "a producer is dropped with parts that aren't committed: they are gone, its state says so"
            );
        }
        drop(self.queue.withdraw());
    }
}

/// Names are bounded: every index carries them.
fn check_room(log: &Log, state: &State, name: &Name) -> Result<()> {
    if let Some(step) = state.closed {
        let what = format!("the stream is closed, so producer {name} can't be opened; reopen it first");
        return Err(Error::new(ErrorKind::Invalid, what).step(step).at(&log.path));
    }
    if state.producers.len() < PRODUCERS_MAX || state.producers.contains_key(name) {
        return Ok(());
    }
    let what = format!("the store knows {PRODUCERS_MAX} producers, which is the most");
    Err(Error::new(ErrorKind::Full, what).at(&log.path))
}
