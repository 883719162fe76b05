//! A part read by two: by the thread that reads ahead, and by its consumer instead of only waiting for it.
//!
//! - The part's slices are cut into runs. The owner, who began the part, reads runs, gathers what all have
//!   read, and answers for it; a helper only takes runs off it.
//! - The first run in order that can't be had is the part's error, whoever read it.
//! - A run that a helper leaves by a panic goes back to the owner, so that nobody waits for the dead.
//! - No lock is held over a storage call.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Reader;
use super::commits::OpenCommit;
use super::load;
use super::slice::Slice;
use crate::env::{Env, Signal};
use crate::error::{Error, ErrorKind, Result};
use crate::format::part::{PartDescriptor, SliceEntry};

/// A helper leaves this many runs to the owner: who began the part shall end it, since what it waits for is
/// one more wake-up that the step comes later.
const RUNS_OF_OWNER: usize = 1;

/// Where the part that is being read lies open for who may help.
pub(crate) struct Desk {
    offer: Mutex<Option<Arc<Offer>>>,
    /// Whoever may help waits on this.
    offered: Arc<dyn Signal>,
    /// The owner waits on this.
    done: Arc<dyn Signal>,
}

impl Desk {
    /// An empty one; `offered` is told when there is something to help with.
    pub(super) fn new(env: &dyn Env, offered: Arc<dyn Signal>) -> Self {
        Self { offer: Mutex::new(None), offered, done: env.signal() }
    }

    /// Reads slices of a part, all verified, with the help of whoever asks for some meanwhile.
    pub(super) fn read(
        &self,
        reader: &Reader,
        commit: &Arc<OpenCommit>,
        part: &PartDescriptor,
        entries: Vec<SliceEntry>,
        cut: Vec<Range<usize>>,
    ) -> Result<Vec<Slice>> {
        let runs = Runs { left: (0..cut.len()).collect(), out: 0, read: cut.iter().map(|_| None).collect() };
        let slices = entries.len();
        let (commit, done) = (Arc::clone(commit), Arc::clone(&self.done));
        let offer = Arc::new(Offer { commit, part: *part, entries, cut, runs: Mutex::new(runs), done });
        *self.offer.lock() = Some(Arc::clone(&offer));
        let withdrawn = Withdrawn(self);
        self.offered.notify();
        loop {
            let seen = self.done.current();
            if let Some(claim) = offer.claim(0) {
                claim.read(reader);
            } else if offer.runs.lock().out == 0 {
                break;
            } else {
                self.done.wait(seen, None);
            }
        }
        drop(withdrawn);
        offer.gather(slices)
    }

    /// Reads what can be taken off the owner; false if there was nothing.
    pub(super) fn help(&self, reader: &Reader) -> bool {
        let offer = self.offer.lock().clone();
        let Some(offer) = offer else { return false };
        let mut helped = false;
        while let Some(claim) = offer.claim(RUNS_OF_OWNER) {
            claim.read(reader);
            helped = true;
        }
        helped
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk(..)")
    }
}

/// Takes the offer away, also by a panic.
struct Withdrawn<'d>(&'d Desk);

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        *self.0.offer.lock() = None;
    }
}

/// A part that is being read.
struct Offer {
    commit: Arc<OpenCommit>,
    part: PartDescriptor,
    entries: Vec<SliceEntry>,
    /// Which entries make each run.
    cut: Vec<Range<usize>>,
    runs: Mutex<Runs>,
    done: Arc<dyn Signal>,
}

struct Runs {
    /// Those that nobody has begun, in order.
    left: VecDeque<usize>,
    /// How many are being read.
    out: usize,
    /// What was read, by run.
    read: Vec<Option<Result<Vec<Slice>>>>,
}

impl Offer {
    /// The next run, if more than `spared` are left.
    fn claim(&self, spared: usize) -> Option<Claim<'_>> {
        let mut runs = self.runs.lock();
        if runs.left.len() <= spared {
            return None;
        }
        let number = runs.left.pop_front()?;
        runs.out = runs.out.saturating_add(1);
        Some(Claim { offer: self, number, read: None })
    }

    fn gather(&self, slices: usize) -> Result<Vec<Slice>> {
        let mut all = Vec::with_capacity(slices);
        for read in std::mem::take(&mut self.runs.lock().read) {
            // Runs are begun in order, so one that wasn't comes after the one that failed.
            let unread = || Error::new(ErrorKind::Corrupt, "a run of slices wasn't read");
            all.extend(read.ok_or_else(unread)??);
        }
        Ok(all)
    }
}

/// A run in the hands of who reads it.
struct Claim<'o> {
    offer: &'o Offer,
    number: usize,
    /// None goes back: its reader has panicked.
    read: Option<Result<Vec<Slice>>>,
}

impl Claim<'_> {
    fn read(mut self, reader: &Reader) {
        let Offer { commit, part, entries, cut, .. } = self.offer;
        let run = cut.get(self.number).and_then(|run| entries.get(run.clone())).unwrap_or_default();
        let mut slices = Vec::with_capacity(run.len());
        self.read = Some(load::run(reader, commit, part, run, &mut slices).map(|()| slices));
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut runs = self.offer.runs.lock();
        runs.out = runs.out.saturating_sub(1);
        let read = self.read.take();
        if read.as_ref().is_some_and(Result::is_err) {
            runs.left.clear();
        }
        match (read, runs.read.get_mut(self.number)) {
            (Some(read), Some(place)) => *place = Some(read),
            _ => runs.left.push_front(self.number),
        }
        drop(runs);
        self.offer.done.notify();
    }
}
