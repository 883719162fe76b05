//! Counts what happens in a run, and makes its figures.

use crate::figures::{BINS, Figures, jain, quantile};
use crate::scenario::{Policy, Scenario};

/// Calls for each part that is staged: created, synced.
const CALLS_PER_PART: u64 = 2;
/// For each attempt: the look that finds a version free, the link.
const CALLS_PER_ATTEMPT: u64 = 2;
/// For one that won: the directory's sync, three for the marks, the staged name's removal.
const CALLS_PER_WIN: u64 = 5;
/// For one that lost: the name is opened, to see whose it is (R2).
const CALLS_PER_LOSS: u64 = 1;

pub struct Tally {
    /// When figures begin, in nanoseconds.
    pub from: u64,
    /// Storage calls so far; [`Tally::figures`] takes those of the whole run.
    pub calls: u64,
    /// Producers that are open and alive.
    pub alive: u32,
    seconds: f64,
    offered_each: f64,
    producers: u32,
    opens: u32,
    all_open: Option<f64>,
    /// Seconds of open and living producers, so far and until when.
    lived: f64,
    lived_until: u64,
    wins: u64,
    losses: u64,
    parts: u64,
    parts_ever: u64,
    delays: Vec<f64>,
    longest_gap: u64,
    series: Vec<f64>,
    won_series: Vec<f64>,
    lost_series: Vec<f64>,
}

impl Tally {
    pub fn new(scenario: &Scenario) -> Self {
        // Who is told the true number is told of those who are about to open too.
        let told = if scenario.policy == Policy::Oracle { scenario.producers } else { 0 };
        Self {
            from: (scenario.measure_from * 1e9) as u64,
            calls: 0,
            alive: told,
            seconds: scenario.seconds,
            offered_each: scenario.offered_each,
            producers: scenario.producers,
            opens: 0,
            all_open: None,
            lived: 0.0,
            lived_until: 0,
            wins: 0,
            losses: 0,
            parts: 0,
            parts_ever: 0,
            delays: Vec::new(),
            longest_gap: 0,
            series: vec![0.0; BINS],
            won_series: vec![0.0; BINS],
            lost_series: vec![0.0; BINS],
        }
    }

    fn bin(&self, now: u64) -> usize {
        ((now as f64 / 1e9 / self.seconds * BINS as f64) as usize).min(BINS - 1)
    }

    fn live_until(&mut self, now: u64) {
        let since = self.lived_until.max(self.from);
        self.lived += f64::from(self.opens) * now.saturating_sub(since) as f64 / 1e9;
        self.lived_until = now;
    }

    pub fn opened(&mut self, more: usize, now: u64) {
        self.live_until(now);
        self.opens += more as u32;
        self.alive = self.alive.max(self.opens);
        if self.opens >= self.producers && self.all_open.is_none() {
            self.all_open = Some(now as f64 / 1e9);
        }
    }

    pub fn died(&mut self, fewer: u32, now: u64) {
        self.live_until(now);
        self.opens -= fewer;
        self.alive = self.opens;
    }

    pub fn attempt(&mut self, now: u64, won: bool, is_part: bool) {
        let bin = self.bin(now);
        let series = if won { &mut self.won_series } else { &mut self.lost_series };
        series[bin] += 1.0;
        self.calls += CALLS_PER_ATTEMPT + if won { CALLS_PER_WIN } else { CALLS_PER_LOSS };
        if now >= self.from && is_part {
            *(if won { &mut self.wins } else { &mut self.losses }) += 1;
        }
    }

    /// A part is in, so long after it was published.
    pub fn part(&mut self, now: u64, delay: u64) {
        let bin = self.bin(now);
        self.series[bin] += BINS as f64 / self.seconds;
        self.calls += CALLS_PER_PART;
        self.parts_ever += 1;
        if now >= self.from {
            self.parts += 1;
            self.delays.push(delay as f64 / 1e9);
        }
    }

    pub fn gap(&mut self, now: u64, gap: u64) {
        if now >= self.from {
            self.longest_gap = self.longest_gap.max(gap);
        }
    }

    pub fn figures(mut self, now: u64, stalled: f64, shares: impl Iterator<Item = f64> + Clone) -> Figures {
        self.live_until(now);
        let measured = now.saturating_sub(self.from) as f64 / 1e9;
        let attempts = (self.wins + self.losses) as f64;
        let lost = self.lost_series.iter().zip(&self.won_series);
        Figures {
            offered: self.lived * self.offered_each / measured,
            committed: self.parts as f64 / measured,
            commits: self.wins as f64 / measured,
            conflicts: self.losses as f64 / attempts.max(1.0),
            attempts_per_commit: attempts / self.wins.max(1) as f64,
            calls_per_part: self.calls as f64 / self.parts_ever.max(1) as f64,
            delay_p50: quantile(&mut self.delays, 0.5),
            delay_p99: quantile(&mut self.delays, 0.99),
            jain: jain(shares),
            longest_gap: self.longest_gap as f64 / 1e9,
            stalled: stalled / measured,
            all_open: self.all_open,
            conflict_series: lost.map(|(lost, won)| lost / (lost + won).max(1.0)).collect(),
            series: self.series,
        }
    }
}
