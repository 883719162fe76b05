//! What is simulated: producers, a store, a policy, and what is done to them meanwhile.
//!
//! - Plain data; every time is in seconds.

use std::time::Duration;

use batchweave::commit::dac::{Dac, Knobs};
use batchweave::commit::pacing::Pacing;
use batchweave::commit::rivals::{Aimd, Backoff, Fixed, Greedy};
use serde::Serialize;

/// A store, as attempts see it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Store {
    /// How long an attempt, won or lost, keeps all others waiting; 0 where losers cost the store nothing.
    pub serialised: f64,
    /// What an attempt takes besides: the rest of its window.
    pub travel: f64,
    /// Reading one commit of the log.
    pub read: f64,
    /// What whoever begins a segment does before (R4).
    pub boundary: f64,
}

impl Store {
    /// One that serialises attempts for `serialised` seconds each, and half as long a way to it.
    pub fn serialising(serialised: f64) -> Self {
        Self::new(serialised, 1.5 * serialised)
    }

    /// One where losers cost nothing.
    pub fn free(attempt: f64) -> Self {
        Self::new(0.0, attempt)
    }

    /// With a window of `attempt` seconds, for `serialised` of which others wait.
    pub fn new(serialised: f64, attempt: f64) -> Self {
        let travel = (attempt - serialised).max(0.0);
        Self { serialised, travel, read: travel / 2.0, boundary: 4.0 * attempt }
    }

    /// The window of an attempt that meets no queue.
    pub fn attempt(&self) -> f64 {
        self.serialised + self.travel
    }
}

/// When to commit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Policy {
    Greedy,
    Fixed(f64),
    Backoff,
    Aimd,
    /// The engine's.
    Paced,
    /// The engine's, told the true number of producers.
    Oracle,
}

impl Policy {
    pub fn name(self) -> String {
        match self {
            Self::Greedy => "greedy".into(),
            Self::Fixed(interval) => format!("fixed {interval} s"),
            Self::Backoff => "backoff".into(),
            Self::Aimd => "AIMD".into(),
            Self::Paced => "paced".into(),
            Self::Oracle => "paced, true N".into(),
        }
    }

    pub fn build(self, store: &Store, knobs: Knobs) -> Box<dyn Pacing> {
        match self {
            Self::Greedy => Box::new(Greedy),
            Self::Fixed(interval) => Box::new(Fixed::new(Duration::from_secs_f64(interval))),
            Self::Backoff => Box::new(Backoff::new(Duration::from_secs_f64(store.attempt()))),
            Self::Aimd => Box::new(Aimd::new(1.0)),
            Self::Paced | Self::Oracle => Box::new(Dac::new(knobs)),
        }
    }
}

/// How the producers begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Start {
    /// They are open; only what they publish is simulated.
    Open,
    /// All open in the same instant, each trying again at once until it has won.
    GreedyOpens,
    /// All open in the same instant, each asking its policy when to try.
    PacedOpens,
}

/// When parts come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Arrivals {
    /// Each producer by itself, at its own phase, not quite regularly.
    Apart,
    /// All in the same instants.
    Lockstep,
}

/// What producers are told of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Hint {
    Never,
    Always,
    Random,
    /// Consumers that take what is offered: they wait when nothing is left of what was committed.
    True,
}

/// What is done to a run at some second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Disturbance {
    /// So many more producers, which open first.
    Join(u32),
    /// Every second producer dies.
    HalfDie,
    /// All of an attempt takes so many times as long.
    Slower(f64),
    /// Nobody publishes any more, ...
    Pause,
    /// ... and all go on in the same instant.
    Resume,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    pub seed: u64,
    pub policy: Policy,
    pub store: Store,
    pub producers: u32,
    /// Parts a second that each producer has to publish.
    pub offered_each: f64,
    /// Parts that may wait at a producer; then its application does.
    pub queue_parts: u32,
    pub arrivals: Arrivals,
    pub start: Start,
    pub hint: Hint,
    /// Producer 0 is so many times as slow.
    pub first_slower: f64,
    pub disturbances: Vec<(f64, Disturbance)>,
    pub seconds: f64,
    /// Figures are of what happens from here on.
    pub measure_from: f64,
    /// Commits in the log before.
    pub log_length: u64,
    #[serde(skip)]
    pub knobs: Knobs,
}

/// Parts that go into a commit on average where commits are what is scarce.
const PARTS_PER_COMMIT: f64 = 16.0;
const OFFERED_EACH_MAX: f64 = 0.5;

impl Scenario {
    /// Open producers that publish undisturbed, as much as pacing carries with 16 parts in a commit, and half
    /// a part a second at most; for twenty intervals, of which the first five don't count.
    pub fn steady(seed: u64, policy: Policy, store: Store, producers: u32) -> Self {
        let interval = interval(&store, producers);
        let seconds = (20.0 * interval).max(60.0);
        Self {
            seed,
            policy,
            store,
            producers,
            offered_each: (PARTS_PER_COMMIT / (1.5 * interval)).min(OFFERED_EACH_MAX),
            queue_parts: 128,
            arrivals: Arrivals::Apart,
            start: Start::Open,
            hint: Hint::Never,
            first_slower: 1.0,
            disturbances: Vec::new(),
            seconds,
            measure_from: seconds / 4.0,
            log_length: 0,
            knobs: Knobs::default(),
        }
    }
}

/// What pacing aims at between two attempts of a producer.
pub fn interval(store: &Store, producers: u32) -> f64 {
    f64::from(producers) * store.attempt() / Knobs::default().theta
}
