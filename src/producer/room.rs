//! Whether there is room for a part: by the producer's bounds, and on the disk.
//!
//! - Who waits says why, and for whom; who can't be helped by waiting is told at once (see [`bounds`]).
//! - A margin of the disk is kept from parts only, so that a checkpoint, a drop or a reclaim can still be
//!   written when producers have filled it.

use std::time::Duration;

use super::Producer;
use super::hints::Hints;
use crate::commit::bounds::{self, Seen, Verdict, in_words};
use crate::error::{Error, ErrorKind, Result};
use crate::id::Part;
use crate::limits::{
    IO_PATIENCE_WORD, MARGIN_BYTES_MIN, MARGIN_INODES, MARGIN_OF_DISK, MARGIN_OF_SMALL_DISK,
    PARTS_PER_ROOM_CHECK, PROBE_INTERVAL_MAX, PROBE_INTERVAL_MIN, PROGRESS_INTERVAL, SMALL_PART_BYTES,
};
use crate::options::Bounds;
use crate::storage::Space;

/// What a producer remembers of the room that there was.
#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) bounds: Bounds,
    /// Parts since the disk was asked.
    unasked: u32,
    hints: Hints,
    /// It said that it goes over its bound.
    said_over: bool,
}

impl Producer {
    /// Keeps bounds from the next publish on: it waits while they are met.
    ///
    /// A publish that can't be helped by waiting is `Full` at once, naming the bound that would do: a
    /// checkpoint that keeps more than the bound allows, while the group waits for the next step.
    ///
    /// ```
    /// # use batchweave::{Bounds, Options, Store};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open_or_create(directory.path().join("train"), Options::new())?;
    /// let mut producer = store.producer("tok-017")?;
    /// producer.set_bounds(Bounds::new().retained_bytes(16 << 30).lead_steps(2000));
    /// # Ok::<(), batchweave::Error>(())
    /// ```
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.queue.line.lock().turn_timeout = bounds.timeout;
        self.room.bounds = bounds;
    }

    /// Waits until there is room for a part of so many bytes.
    pub(super) fn await_room(&mut self, part_bytes: u64) -> Result<()> {
        if self.room.bounds.retained_bytes.is_some() || self.room.bounds.lead_steps.is_some() {
            self.await_bounds(part_bytes)?;
        }
        self.check_margin(part_bytes)
    }

    fn await_bounds(&mut self, part_bytes: u64) -> Result<()> {
        let began = self.log.env.now();
        let (mut pause, mut word) = (PROBE_INTERVAL_MIN, IO_PATIENCE_WORD);
        let mut fresh = false;
        loop {
            let why = match self.judge(part_bytes, fresh)? {
                Verdict::Admit => {
                    self.room.said_over = false;
                    return Ok(());
                }
                Verdict::AdmitOver(why) => {
                    if !std::mem::replace(&mut self.room.said_over, true) {
                        tracing::warn!(producer = %self.name, why, "publishing over the bound");
                    }
                    return Ok(());
                }
                // What is said against it has to be so now.
                _ if !fresh => {
                    fresh = true;
                    continue;
                }
                Verdict::Never(why) => return Err(self.full(why)),
                Verdict::Wait(why) => why,
            };
            let waited = self.log.env.now().saturating_sub(began);
            let left = self.room.bounds.timeout.saturating_sub(waited);
            if left.is_zero() {
                let what = format!("waited {} s for room: {why}", waited.as_secs());
                return Err(Error::new(ErrorKind::Timeout, what).at(&self.log.path));
            }
            if waited >= word {
                word = waited.saturating_mul(2);
                let seconds = waited.as_secs();
                tracing::warn!(producer = %self.name, seconds, why, "waiting for room to publish");
            }
            self.log.env.sleep(pause.min(left));
            pause = pause.saturating_mul(2).min(PROBE_INTERVAL_MAX);
        }
    }

    fn judge(&mut self, part_bytes: u64, fresh: bool) -> Result<Verdict> {
        let mut seen = {
            let tail = if fresh { self.log.current()? } else { self.log.tail.take() };
            let state = &tail.state;
            // Who was taken over waits for nothing any more (P4).
            let current = state.producers.get(&self.name).and_then(|known| known.incarnation);
            if current != Some(self.incarnation) {
                let what = format!("producer {} was opened anew, or its history was rewound", self.name);
                return Err(Error::new(ErrorKind::Fenced, what).at(&self.log.path));
            }
            // What waits to be committed is on its way there.
            let (waiting, bytes) = {
                let line = self.queue.line.lock();
                (line.len() as u64, line.bytes)
            };
            let next_part = Part::new(state.next_part.get().saturating_add(waiting));
            let next_step = next_part.step(state.parts_per_step);
            let retained = state.bytes_written.saturating_sub(state.bytes_reclaimed);
            Seen {
                retained_bytes: retained.saturating_add(bytes),
                part_bytes,
                floor: state.floor,
                next_step,
                step_is_open: next_step.first_part(state.parts_per_step) != next_part,
                needed: state.needed().map(|(step, group)| (step, group.to_string())),
                groups: Vec::new(),
            }
        };
        // Without hints nobody is hungry, and no lead is judged: most publishes need none.
        let verdict = bounds::judge(&self.room.bounds, &seen);
        if self.room.bounds.lead_steps.is_none() && verdict == Verdict::Admit {
            return Ok(verdict);
        }
        let interval = if fresh { Duration::ZERO } else { PROGRESS_INTERVAL };
        seen.groups = self.room.hints.told(&self.log, interval).to_vec();
        Ok(bounds::judge(&self.room.bounds, &seen))
    }

    /// Keeps the margin of the disk from parts.
    fn check_margin(&mut self, part_bytes: u64) -> Result<()> {
        self.room.unasked = self.room.unasked.saturating_add(1);
        if part_bytes < SMALL_PART_BYTES && self.room.unasked < PARTS_PER_ROOM_CHECK {
            return Ok(());
        }
        self.room.unasked = 0;
        // A filesystem that can't say has no margin; when it is full, it says that.
        let Ok(space) = self.log.storage.space(self.stage.dir()) else { return Ok(()) };
        match short_of(&space) {
            None => Ok(()),
            Some(what) => {
                // It is asked again at once, so that room that is made is seen.
                self.room.unasked = PARTS_PER_ROOM_CHECK;
                Err(self.full(what))
            }
        }
    }

    fn full(&self, why: String) -> Error {
        let what = format!("producer {} can't publish: {why}", self.name);
        Error::new(ErrorKind::Full, what).at(&self.log.path)
    }
}

/// What a disk is short of, if it is, for who may not use its margin. The part's bytes are on it already.
fn short_of(space: &Space) -> Option<String> {
    let counted = |number: u64| number != u64::MAX;
    let of = |all: u64, part: u64| all.checked_div(part).unwrap_or(0);
    let bytes = MARGIN_BYTES_MIN
        .max(of(space.bytes_total, MARGIN_OF_DISK))
        .min(of(space.bytes_total, MARGIN_OF_SMALL_DISK));
    let inodes = MARGIN_INODES.min(of(space.inodes_total, MARGIN_OF_SMALL_DISK));
    if counted(space.bytes_free) && counted(space.bytes_total) && space.bytes_free < bytes {
        let (free, kept) = (in_words(space.bytes_free), in_words(bytes));
        return Some(format!("the disk has {free} left, and the last {kept} are kept from parts"));
    }
    if counted(space.inodes_free) && counted(space.inodes_total) && space.inodes_free < inodes {
        let free = space.inodes_free;
        return Some(format!("the disk has {free} inodes left, and the last {inodes} are kept from parts"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_a_part_of_the_disk() {
        let space = |bytes_free, bytes_total| Space {
            bytes_free,
            bytes_total,
            inodes_free: u64::MAX,
            inodes_total: u64::MAX,
        };
        for (total, margin) in [
            (64 << 20, 8 << 20),
            (4 << 30, 256 << 20),
            (100 << 30, (100 << 30) / 100),
            (1 << 50, (1 << 50) / 100),
        ] {
            assert_eq!(short_of(&space(margin, total)), None, "of {total}");
            assert!(short_of(&space(margin - 1, total)).is_some(), "of {total}");
        }
        assert_eq!(short_of(&space(u64::MAX, u64::MAX)), None, "one that doesn't count");
        let few = Space { inodes_free: 99, inodes_total: 800, ..space(1 << 40, 1 << 41) };
        let said = short_of(&few).unwrap();
        assert_eq!(said, "the disk has 99 inodes left, and the last 100 are kept from parts");
    }
}
