//! Policies that the adaptive one is measured against. The engine never uses them.
//!
//! - Each is what somebody would write first, and each fails somewhere: docs/dac.md shows where.

use std::time::Duration;

use super::pacing::{Attempt, Observed, Pacing, Verdict};

/// Commits at once and tries again at once. The lowest latency where losing costs the store nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greedy;

impl Pacing for Greedy {
    fn decide(&mut self, seen: &Observed) -> Verdict {
        if seen.parts == 0 { Verdict::Hold(Duration::MAX) } else { Verdict::Commit }
    }

    fn note(&mut self, _: &Attempt) {}
}

/// An attempt each so long, won or lost, from a random phase on.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    interval: Duration,
    due: Option<Duration>,
}

impl Fixed {
    /// With this interval.
    pub fn new(interval: Duration) -> Self {
        Self { interval, due: None }
    }
}

impl Pacing for Fixed {
    fn decide(&mut self, seen: &Observed) -> Verdict {
        let phase = seconds(unit(seen.random) * self.interval.as_secs_f64());
        let due = *self.due.get_or_insert(seen.since.saturating_add(phase));
        until(due, seen)
    }

    fn note(&mut self, attempt: &Attempt) {
        self.due = Some(attempt.ended.saturating_add(self.interval));
    }
}

/// Tries again after a random part of a time that doubles with each loss; at once after a win.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    base: Duration,
    losses: u32,
    due: Option<Duration>,
    last: Duration,
}

impl Backoff {
    /// With this time after the first loss.
    pub fn new(base: Duration) -> Self {
        Self { base, losses: 0, due: Some(Duration::ZERO), last: Duration::ZERO }
    }
}

impl Pacing for Backoff {
    fn decide(&mut self, seen: &Observed) -> Verdict {
        let longest = self.base.saturating_mul(2u32.saturating_pow(self.losses.min(20)));
        let part = seconds(unit(seen.random) * longest.as_secs_f64());
        let due = *self.due.get_or_insert(self.last.saturating_add(part));
        until(due, seen)
    }

    fn note(&mut self, attempt: &Attempt) {
        self.last = attempt.ended;
        self.losses = if attempt.won { 0 } else { self.losses.saturating_add(1) };
        self.due = attempt.won.then_some(attempt.ended);
    }
}

/// A rate of attempts that grows by a step with each win and halves with each loss.
#[derive(Clone, Copy, Debug)]
pub struct Aimd {
    /// Attempts a second.
    rate: f64,
    step: f64,
    due: Option<Duration>,
    last: Duration,
}

impl Aimd {
    /// Begins with this rate a second, and grows by a tenth of it.
    pub fn new(rate: f64) -> Self {
        Self { rate, step: rate / 10.0, due: Some(Duration::ZERO), last: Duration::ZERO }
    }
}

impl Pacing for Aimd {
    fn decide(&mut self, seen: &Observed) -> Verdict {
        let wait = seconds((0.5 + unit(seen.random)) / self.rate);
        let due = *self.due.get_or_insert(self.last.saturating_add(wait));
        until(due, seen)
    }

    fn note(&mut self, attempt: &Attempt) {
        self.last = attempt.ended;
        self.due = None;
        self.rate = if attempt.won { self.rate + self.step } else { (self.rate / 2.0).max(1e-4) };
    }
}

fn until(due: Duration, seen: &Observed) -> Verdict {
    match due.checked_sub(seen.now) {
        _ if seen.parts == 0 => Verdict::Hold(Duration::MAX),
        Some(hold) if !hold.is_zero() => Verdict::Hold(hold),
        _ => Verdict::Commit,
    }
}

/// 0..1.
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
