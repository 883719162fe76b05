//! What the model knows of parts, producers and groups: plain lists of them.

use std::collections::BTreeSet;

use batchweave::Checksum;
use batchweave::format::part::Item;

/// A part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who wrote it.
    pub producer: String,
    /// The Open that began that one's name, or began it anew after a Forget.
    pub(super) life: u64,
    /// Its place among that one's parts.
    pub sequence: u64,
    /// The commit that holds it.
    pub version: u64,
    /// The state committed with it.
    pub state: Item,
    pub(super) checksum: Checksum,
    pub(super) record: Checksum,
}

/// A producer's name.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer {
    /// The Open that began it, or began it anew after a Forget.
    pub(super) life: u64,
    pub(super) newest: u64,
    pub(super) current: Option<u64>,
    /// Since when it is finished, or isn't any more: by version.
    pub(super) finished: Vec<(u64, bool)>,
}

/// A checkpoint that is retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its commit.
    pub version: u64,
    /// Its name.
    pub name: String,
    /// The next step.
    pub step: u64,
}

/// A group's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The version of its newest Group record, which is its incarnation.
    pub newest: u64,
    /// Whether that incarnation lives.
    pub live: bool,
    /// Where it started.
    pub start: u64,
    /// What it protects beside its checkpoints.
    pub holds: Option<u64>,
    /// Its checkpoints.
    pub kept: Vec<Kept>,
}

impl Writer {
    pub(super) fn is_finished(&self) -> bool {
        self.finished.last().is_some_and(|(_, finished)| *finished)
    }
}

impl Reading {
    /// The first step that it needs; none if it doesn't live.
    pub fn needs(&self) -> Option<u64> {
        let steps = self.kept.iter().map(|kept| kept.step);
        if self.live { steps.chain(self.holds).min() } else { None }
    }
}

/// What an Open found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The name.
    pub name: String,
    /// The sequence at which it goes on.
    pub next: u64,
    /// The state of its last part.
    pub state: Option<Item>,
}

/// What a run that began at some version has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The group.
    pub group: String,
    /// Where it starts.
    pub start: u64,
    /// The generation.
    pub generation: u64,
    /// The floor.
    pub floor: u64,
    /// The next step.
    pub head: u64,
    /// Steps that are passed over.
    pub skipped: BTreeSet<u64>,
}
