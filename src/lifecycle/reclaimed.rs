//! What a reclaim is told, and what it tells: for people and, by serde, for programs.

use std::fmt;

use serde::Serialize;

use crate::id::Step;
use crate::name::Name;

/// What a reclaim may let go; see [`Store::reclaim`](crate::Store::reclaim). By default only what no live
/// group needs, and no checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReclaimOptions {
    /// How many checkpoints each live group keeps: its newest by log order, beside pinned ones, which don't
    /// count. None drops no checkpoint.
    pub keep: Option<usize>,
    /// Whether a group may be left without any checkpoint: it protects the floor of that moment then.
    pub allow_no_checkpoint: bool,
    /// The floor isn't raised beyond this step. Where no group lives it is raised to it, and without it not
    /// at all.
    pub up_to: Option<Step>,
    /// Nothing is written or removed: what would be is reported.
    pub dry_run: bool,
    /// The staged control files that an earlier reclaim has seen: [`Reclaimed::control_seen`] of its report.
    /// Such a file is litter when it is seen a second time.
    pub control_seen: Vec<String>,
}

impl ReclaimOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`ReclaimOptions::keep`].
    #[must_use]
    pub fn keep(mut self, checkpoints: usize) -> Self {
        self.keep = Some(checkpoints);
        self
    }

    /// Sets [`ReclaimOptions::allow_no_checkpoint`].
    #[must_use]
    pub fn allow_no_checkpoint(mut self, allow: bool) -> Self {
        self.allow_no_checkpoint = allow;
        self
    }

    /// Sets [`ReclaimOptions::up_to`].
    #[must_use]
    pub fn up_to(mut self, step: Step) -> Self {
        self.up_to = Some(step);
        self
    }

    /// Sets [`ReclaimOptions::dry_run`].
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sets [`ReclaimOptions::control_seen`].
    #[must_use]
    pub fn control_seen(mut self, names: Vec<String>) -> Self {
        self.control_seen = names;
        self
    }
}

/// What a reclaim freed, or would free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Reclaimed {
    /// Whether nothing was written or removed.
    pub dry_run: bool,
    /// The first retained step before.
    pub floor_before: Step,
    /// The first retained step after.
    pub floor: Step,
    /// What keeps the floor from rising further.
    pub held_by: Holder,
    /// Checkpoints that were dropped, by group and then in log order.
    pub dropped: Vec<DroppedCheckpoint>,
    /// Segments of the log: their directories, and the bytes of the commits in them.
    pub segments: Freed,
    /// Indexes.
    pub indexes: Freed,
    /// Staged files that nobody needs, and what writers that slept have left in segments that were removed
    /// before: files and directories, and the bytes of those that were nowhere else.
    pub litter: Freed,
    /// The litter by name, relative to the store's directory.
    pub litter_names: Vec<String>,
    /// Bytes of all parts that are still retained.
    pub bytes_retained: u64,
    /// Staged control files that may be in use: for [`ReclaimOptions::control_seen`] of the next reclaim.
    pub control_seen: Vec<String>,
}

/// Names that were removed, and the bytes of their files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Freed {
    /// How many.
    pub count: u64,
    /// The sum of the sizes of their files, in bytes.
    pub bytes: u64,
}

impl Freed {
    pub(super) fn add(&mut self, more: Self) {
        self.count = self.count.saturating_add(more.count);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// What keeps a floor from rising further.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// The group that needs the step; none if it isn't a group.
    pub group: Option<Name>,
    /// The step that can't be passed.
    pub step: Step,
    /// Why, in words.
    pub why: String,
}

/// A checkpoint that was dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DroppedCheckpoint {
    /// Its group.
    pub group: Name,
    /// Its name.
    pub name: Name,
    /// The step that it protected.
    pub step: Step,
}

impl fmt::Display for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.count, self.bytes)
    }
}

/// As a person wants to read it: what was freed, and what holds the rest.
impl fmt::Display for Reclaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (would, floor) = (if self.dry_run { "would be " } else { "" }, self.floor);
        if floor == self.floor_before {
            writeln!(f, "The floor stays at step {floor}.")?;
        } else {
            let rises = if self.dry_run { "would rise" } else { "rose" };
            writeln!(f, "The floor {rises} from step {} to step {floor}.", self.floor_before)?;
        }
        match &self.held_by.group {
            Some(group) => {
                writeln!(f, "Group {group} holds it at step {}: {}.", self.held_by.step, self.held_by.why)?;
            }
            None => writeln!(f, "It goes no further than step {}: {}.", self.held_by.step, self.held_by.why)?,
        }
        for dropped in &self.dropped {
            let DroppedCheckpoint { group, name, step } = dropped;
            writeln!(f, "Checkpoint {name} of group {group} at step {step} {would}dropped.")?;
        }
        writeln!(f, "Segments {would}removed: {}; indexes: {}.", self.segments, self.indexes)?;
        writeln!(f, "Litter {would}removed: {}.", self.litter)?;
        write!(f, "Retained: {} bytes of parts.", self.bytes_retained)
    }
}
