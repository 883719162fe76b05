//! The state of a store: a pure function of its log.
//!
//! - It holds what the store's names, checkpoints and changes of history take, and nothing that grows with
//!   the steps ever written (P9).
//! - It knows where a producer's state lies, never its bytes: consumers don't read them.
//! - What a record does to it is beside what it is about: producers and the stream in [`super::apply`],
//!   groups and the floor in [`super::groups`], rewinds and skips in [`super::history`], turns in
//!   [`super::turns`].

use std::collections::BTreeMap;

use super::groups::Groups;
use super::history::History;
use super::turns::Ring;
use crate::id::{Checksum, Generation, Incarnation, Nonce, Part, Sequence, Step, Version};
use crate::name::Name;

/// Where a producer's committed state lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatePlace {
    /// The commit.
    pub version: Version,
    /// Its first byte in the commit.
    pub offset: u64,
    /// Its length.
    pub length: u32,
    /// Of its bytes.
    pub checksum: Checksum,
}

/// What replay knows of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// The incarnation that may publish; none once retired.
    pub incarnation: Option<Incarnation>,
    /// The Open that began its name anew after a Forget of any name; none if it was there before the first.
    /// What a name was before it was forgotten is another producer's.
    pub anew: Option<Version>,
    /// The newest valid Open.
    pub last_open: Version,
    /// That Open's nonce, by which its writer knows it for its own (R6).
    pub open_nonce: Nonce,
    /// The next sequence.
    pub next: Sequence,
    /// Part checksum of the last part; zero before the first.
    pub last_checksum: Checksum,
    /// The last part; none before the first.
    pub last_part: Option<Part>,
    /// Whether it has retired.
    pub finished: bool,
    /// Its state; none before its first part.
    pub state: Option<StatePlace>,
    /// Its newest valid commit.
    pub last_version: Version,
    /// What an attempt to commit cost it, as its newest valid commit says, in microseconds.
    pub attempt_us: u32,
}

/// The state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Parts in a step; a fixed choice of the store.
    pub parts_per_step: u32,
    /// The version after the newest replayed one.
    pub next_version: Version,
    /// The part after the newest one.
    pub next_part: Part,
    /// The first step that is still retained.
    pub floor: Step,
    /// The lineage of that step: what was before it may be gone.
    pub floor_lineage: Checksum,
    /// The generation.
    pub generation: Generation,
    /// The step of every valid Close, in log order: a view that saw `n` of them ends at the one after
    /// those, also when a Reopen has followed since.
    pub ends: Vec<Step>,
    /// The step at which the stream ends; none while it goes on.
    pub closed: Option<Step>,
    /// Feature bits that are turned on.
    pub features: u64,
    /// Bytes in all parts ever valid.
    pub bytes_written: u64,
    /// Bytes in all parts below the floor.
    pub bytes_reclaimed: u64,
    /// By name.
    pub producers: BTreeMap<Name, ProducerState>,
    /// The newest valid Forget; none before the first.
    pub last_forget: Option<Version>,
    /// By name.
    pub groups: Groups,
    /// Rewinds, skips, and where the steps that they leave lie.
    pub history: History,
    /// Who takes turns; none before the first Turns.
    pub ring: Option<Ring>,
}

impl State {
    /// The state of an empty log.
    pub fn new(parts_per_step: u32) -> Self {
        Self {
            parts_per_step,
            next_version: Version::ZERO,
            next_part: Part::ZERO,
            floor: Step::ZERO,
            floor_lineage: Checksum::ZERO,
            generation: Generation::ZERO,
            ends: Vec::new(),
            closed: None,
            features: 0,
            bytes_written: 0,
            bytes_reclaimed: 0,
            producers: BTreeMap::new(),
            last_forget: None,
            groups: Groups::new(),
            history: History::default(),
            ring: None,
        }
    }

    /// How many valid Closes there were.
    pub fn closes(&self) -> u64 {
        self.ends.len() as u64
    }

    /// The next step: the number of steps that are visible.
    pub fn next_step(&self) -> Step {
        self.next_part.step(self.parts_per_step)
    }

    /// Whether parts of the next step are published already.
    pub fn has_open_step(&self) -> bool {
        self.next_step().first_part(self.parts_per_step) != self.next_part
    }

    /// Bytes that every index carries of producers' states and checkpoints' metadata.
    pub fn bytes_carried(&self) -> u64 {
        let states = self.producers.values().filter_map(|one| one.state).map(|state| u64::from(state.length));
        let kept = self.groups.values().flat_map(|group| &group.checkpoints);
        states.sum::<u64>().saturating_add(kept.map(|kept| kept.metadata.len() as u64).sum())
    }
}
