//! The command `batchweave`.
#![deny(unsafe_code)]

mod bench;

use clap::Parser;

#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Bench(bench::BenchArgs),
}

fn main() -> std::process::ExitCode {
    let Verb::Bench(args) = Command::parse().verb;
    match bench::run(args) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("batchweave: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
