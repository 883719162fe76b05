//! Figures as tables for people, and as one JSON file for programs.

use std::fmt::Write;

use crate::grid::Row;

const HEAD: &str = "\
| N | policy or case | parts/s | of offered | commits/s | lost | attempts a commit | delay p50 \
| p99 | Jain | longest gap | calls a part | consumers stall |
|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
";

/// Seconds as people say them.
pub fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds.is_nan() => "-".into(),
        _ if seconds < 0.001 => format!("{:.0} us", seconds * 1e6),
        _ if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds < 10.0 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

/// One table for each store and kind of run.
pub fn markdown(rows: &[Row]) -> String {
    let seed = rows.first().map_or(0, |row| row.scenario.seed);
    let mut text = format!("# Figures of `examples/contention`, seed {seed}\n");
    let mut heading = String::new();
    for row in rows {
        let own = format!("{}: {}", row.table, row.store);
        if own != heading {
            let _ = write!(text, "\n### {own}\n\n{HEAD}");
            heading = own;
        }
        let figures = &row.figures;
        let percent = |part: f64| format!("{:.0} %", 100.0 * part);
        let cells = [
            row.scenario.producers.to_string(),
            row.name.clone(),
            format!("{:.1}", figures.committed),
            percent(figures.carried()),
            format!("{:.1}", figures.commits),
            percent(figures.conflicts),
            format!("{:.2}", figures.attempts_per_commit),
            time(figures.delay_p50),
            time(figures.delay_p99),
            format!("{:.3}", figures.jain),
            time(figures.longest_gap),
            format!("{:.0}", figures.calls_per_part),
            percent(figures.stalled.clamp(0.0, 1.0)),
        ];
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// One line for a terminal.
pub fn line(row: &Row) -> String {
    let figures = &row.figures;
    format!(
        "{:<28} N {:>5}  {:<33} {:>7.1} parts/s ({:>3.0} %)  lost {:>3.0} %  p99 {:>7}",
        row.store,
        row.scenario.producers,
        row.name,
        figures.committed,
        100.0 * figures.carried(),
        100.0 * figures.conflicts,
        time(figures.delay_p99),
    )
}
