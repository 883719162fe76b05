//! Many runs at a time, on all cores, until their number or the time is up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use batchweave_sim::Coverage;
use batchweave_sim::simulation::{Report, Shape, on_cores, simulate};
use indicatif::{ProgressBar, ProgressStyle};

use crate::tally::Tally;

/// Failing runs that are told one by one.
const TOLD_MAX: u64 = 20;

/// Which runs to make.
pub struct Search {
    /// The first seed.
    pub first: u64,
    /// How many runs; any number if none is said.
    pub seeds: Option<u64>,
    /// For how long.
    pub length: Option<Duration>,
    /// Of which shape; of any if none is said.
    pub shape: Option<Shape>,
    /// How many at a time.
    pub jobs: usize,
}

impl Search {
    /// Makes them all; gives the first that broke a promise too.
    pub fn run(&self) -> (Tally, Option<Report>) {
        let began = now();
        let until = self.length.map(|length| began + length);
        let coverage = Arc::new(Coverage::default());
        let bar = self.bar();
        let (next, told) = (AtomicU64::new(0), AtomicU64::new(0));
        let work = || {
            let mut tally = Tally::default();
            let mut first: Option<Report> = None;
            while until.is_none_or(|until| now() < until) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if self.seeds.is_some_and(|seeds| number >= seeds) {
                    break;
                }
                let report = simulate(self.first.wrapping_add(number), self.shape, &coverage);
                tally.add(&report);
                bar.inc(1);
                if report.trouble.is_some() {
                    if told.fetch_add(1, Ordering::Relaxed) < TOLD_MAX {
                        bar.suspend(|| tell(&report));
                    }
                    first.get_or_insert(report);
                }
            }
            (tally, first)
        };
        let done = on_cores(self.jobs, work);
        bar.finish_and_clear();
        let (tallies, firsts): (Vec<_>, Vec<_>) = done.into_iter().unzip();
        let mut tally = Tally::of(began.elapsed(), self.jobs, &coverage);
        tallies.iter().for_each(|other| tally.join(other));
        (tally, firsts.into_iter().flatten().min_by_key(|report| report.seed.wrapping_sub(self.first)))
    }

    /// On a terminal only.
    fn bar(&self) -> ProgressBar {
        let template = match self.seeds {
            Some(_) => "{wide_bar} {pos}/{len} runs, {per_sec}",
            None => "{spinner} {pos} runs in {elapsed}, {per_sec}",
        };
        let bar = self.seeds.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }
}

fn tell(report: &Report) {
    let trouble = report.trouble.as_deref().unwrap_or_default().replace('\n', " ");
    println!("seed {}: {trouble}; {:?}", report.seed, report.setup);
}

#[expect(clippy::disallowed_methods, reason = "how long a search takes is no business of a simulated clock")]
fn now() -> Instant {
    Instant::now()
}
