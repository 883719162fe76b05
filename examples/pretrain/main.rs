//! A training run in small, with everything that goes wrong in a large one: real processes on real text.
//!
//! ```text
//!   text files ──► producer 0 ─┐                         ┌─► share 0 ┐
//!                  (process)   ├─► store (a directory) ──┼─► share 1 ├─ one model, data-parallel SGD
//!   text files ──► producer 1 ─┘   global batches of     ├─► share 2 │  (threads of one trainer process)
//!                  (process)       8 slices, one order   └─► share 3 ┘
//! ```
//!
//! - `producer.rs` packs text into windows and publishes global batches; its cursor is committed with each.
//! - `trainer.rs` trains a byte model on them, four shares at a time, as a group of the store.
//! - `models.rs` saves model and position together, with a checkpoint; it keeps the newest two, and what they
//!   don't need is reclaimed meanwhile.
//! - `driver.rs` starts them all, kills one producer and the trainer on the way (SIGKILL), rewinds the store
//!   under them all, and starts them again.
//! - `proof.rs` then compares corpus, store and what was trained: every window once, in order, nothing twice.
//!
//! With `--turns` the producers take turns, and the order is proved too: whoever is killed when, every run on
//! the same text prints the same digest of which step has which windows.
//!
//! `cargo run --release --example pretrain` trains on the sources of this crate's own dependencies; give it
//! files or directories to train on something else. It exits with 0 if all is proved, 3 if a proof failed, 1
//! if the run broke off, 2 if it was called wrongly.
#![expect(
    clippy::disallowed_methods,
    reason = "an application, not the engine: clock, threads and files are its own"
)]

mod corpus;
mod crew;
mod driver;
mod job;
mod model;
mod models;
mod producer;
mod proof;
mod screen;
mod space;
mod trainer;

use std::path::PathBuf;
use std::process::ExitCode;

use batchweave::{Options, Store};

use corpus::Corpus;
use job::{Job, Result, Role};
use space::Space;

const USAGE: &str = "usage: pretrain [--mb N] [--turns] [--store DIR] [--keep] [PATH...]
  PATH...      files or directories to train on, instead of the sources of this crate's dependencies
  --mb N       take at most N MB of them, the first by path (default 24)
  --turns      let the producers take turns: then every run delivers the same, in the same order
  --store DIR  put the store there (new or empty) and leave it there
  --keep       leave the run's temporary directory, which is removed otherwise if all is well";

struct Args {
    paths: Vec<PathBuf>,
    megabytes: u64,
    turns: bool,
    store: Option<PathBuf>,
    keep: bool,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == job::CHILD).is_some() {
        return child(&words.next().unwrap_or_default());
    }
    if words.next_if(|word| word == "--help").is_some() {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let Some(args) = parse(words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(error) => {
            eprintln!("pretrain: {error}");
            ExitCode::from(1)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args { paths: Vec::new(), megabytes: 24, turns: false, store: None, keep: false };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--mb" => args.megabytes = words.next()?.parse().ok().filter(|megabytes| *megabytes > 0)?,
            "--store" => args.store = Some(words.next()?.into()),
            "--turns" => args.turns = true,
            "--keep" => args.keep = true,
            option if option.starts_with('-') => return None,
            _ => args.paths.push(word.into()),
        }
    }
    Some(args)
}

/// The driver's process. False if a proof failed.
fn run(args: &Args) -> Result<bool> {
    let corpus = Corpus::find(&args.paths, args.megabytes * 1_000_000)?;
    let mut directory = tempfile::Builder::new().prefix("batchweave-pretrain-").tempdir()?;
    directory.disable_cleanup(args.keep);
    let run = directory.path().to_path_buf();
    corpus.save(&run)?;
    std::fs::create_dir(models::directory(&run))?;

    let path = args.store.clone().unwrap_or_else(|| run.join("store"));
    // Segments as small as they may be, so that even this short run fills many, and most can be freed.
    let options = Options::new().divisor(job::SLICES as u32).segment_size(16);
    let store = Store::create(&path, options)?;
    if args.turns {
        store.set_turns((0..job::PARTITIONS).map(job::producer_name), 1)?;
    }

    println!("corpus   {corpus}");
    println!("store    {}", path.display());
    let outcome = driver::drive(&corpus, &store, &run).and_then(|driven| {
        let space = Space::of(&store)?;
        let proof = proof::prove(&corpus, &store, &run, &driven, &space)?;
        screen::table(&driven, &proof, &space, &corpus);
        Ok(proof.failed.is_empty())
    });
    if args.keep || !matches!(outcome, Ok(true)) {
        directory.disable_cleanup(true);
        println!("left     {}", run.display());
    }
    outcome
}

/// A producer's or the trainer's process.
fn child(job: &str) -> ExitCode {
    let job: Job = match serde_json::from_str(job) {
        Ok(job) => job,
        Err(error) => {
            eprintln!("pretrain child {job}: {error}");
            return ExitCode::from(1);
        }
    };
    let done = job.die_with_parent().and_then(|()| match job.role {
        Role::Producer(partition) => producer::produce(&job, partition),
        Role::Trainer => trainer::train(&job),
    });
    done.map_or_else(|error| job::exit_code(job.role, &error).into(), |()| ExitCode::SUCCESS)
}
