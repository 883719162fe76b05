//! What was found, as one JSON object or as a table for people.

use std::io::Write;

use serde::Serialize;
use serde_json::{Map, Value};

use super::Result;
use super::rounds::Figure;

/// All figures of one run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) directory: String,
    pub(super) filesystem: String,
    pub(super) library: &'static str,
    pub(super) seconds: f64,
    /// Median of a hand-out that was ready, in us; the target is 5.
    pub(super) next_p50_us: f64,
    pub(super) next_p99_us: f64,
    pub(super) next_count: usize,
    /// Buffers that had to be made in copy mode once it was warm; the target is 0.
    pub(super) pool_misses_warm: u64,
    pub(super) figures: Vec<Figure>,
}

const NEXT_TARGET_US: f64 = 5.0;

impl Report {
    pub(super) fn print(&self, json: bool) -> Result<()> {
        let text = if json { serde_json::to_string(&self.object()?)? } else { self.table() };
        Ok(writeln!(std::io::stdout(), "{text}")?)
    }

    /// The ratios by name at the top, where a script looks for them; behind them how they came about.
    fn object(&self) -> Result<Value> {
        let mut object = Map::new();
        for figure in &self.figures {
            object.insert(figure.name.to_owned(), serde_json::to_value(figure.ratio)?);
        }
        if let Value::Object(rest) = serde_json::to_value(self)? {
            object.extend(rest);
        }
        Ok(Value::Object(object))
    }

    fn table(&self) -> String {
        let mut lines = vec![
            format!("{} ({}), {:.0} s", self.directory, self.filesystem, self.seconds),
            format!("{:16} {:>7} {:>9} {:>11} {:>11}", "figure", "ratio", "target", "engine", "raw"),
        ];
        for figure in &self.figures {
            let sign = if figure.unit == "us" { "<=" } else { ">=" };
            lines.push(format!(
                "{:16} {:>7.3} {sign:>4} {:>4} {:>11.1} {:>11.1} {}{}",
                figure.name,
                figure.ratio,
                figure.target,
                figure.engine,
                figure.raw,
                figure.unit,
                missed(figure.met),
            ));
        }
        lines.push(format!(
            "{:16} {:>7.2} {:>4} {NEXT_TARGET_US:>4} us, p99 {:.2} us of {}{}",
            "next_p50_us",
            self.next_p50_us,
            "<=",
            self.next_p99_us,
            self.next_count,
            missed(self.next_p50_us <= NEXT_TARGET_US),
        ));
        let misses = self.pool_misses_warm;
        lines.push(format!(
            "{:16} {misses:>7} {:>4} {:>4}{}",
            "pool_misses_warm",
            "=",
            0,
            missed(misses == 0)
        ));
        lines.join("\n")
    }
}

fn missed(met: bool) -> &'static str {
    if met { "" } else { "  missed" }
}
