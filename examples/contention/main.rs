//! Contention in virtual time: thousands of producers share one log, by the engine's policy and by others.
//!
//! - `scenario.rs` says what is simulated, `world.rs` does it with the engine's own policy, state and census;
//!   `ring.rs` has the policies that need an agreement; `grid.rs` lists the runs.
//! - `tables.rs` and `plots.rs` write what `figures.rs` and `tally.rs` counted.
//! - `acceptance.rs` holds the figures against their bounds: `cargo test --example contention`.
//! - Deterministic: the same seed and options give the same figures to the last digit.
//!
//! `cargo run --release --example contention -- docs/dac` makes the tables and plots of docs/dac.md again.
#![expect(
    clippy::disallowed_methods,
    reason = "an application: calibrating reads the clock and starts threads"
)]

#[cfg(test)]
mod acceptance;
mod calibrate;
mod figures;
mod grid;
mod log;
mod plots;
mod random;
mod ring;
mod scenario;
mod tables;
mod tally;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use grid::{Grid, Row};
use scenario::Store;

const USAGE: &str =
    "usage: contention [--quick] [--seed N] [--attempt-ms D --serialized-ms S | --calibrate DIR] [OUT]
  OUT                write tables (figures.md), figures.json and plots (*.svg) into this directory
  --quick            a small grid: a few seconds also without optimisation
  --seed N           of all runs (default 7)
  --attempt-ms D     one store only, with attempts of D ms, ...
  --serialized-ms S  ... for S of which others wait (default 0: losers cost nothing)
  --calibrate DIR    one store only, with what a commit takes in that directory, measured now";

#[derive(Debug, Default)]
struct Args {
    quick: bool,
    seed: Option<u64>,
    attempt_ms: Option<f64>,
    serialized_ms: Option<f64>,
    calibrate: Option<PathBuf>,
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Some(args) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("contention: {error}");
            ExitCode::from(1)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => args.quick = true,
            "--seed" => args.seed = Some(words.next()?.parse().ok()?),
            "--attempt-ms" => args.attempt_ms = Some(words.next()?.parse().ok()?),
            "--serialized-ms" => args.serialized_ms = Some(words.next()?.parse().ok()?),
            "--calibrate" => args.calibrate = Some(words.next()?.into()),
            _ if word.starts_with('-') || args.out.is_some() => return None,
            _ => args.out = Some(word.into()),
        }
    }
    Some(args)
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let grid = grid_of(args)?;
    let say = |row: &Row| println!("{}", tables::line(row));
    let mut rows = grid::steady(&grid, say);
    rows.extend(grid::disturbed(&grid, say));
    rows.extend(grid::lengths(&grid, say));
    if let Some(out) = &args.out {
        write(&rows, out)?;
    }
    Ok(())
}

fn grid_of(args: &Args) -> batchweave::Result<Grid> {
    let stores = if let Some(directory) = &args.calibrate {
        let measured = calibrate::measure(directory)?;
        println!(
            "a commit alone {}, behind 2000 others {}, between two of racing producers {}",
            tables::time(measured.alone),
            tables::time(measured.later),
            tables::time(measured.racing),
        );
        // While two race, what one takes less than they take together is what doesn't keep the other waiting.
        let serialised = measured.racing.min(measured.alone);
        vec![("as measured".to_owned(), Store::new(serialised, measured.alone))]
    } else if let Some(attempt_ms) = args.attempt_ms {
        let serialised = args.serialized_ms.unwrap_or(0.0) / 1e3;
        vec![("as told".to_owned(), Store::new(serialised, attempt_ms / 1e3))]
    } else {
        let mut stores = vec![
            ("serialised 1 ms".to_owned(), Store::serialising(0.001)),
            ("serialised 30 ms".to_owned(), Store::serialising(0.03)),
        ];
        if !args.quick {
            stores.insert(0, ("serialised 0.3 ms".to_owned(), Store::serialising(0.0003)));
            stores.push(("losers free, 5 ms".to_owned(), Store::free(0.005)));
        }
        stores
    };
    let producers = if args.quick { vec![1, 16, 64] } else { vec![1, 4, 16, 64, 256, 1024, 10_000] };
    Ok(Grid { seed: args.seed.unwrap_or(7), producers, stores, rivals_max: 256 })
}

fn write(rows: &[Row], out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    std::fs::create_dir_all(out)?;
    std::fs::write(out.join("figures.md"), tables::markdown(rows))?;
    std::fs::write(out.join("figures.json"), serde_json::to_vec_pretty(rows)?)?;
    plots::draw(rows, out)
}
