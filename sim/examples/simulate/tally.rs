//! The sum of many runs, and its words.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use batchweave_sim::simulation::Report;
use batchweave_sim::{Coverage, Met, Wrong};

/// The sum of many runs.
#[derive(Default)]
pub struct Tally {
    took: Duration,
    jobs: usize,
    wrongs: BTreeMap<Wrong, u64>,
    mets: BTreeMap<Met, u64>,
    runs: u64,
    broken: u64,
    calls: u64,
    shapes: BTreeMap<String, u64>,
    classes: BTreeMap<String, u64>,
}

impl Tally {
    /// Of no run yet, but of what is known of all: how long they took, how many at a time, and how often each
    /// kind of thing went wrong or was met.
    pub fn of(took: Duration, jobs: usize, coverage: &Coverage) -> Self {
        Self { took, jobs, wrongs: coverage.counts(), mets: coverage.mets(), ..Self::default() }
    }

    /// One more run.
    pub fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.broken += u64::from(report.trouble.is_some());
        self.calls += report.calls;
        *self.shapes.entry(format!("{:?}", report.setup.shape)).or_default() += 1;
        *self.classes.entry(format!("{:?}", report.setup.class)).or_default() += 1;
    }

    /// The runs of another worker.
    pub fn join(&mut self, other: &Self) {
        self.runs += other.runs;
        self.broken += other.broken;
        self.calls += other.calls;
        for (sums, others) in [(&mut self.shapes, &other.shapes), (&mut self.classes, &other.classes)] {
            others.iter().for_each(|(name, runs)| *sums.entry(name.clone()).or_default() += runs);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64();
        let rate = self.runs as f64 / seconds.max(f64::MIN_POSITIVE);
        write!(f, "{} runs in {seconds:.1} s: {rate:.1} a second, ", self.runs)?;
        writeln!(f, "{:.1} by each of {} jobs", rate / self.jobs as f64, self.jobs)?;
        writeln!(f, "{} storage calls", self.calls)?;
        for runs in [&self.shapes, &self.classes] {
            let words: Vec<_> = runs.iter().map(|(name, runs)| format!("{runs} {name}")).collect();
            writeln!(f, "{}", words.join(", "))?;
        }
        let wrongs = self.wrongs.iter().map(|(wrong, times)| (wrong.words(), times));
        for (words, times) in wrongs.chain(self.mets.iter().map(|(met, times)| (met.words(), times))) {
            match times {
                0 => writeln!(f, "   never {words}")?,
                _ => writeln!(f, "{times:>8} {words}")?,
            }
        }
        match self.broken {
            0 => writeln!(f, "all promises are kept"),
            broken => writeln!(f, "a promise is broken in {broken} runs"),
        }
    }
}
