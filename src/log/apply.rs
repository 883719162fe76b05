//! Replay: what each record does, and when it is void.
//!
//! - `apply` is a function of (state, version, commit) and nothing else: every replayer comes to the same
//!   state (P2).
//! - Validity is decided here, not by the writer's good manners: a zombie's or a duplicate's commit
//!   occupies its version and has no effect (P3, P4).
//! - What this library doesn't know is `Unsupported`: stopping is safe, guessing isn't.

use super::state::{ProducerState, State, StatePlace};
use super::void::Void;
use crate::error::Result;
use crate::format::commit::Header;
use crate::format::record::{Parts, Record};
use crate::id::{Checksum, Generation, Incarnation, Nonce, Part, Sequence, Step, Version};
use crate::name::Name;
use crate::planted::{Bug, is_planted};

/// What replay takes of a commit: all but the people's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Tells it from every other commit.
    pub nonce: Nonce,
    /// Its record checksum.
    pub checksum: Checksum,
    /// The number of its record's kind.
    pub kind: u16,
    /// The generation it was written for.
    pub generation: Generation,
    /// What an attempt cost its writer.
    pub attempt_us: u32,
    /// The record; none if it is of an unknown kind that is optional.
    pub record: Option<Record>,
}

impl Commit {
    /// Out of a header and what it says.
    pub fn new(header: &Header, checksum: Checksum, record: Option<Record>) -> Self {
        Self {
            nonce: header.nonce,
            checksum,
            kind: header.kind,
            generation: header.generation,
            attempt_us: header.attempt_us,
            record,
        }
    }
}

impl State {
    /// Applies the commit at `next_version`; gives why it has no effect, if it has none.
    ///
    /// # Errors
    /// `Unsupported` for a record that this library can't replay; the state is then as before.
    pub fn apply(&mut self, version: Version, commit: &Commit) -> Result<Option<Void>> {
        debug_assert_eq!(version, self.next_version, "replay goes by dense versions");
        let void = self.judge(commit)?;
        if void.is_none() {
            self.take_effect(version, commit);
        }
        if is_planted(Bug::TurnsByVersion) {
            self.take_turn(version, 1);
        }
        self.next_version = version.next();
        Ok(void)
    }

    /// Why a commit would have no effect here; none if it would have one.
    ///
    /// # Errors
    /// `Unsupported` for a record that this library can't replay.
    pub fn judge(&self, commit: &Commit) -> Result<Option<Void>> {
        let Some(record) = &commit.record else { return Ok(None) };
        Ok(match record {
            Record::Open { producer, last } => self.judge_open(producer, *last),
            Record::Parts(parts) => self.judge_parts(parts),
            Record::Retire { producer, incarnation } => self.judge_incarnation(producer, *incarnation),
            Record::Close { step, closes, open_step } => {
                self.judge_generation(commit).or_else(|| self.judge_close(*step, *closes, *open_step))
            }
            Record::Reopen { closes } => self.judge_generation(commit).or_else(|| self.judge_reopen(*closes)),
            Record::Require { features } => {
                crate::format::check_features("the log from here on", *features)?;
                None
            }
            Record::Forget { producer, incarnation } => self.judge_forget(producer, *incarnation),
            Record::Group { group, last, start } => self.judge_group(group, *last, *start),
            Record::RetireGroup { group, incarnation } => self.judge_group_incarnation(group, *incarnation),
            Record::Checkpoint(checkpoint) => {
                self.judge_generation(commit).or_else(|| self.judge_checkpoint(checkpoint))
            }
            Record::Drop { group, incarnation, checkpoint } => {
                self.judge_drop(group, *incarnation, *checkpoint)
            }
            Record::Floor { step, .. } => self.judge_generation(commit).or_else(|| self.judge_floor(*step)),
            Record::Rewind(rewind) => self.judge_generation(commit).or_else(|| self.judge_rewind(rewind)),
            Record::Skip { first, last, .. } => {
                self.judge_generation(commit).or_else(|| self.judge_skip(*first, *last))
            }
            Record::Turns { last, .. } => self.judge_generation(commit).or_else(|| self.judge_turns(*last)),
        })
    }

    fn judge_generation(&self, commit: &Commit) -> Option<Void> {
        (commit.generation != self.generation).then_some(Void::OtherGeneration)
    }

    fn judge_open(&self, producer: &Name, last: Option<Version>) -> Option<Void> {
        if self.closed.is_some() {
            return Some(Void::Closed);
        }
        let newest = self.producers.get(producer).map(|one| one.last_open);
        (newest != last).then_some(Void::Overtaken)
    }

    fn judge_incarnation(&self, producer: &Name, incarnation: Incarnation) -> Option<Void> {
        let current = self.producers.get(producer).and_then(|one| one.incarnation);
        (current != Some(incarnation)).then_some(Void::Fenced)
    }

    fn judge_forget(&self, producer: &Name, incarnation: Incarnation) -> Option<Void> {
        let Some(known) = self.producers.get(producer) else { return Some(Void::Unknown) };
        let step = known.last_part.map(|part| part.step(self.parts_per_step));
        if known.last_open.incarnation() != incarnation {
            Some(Void::Fenced)
        } else if !known.finished {
            Some(Void::Unfinished)
        } else if step.is_some_and(|step| step >= self.floor) {
            Some(Void::Retained)
        } else {
            self.is_in_ring(producer).then_some(Void::InRing)
        }
    }

    fn judge_parts(&self, parts: &Parts) -> Option<Void> {
        let fenced = self.judge_incarnation(&parts.producer, parts.incarnation);
        let next = self.producers.get(&parts.producer).map(|one| one.next);
        match fenced {
            Some(void) if !is_planted(Bug::IncarnationIgnored) => Some(void),
            _ if self.closed.is_some() => Some(Void::Closed),
            _ if is_planted(Bug::SequenceIgnored) => None,
            _ if next != Some(parts.first) => Some(Void::OutOfSequence),
            _ if is_planted(Bug::TurnIgnored) => None,
            _ => self.judge_turn(&parts.producer, parts.parts.len()),
        }
    }

    fn judge_close(&self, step: Step, closes: u64, open_step: bool) -> Option<Void> {
        if self.closed.is_some() {
            Some(Void::Closed)
        } else if closes != self.closes() {
            Some(Void::Overtaken)
        } else if step != self.next_step() {
            Some(Void::NotNext)
        } else {
            (self.has_open_step() && !open_step).then_some(Void::OpenStep)
        }
    }

    fn judge_reopen(&self, closes: u64) -> Option<Void> {
        if self.closed.is_none() {
            return Some(Void::NotClosed);
        }
        (closes != self.closes()).then_some(Void::Overtaken)
    }

    fn take_effect(&mut self, version: Version, commit: &Commit) {
        match &commit.record {
            Some(Record::Open { producer, .. }) => self.open(version, commit, producer),
            Some(Record::Parts(parts)) => self.publish(version, commit, parts),
            Some(Record::Retire { producer, .. }) => {
                if let Some(one) = self.producers.get_mut(producer) {
                    one.incarnation = None;
                    one.finished = true;
                    one.last_version = version;
                }
            }
            Some(Record::Close { step, .. }) => {
                self.ends.push(*step);
                self.closed = Some(*step);
            }
            Some(Record::Reopen { .. }) if is_planted(Bug::ReopenIgnored) => {}
            Some(Record::Reopen { .. }) => self.closed = None,
            Some(Record::Require { features }) => self.features |= features,
            Some(Record::Forget { producer, .. }) => {
                self.last_forget = Some(version);
                if !is_planted(Bug::ForgetKept) {
                    self.producers.remove(producer);
                }
            }
            Some(Record::Group { group, start, .. }) => self.open_group(version, commit, group, *start),
            Some(Record::RetireGroup { group, .. }) => self.retire_group(group),
            Some(Record::Checkpoint(checkpoint)) => self.keep(version, commit, checkpoint),
            Some(Record::Drop { group, checkpoint, .. }) => self.release(group, *checkpoint),
            Some(Record::Floor { step, lineage, bytes_before }) => {
                self.raise_floor(*step, *lineage, *bytes_before);
            }
            Some(Record::Rewind(rewind)) => self.rewind(version, commit, rewind),
            Some(Record::Skip { first, last, .. }) => self.skip(commit, *first, *last),
            Some(Record::Turns { names, parts_per_turn, .. }) => {
                self.set_turns(version, names, *parts_per_turn);
            }
            None => {}
        }
    }

    fn open(&mut self, version: Version, commit: &Commit, producer: &Name) {
        let anew = self.last_forget.map(|_| version);
        let one = self.producers.entry(producer.clone()).or_insert(ProducerState {
            incarnation: None,
            anew,
            last_open: version,
            open_nonce: commit.nonce,
            next: Sequence::ZERO,
            last_checksum: Checksum::ZERO,
            last_part: None,
            finished: false,
            state: None,
            last_version: version,
            attempt_us: commit.attempt_us,
        });
        one.incarnation = Some(version.incarnation());
        one.last_open = version;
        one.open_nonce = commit.nonce;
        one.finished = false;
        one.last_version = version;
        one.attempt_us = commit.attempt_us;
    }

    fn publish(&mut self, version: Version, commit: &Commit, parts: &Parts) {
        if !is_planted(Bug::TurnsByVersion) {
            self.take_turn(version, parts.parts.len());
        }
        let Some(one) = self.producers.get_mut(&parts.producer) else { return };
        for part in &parts.parts {
            let Some(layout) = part.layout() else { continue };
            one.next = one.next.next();
            one.last_checksum = part.checksum();
            one.last_part = Some(self.next_part);
            one.state = Some(StatePlace {
                version,
                offset: layout.state,
                length: part.state.length,
                checksum: part.state.checksum,
            });
            self.bytes_written = self.bytes_written.saturating_add(layout.end.saturating_sub(part.place));
            self.next_part = Part::new(self.next_part.get().saturating_add(1));
        }
        one.last_version = version;
        one.attempt_us = commit.attempt_us;
    }
}
