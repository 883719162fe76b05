//! When to commit, as a seam: a policy that is asked with what a producer sees, and told what its attempts
//! came to.
//!
//! - A policy is pure: it has no clock, no randomness and no I/O of its own, so it runs unchanged in the
//!   engine, in tests, and in a simulator with thousands of producers.
//! - What waits is durable already: a policy delays when it is seen, never whether (P6). No promise rests on
//!   any value here (P8).
//! - It is asked again after its [`Verdict::Hold`] has elapsed and whenever something has changed, so it
//!   keeps when its next attempt is due and doesn't draw a new wait at each call.

use std::time::Duration;

/// What a producer sees when it asks whether to commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The time, by the clock of [`Env::now`](crate::env::Env::now).
    pub now: Duration,
    /// Parts that wait. Without any there is nothing to commit.
    pub parts: u32,
    /// Their bytes.
    pub bytes: u64,
    /// When the oldest of them was published, by the same clock.
    pub since: Duration,
    /// The queue has no more room: the application waits.
    pub is_full: bool,
    /// Live producers, this one among them; see [`live`](super::census::live).
    pub producers: u32,
    /// The largest cost of an attempt that records of other live producers carry; zero if none is known.
    pub attempt_of_others: Duration,
    /// A consumer waits for the next step.
    pub hungry: bool,
    /// 64 random bits, fresh for every call.
    pub random: u64,
}

/// Whether to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Now, with all that waits.
    Commit,
    /// Ask again after so long, or when something has changed.
    Hold(Duration),
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When it ended, by the clock of [`Observed::now`].
    pub ended: Duration,
    /// From the last look at the head, which found the version free, to the verdict on it. The replay before
    /// that look isn't in it, nor is a boundary's work: while they last nobody else's commit costs the
    /// attempt.
    pub cost: Duration,
    /// Whether it got the version.
    pub won: bool,
}

/// A policy of when to commit.
pub trait Pacing: Send + std::fmt::Debug {
    /// Whether to commit what waits.
    fn decide(&mut self, seen: &Observed) -> Verdict;

    /// Takes note of an attempt, won or lost. A producer's Open is one too.
    fn note(&mut self, attempt: &Attempt);
}
