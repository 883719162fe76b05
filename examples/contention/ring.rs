//! The policies that need an agreement among producers: one leased sequencer, and turns.
//!
//! - Neither contends, so nothing of the store but its time enters.

use crate::figures::{BINS, Figures, jain, quantile};
use crate::random::Random;
use crate::scenario::{Policy, Scenario, Store};
use crate::world;

/// How long a lease outlasts its holder.
const LEASE_SECONDS: f64 = 10.0;

/// All parts go to one process, which commits them. It dies in the middle of the run, and the next one begins
/// when its lease is over.
pub fn sequencer(scenario: &Scenario) -> Figures {
    let total = f64::from(scenario.producers) * scenario.offered_each;
    let one = Scenario { producers: 1, offered_each: total, policy: Policy::Greedy, ..scenario.clone() };
    let half = scenario.seconds / 2.0;
    let gap = LEASE_SECONDS.min(half);
    // What comes meanwhile waits; a queue that is full makes applications wait, as everywhere.
    let mut figures = world::run(&Scenario { queue_parts: 128 * scenario.producers, ..one });
    figures.longest_gap = figures.longest_gap.max(gap);
    figures.stalled += gap / (scenario.seconds - scenario.measure_from);
    figures
}

/// One part from each in turn, in one order for ever. A slow member makes all wait.
pub fn turns(scenario: &Scenario) -> Figures {
    let mut random = Random::new(scenario.seed);
    let Store { read, .. } = scenario.store;
    let members = scenario.producers as usize;
    let period = 1.0 / scenario.offered_each;
    let phases: Vec<f64> = (0..members).map(|_| random.unit() * period).collect();
    let (mut now, mut turn) = (0.0f64, 0usize);
    let mut freed = vec![0.0f64; members];
    let (mut delays, mut last) = (Vec::new(), vec![0.0f64; members]);
    let mut figures = Figures { series: vec![0.0; BINS], jain: 1.0, ..Figures::default() };
    let mut shares = vec![0.0; members];
    let mut nth = vec![0u64; members];
    while now < scenario.seconds {
        let own = turn % members;
        let slower = if own == 0 { scenario.first_slower } else { 1.0 };
        // At most a queue ahead of what is committed.
        let published = (phases[own] + nth[own] as f64 * period).max(freed[own]);
        now = now.max(published) + (scenario.store.attempt() + read) * slower;
        nth[own] += 1;
        if nth[own] >= u64::from(scenario.queue_parts) {
            freed[own] = now - f64::from(scenario.queue_parts) * period;
        }
        if now >= scenario.measure_from && now < scenario.seconds {
            delays.push(now - published);
            shares[own] += 1.0;
            figures.longest_gap = figures.longest_gap.max(now - last[own].max(published));
        }
        last[own] = now;
        let bin = ((now / scenario.seconds * BINS as f64) as usize).min(BINS - 1);
        figures.series[bin] += BINS as f64 / scenario.seconds;
        turn += 1;
    }
    let measured = scenario.seconds - scenario.measure_from;
    figures.offered = members as f64 * scenario.offered_each;
    figures.committed = delays.len() as f64 / measured;
    figures.commits = figures.committed;
    figures.attempts_per_commit = 1.0;
    figures.calls_per_part = 10.0;
    (figures.delay_p50, figures.delay_p99) = (quantile(&mut delays, 0.5), quantile(&mut delays, 0.99));
    figures.jain = jain(shares.iter().copied());
    figures
}
