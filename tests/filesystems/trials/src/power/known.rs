//! What was acknowledged to those who are dead, held against what the power has left (P6).
//!
//! - All that was acknowledged is there, with its bytes and in its order.
//! - Of what was under way, one part at most is there too, whole; and a checkpoint, or a floor.
//! - What is there once is durable, so it counts as acknowledged from then on.

use std::path::Path;

use batchweave::{Checkpoint, Step, Store};

use crate::part::{self, Id};
use crate::{Result, judge};

/// There is one producer, so its sequences are the steps.
pub(crate) const PRODUCER: &str = "tok";
pub(crate) const GROUP: &str = "job";

/// What was acknowledged.
#[derive(Default)]
pub(crate) struct Known {
    /// By step.
    parts: Vec<Id>,
    /// The newest checkpoint's step.
    checkpoint: u64,
    floor: u64,
    /// The step of a checkpoint that was begun and not acknowledged.
    begun: Option<u64>,
    /// Whose life it was.
    process: u32,
}

impl Known {
    /// A life says what came of it.
    pub(crate) fn hear(&mut self, word: &str, process: u32) -> Result<()> {
        self.process = process;
        let (verb, numbers) = word.split_once(' ').ok_or_else(|| format!("it says {word:?}"))?;
        let numbers: Vec<u64> = numbers.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let parts = self.parts.len() as u64;
        match (verb, &numbers[..]) {
            ("opened", &[after, step]) if (after, step) == (parts, self.checkpoint) => {}
            ("published", &[step]) if step == parts => self.parts.push(self.under_way()),
            ("checkpointing", &[step]) => self.begun = Some(step),
            ("checkpointed", &[step]) => (self.checkpoint, self.begun) = (step, None),
            ("reclaimed", &[floor]) if (self.floor..=self.checkpoint).contains(&floor) => self.floor = floor,
            _ => {
                let (checkpoint, floor) = (self.checkpoint, self.floor);
                let what = format!("{parts} parts, a checkpoint at {checkpoint} and a floor of {floor}");
                return Err(format!("it says {word:?} after {what}").into());
            }
        }
        Ok(())
    }

    /// The part that a life may have been publishing when it ended.
    fn under_way(&self) -> Id {
        Id { producer: PRODUCER.to_owned(), sequence: self.parts.len() as u64, process: self.process }
    }

    /// What is there is right; then it is known.
    pub(crate) fn judge(&mut self, path: &Path) -> Result<()> {
        judge::verify(path)?;
        let store = Store::open(path)?;
        let groups = store.groups()?;
        let checkpoints = groups.first().map_or(&[][..], |group| &group.checkpoints);
        self.judge_checkpoints(checkpoints)?;
        self.judge_floor(store.info()?.floor.get(), checkpoints)?;
        self.judge_parts(&store)?;
        let sequence = store.producers()?.first().map_or(0, |one| one.sequence.get());
        let parts = self.parts.len() as u64;
        if sequence != parts {
            return Err(format!("{parts} parts are there, but the next sequence is {sequence}").into());
        }
        Ok(())
    }

    fn judge_checkpoints(&mut self, found: &[Checkpoint]) -> Result<()> {
        let steps: Vec<u64> = found.iter().map(|found| found.position.step.get()).collect();
        if self.checkpoint > 0 && !steps.contains(&self.checkpoint) {
            return Err(
                format!("LOST: the checkpoint of step {} isn't among {steps:?}", self.checkpoint).into()
            );
        }
        let Some(newest) = steps.iter().copied().max() else { return Ok(()) };
        if newest > self.checkpoint && self.begun != Some(newest) {
            return Err(format!("nobody made the checkpoint of step {newest}").into());
        }
        (self.checkpoint, self.begun) = (newest, None);
        Ok(())
    }

    /// It never falls, and never passes what a checkpoint protects (P5).
    fn judge_floor(&mut self, floor: u64, checkpoints: &[Checkpoint]) -> Result<()> {
        let needed = checkpoints.iter().map(|one| one.position.step.get()).min().unwrap_or_default();
        if !(self.floor..=needed).contains(&floor) {
            let what = format!("it was {}, and checkpoints need step {needed}", self.floor);
            return Err(format!("the floor is {floor}, but {what}").into());
        }
        self.floor = floor;
        Ok(())
    }

    fn judge_parts(&mut self, store: &Store) -> Result<()> {
        // No consumer: its thread, which reads ahead, may outlive it for a moment and keep the disk busy.
        let steps = Step::new(self.floor)..store.info()?.next_step;
        let found = store.batches(steps).map(|batch| part::check(&batch?)).collect::<Result<Vec<_>>>()?;
        let under_way = self.under_way();
        let known = self.parts.iter().chain([&under_way]).skip(self.floor as usize);
        for (expected, found) in known.zip(&found) {
            if expected != found {
                return Err(format!("where {expected} has to be, {found} is").into());
            }
        }
        let (floor, parts) = (self.floor as usize, self.parts.len());
        match (floor + found.len()).checked_sub(parts) {
            None => {
                let first = &self.parts[floor + found.len()];
                Err(format!("LOST: {first} was acknowledged, and the store ends before it").into())
            }
            Some(0) => Ok(()),
            Some(1) => {
                self.parts.push(under_way);
                Ok(())
            }
            Some(more) => Err(format!("{more} parts more are there than were acknowledged").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: u64 = 5;

    /// A store of five parts and a checkpoint at step 3, and who has heard these words of its making.
    fn judged(words: &[&str], process: u32) -> Result<Known> {
        let home = tempfile::tempdir()?;
        let path = home.path().join("store");
        let store = Store::create(&path, part::options())?;
        let mut producer = store.producer(PRODUCER)?;
        for _ in 0..PARTS {
            part::publish(&mut producer)?;
        }
        let run = store.group(GROUP)?.begin(Step::new(0))?;
        run.checkpoint(store.position(Step::new(3))?, "step-3")?;
        let mut known = Known::default();
        for word in words {
            known.hear(word, process)?;
        }
        known.judge(&path)?;
        Ok(known)
    }

    fn said(words: &[&str]) -> String {
        judged(words, std::process::id()).err().map_or_else(String::new, |error| error.to_string())
    }

    const OPENED: &str = "opened 0 0";
    const PUBLISHED: [&str; 6] =
        ["published 0", "published 1", "published 2", "published 3", "published 4", "published 5"];

    fn acknowledged<'a>(parts: usize, more: &[&'a str]) -> Vec<&'a str> {
        [&[OPENED], &PUBLISHED[..parts], more].concat()
    }

    #[test]
    fn what_was_acknowledged_and_what_was_under_way_may_be_there() {
        for (parts, checkpoint) in [(5, "checkpointed 3"), (4, "checkpointed 3"), (5, "checkpointing 3")] {
            let words = acknowledged(parts, &[checkpoint]);
            let known = judged(&words, std::process::id()).unwrap();
            assert_eq!((known.parts.len(), known.checkpoint, known.begun), (5, 3, None));
        }
    }

    #[test]
    fn what_is_lost_strange_or_too_much_is_named() {
        let me = std::process::id();
        let lost = format!("LOST: tok/5 by {me} was acknowledged, and the store ends before it");
        assert_eq!(said(&acknowledged(6, &["checkpointed 3"])), lost);
        let more = "2 parts more are there than were acknowledged";
        assert_eq!(said(&acknowledged(3, &["checkpointed 3"])), more);
        let error = judged(&acknowledged(5, &["checkpointed 3"]), 1).err().unwrap();
        assert_eq!(error.to_string(), format!("where tok/0 by 1 has to be, tok/0 by {me} is"));
        assert_eq!(
            said(&acknowledged(5, &["checkpointed 4"])),
            "LOST: the checkpoint of step 4 isn't among [3]"
        );
        assert_eq!(said(&acknowledged(5, &[])), "nobody made the checkpoint of step 3");
        let fell = "the floor is 0, but it was 2, and checkpoints need step 3";
        assert_eq!(said(&acknowledged(5, &["checkpointed 3", "reclaimed 2"])), fell);
    }

    #[test]
    fn words_that_contradict_what_was_acknowledged_are_refused() {
        for word in ["opened 1 0", "opened 0 1", "published 1", "reclaimed 1", "published", "what 1"] {
            assert!(Known::default().hear(word, 1).is_err(), "{word}");
        }
    }
}
