//! Producers: a named writer that publishes parts exactly once, over any crash (P3, P4).
//!
//! - Opening a name fences its older incarnations and gives the state committed with its last visible part.
//! - A commit whose outcome is unknown is kept and tried again as the same file before anything else is
//!   published, never regrouped (R2).
//! - After a failed directory sync the producer is poisoned: only opening it anew can tell what is in (R3).

mod draft;
mod order;
mod room;
mod sink;
mod ticket;

use std::sync::Arc;
use std::time::Duration;

use draft::Finished;
pub use draft::{Compression, Draft, SliceWriter};
use order::Order;
use room::Room;
pub use ticket::{PublishError, Published, Ticket};

use crate::commit::failure::Failure;
use crate::commit::staged::{self, Staged, finish, seal_after};
use crate::commit::writer::{Settled, append, append_control};
use crate::env::Taken;
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::{Parts, Record};
use crate::format::{checksum, names};
use crate::id::{Incarnation, Part, Sequence, Version};
use crate::limits::{PRODUCERS_MAX, STATE_BYTES_MAX, STATES_BYTES_MAX};
use crate::log::doorbell::saying;
use crate::log::state::State;
use crate::log::tail::{Care, Tail};
use crate::log::{Log, build};
use crate::name::Name;
use crate::planted::{Bug, is_planted};
use crate::storage::Dir;

/// A commit that is finished and not yet known to be in.
#[derive(Debug)]
struct Pending {
    file: Finished,
    draft: Draft,
    state: Vec<u8>,
    /// Its outcome was unknown once: until replay has told, it is neither given back nor removed (R2).
    uncertain: bool,
}

/// A named writer of a store; see [`Store::producer`](crate::Store::producer).
#[derive(Debug)]
pub struct Producer {
    log: Arc<Log>,
    stage: Dir,
    name: Name,
    incarnation: Incarnation,
    next: Sequence,
    state: Vec<u8>,
    was_finished: bool,
    compression: Compression,
    order: Order,
    pending: Option<Pending>,
    poisoned: bool,
    attempt: AttemptCost,
    /// Another's commit came before the last one of this producer.
    contended: bool,
    room: Room,
    /// The write buffer of the last draft, to be used again.
    spare: Vec<u8>,
}

impl Producer {
    /// Opens a name, fencing its older incarnations.
    pub(crate) fn open(log: Arc<Log>, name: Name) -> Result<Self> {
        // First what is outlasted: a mount that has been away may have to be found again.
        let mut tail = log.current()?;
        let stage = staged::open_stage(&log)?;
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
        let opened = append_control(&log, &mut tail, noting, |state, staged| {
            match state.producers.get(&name).filter(|producer| producer.open_nonce == staged.commit.nonce) {
                Some(producer) => Settled::In(producer.last_open),
                None => Settled::Open,
            }
        })?;
        let missing =
            || Error::new(ErrorKind::Fenced, format!("producer {name} was opened by another meanwhile"));
        // First, since it may replay anew: what is known then goes with the state.
        let state = tail.read(&log, |tail| build::state_of(&log, tail, &name))?;
        let known = tail.state.producers.get(&name).copied().ok_or_else(missing)?;
        let incarnation = opened.map(Version::incarnation).ok_or_else(missing)?;
        if known.incarnation != Some(incarnation) {
            return Err(missing().at(&log.path));
        }
        drop(tail);
        tracing::info!(producer = %name, %incarnation, next = %known.next, "opened a producer");
        Ok(Self {
            log,
            stage,
            name,
            incarnation,
            next: known.next,
            state,
            was_finished: was_finished.get(),
            compression: Compression::None,
            order: Order::default(),
            pending: None,
            poisoned: false,
            attempt: AttemptCost::default(),
            contended: true,
            room: Room::default(),
            spare: Vec::new(),
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

    /// The sequence of the next part: how many this name has published over all its incarnations.
    pub fn next_sequence(&self) -> Sequence {
        self.next
    }

    /// The state committed with its last visible part; empty before the first.
    pub fn state(&self) -> &[u8] {
        &self.state
    }

    /// Whether this name had finished when it was opened: a requeued producer that is done sees it here.
    pub fn was_finished(&self) -> bool {
        self.was_finished
    }

    /// Stores the slices and attachments of later drafts like this.
    pub fn set_compression(&mut self, compression: Compression) {
        self.compression = compression;
    }

    /// Begins a part: a staged file that nobody sees, removed if the draft is dropped.
    ///
    /// # Errors
    /// `Fenced` or `Io` once this producer can't go on; `Full`, `Io`.
    pub fn draft(&mut self) -> Result<Draft> {
        self.check_poison()?;
        let nonce = self.log.nonce()?;
        let first = Sequence::new(self.next.get().saturating_add(self.order.live()));
        let name = names::staged_draft(&self.name, self.incarnation, first, nonce);
        Draft::new(draft::New {
            log: Arc::clone(&self.log),
            stage: self.stage.clone(),
            name,
            nonce,
            place: self.order.join(),
            compression: self.compression,
            buffer: std::mem::take(&mut self.spare),
        })
    }

    /// Publishes a draft, with the state that this name has after it: a later incarnation gets exactly that.
    ///
    /// It waits while a bound of [`Producer::set_bounds`] is met. Drafts are published in the order they were
    /// opened. The part is committed, and on a synced store
    /// durable, when this returns.
    ///
    /// # Errors
    /// `Invalid` for a draft that isn't whole, isn't next, or isn't this producer's, or too long a state;
    /// `Fenced` when a newer incarnation has taken over; `Full` when the disk is, but for a margin, or a
    /// bound can never be met; `Timeout` when it wasn't in time; `Contended`, `Io`. See [`PublishError`] for
    /// what becomes of the draft.
    pub fn publish(&mut self, draft: Draft, state: impl AsRef<[u8]>) -> Result<Ticket, PublishError> {
        if let Err(error) = self.flush() {
            return Err(PublishError { error, draft: Some(Box::new(draft)) });
        }
        let mut draft = draft;
        let state = state.as_ref();
        if let Err(error) = self.await_room(draft.bytes(state)) {
            return Err(PublishError { error, draft: Some(Box::new(draft)) });
        }
        match self.stage(&mut draft, state) {
            Ok(file) => {
                self.pending = Some(Pending { file, draft, state: state.to_vec(), uncertain: false });
                let published = self.settle()?;
                Ok(Ticket { published })
            }
            Err(error) => Err(PublishError { error, draft: Some(Box::new(draft)) }),
        }
    }

    /// Sees to it that everything published is acknowledged: a commit whose outcome was unknown is tried
    /// again, as the same file.
    ///
    /// # Errors
    /// What still keeps it from being known; the commit is kept then. `Fenced` when replay says that it
    /// can't be in any more.
    pub fn flush(&mut self) -> Result<()> {
        self.check_poison()?;
        if self.pending.is_none() {
            return Ok(());
        }
        self.settle().map(drop).map_err(|failed| failed.error)
    }

    /// Publishes what is pending and retires the name: a requeued producer then sees that it is done.
    ///
    /// # Errors
    /// As [`Producer::flush`]; `Fenced` when a newer incarnation has taken over.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
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

    /// The write buffer of its last draft: who writes by many producers in turn hands one on.
    pub(crate) fn spare(&mut self) -> &mut Vec<u8> {
        &mut self.spare
    }

    fn check_poison(&self) -> Result<()> {
        if !self.poisoned {
            return Ok(());
        }
        let what = format!(
            "producer {} is poisoned by an earlier failure: open it anew to see what is in",
            self.name
        );
        Err(Error::new(ErrorKind::Io, what).at(&self.log.path))
    }

    /// Finishes the draft's file: whole, synced, closed. One that is finished already is taken as it is.
    fn stage(&mut self, draft: &mut Draft, state: &[u8]) -> Result<Finished> {
        if !draft.place.is_of(&self.order) {
            return Err(self.invalid("the draft is another producer's"));
        }
        if !draft.place.is_first() {
            return Err(
                self.invalid("a draft that was opened before this one isn't published or dropped yet")
            );
        }
        if let Some(finished) = &draft.finished {
            let same_state = finished.part.state.checksum == checksum::of(state)
                && u64::from(finished.part.state.length) == state.len() as u64;
            if same_state && finished.sequence == self.next {
                return Ok(finished.clone());
            }
            return Err(self.invalid("the draft's file is finished with another state; write it anew"));
        }
        if state.len() > STATE_BYTES_MAX {
            return Err(
                self.invalid(&format!("a state of {} bytes is longer than {STATE_BYTES_MAX}", state.len()))
            );
        }
        let tail = self.log.tail.take();
        self.check_states(&tail, state)?;
        drop(tail);
        let part = draft.complete(state)?;
        let parts = Parts {
            producer: self.name.clone(),
            incarnation: self.incarnation,
            first: self.next,
            parts: vec![part],
        };
        let tail = self.log.tail.take();
        let (sealed, commit) =
            seal_after(&self.log, &tail, draft.nonce, self.attempt.us(), Record::Parts(parts))?;
        drop(tail);
        let (file, buffer) = draft.seal(&sealed)?;
        self.spare = buffer;
        if let Err(error) = finish(&self.log, file) {
            draft.break_off("its file couldn't be made durable; write it anew");
            let path = self.log.path_of([names::STAGE, &draft.name]);
            return Err(Error::io("can't finish a staged file", error).at(path));
        }
        let staged = Staged { name: draft.name.clone(), commit };
        let finished = Finished { staged, part, sequence: self.next };
        draft.finished = Some(finished.clone());
        Ok(finished)
    }

    /// All states together are bounded: every index carries them.
    fn check_states(&self, tail: &Tail, state: &[u8]) -> Result<()> {
        let own = tail.state.producers.get(&self.name).and_then(|known| known.state);
        let others = tail.state.bytes_carried().saturating_sub(own.map_or(0, |own| own.length.into()));
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

    /// Brings the pending commit into the log.
    fn settle(&mut self) -> Result<Published, PublishError> {
        let Some(mut pending) = self.pending.take() else {
            return Err(PublishError { error: self.invalid("nothing is pending"), draft: None });
        };
        // The file belongs to the commit until its outcome is known (R2).
        pending.draft.owned = false;
        let started = self.log.env.now();
        match self.append(&pending) {
            Ok((version, part)) => {
                self.attempt.note(self.log.env.now().saturating_sub(started));
                let sequence = pending.file.sequence;
                self.next = sequence.next();
                self.state = pending.state;
                let step = part.step(self.log.parts_per_step());
                tracing::debug!(producer = %self.name, %version, %step, "published");
                Ok(Published { version, part, step, sequence })
            }
            // Of what was uncertain once, an earlier attempt may be what replay has judged: it isn't given
            // back.
            Err(Failure::Never(error)) if pending.uncertain => Err(PublishError { error, draft: None }),
            Err(Failure::Not(error)) if pending.uncertain => {
                self.pending = Some(pending);
                Err(PublishError { error, draft: None })
            }
            Err(Failure::Never(error) | Failure::Not(error)) => {
                pending.draft.owned = true;
                Err(PublishError { error, draft: Some(Box::new(pending.draft)) })
            }
            Err(Failure::Gone(error)) => {
                // Whoever asks again whether an uncertain commit is in mustn't hear that nothing is pending.
                self.poisoned |= pending.uncertain;
                pending.draft.lose_file();
                let draft = (!pending.uncertain).then(|| Box::new(pending.draft));
                Err(PublishError { error, draft })
            }
            Err(Failure::Unknown(error)) => {
                pending.uncertain = true;
                self.pending = Some(pending);
                Err(PublishError { error, draft: None })
            }
            Err(Failure::Poisoned(error)) => {
                self.poisoned = true;
                Err(PublishError { error, draft: None })
            }
        }
    }

    fn append(&mut self, pending: &Pending) -> Result<(Version, Part), Failure> {
        let (mut tail, found) = catch_up(&self.log, self.contended).map_err(Failure::Not)?;
        let (name, incarnation) = (&self.name, self.incarnation);
        let appended = append(&self.log, &mut tail, &self.stage, &pending.file.staged, |state| {
            settled(state, name, incarnation, pending)
        })?;
        self.contended = found > 0 || appended.lost > 0;
        let last = tail.state.producers.get(name).and_then(|producer| producer.last_part);
        let part =
            last.ok_or_else(|| Failure::Unknown(self.invalid("replay doesn't know what was published")))?;
        Ok((appended.version, part))
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if let Some(pending) = &self.pending {
            tracing::warn!(
                producer = %self.name, sequence = %pending.file.sequence, file = pending.file.staged.name,
                "a producer is dropped with a commit whose outcome is unknown; opening it anew tells"
            );
        }
    }
}

/// The log's end, to be linked after. No outcome is at stake yet, so errors that may pass are outlasted.
fn catch_up(log: &Log, contended: bool) -> Result<(Taken<'_, Tail>, u64)> {
    log.outlast("catching up to publish", log.patient_until(), |_| {
        let mut tail = log.tail.take();
        // A look before the link saves a lost race; alone, or with a doorbell that is silent, the link is
        // the look.
        let silent = |said| said == saying(tail.state.next_version);
        let quiet = !contended || log.doorbell.load().is_some_and(silent);
        // R10: after an error, what was replayed is compared with the disk before anything is linked after
        // it.
        let mut found = 0;
        if !quiet || tail.is_suspicious() {
            tail.refresh(log);
            found = tail.advance(log, Care::Writing)?;
        }
        Ok((tail, found))
    })
}

/// R6: is (my incarnation, my sequence) in, with the same checksum?
fn settled(state: &State, name: &Name, incarnation: Incarnation, pending: &Pending) -> Settled {
    let fenced = |what| Settled::Never(Error::new(ErrorKind::Fenced, format!("producer {name} {what}")));
    let Some(known) = state.producers.get(name) else { return fenced("was forgotten") };
    let any_incarnation = is_planted(Bug::IncarnationIgnored) || is_planted(Bug::SequenceAlone);
    if known.incarnation != Some(incarnation) && !any_incarnation {
        return fenced(match known.incarnation {
            Some(_) => "was opened anew",
            None if known.finished => "was retired",
            None => "was set back by a rewind of the store: it has to be opened anew",
        });
    }
    if known.next <= pending.file.sequence || is_planted(Bug::SequenceIgnored) {
        return Settled::Open;
    }
    let same = known.last_checksum == pending.file.part.checksum() || is_planted(Bug::SequenceAlone);
    if known.next == pending.file.sequence.next() && same {
        return Settled::In(known.last_version);
    }
    let what = format!("producer {name} has published sequence {} with other bytes", pending.file.sequence);
    Settled::Never(Error::new(ErrorKind::Fenced, what))
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

/// The windowed minimum of what an attempt costs: a queue's delay must not pass for the store's.
#[derive(Debug, Default)]
struct AttemptCost {
    recent: std::collections::VecDeque<Duration>,
}

impl AttemptCost {
    const WINDOW: usize = 16;

    fn note(&mut self, cost: Duration) {
        if self.recent.len() >= Self::WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(cost);
    }

    fn us(&self) -> u32 {
        let least = self.recent.iter().min().map_or(0, Duration::as_micros);
        u32::try_from(least).unwrap_or(u32::MAX)
    }
}
