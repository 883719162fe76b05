//! Decentralized adaptive commit: when a producer attempts to commit, so that any number of them share a log
//! without talking to each other.
//!
//! - All together make about theta attempts in the time that one attempt takes: each of N producers one every
//!   `I = N d / theta`, jittered over 0.5..1.5. The rate of commits is then about `W(theta) / d` whatever N
//!   is, about a third of the attempts loses, and what waits goes in with the next commit.
//! - d is the least cost of the own recent attempts: a mean would take the queue at the store, which pacing
//!   is to keep short, for the store's own speed, and back off for good.
//! - Won or lost, the next attempt is as far away: who wins doesn't win again at once, and who loses doesn't
//!   storm. Losses in a row, and a queue that was met, back off further, until one is won.
//! - One producer alone never holds. After a pause an attempt is made at once, unless such attempts have
//!   lost: then producers whose parts arrive in lockstep spread them.
//! - A wait once begun is never made longer, and never is longer than [`Dac::hold_max`].
//! - Hints (hunger, a full queue, costs in others' records) shorten or lengthen a turn by a bounded factor;
//!   wrong ones cost a little delay or a few conflicts, nothing else.

use std::collections::VecDeque;
use std::time::Duration;

use super::pacing::{Attempt, Observed, Pacing, Verdict};

/// Own attempts of which the least cost counts: few, so that a store that has become slow is believed soon.
const COSTS_KEPT: usize = 5;
/// A producer slower than all others paces by them, down to this part of its own cost: it loses more often,
/// and would commit hardly ever if it also attempted less often.
const SLOWER_THAN_OTHERS: f64 = 4.0;
/// Losses in a row that are no sign of anything while a third of all attempts loses.
const LOSSES_EXPECTED: f64 = 3.3;
/// A lost attempt that took so many times the least was behind a crowd, which a third of losers doesn't make.
const CROWD: u32 = 4;
/// Doublings of the interval over losses in a row.
const DOUBLINGS_MAX: u32 = 16;
/// A first attempt after a pause that lost spreads the next one over at least this part of an interval.
const SPREAD_MIN: f64 = 0.25;
/// What one that won leaves of the spread. With the doubling over a loss it stands still at one loss in four.
const SPREAD_KEPT: f64 = 0.8;

/// What may be tuned, and what it trades.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knobs {
    /// Attempts of all producers in the time of one attempt. Less: fewer conflicts and requests, longer
    /// waits. From about 0.7 on a store that serialises attempts is busy with queues of losers.
    pub theta: f64,
    /// The same for a turn that is urgent: a consumer is hungry, or as much waits as goes into one commit. If
    /// every turn is urgent this is what theta is, so it has to be bearable for good.
    pub theta_urgent: f64,
    /// The cost of an attempt before anything is known of it. More: a slower start on a fast store; less:
    /// more conflicts at the start on a slow one. It matters for one attempt of each producer.
    pub cost_unknown: Duration,
    /// A cost above this is that of an outage, not of the store's pace, and counts as this.
    pub cost_max: Duration,
    /// No hold is longer, unless the own attempts show a store so slow that N producers need longer turns.
    /// More: fewer conflicts where N is underestimated; less: a bound on freshness when hints are wrong.
    pub hold_max: Duration,
    /// So many waiting parts make a turn urgent. More: longer waits, fewer commits; it is no limit on a
    /// commit.
    pub full_parts: u32,
    /// So many waiting bytes make a turn urgent.
    pub full_bytes: u64,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            theta: 0.5,
            theta_urgent: 0.6,
            cost_unknown: Duration::from_millis(10),
            cost_max: Duration::from_secs(10),
            hold_max: Duration::from_secs(30),
            full_parts: 256,
            full_bytes: 64 << 20,
        }
    }
}

/// The policy.
///
/// ```
/// # #[cfg(feature = "internals")] {
/// use std::time::Duration;
///
/// use batchweave::commit::dac::Dac;
/// use batchweave::commit::pacing::{Attempt, Observed, Pacing, Verdict};
///
/// let mut dac = Dac::default();
/// let (ended, cost) = (Duration::from_secs(5), Duration::from_millis(3));
/// dac.note(&Attempt { ended, cost, won: true }); // the Open
/// let seen = Observed {
///     now: Duration::from_secs(6),
///     parts: 1,
///     bytes: 4096,
///     since: Duration::from_secs(6),
///     is_full: false,
///     producers: 1,
///     attempt_of_others: Duration::ZERO,
///     hungry: false,
///     random: 7,
/// };
/// assert_eq!(dac.clone().decide(&seen), Verdict::Commit, "one alone never holds");
/// let crowd = Observed { producers: 100, random: u64::MAX, ..seen };
/// let Verdict::Hold(hold) = dac.decide(&crowd) else { panic!() };
/// assert!(hold <= Duration::from_millis(3) * 100 * 2, "the first turn is uniform over N d / theta");
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Dac {
    knobs: Knobs,
    /// Each at most a few times the least before it, and the first of what others say: a collapse, in which
    /// every attempt waits behind a crowd, isn't taken for the store's pace for good.
    costs: VecDeque<Duration>,
    /// The lesser of the last two.
    recent: Duration,
    /// What records of others said of the cost of an attempt, when last asked.
    others: Duration,
    last: Option<Attempt>,
    /// The first turn was had.
    is_warm: bool,
    losses: u32,
    /// By how many doublings the interval is longer than N and d say.
    doublings: u32,
    /// Over which part of an interval a first attempt after a pause is spread.
    spread: f64,
    /// Own cost over that by which it paces.
    slower: f64,
    turn: Option<Turn>,
}

/// From the first question after an attempt to the next attempt.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// 0..1, by which the interval is jittered.
    jitter: f64,
    /// 0..1, by which a spread is.
    spread: f64,
    due: Duration,
    /// Nothing waited when the attempt would have been due.
    after_pause: bool,
}

impl Dac {
    /// With other knobs than the default's.
    pub fn new(knobs: Knobs) -> Self {
        Self { knobs, ..Self::default() }
    }

    /// The least cost of the own recent attempts: what the next record is to carry. Zero before the first.
    pub fn cost(&self) -> Duration {
        self.costs.iter().min().copied().unwrap_or_default()
    }

    /// The longest hold that [`Pacing::decide`] gives for this: `hold_max`, or one and a half turns of all
    /// producers at the pace that the own attempts show, if that is more.
    pub fn hold_max(&self, seen: &Observed) -> Duration {
        seconds(1.5 * self.interval_max(seen)).max(self.knobs.hold_max)
    }

    /// What hints and losses can't lengthen an interval beyond, in seconds.
    fn interval_max(&self, seen: &Observed) -> f64 {
        let own = f64::from(seen.producers) * self.cost().as_secs_f64() / self.theta(seen);
        own.max(self.knobs.hold_max.as_secs_f64() / 1.5)
    }

    fn theta(&self, seen: &Observed) -> f64 {
        let knobs = &self.knobs;
        let enough = seen.parts >= knobs.full_parts || seen.bytes >= knobs.full_bytes;
        let is_urgent = seen.hungry || seen.is_full || enough;
        if is_urgent { knobs.theta_urgent.max(knobs.theta) } else { knobs.theta }.clamp(0.01, 4.0)
    }

    /// The cost by which all pace, in seconds, and how much slower the own attempts are.
    fn pace(&self, seen: &Observed) -> (f64, f64) {
        let others = seen.attempt_of_others.min(self.knobs.cost_max).as_secs_f64();
        if self.costs.is_empty() {
            let unknown = self.knobs.cost_unknown.as_secs_f64();
            return (if others > 0.0 { others } else { unknown }, 1.0);
        }
        let own = self.cost().as_secs_f64();
        if others == 0.0 {
            return (own, 1.0);
        }
        if own > others {
            let pace = others.max(own / SLOWER_THAN_OTHERS);
            return (pace, own / others);
        }
        // A store that has become slow shows in the own last attempts too; one producer that is slow doesn't.
        let recent = self.recent.as_secs_f64();
        (own.max(others.min(recent)), 1.0)
    }

    /// The interval between two own attempts, in seconds.
    fn interval(&mut self, seen: &Observed) -> f64 {
        let (cost, slower) = self.pace(seen);
        self.slower = slower;
        // What an attempt took beyond the least was spent behind others: so many more than N are there.
        let queued = match self.last {
            Some(last) if !last.won => last.cost.min(self.knobs.cost_max).saturating_sub(self.cost()),
            _ => Duration::ZERO,
        };
        let turns = (f64::from(seen.producers) * cost).max(queued.as_secs_f64());
        let backed_off = turns / self.theta(seen) * f64::from(2u32.saturating_pow(self.doublings));
        backed_off.min(self.interval_max(seen))
    }

    /// When the attempt of a turn is due by what is seen now, and whether it comes after a pause.
    fn due(&self, turn: &Turn, interval: f64, seen: &Observed) -> (Duration, bool) {
        let spread_from = |part: f64| seen.since.saturating_add(seconds(part * turn.spread * interval));
        let Some(last) = self.last.filter(|_| self.is_warm) else {
            return (spread_from(1.0), true);
        };
        let paced = last.ended.saturating_add(seconds((0.5 + turn.jitter) * interval));
        (paced.max(spread_from(self.spread)), paced < seen.since)
    }

    /// Losses in a row that say that more attempt than is known. Who is k times as slow loses to k times as
    /// many commits, which is no such sign.
    fn losses_max(&self) -> u32 {
        // A loss in three is 0.4 commits in the time of an attempt.
        let expected = LOSSES_EXPECTED * (0.4 * self.slower.max(1.0)).min(6.0).exp();
        expected.ceil() as u32
    }
}

impl Pacing for Dac {
    fn decide(&mut self, seen: &Observed) -> Verdict {
        if seen.parts == 0 {
            return Verdict::Hold(self.knobs.hold_max);
        }
        self.others = seen.attempt_of_others.min(self.knobs.cost_max);
        let interval = self.interval(seen);
        let mut turn = self.turn.unwrap_or_else(|| Turn {
            jitter: unit(seen.random as u32),
            spread: unit((seen.random >> 32) as u32),
            due: Duration::MAX,
            after_pause: false,
        });
        let (due, after_pause) = self.due(&turn, interval, seen);
        if due < turn.due {
            turn.due = due;
            turn.after_pause = after_pause;
        }
        // A clock that disagrees with itself makes nobody wait beyond the bound either.
        let hold_max = if seen.producers > 1 { self.hold_max(seen) } else { Duration::ZERO };
        turn.due = turn.due.min(seen.now.saturating_add(hold_max));
        self.turn = Some(turn);
        match turn.due.checked_sub(seen.now) {
            Some(hold) if !hold.is_zero() => Verdict::Hold(hold),
            _ => Verdict::Commit,
        }
    }

    fn note(&mut self, attempt: &Attempt) {
        // Who hasn't attempted yet has what others say.
        let least_before = if self.costs.is_empty() { self.others } else { self.cost() };
        if self.costs.len() >= COSTS_KEPT {
            self.costs.pop_front();
        }
        let capped = attempt.cost.min(self.knobs.cost_max);
        let believed =
            if least_before.is_zero() { capped } else { capped.min(least_before.saturating_mul(CROWD)) };
        self.costs.push_back(believed);
        self.recent = self.last.map_or(capped, |last| capped.min(last.cost));
        self.last = Some(*attempt);
        // Backed off from a store that had become slow: what d says by now isn't to be said twice.
        let mut least = least_before.saturating_mul(2);
        while self.doublings > 0 && !least.is_zero() && self.cost() >= least {
            self.doublings = self.doublings.saturating_sub(1);
            least = least.saturating_mul(2);
        }
        if let Some(turn) = self.turn.take() {
            self.is_warm = true;
            if turn.after_pause && attempt.won {
                self.spread *= SPREAD_KEPT;
            } else if turn.after_pause {
                self.spread = (2.0 * self.spread).clamp(SPREAD_MIN, 1.0);
            }
        }
        if attempt.won {
            self.losses = 0;
            self.doublings = self.doublings.saturating_sub(1);
        } else {
            let met_a_crowd = capped > self.cost().saturating_mul(CROWD);
            self.losses = if met_a_crowd { 0 } else { self.losses.saturating_add(1) };
            self.doublings = if met_a_crowd || self.losses >= self.losses_max() {
                self.doublings.saturating_add(1).min(DOUBLINGS_MAX)
            } else {
                // The crowd that was backed off from is gone.
                self.doublings.saturating_sub(1)
            };
        }
    }
}

/// 0..1.
fn unit(random: u32) -> f64 {
    f64::from(random) / (f64::from(u32::MAX) + 1.0)
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
#[path = "dac_tests.rs"]
mod tests;
