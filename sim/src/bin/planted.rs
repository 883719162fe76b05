//! Looks for a bug that is planted in the engine: `planted BUG SEEDS` simulates until it is caught.
//!
//! - Built with `--cfg batchweave_planted` only can it plant any; the test `planted` builds it so.
//! - Prints the number of schedules that it took and the promise that was broken; exit code 1 if it wasn't
//!   caught. `planted none SEEDS` plants none: then nothing may be caught.

use std::process::ExitCode;

use batchweave_sim::simulation::hunt;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (Some(bug), Some(Ok(seeds))) = (words.next(), words.next().map(|seeds| seeds.parse::<u64>())) else {
        eprintln!("planted BUG|none SEEDS");
        return ExitCode::from(2);
    };
    match hunt(&bug, seeds) {
        Ok(Some((schedules, trouble))) => {
            println!("{bug}: caught by schedule {schedules}: {trouble}");
            ExitCode::SUCCESS
        }
        Ok(None) => {
            println!("{bug}: nothing found in {seeds} schedules");
            ExitCode::from(1)
        }
        Err(what) => {
            eprintln!("{what}");
            ExitCode::from(2)
        }
    }
}
