//! Waiting for the log to grow: by the doorbell on one host, by paced probes elsewhere.
//!
//! - The doorbell only shortens waits: after 50 ms, growing to 1 s, the log is probed all the same.
//! - Without one, a handle makes one probe per interval whatever the number of its threads: one thread
//!   leads, the others wait for what it finds. The interval is an eighth of the larger of the usual gap
//!   between commits and the time waited so far, within 50 ms and 2 s, jittered, so that waiting costs a
//!   metadata server little and freshness a fraction.
//! - A name that may be absent is only ever opened, in a directory opened anew; never stat'ed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Reader;
use crate::env::{Env, Signal};
use crate::error::Result;
use crate::id::Step;
use crate::limits::{DOORBELL_WAIT_MAX, DOORBELL_WAIT_MIN, PROBE_INTERVAL_MAX, PROBE_INTERVAL_MIN};
use crate::log::doorbell::saying;
use crate::planted::{Bug, is_planted};

/// Who probes, and how fast the log has grown lately.
#[derive(Debug)]
pub(super) struct Poller {
    state: Mutex<State>,
    found: Arc<dyn Signal>,
}

#[derive(Debug, Default)]
struct State {
    leading: bool,
    last_probe: Option<Duration>,
    last_growth: Option<Duration>,
    gaps: VecDeque<Duration>,
}

const GAPS: usize = 9;

/// How a wait for the log to grow goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// How long the caller has waited so far.
    pub(super) waited: Duration,
    /// How much longer it waits at most.
    pub(super) at_most: Duration,
    /// When its patience with a mount that is away is over.
    pub(super) until: Duration,
}

impl Poller {
    pub(super) fn new(env: &dyn Env) -> Self {
        Self { state: Mutex::default(), found: env.signal() }
    }

    /// Notes that the log was probed.
    pub(super) fn probed(&self, now: Duration) {
        self.state.lock().last_probe = Some(now);
    }

    /// Notes that the log has grown.
    pub(super) fn grown(&self, now: Duration) {
        let mut state = self.state.lock();
        if let Some(last) = state.last_growth.replace(now) {
            if state.gaps.len() >= GAPS {
                state.gaps.pop_front();
            }
            state.gaps.push_back(now.saturating_sub(last));
        }
    }
}

impl State {
    fn median_gap(&self) -> Duration {
        let mut gaps: Vec<Duration> = self.gaps.iter().copied().collect();
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied().unwrap_or_default()
    }
}

impl Reader {
    /// Waits a while for `step` to become visible; whether it has, the horizon says afterwards.
    pub(super) fn await_growth(&self, step: Step, wait: &Wait) -> Result<()> {
        self.commits.trim();
        if self.log.doorbell.load().is_some() {
            self.await_doorbell(step, wait)
        } else {
            self.await_probe(step, wait)
        }
    }

    fn await_doorbell(&self, step: Step, wait: &Wait) -> Result<()> {
        let known = self.horizon().next_version;
        let Some(said) = self.log.doorbell.load() else { return Ok(()) };
        let pause = (wait.waited / 2).clamp(DOORBELL_WAIT_MIN, DOORBELL_WAIT_MAX).min(wait.at_most);
        let pause = if is_planted(Bug::WaitUnbounded) { Duration::from_secs(u32::MAX.into()) } else { pause };
        if said == saying(known) {
            self.sleep_on_doorbell(said, pause);
            return self.advance_to(step, wait.until);
        }
        // It says something else than what is known here: more, or an old ring. Look, and if there is
        // nothing, sleep on that very value.
        self.advance_for(step, wait.until)?;
        if self.horizon().next_version == known {
            self.sleep_on_doorbell(said, pause);
            return self.advance_to(step, wait.until);
        }
        Ok(())
    }

    fn sleep_on_doorbell(&self, said: u32, wait: Duration) {
        if let Err(error) = self.log.doorbell.wait(&*self.log.storage, said, wait) {
            // One that broke mustn't make a busy loop of the wait.
            tracing::debug!(%error, "waiting on the doorbell failed");
            self.log.env.sleep(wait);
        }
    }

    fn await_probe(&self, step: Step, wait: &Wait) -> Result<()> {
        let env = &*self.log.env;
        let seen = self.poller.found.current();
        let pause = {
            let mut state = self.poller.state.lock();
            if state.leading {
                drop(state);
                self.poller.found.wait(seen, Some(wait.at_most));
                return Ok(());
            }
            state.leading = true;
            let interval = state.median_gap().max(wait.waited) / 8;
            let interval = self.jittered(interval.clamp(PROBE_INTERVAL_MIN, PROBE_INTERVAL_MAX));
            // An interval after the last probe, whoever made it, not after this call.
            state
                .last_probe
                .map_or(Duration::ZERO, |last| last.saturating_add(interval).saturating_sub(env.now()))
        };
        let lead = Lead(&self.poller);
        env.sleep(pause.min(wait.at_most));
        let advanced = if pause <= wait.at_most { self.advance_for(step, wait.until) } else { Ok(()) };
        drop(lead);
        advanced
    }

    /// Fifteen sixteenths to the whole of an interval, since its bounds are bounds, jittered or not: a longer
    /// one would show a step later than is promised, a shorter one cost more probes.
    fn jittered(&self, interval: Duration) -> Duration {
        let mut byte = [0x80];
        // Without entropy there is no jitter, which costs evenness only.
        let _ = self.log.env.entropy(&mut byte);
        let [byte] = byte;
        interval.mul_f64(0.9375 + f64::from(byte) / 4096.0).max(PROBE_INTERVAL_MIN)
    }
}

/// The lead in probing; given up also by a panic, so that nobody waits for the dead.
struct Lead<'p>(&'p Poller);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.0.state.lock().leading = false;
        self.0.found.notify();
    }
}

/// What a wait says while it lasts: at 10 s, 30 s, 1, 2, 5 min, and every 5 min from then on.
#[derive(Debug)]
pub(super) struct Patience {
    next_word: Duration,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { next_word: Duration::from_secs(10) }
    }

    /// Says what is waited for, if it is time to.
    pub(super) fn speak(&mut self, reader: &Reader, step: Step, waited: Duration) {
        if waited < self.next_word {
            return;
        }
        self.next_word = match self.next_word.as_secs() {
            ..10 => Duration::from_secs(10),
            10 => Duration::from_secs(30),
            30 => Duration::from_secs(60),
            60 => Duration::from_secs(120),
            120 => Duration::from_secs(300),
            later => Duration::from_secs(later.saturating_add(300)),
        };
        tracing::warn!(
            %step,
            seconds = waited.as_secs(),
            store = %reader.log.path.display(),
            producers = reader.producers_in_words(),
            "waiting for a step that isn't published"
        );
    }
}
