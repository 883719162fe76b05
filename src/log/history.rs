//! Changes of history in the state: rewinds, skips, and where the steps that they leave lie.
//!
//! - Every change begins a new generation, so no reader goes on over one unnoticed (P2).
//! - What is kept grows with the changes that are still of use above the floor, never with steps (P9).

use super::apply::Commit;
use super::state::{ProducerState, State, StatePlace};
use super::void::Void;
use crate::format::record::Rewind;
use crate::id::{Generation, Nonce, Step, Version};
use crate::planted::{Bug, is_planted};

/// A run of steps that were written one after another in one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first step.
    pub step: Step,
    /// No part of it lies before this version.
    pub version: Version,
    /// The generation it was written in.
    pub generation: Generation,
}

/// A rewind that still says something of older positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The generation that it began.
    pub generation: Generation,
    /// The step it went to: a position of an older generation beyond it isn't good any more.
    pub step: Step,
}

/// Published steps that are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The first of them.
    pub first: Step,
    /// The last of them.
    pub last: Step,
}

/// What the state knows of the changes of history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Where steps above the floor are, by first step; at least one.
    pub pieces: Vec<Piece>,
    /// By generation and by step at once: of two rewinds the newer and lower says all that the other does.
    pub limits: Vec<Limit>,
    /// In order, apart from each other.
    pub skips: Vec<Skipped>,
    /// The nonce of the newest valid Rewind, by which its writer knows it for its own (R6).
    pub last_rewind: Option<Nonce>,
    /// ... of the newest valid Skip.
    pub last_skip: Option<Nonce>,
}

impl Default for History {
    fn default() -> Self {
        let first = Piece { step: Step::ZERO, version: Version::ZERO, generation: Generation::ZERO };
        Self {
            pieces: vec![first],
            limits: Vec::new(),
            skips: Vec::new(),
            last_rewind: None,
            last_skip: None,
        }
    }
}

impl History {
    /// The piece that holds a step; none below the first.
    pub fn piece_of(&self, step: Step) -> Option<&Piece> {
        self.pieces.iter().rev().find(|piece| piece.step <= step)
    }

    /// The piece after the one that holds a step.
    pub fn piece_after(&self, step: Step) -> Option<&Piece> {
        self.pieces.get(self.pieces.partition_point(|piece| piece.step <= step))
    }

    /// The farthest step at which a position of an older generation is still good; none if any is.
    pub fn limit_of(&self, generation: Generation) -> Option<Step> {
        let newer = self.limits.partition_point(|limit| limit.generation <= generation);
        self.limits.get(newer).map(|limit| limit.step)
    }

    /// Forgets what is wholly below the floor.
    pub(super) fn forget_below(&mut self, floor: Step) {
        let first = self.pieces.partition_point(|piece| piece.step <= floor).saturating_sub(1);
        self.pieces.drain(..first);
        // Below the floor a position isn't good anyway: the newest of these says it of all the others.
        let useless = self.limits.partition_point(|limit| limit.step < floor).saturating_sub(1);
        self.limits.drain(..useless);
        self.skips.retain(|skip| skip.last >= floor);
    }

    fn rewind(&mut self, version: Version, generation: Generation, step: Step) {
        self.pieces.retain(|piece| piece.step < step);
        self.pieces.push(Piece { step, version: version.next(), generation });
        self.limits.retain(|limit| limit.step < step);
        self.limits.push(Limit { generation, step });
        self.skips.retain(|skip| skip.first < step);
        if let (Some(last), Some(before)) = (self.skips.last_mut(), step.get().checked_sub(1)) {
            last.last = last.last.min(Step::new(before));
        }
    }

    fn skip(&mut self, first: Step, last: Step) {
        let mut new = Skipped { first, last };
        // Those that touch it become one with it.
        self.skips.retain(|old| {
            let apart = old.last.next() < new.first || new.last.next() < old.first;
            if !apart {
                new.first = new.first.min(old.first);
                new.last = new.last.max(old.last);
            }
            apart
        });
        let place = self.skips.partition_point(|old| old.first < new.first);
        self.skips.insert(place, new);
    }
}

/// The first step at or after `step` that isn't passed over.
pub fn past(skips: &[Skipped], step: Step) -> Step {
    let place = skips.partition_point(|skip| skip.last < step);
    skips.get(place).filter(|skip| skip.first <= step).map_or(step, |skip| skip.last.next())
}

impl State {
    pub(super) fn judge_rewind(&self, rewind: &Rewind) -> Option<Void> {
        let listed = rewind.producers.iter().map(|one| &one.producer);
        if rewind.generation <= self.generation {
            Some(Void::OtherGeneration)
        } else if rewind.step < self.floor {
            Some(Void::BelowFloor)
        } else if rewind.step > self.next_step() {
            Some(Void::BeyondHead)
        } else if self.live_groups().count() > 1 && !rewind.many_groups {
            Some(Void::ManyGroups)
        } else if !listed.eq(self.producers.keys()) {
            Some(Void::OtherProducers)
        } else {
            self.judge_turn_of_rewind(rewind.turn)
        }
    }

    pub(super) fn judge_skip(&self, first: Step, last: Step) -> Option<Void> {
        // After the last number no generation comes, and a change that nobody notices isn't one (P2).
        if self.generation.next() == self.generation {
            Some(Void::OtherGeneration)
        } else if first < self.floor {
            Some(Void::BelowFloor)
        } else if first > last || last >= self.next_step() {
            Some(Void::BeyondHead)
        } else {
            (past(&self.history.skips, first) > last).then_some(Void::Skipped)
        }
    }

    pub(super) fn rewind(&mut self, version: Version, commit: &Commit, rewind: &Rewind) {
        self.generation = rewind.generation;
        self.next_part = rewind.step.first_part(self.parts_per_step);
        self.bytes_written = rewind.bytes_before;
        self.closed = None;
        self.history.rewind(version, rewind.generation, rewind.step);
        self.history.last_rewind = Some(commit.nonce);
        self.rewind_groups(rewind.step);
        self.set_turn_back(version, rewind.turn);
        for one in &rewind.producers {
            let Some(known) = self.producers.get_mut(&one.producer) else { continue };
            let place = StatePlace {
                version,
                offset: one.place,
                length: one.state.length,
                checksum: one.state.checksum,
            };
            *known = ProducerState {
                incarnation: None,
                next: one.next,
                last_checksum: one.last,
                last_part: one.last_part,
                finished: one.finished,
                state: one.last_part.map(|_| place),
                ..*known
            };
        }
    }

    pub(super) fn skip(&mut self, commit: &Commit, first: Step, last: Step) {
        self.history.skip(first, last);
        self.history.last_skip = Some(commit.nonce);
        if !is_planted(Bug::SkipSilent) {
            self.generation = self.generation.next();
        }
    }
}
