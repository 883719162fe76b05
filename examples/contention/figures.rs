//! What a run came to.
//!
//! - Counted from [`Scenario::measure_from`](crate::scenario::Scenario) on, but for the series over time.

use serde::Serialize;

/// Points in time of a series.
pub const BINS: usize = 60;

/// Figures of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Parts that were to be published, a second.
    pub offered: f64,
    /// Parts that were, a second.
    pub committed: f64,
    pub commits: f64,
    /// Lost of all attempts.
    pub conflicts: f64,
    pub attempts_per_commit: f64,
    pub calls_per_part: f64,
    /// From publish to commit, in seconds.
    pub delay_p50: f64,
    pub delay_p99: f64,
    /// Of parts committed, over producers that lived all the time.
    pub jain: f64,
    /// The longest that one producer had parts waiting and committed none.
    pub longest_gap: f64,
    /// Consumers waited for this part of the time.
    pub stalled: f64,
    /// When the last producer was open; none if one never was.
    pub all_open: Option<f64>,
    /// Parts committed a second, in each bin of the whole run.
    pub series: Vec<f64>,
    /// Lost of all attempts, in each bin.
    pub conflict_series: Vec<f64>,
}

impl Figures {
    /// Committed of offered.
    pub fn carried(&self) -> f64 {
        self.committed / self.offered.max(f64::MIN_POSITIVE)
    }
}

/// Jain's index: 1 if all have the same, 1/n if one has all.
pub fn jain(shares: impl Iterator<Item = f64> + Clone) -> f64 {
    let (count, sum) = (shares.clone().count() as f64, shares.clone().sum::<f64>());
    let squares: f64 = shares.map(|share| share * share).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (count * squares) }
}

/// The value below which this part of them lies. Sorts them.
pub fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * part) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
