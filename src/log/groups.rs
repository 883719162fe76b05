//! Groups and their checkpoints in the state: what is protected, and the floor below which nothing is.
//!
//! - A live group always protects something: its start until the first checkpoint of its incarnation, then
//!   its checkpoints; left without any, the floor of that moment.
//! - The floor never falls, and never passes what a live group needs (P5).

use std::collections::BTreeMap;

use super::apply::Commit;
use super::state::State;
use super::void::Void;
use crate::format::record::Checkpoint;
use crate::id::{Checksum, Generation, Incarnation, Nonce, Step, Version};
use crate::name::Name;
use crate::planted::{Bug, is_planted};

/// A checkpoint that is retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where its record is.
    pub version: Version,
    /// The generation that it was written for.
    pub generation: Generation,
    /// The next step to deliver.
    pub step: Step,
    /// The position's lineage.
    pub lineage: Checksum,
    /// Its name within the group.
    pub name: Name,
    /// Whether it stays until it is dropped by name.
    pub pinned: bool,
    /// The user's.
    pub metadata: Vec<u8>,
}

/// What replay knows of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// The incarnation that may checkpoint; none once retired.
    pub incarnation: Option<Incarnation>,
    /// The newest valid Group record of the name.
    pub last_group: Version,
    /// Its nonce, by which its writer knows it for its own (R6).
    pub nonce: Nonce,
    /// Where that incarnation started.
    pub start: Step,
    /// What it protects beside its checkpoints.
    pub holds: Option<Step>,
    /// Its retained checkpoints, in log order.
    pub checkpoints: Vec<Kept>,
}

impl GroupState {
    /// The lowest step that it needs, as long as it lives.
    pub fn needs(&self) -> Option<Step> {
        self.incarnation?;
        self.checkpoints.iter().map(|kept| kept.step).chain(self.holds).min()
    }

    /// The checkpoint of a name.
    pub fn checkpoint(&self, name: &Name) -> Option<&Kept> {
        self.checkpoints.iter().find(|kept| kept.name == *name)
    }
}

impl State {
    /// The groups that live, by name.
    pub fn live_groups(&self) -> impl Iterator<Item = (&Name, &GroupState)> {
        self.groups.iter().filter(|(_, group)| group.incarnation.is_some())
    }

    /// The lowest step that a live group needs, and the group; none without a live group.
    pub fn needed(&self) -> Option<(Step, &Name)> {
        self.live_groups().filter_map(|(name, group)| Some((group.needs()?, name))).min()
    }

    pub(super) fn judge_group(&self, group: &Name, last: Option<Version>, start: Step) -> Option<Void> {
        if self.groups.get(group).map(|known| known.last_group) != last {
            return Some(Void::Overtaken);
        }
        (start < self.floor).then_some(Void::BelowFloor)
    }

    pub(super) fn judge_group_incarnation(&self, group: &Name, incarnation: Incarnation) -> Option<Void> {
        let current = self.groups.get(group).and_then(|known| known.incarnation);
        (current != Some(incarnation)).then_some(Void::Fenced)
    }

    pub(super) fn judge_checkpoint(&self, checkpoint: &Checkpoint) -> Option<Void> {
        let fenced = self.judge_group_incarnation(&checkpoint.group, checkpoint.incarnation);
        if fenced.is_some() && !is_planted(Bug::CheckpointLate) {
            return fenced;
        }
        let taken = |group: &GroupState| group.checkpoint(&checkpoint.name).is_some();
        if checkpoint.step > self.next_step() {
            Some(Void::BeyondHead)
        } else if checkpoint.step < self.floor {
            Some(Void::BelowFloor)
        } else {
            self.groups.get(&checkpoint.group).is_some_and(taken).then_some(Void::NameTaken)
        }
    }

    pub(super) fn judge_drop(
        &self,
        group: &Name,
        incarnation: Incarnation,
        checkpoint: Version,
    ) -> Option<Void> {
        let known = |group: &GroupState| group.checkpoints.iter().any(|kept| kept.version == checkpoint);
        self.judge_group_incarnation(group, incarnation)
            .or_else(|| (!self.groups.get(group).is_some_and(known)).then_some(Void::Unknown))
    }

    pub(super) fn judge_floor(&self, step: Step) -> Option<Void> {
        if step < self.floor {
            Some(Void::BelowFloor)
        } else if step > self.next_step() {
            Some(Void::BeyondHead)
        } else {
            self.needed().is_some_and(|(needed, _)| step > needed).then_some(Void::Protected)
        }
    }

    pub(super) fn open_group(&mut self, version: Version, commit: &Commit, group: &Name, start: Step) {
        let known = self.groups.remove(group);
        let counted = known.as_ref().and_then(|known| known.incarnation).map_or(0, |last| last.get() + 1);
        let number = if is_planted(Bug::IncarnationsCounted) { Version::new(counted) } else { version };
        let checkpoints = known.map(|known| known.checkpoints).unwrap_or_default();
        let opened = GroupState {
            incarnation: Some(number.incarnation()),
            last_group: version,
            nonce: commit.nonce,
            start,
            holds: Some(start),
            checkpoints,
        };
        self.groups.insert(group.clone(), opened);
    }

    pub(super) fn retire_group(&mut self, group: &Name) {
        if let Some(known) = self.groups.get_mut(group) {
            known.incarnation = None;
            known.holds = None;
            known.checkpoints.clear();
        }
    }

    pub(super) fn keep(&mut self, version: Version, commit: &Commit, checkpoint: &Checkpoint) {
        let Some(known) = self.groups.get_mut(&checkpoint.group) else { return };
        known.holds = None;
        known.checkpoints.push(Kept {
            version,
            generation: commit.generation,
            step: checkpoint.step,
            lineage: checkpoint.lineage,
            name: checkpoint.name.clone(),
            pinned: checkpoint.pinned,
            metadata: checkpoint.metadata.clone(),
        });
    }

    pub(super) fn release(&mut self, group: &Name, checkpoint: Version) {
        let floor = self.floor;
        let Some(known) = self.groups.get_mut(group) else { return };
        known.checkpoints.retain(|kept| kept.version != checkpoint);
        if known.checkpoints.is_empty() {
            known.holds.get_or_insert(floor);
        }
    }

    /// Raises the floor: what lies below it wholly is forgotten.
    pub(super) fn raise_floor(&mut self, step: Step, lineage: Checksum, bytes_before: u64) {
        self.floor = step;
        self.floor_lineage = lineage;
        self.bytes_reclaimed = bytes_before;
        self.history.forget_below(step);
    }

    /// A rewind to `step` takes the checkpoints beyond it along.
    pub(super) fn rewind_groups(&mut self, step: Step) {
        let floor = self.floor;
        for known in self.groups.values_mut() {
            known.holds = known.holds.map(|held| held.min(step));
            let had = !known.checkpoints.is_empty();
            known.checkpoints.retain(|kept| kept.step <= step);
            if had && known.checkpoints.is_empty() {
                known.holds.get_or_insert(known.start.min(step).max(floor));
            }
        }
    }
}

/// The groups of a state, by name.
pub type Groups = BTreeMap<Name, GroupState>;
