//! `batchweave bench`: what the engine costs on a directory, beside the raw system calls, and how many
//! producers it carries.
//!
//! - All figures of `basics` come from one run on one directory; engine and raw calls take turns (see
//!   [`rounds`]). `commit` holds policies of when to commit against each other (see [`commit`]).
//! - The raw calls are in [`raw`], which alone has `unsafe`; what each side does is said in the output.
//! - Everything is made in a private directory under the one given, and removed at the end, also after an
//!   error or a signal.
//! - The only place of the command that goes below the public API, through the library's feature `internals`.

mod commit;
mod offer;
mod raw;
mod reads;
mod report;
mod rounds;
mod serialized;
mod visible;
mod writes;

use std::path::{Path, PathBuf};

use batchweave::env::{Env, System};
use batchweave::{MountClass, Options, doctor};
use clap::{Args, Subcommand};
use tempfile::TempDir;

use crate::interrupt;

use commit::Producers;
use offer::{Load, Offer};
use report::Report;
use rounds::Progress;
use visible::Role;

const MIB: usize = 1 << 20;
/// What a run writes at most, and then some.
const BYTES_NEEDED: u64 = 2 << 30;
const ROUNDS_DEFAULT: usize = 15;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Measures what the engine costs, beside the raw system calls, and how many producers it carries
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Example:
  batchweave bench basics /dev/shm
  batchweave bench commit /lustre/scratch --producers 16,64"
)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measures commits, ingest, reads and visibility in a directory; takes about a minute
    ///
    /// Everything is written to a private directory under DIR and removed at the end. Engine and raw system
    /// calls take turns, and each ratio is the median over rounds, since machines are shared.
    Basics {
        /// A directory on the filesystem to be measured
        dir: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Rounds of each figure
        #[arg(long, default_value_t = ROUNDS_DEFAULT, value_parser = rounds_in_range)]
        rounds: usize,
        /// Play the other process of a ping
        #[arg(long, hide = true)]
        child: Option<Role>,
    },
    /// Measures how many producers commit to one store in a directory, by each policy of when to commit
    ///
    /// N processes offer batches of 4 KiB to a fresh synced store: by the adaptive commit (dac), by
    /// attempting at once and again (greedy), once a second (fixed), and after a wait that doubles with
    /// each loss (backoff). Delays are from publish to committed; what still waits at the end counts with
    /// its age. Jain's index is of what each producer has committed of what it offered: 1 is fair.
    ///
    /// On an idle local disk a lost attempt costs the store nothing, so all do well. --serialized makes
    /// any disk one that deals with one attempt at a time, as metadata servers do with a directory.
    ///
    /// The rate by default is one that the adaptive commit carries where an attempt takes 30 ms: 64
    /// producers have some ten commits a second there, for 128 batches. Each then commits about every
    /// five seconds, so --seconds has to be 30 or more for the figures to say much.
    #[command(after_help = "\
Example:
  batchweave bench commit /lustre/scratch
  batchweave bench commit /tmp --serialized 30 --producers 16,64 --seconds 40 --warm-up 10

Exit codes: 0 measured; 1 a producer's process died, or there is no room; 2 the command line is
wrong; 10 and more a store's error, as `batchweave --help` lists them.")]
    Commit {
        /// A directory on the filesystem to be measured
        dir: PathBuf,
        /// Numbers of producers
        #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,4,16,64")]
        producers: Vec<Producers>,
        #[command(flatten)]
        load: Load,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Play a producer of `bench commit`
    #[command(hide = true)]
    Offer(Offer),
}

fn rounds_in_range(text: &str) -> Result<usize, String> {
    let rounds: usize = text.parse().map_err(|_| "not a number".to_owned())?;
    if (1..=100).contains(&rounds) { Ok(rounds) } else { Err("has to be 1..=100".to_owned()) }
}

/// What all figures need.
struct Bench {
    directory: TempDir,
    /// Bytes that don't compress.
    bytes: Vec<u8>,
    rounds: usize,
    progress: Progress,
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Runs it and prints what it found.
///
/// # Errors
/// What kept a figure from being measured, in words.
pub(crate) fn run(args: BenchArgs) -> Result<()> {
    match args.what {
        What::Basics { dir, child: Some(role), .. } => visible::answer(&dir, role),
        What::Basics { dir, json, rounds, child: None } => {
            interrupt::watch()?;
            let report = basics(&dir, rounds)?;
            report.print(json)
        }
        What::Commit { dir, producers, load, json } => {
            interrupt::watch()?;
            commit::measure(&dir, &producers, &load)?.print(json)
        }
        What::Offer(offer) => offer::run(&offer),
    }
}

fn basics(dir: &Path, rounds: usize) -> Result<Report> {
    let env = System::new();
    check_room(dir, BYTES_NEEDED)?;
    let made = interrupt::directory("batchweave-bench-", dir);
    let directory = made.map_err(|error| format!("can't make a directory in {}: {error}", dir.display()))?;
    let found = doctor(directory.path(), &Options::new())?.report;
    if found.class != MountClass::Local {
        return Err(
            format!("{} is a {} mount, and a ping needs a local one", dir.display(), found.class).into()
        );
    }
    let mut bytes = vec![0; 2 * MIB];
    env.entropy(&mut bytes)?;
    let bench = Bench { directory, bytes, rounds, progress: Progress::new() };
    let commit = writes::commit(&bench)?;
    let protocol = writes::protocol(&bench)?;
    let visible = visible::visible(&bench)?;
    let in_memory = found.mount.kind == "tmpfs";
    let (ingest, store) = writes::ingest(&bench, if in_memory { 0.85 } else { 0.9 })?;
    let read = reads::mapped(&bench, &store)?;
    let (copy, pool_misses_warm) = reads::copied(&bench, &store)?;
    let (next_p50_us, next_p99_us, next_count) = reads::hand_out(&bench)?;
    drop(store);
    let Bench { directory, progress, .. } = bench;
    drop(progress);
    directory.close().map_err(|error| format!("can't remove what was measured: {error}"))?;
    Ok(Report {
        directory: dir.display().to_string(),
        filesystem: found.mount.kind.clone(),
        library: env!("CARGO_PKG_VERSION"),
        seconds: env.now().as_secs_f64(),
        figures: vec![commit, protocol, ingest, read, copy, visible],
        next_p50_us,
        next_p99_us,
        next_count,
        pool_misses_warm,
    })
}

fn check_room(dir: &Path, bytes_needed: u64) -> Result<()> {
    let room =
        rustix::fs::statvfs(dir).map_err(|error| format!("can't look at {}: {error}", dir.display()))?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    if free >= bytes_needed {
        return Ok(());
    }
    let (has, needs) = (free >> 20, bytes_needed >> 20);
    Err(format!("{} has {has} MiB free, and measuring needs {needs} MiB; nothing was written", dir.display())
        .into())
}
