//! Simulates the real engine on hostile filesystems, run after run, each a function of its seed.
//!
//! - What fails is told at once by its seed; the first of them is made tamer and told in words at the end.
//! - Facts go to stdout, progress to stderr. The exit code is 1 if a promise was broken.
#![deny(unsafe_code)]

mod search;
mod tally;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use batchweave_sim::Coverage;
use batchweave_sim::simulation::{Report, Shape, jobs, shrink, simulate};
use clap::Parser;

use search::Search;

/// Runs of which a failing one is made tamer, at most.
const SHRINK_RUNS_MAX: u32 = 2000;
/// Runs, if neither their number nor a time is given.
const SEEDS: u64 = 1000;

/// Simulates producers, consumers, crashes and failing filesystems: any number of runs by their seeds.
#[derive(Debug, Parser)]
struct Command {
    /// How many runs; as many as the time allows if --minutes is given, else 1000
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Stop after so long
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// The first seed; the others follow it. Drawn and printed if it isn't given
    #[arg(long, value_name = "SEED")]
    first: Option<u64>,
    /// Runs of this shape only: traffic, sleepers, damage, endings, turns, lifecycle
    #[arg(long, value_parser = shape_of)]
    shape: Option<Shape>,
    /// Runs at a time [default: one for each core]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Make one run, and tell it in words; if a promise is broken, as tame as it can be made
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "minutes", "first", "jobs"])]
    seed: Option<u64>,
}

/// A shape by its name, in lower case.
fn shape_of(name: &str) -> Result<Shape, String> {
    let name_of = |shape: &Shape| format!("{shape:?}").to_lowercase();
    let found = Shape::ALL.into_iter().find(|shape| name_of(shape) == name);
    found.ok_or_else(|| format!("there are {}", Shape::ALL.map(|shape| name_of(&shape)).join(", ")))
}

fn main() -> ExitCode {
    let command = Command::parse();
    // A panic in a simulated process is its run's trouble, and told as such.
    std::panic::set_hook(Box::new(|_| ()));
    let shape = command.shape;
    let failed = match command.seed {
        Some(seed) => {
            let report = simulate(seed, shape, &Arc::new(Coverage::default()));
            if report.trouble.is_some() {
                tell(&report, shape);
            } else {
                println!("{report}");
            }
            report.trouble.is_some()
        }
        None => {
            let first = search(&command);
            first.iter().for_each(|report| tell(report, shape));
            first.is_some()
        }
    };
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Makes many runs and sums them up; gives the first that broke a promise.
fn search(command: &Command) -> Option<Report> {
    let of_minutes = |minutes| Duration::try_from_secs_f64(minutes * 60.0).unwrap_or_default();
    let length = command.minutes.map(of_minutes);
    let search = Search {
        first: command.first.unwrap_or_else(drawn),
        seeds: command.seeds.or(length.is_none().then_some(SEEDS)),
        length,
        shape: command.shape,
        jobs: command.jobs.unwrap_or_else(jobs).max(1),
    };
    println!("seeds from {}, {} at a time", search.first, search.jobs);
    let (tally, first) = search.run();
    print!("{tally}");
    first
}

/// A first seed by the system's entropy, short enough to be typed.
fn drawn() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

/// Tells the tamest run that goes wrong as this one does.
fn tell(report: &Report, shape: Option<Shape>) {
    println!("\nseed {} as tame as it could be made:", report.seed);
    println!("{}", shrink(report, shape, SHRINK_RUNS_MAX));
}
