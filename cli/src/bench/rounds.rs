//! Rounds: engine and raw calls by turns on the same directory, and what is made of their times.
//!
//! - A machine is never quiet, so only what ran side by side is compared: the figure is the median over
//!   rounds of the round's ratio, and who goes first changes from round to round.
//! - The first round warms both up and isn't counted.

use std::io::{IsTerminal, Write};

use serde::Serialize;

use super::Result;

/// Tells a person at a terminal how far it is; silent elsewhere.
#[derive(Debug)]
pub(super) struct Progress {
    terminal: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal() }
    }

    pub(super) fn say(&self, what: &str) {
        if self.terminal {
            // Progress that can't be shown is no reason to stop.
            let _ = write!(std::io::stderr(), "\r\x1b[K{what}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.say("");
    }
}

/// Whether more of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    /// Commits or bytes per second.
    Higher,
    /// A delay.
    Lower,
}

/// What is said about a figure before it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) better: Better,
    pub(super) target: f64,
    pub(super) per_round: u64,
    pub(super) engine_does: &'static str,
    pub(super) raw_does: &'static str,
}

/// One figure: the engine beside the raw calls.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    /// The JSON name of the ratio.
    pub(super) name: &'static str,
    /// Median over rounds of engine / raw.
    pub(super) ratio: f64,
    /// The ratio's quartiles over rounds: how noisy the machine was.
    pub(super) ratio_quartiles: (f64, f64),
    /// Median of the engine's rounds, in `unit`.
    pub(super) engine: f64,
    /// Median of the raw rounds, in `unit`.
    pub(super) raw: f64,
    pub(super) unit: &'static str,
    pub(super) target: f64,
    pub(super) met: bool,
    pub(super) rounds: usize,
    /// Commits, batches or pings of each side in a round.
    pub(super) per_round: u64,
    pub(super) engine_does: &'static str,
    pub(super) raw_does: &'static str,
}

/// Runs both sides by turns; each gives its round's value in the figure's unit.
pub(super) fn compare(
    progress: &Progress,
    rounds: usize,
    about: About,
    mut engine: impl FnMut() -> Result<f64>,
    mut raw: impl FnMut() -> Result<f64>,
) -> Result<Figure> {
    let mut pairs = Vec::with_capacity(rounds);
    for round in 0..=rounds {
        progress.say(&format!("{}: round {round} of {rounds}", about.name));
        let pair = if round % 2 == 0 {
            let first = engine()?;
            (first, raw()?)
        } else {
            let first = raw()?;
            (engine()?, first)
        };
        if round > 0 {
            pairs.push(pair);
        }
    }
    let mut ratios: Vec<f64> = pairs.iter().map(|(engine, raw)| engine / raw).collect();
    let ratio = quantile(&mut ratios, 0.5);
    let met = match about.better {
        Better::Higher => ratio >= about.target,
        Better::Lower => ratio <= about.target,
    };
    Ok(Figure {
        name: about.name,
        ratio,
        ratio_quartiles: (quantile(&mut ratios, 0.25), quantile(&mut ratios, 0.75)),
        engine: quantile(&mut pairs.iter().map(|pair| pair.0).collect::<Vec<_>>(), 0.5),
        raw: quantile(&mut pairs.iter().map(|pair| pair.1).collect::<Vec<_>>(), 0.5),
        unit: about.unit,
        target: about.target,
        met,
        rounds,
        per_round: about.per_round,
        engine_does: about.engine_does,
        raw_does: about.raw_does,
    })
}

/// The value below which `part` of the values are; 0 for none.
pub(super) fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * part).round() as usize).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About = About {
        name: "test_ratio",
        unit: "1/s",
        better: Better::Higher,
        target: 0.5,
        per_round: 1,
        engine_does: "",
        raw_does: "",
    };

    #[test]
    fn a_ratio_is_of_a_round_not_of_medians() {
        // The machine is twice as slow in every second round, for both sides.
        let speeds = [9.0, 1.0, 2.0, 1.0, 2.0, 1.0];
        let (mut of_engine, mut of_raw) = (speeds.iter(), speeds.iter());
        let progress = Progress { terminal: false };
        let engine = || Ok(of_engine.next().unwrap() * 0.75);
        let raw = || Ok(*of_raw.next().unwrap());
        let figure = compare(&progress, 5, ABOUT, engine, raw).unwrap();
        assert_eq!((figure.ratio, figure.ratio_quartiles), (0.75, (0.75, 0.75)));
        assert_eq!((figure.engine, figure.raw, figure.met), (0.75, 1.0, true), "the warm-up isn't counted");
    }

    #[test]
    fn quantiles_of_few_and_none() {
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 1.0), 3.0);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
    }
}
