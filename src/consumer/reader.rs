//! What the consumers of one handle share: the pool, the open commits, one poller, and what is known of the
//! log's end.
//!
//! - A step is loaded here: its parts located, their commits opened, its slices read and verified.
//! - What is known without the tail ([`Horizon`]) may lag; whoever hands out sees to it that it isn't old
//!   (P2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::batch::{Batch, BatchPart};
use super::commits::{Commits, OpenCommit};
use super::load;
use super::slice::Slice;
use super::together::Desk;
use super::waiting::Poller;
use crate::env::Taken;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Checksum, Generation, Step, Version};
use crate::limits::{COMMIT_HEADER_BYTES, HISTORY_AGE_MAX, PROBE_INTERVAL_MIN, STEP_COMMITS_OPEN_MAX};
use crate::log::doorbell::saying;
use crate::log::history::{Skipped, past};
use crate::log::patience::{may_pass, unexplained};
use crate::log::state::{ProducerState, State};
use crate::log::tail::{Care, Tail};
use crate::log::{Log, read};
use crate::name::Name;
use crate::planted::{Bug, is_planted};
use crate::position::Position;
use crate::share::Share;

/// A version of the log from which a run starts: generation, Skips and Closes are as of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The generation.
    pub(crate) generation: Generation,
    /// How many Closes it has seen.
    pub(crate) closes: u64,
    /// Where the stream ends, if it was closed then.
    pub(crate) closed: Option<Step>,
    /// What it passes over.
    pub(crate) skips: Arc<[Skipped]>,
}

impl View {
    /// The view of a state.
    pub(crate) fn of(state: &State) -> Self {
        let skips = state.history.skips.as_slice().into();
        Self { generation: state.generation, closes: state.closes(), closed: state.closed, skips }
    }

    /// The first step at or after `step` that a run from this view delivers.
    pub(super) fn past(&self, step: Step) -> Step {
        past(&self.skips, step)
    }

    /// Where a run from this view ends: the first Close on its way, also if a Reopen has followed since.
    pub(super) fn end(&self, horizon: &Horizon) -> Option<Step> {
        let seen = match is_planted(Bug::EndUnseen) {
            true => horizon.ends.len(),
            false => usize::try_from(self.closes).unwrap_or(usize::MAX),
        };
        self.closed.or(horizon.ends.get(seen).copied())
    }
}

/// What the consumers of a handle know of the log's end without taking the tail.
#[derive(Clone, Debug, Default)]
pub(super) struct Horizon {
    pub(super) next_version: Version,
    pub(super) next_step: Step,
    pub(super) generation: Generation,
    ends: Arc<[Step]>,
    /// When the log itself was looked at last; none if it never was.
    looked: Option<Duration>,
}

impl Horizon {
    /// How long ago the log was looked at; longer than anything if it never was.
    pub(super) fn age(&self, now: Duration) -> Duration {
        self.looked.map_or(Duration::MAX, |looked| now.saturating_sub(looked))
    }
}

/// What is read of a step when it is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want<'d> {
    /// Where its parts are: a slice is read when it is asked for.
    Parts,
    /// Its slices, all verified; with the help of whoever comes to the desk.
    Slices(Option<&'d Desk>),
}

/// What the consumers of one handle share.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) log: Arc<Log>,
    pub(super) commits: Commits,
    pub(super) poller: Poller,
    horizon: Mutex<Horizon>,
    glance: Glance,
}

/// What every hand-out asks of the horizon, without its lock: seldom written, so it stays in each cache.
#[derive(Debug, Default)]
struct Glance {
    generation: AtomicU64,
    /// Zero if it never was.
    looked_us: AtomicU64,
}

impl Reader {
    pub(crate) fn new(log: Arc<Log>) -> Self {
        let poller = Poller::new(&*log.env);
        Self {
            log,
            commits: Commits::default(),
            poller,
            horizon: Mutex::default(),
            glance: Glance::default(),
        }
    }

    pub(super) fn horizon(&self) -> Horizon {
        self.horizon.lock().clone()
    }

    /// Looks at the log, unless another thread has just found `step`; outlasts errors that may pass, at most
    /// `until` then.
    pub(super) fn advance_for(&self, step: Step, until: Duration) -> Result<()> {
        self.advance_with(step, Care::Waiting, until)
    }

    /// The same for who has slept until `step` is there: looks no further.
    pub(super) fn advance_to(&self, step: Step, until: Duration) -> Result<()> {
        self.advance_with(step, Care::Until(step), until)
    }

    fn advance_with(&self, step: Step, care: Care, until: Duration) -> Result<()> {
        self.log.outlast("looking for a step", until, |_| {
            let tail = self.log.tail.take();
            if tail.state.next_step() > step {
                self.note(&tail);
                return Ok(());
            }
            self.advance(tail, care)
        })
    }

    /// Looks at the log, whatever is known; as patient.
    pub(super) fn look(&self, until: Duration) -> Result<()> {
        self.log.outlast("looking for a change of history", until, |_| self.look_at_once())
    }

    fn look_at_once(&self) -> Result<()> {
        self.advance(self.log.tail.take(), Care::Writing)
    }

    /// The generation in which a step is visible, for who reads outside a run: as fresh as a run's hand-outs,
    /// if the log's end can be looked at now. A step that is known is read without that.
    pub(crate) fn holding(&self, step: Step) -> Result<Generation> {
        self.log.check_forked()?;
        if self.horizon().age(self.log.env.now()) > HISTORY_AGE_MAX
            && let Err(error) = self.look_at_once()
        {
            tracing::debug!(%error, %step, "read as of the last look at the log");
        }
        let known = self.log.tail.take();
        if known.state.next_step() > step {
            return Ok(known.state.generation);
        }
        drop(known);
        Ok(self.log.current()?.state.generation)
    }

    /// Looks at the log for who doesn't wait: not more often than a waiter would.
    pub(super) fn look_if_due(&self, step: Step) -> Result<()> {
        let horizon = self.horizon();
        let quiet = match self.log.doorbell.load() {
            Some(said) => said == saying(horizon.next_version),
            None => true,
        };
        let age = horizon.age(self.log.env.now());
        if quiet && age < PROBE_INTERVAL_MIN {
            return Ok(());
        }
        self.advance_for(step, self.log.patient_until())
    }

    fn advance(&self, mut tail: Taken<'_, Tail>, care: Care) -> Result<()> {
        tail.refresh(&self.log);
        let advanced = tail.advance(&self.log, care);
        self.note(&tail);
        drop(tail);
        let now = self.log.env.now();
        self.poller.probed(now);
        let found = advanced?;
        self.looked_at(now);
        if found > 0 {
            self.poller.grown(now);
        }
        Ok(())
    }

    /// Somebody has just brought the tail to the present by this handle.
    pub(crate) fn witness(&self, tail: &Tail) {
        self.note(tail);
        self.looked_at(self.log.env.now());
    }

    fn looked_at(&self, now: Duration) {
        self.horizon.lock().looked = Some(now);
        self.glance.looked_us.store(micros(now).max(1), Ordering::Relaxed);
    }

    fn note(&self, tail: &Tail) {
        let mut horizon = self.horizon.lock();
        if horizon.ends.len() as u64 != tail.state.closes() {
            horizon.ends = tail.state.ends.as_slice().into();
        }
        horizon.next_version = tail.state.next_version;
        horizon.next_step = tail.state.next_step();
        horizon.generation = tail.state.generation;
        self.glance.generation.store(horizon.generation.get(), Ordering::Release);
    }

    /// Whether the log was looked at lately and is of this generation: what is ready may be handed out (P2).
    pub(super) fn is_fresh(&self, generation: Generation) -> bool {
        let looked = self.glance.looked_us.load(Ordering::Relaxed);
        let age = micros(self.log.env.now()).saturating_sub(looked);
        let same = self.glance.generation.load(Ordering::Acquire) == generation.get();
        looked > 0 && same && age <= micros(HISTORY_AGE_MAX)
    }

    /// When the patience of a call that began then, or begins now, is over. It counts from the last good look
    /// at the log, if that was later: who followed while another thread met the mount away has been patient
    /// as long as that one.
    pub(super) fn until(&self, began: Option<Duration>) -> Duration {
        match began {
            Some(began) => {
                began.max(self.horizon.lock().looked.unwrap_or_default()).saturating_add(self.log.io_patience)
            }
            None => self.log.patient_until(),
        }
    }

    /// Reads of commits, outlasting errors that may pass, at most `until` then.
    pub(super) fn outlast<T>(
        &self,
        doing: &'static str,
        until: Duration,
        mut attempt: impl FnMut(bool) -> Result<T>,
    ) -> Result<T> {
        self.log.outlast(doing, until, |again| {
            attempt(again).inspect_err(|error| {
                if may_pass(error) {
                    self.commits.forget();
                }
            })
        })
    }

    /// One share of a visible step, as far as it is wanted. Outlasts errors that may pass, at most `until`
    /// then.
    pub(crate) fn load(
        self: &Arc<Self>,
        step: Step,
        share: Share,
        generation: Generation,
        want: Want<'_>,
        until: Duration,
    ) -> Result<Batch> {
        self.outlast("reading a step", until, |again| {
            let looked = if again { self.look_at_once() } else { Ok(()) };
            let loaded = looked.and_then(|()| self.load_step(step, share, generation, want));
            let loaded = loaded.map_err(|error| self.explain(error, step, generation));
            loaded.map_err(|error| error.step(step).at(&self.log.path))
        })
    }

    /// What can't be read may have been freed since the log was looked at last (R7): then that is said.
    pub(super) fn explain(&self, error: Error, step: Step, generation: Generation) -> Error {
        if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) {
            return error;
        }
        // Where this handle last looked may be removed too: then only the marks say so.
        if let Err(look) = self.advance(self.log.tail.take(), Care::Answering) {
            return unexplained(error, look);
        }
        let tail = self.log.tail.take();
        if step < tail.state.floor {
            return self.log.reclaimed(step, &tail);
        }
        if tail.state.generation == generation {
            return error;
        }
        let is = tail.state.generation;
        let what = format!("history was changed: the step was read in generation {generation}, this is {is}");
        Error::new(ErrorKind::Rewound, what)
    }

    fn load_step(
        self: &Arc<Self>,
        step: Step,
        share: Share,
        generation: Generation,
        want: Want<'_>,
    ) -> Result<Batch> {
        let (parts, open) = self.parts_of(step, generation)?;
        let total = parts.last().map_or(0, |part| part.first_slice.saturating_add(part.descriptor.slices));
        let range = share.range(total).ok_or_else(|| {
            let what = format!("{} shares don't divide the step's {total} slices", share.count());
            Error::new(ErrorKind::Invalid, what)
        })?;
        let lineage = parts.last().map_or(Checksum::ZERO, |part| part.located.checksum);
        let position = Position { store: self.log.identity.uuid, generation, step: step.next(), lineage };
        let reader = Arc::clone(self);
        let mut batch = Batch { reader, position, step, share, parts, range, loaded: None };
        if let Want::Slices(desk) = want {
            batch.loaded = Some(self.load_slices(&batch, &open, desk)?);
        }
        Ok(batch)
    }

    /// The step's parts, and the first commits that hold them, still open: at most as many as descriptors
    /// allow.
    fn parts_of(&self, step: Step, generation: Generation) -> Result<(Vec<BatchPart>, Vec<Arc<OpenCommit>>)> {
        let per_step = self.log.parts_per_step();
        let first = step.first_part(per_step).get();
        let mut parts: Vec<BatchPart> = Vec::new();
        let mut open = Vec::new();
        for number in first..first.saturating_add(per_step.into()) {
            let (located, waiting) = {
                let mut tail = self.log.tail.take();
                // Whoever writes by this handle moves the tail on, past a change of history too: what is
                // found after it isn't this generation's step (P2).
                same_history(generation, tail.state.generation)?;
                let located = self.log.locate(&tail, number.into())?;
                (located, tail.take_opened(located.version))
            };
            let commit = self.commits.get(&self.log, &located, waiting)?;
            let ordinal = usize::try_from(located.ordinal).unwrap_or(usize::MAX);
            let descriptor = commit.parts.get(ordinal).copied().ok_or_else(|| {
                let what = format!(
                    "the commit has {} parts, the log says there is number {ordinal}",
                    commit.parts.len()
                );
                Error::new(ErrorKind::Corrupt, what).version(located.version)
            })?;
            let first_slice =
                parts.last().map_or(0, |before| before.first_slice.saturating_add(before.descriptor.slices));
            parts.push(BatchPart { located, descriptor, first_slice });
            if open.len() < STEP_COMMITS_OPEN_MAX {
                open.push(commit);
            }
        }
        Ok((parts, open))
    }

    fn load_slices(
        &self,
        batch: &Batch,
        open: &[Arc<OpenCommit>],
        desk: Option<&Desk>,
    ) -> Result<Vec<Slice>> {
        let mut slices = Vec::new();
        for (number, part) in batch.parts.iter().enumerate() {
            let end = part.first_slice.saturating_add(part.descriptor.slices);
            let from = batch.range.start.max(part.first_slice);
            let to = batch.range.end.min(end);
            if from >= to {
                continue;
            }
            let version = part.located.version;
            let within = from.saturating_sub(part.first_slice)..to.saturating_sub(part.first_slice);
            let commit = match open.get(number) {
                Some(commit) => Ok(Arc::clone(commit)),
                None => self.commits.get(&self.log, &part.located, None),
            };
            let loaded = commit
                .and_then(|commit| load::slices(self, &commit, &part.descriptor, within, desk))
                .map_err(|error| error.version(version).at(self.log.commit_path(version)))?;
            slices.extend(loaded);
        }
        Ok(slices)
    }

    /// Who could publish the next step, and when each last committed, for a person who waits.
    pub(super) fn producers_in_words(&self) -> String {
        const MOST: usize = 8;
        let (mut unfinished, turn) = {
            let tail = self.log.tail.take();
            let turn = tail.state.turn().map(|(_, name, _)| format!("it is the turn of {name}; "));
            let unfinished = tail.state.producers.iter().filter(|(_, producer)| !producer.finished);
            let of = |(name, producer): (&Name, &ProducerState)| (producer.last_version, name.clone());
            (unfinished.map(of).collect::<Vec<_>>(), turn.unwrap_or_default())
        };
        unfinished.sort();
        if unfinished.is_empty() {
            return turn + "none is open";
        }
        let more = unfinished.len().saturating_sub(MOST);
        let said: Vec<String> = unfinished
            .iter()
            .take(MOST)
            .map(|(version, name)| read::last_commit_in_words(&self.log, name, *version))
            .collect();
        let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
        turn + &said.join(", ") + &rest
    }
}

/// A run goes on in the generation that it began in only.
///
/// # Errors
/// `Rewound`.
pub(super) fn same_history(was: Generation, is: Generation) -> Result<()> {
    if was == is {
        return Ok(());
    }
    let what =
        format!("history was changed: generation {is} has followed {was}; start again from a checkpoint");
    Err(Error::new(ErrorKind::Rewound, what))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The bytes that a batch takes at most, for the bound of the window.
pub(super) fn bytes_of(batch: &Batch) -> u64 {
    let loaded = batch.loaded.iter().flatten().map(|slice| slice.len() as u64);
    loaded.sum::<u64>().max(COMMIT_HEADER_BYTES)
}
