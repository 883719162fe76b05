//! When one producer attempts: its policy, with what it has measured of its own attempts and counted of
//! others.
//!
//! - From its Open on: where thousands open at once, their Opens contend as their parts do.
//! - What an attempt costs is a windowed minimum: the delay of a queue must not pass for the store's.

use std::collections::VecDeque;
use std::time::Duration;

use super::census::{Census, Live};
use super::dac::Dac;
use super::failure::Failure;
use super::pacing::{Attempt, Observed, Pacing, Verdict};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::log::state::State;
use crate::log::tail::{Care, Tail};
use crate::name::Name;

/// Paces the attempts of one producer.
#[derive(Debug)]
pub struct Pacer {
    name: Name,
    policy: Box<dyn Pacing>,
    census: Census,
    live: Live,
    /// The last attempt.
    last: Option<Attempt>,
    /// The costs of the recent attempts.
    costs: VecDeque<Duration>,
}

/// Own attempts of which the least cost counts.
const COSTS_KEPT: usize = 16;

impl Pacer {
    /// Of a producer that has attempted nothing yet.
    pub fn new(name: Name) -> Self {
        let live = Live { producers: 1, attempt: Duration::ZERO };
        let policy = Box::new(Dac::default());
        Self { name, policy, census: Census::new(), live, last: None, costs: VecDeque::new() }
    }

    /// Another policy from now on, which is told of the last attempt.
    pub fn set_policy(&mut self, mut policy: Box<dyn Pacing>) {
        self.last.iter().for_each(|attempt| policy.note(attempt));
        self.policy = policy;
    }

    /// Counts who else commits.
    pub fn look_around(&mut self, state: &State) {
        self.live = self.census.live(state, &self.name);
    }

    /// Live producers, the own one among them.
    pub fn producers(&self) -> u32 {
        self.live.producers
    }

    /// What has become of an attempt.
    pub fn note(&mut self, attempt: &Attempt) {
        if self.costs.len() >= COSTS_KEPT {
            self.costs.pop_front();
        }
        self.costs.push_back(attempt.cost);
        self.policy.note(attempt);
        self.last = Some(*attempt);
    }

    /// The least cost of the recent attempts in microseconds, for records to carry.
    pub fn attempt_us(&self) -> u32 {
        let least = self.costs.iter().min().map_or(0, Duration::as_micros);
        u32::try_from(least).unwrap_or(u32::MAX)
    }

    /// Asks the policy; what it sees of time, of others and of chance is filled in here.
    ///
    /// # Errors
    /// `Io` when the system has no random numbers.
    pub fn ask(&mut self, log: &Log, seen: Observed) -> Result<Verdict> {
        let mut random = [0; 8];
        if self.live.producers > 1 {
            log.env.entropy(&mut random).map_err(|error| Error::io("can't draw a random number", error))?;
        }
        Ok(self.policy.decide(&Observed {
            now: log.env.now(),
            producers: self.live.producers,
            attempt_of_others: self.live.attempt,
            random: u64::from_le_bytes(random),
            ..seen
        }))
    }

    /// Waits until an attempt at a control record may be made, and brings the log to the present then.
    ///
    /// # Errors
    /// [`Failure::Not`] when the log can't be looked at.
    pub fn pause(&mut self, log: &Log, tail: &mut Tail, since: Duration) -> Result<(), Failure> {
        self.look_around(&tail.state);
        let seen = Observed { parts: 1, since, ..Observed::default() };
        let mut paused = false;
        while let Verdict::Hold(time) = self.ask(log, seen)? {
            log.env.sleep(time);
            paused = true;
        }
        if paused {
            tail.refresh(log);
            tail.advance(log, Care::Writing)?;
        }
        Ok(())
    }
}
