//! What a filesystem has to stand before a store is trusted to it: real processes over two mounts of it.
//!
//! - `all A B`: A and B are one directory, seen through two mounts ("nodes"). Each trial makes a store of its
//!   own there and says on one line how it ended; the next goes on whatever the one before has found.
//! - `full`, `read-only` and `refused` are for the filesystems that are small, read-only or won't do; `power`
//!   is for those on a disk that it may mount itself.
//! - What a trial draws comes from the seed, which is said; when a signal arrives it doesn't decide.
//! - Every wait has an end, and no child outlives the program (see `child`).
//! - Exits with 0 if all holds, 1 if not.
//!
//! | file | trial |
//! |---|---|
//! | `race` | producers as processes over both mounts |
//! | `fresh` | how soon the other mount sees a step that it waits for |
//! | `killed` | producers and a trainer killed at drawn moments, and started again on the other mount |
//! | `reclaim` | a reclaim against a reader that lags behind |
//! | `zombie` | a stopped producer whose name is opened on the other mount |
//! | `loud` | two mounts that remember absent names, on which a store can't live |
//! | `power` | power cuts at drawn calls, by shutting the filesystem down |
//! | `room` | a disk that runs full |
//! | `faults` | a filesystem of its own, each of whose calls fails as a trial says |
//! | `refused` | who can't write, and mounts on which no store may be made |
#![expect(
    clippy::disallowed_methods,
    reason = "an application, not the engine: clock, threads and files are its own"
)]

mod child;
mod faults;
mod fresh;
mod judge;
mod killed;
mod loud;
mod part;
mod power;
mod race;
mod random;
mod reclaim;
mod refused;
mod room;
mod zombie;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use batchweave::storage::Posix;
use batchweave::{Options, Store};
use clap::Parser;

use random::Random;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Failure> = std::result::Result<T, E>;

#[derive(Parser)]
enum Verb {
    /// Every trial of a filesystem on which a store may live; A and B are one directory through two mounts
    All {
        #[command(flatten)]
        mounts: Mounts,
        /// The class that it has to be taken for, in the words of `batchweave doctor`
        #[arg(long)]
        class: Option<String>,
        /// A trial that is passed over, and said to be
        #[arg(long)]
        skip: Option<String>,
    },
    /// One trial
    One {
        #[arg(value_parser = TRIALS.map(|(name, _)| name))]
        trial: String,
        #[command(flatten)]
        mounts: Mounts,
    },
    /// A small disk runs full
    Full {
        directory: PathBuf,
        /// What it is short of
        #[arg(long, value_enum)]
        of: room::Short,
    },
    /// Two mounts that hide new names for long: no store can live there, but what is acknowledged is kept
    Loud {
        a: PathBuf,
        b: PathBuf,
        /// The same directory without the mounts between
        truth: PathBuf,
    },
    /// The power is cut, again and again, on a disk that isn't mounted yet; needs root
    Power {
        #[command(flatten)]
        disk: power::Disk,
        /// What is drawn comes from it
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// 1 is a taste; more are so many times 50 cuts in each operation
        #[arg(long, default_value_t = 1)]
        times: u64,
    },
    /// A filesystem that fails as it is told: mounted at A and B, over the source
    Faults {
        source: PathBuf,
        a: PathBuf,
        b: PathBuf,
        /// More than once: every call fails in every way
        #[arg(long, default_value_t = 1)]
        times: u64,
    },
    /// Readers on a read-only mount, while a producer writes through another
    ReadOnly { writable: PathBuf, read_only: PathBuf },
    /// No store may be made there, and these words say why
    Refused {
        directory: PathBuf,
        words: String,
        #[arg(long)]
        allow_unknown_fuse: bool,
    },
    /// The life of the process that serves the mounts of `faults`
    #[command(hide = true)]
    ServeFaults { source: PathBuf, a: PathBuf, b: PathBuf },
    /// The life of a child
    #[command(hide = true)]
    Child { task: String },
}

/// Where the trials are, and how much of them.
#[derive(clap::Args)]
struct Mounts {
    a: PathBuf,
    b: PathBuf,
    /// What is drawn comes from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many times the parts, steps and rounds
    #[arg(long, default_value_t = 1)]
    times: u64,
    /// Accept a FUSE filesystem that isn't known to keep creation exclusive
    #[arg(long)]
    allow_unknown_fuse: bool,
}

impl Mounts {
    /// The mount of one who is the `number`th.
    fn of(&self, number: usize) -> &Path {
        if number.is_multiple_of(2) { &self.a } else { &self.b }
    }

    /// A store of a trial, made through A.
    fn create(&self, trial: &str) -> Result<Store> {
        let options = part::options().allow_unknown_fuse(self.allow_unknown_fuse);
        Ok(Store::create(self.a.join(trial), options)?)
    }

    fn random(&self) -> Random {
        Random::new(self.seed)
    }
}

/// A trial gives what it has come to, in words.
type Trial = fn(&Mounts) -> Result<String>;

const TRIALS: [(&str, Trial); 6] = [
    ("contract", contract),
    ("race", race::race),
    ("fresh", fresh::fresh),
    ("killed", killed::killed),
    ("reclaim", reclaim::reclaim),
    ("zombie", zombie::zombie),
];

/// What the engine leans on in a storage: the suite that the simulator is held to, in a process of its own,
/// because it panics with a sentence.
fn contract(mounts: &Mounts) -> Result<String> {
    let task = child::Task::Contract { root: mounts.a.join("contract") };
    let mut command = Command::new(std::env::current_exe()?);
    let status = command.args(["child", &task.words()]).stdin(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("it isn't kept: {status}; what was expected is in the log").into());
    }
    Ok("kept".to_owned())
}

/// Plants the bug that the environment names, in a build for that: the trials have to catch it.
fn plant() -> Result<()> {
    #[cfg(batchweave_planted)]
    if let Ok(bug) = std::env::var("BATCHWEAVE_PLANT").map(|name| name.trim().to_owned())
        && !bug.is_empty()
    {
        batchweave::planted::plant(Some(bug.parse()?));
    }
    Ok(())
}

fn main() -> ExitCode {
    if let Err(error) = plant() {
        eprintln!("trials: {error}");
        return ExitCode::from(2);
    }
    let held = match Verb::parse() {
        Verb::All { mounts, class, skip } => all(&mounts, class.as_deref(), skip.as_deref()),
        Verb::One { trial, mounts } => {
            let mut one = TRIALS.into_iter().filter(|(name, _)| *name == trial);
            one.all(|(name, trial)| say(name, || trial(&mounts)))
        }
        Verb::Full { directory, of } => say("full", || room::full(&directory, of)),
        Verb::Faults { source, a, b, times } => faults::faults(&source, &a, &b, times > 1),
        Verb::Loud { a, b, truth } => say("loud", || loud::loud(&a, &b, &truth)),
        Verb::Power { disk, seed, times } => say("power", || power::power(&disk, seed, times)),
        Verb::ReadOnly { writable, read_only } => {
            say("read-only", || refused::read_only(&writable, &read_only))
        }
        Verb::Refused { directory, words, allow_unknown_fuse } => {
            say("refused", || refused::refused(&directory, &words, allow_unknown_fuse))
        }
        Verb::ServeFaults { source, a, b } => faults::serve(&source, &a, &b)
            .inspect_err(|error| eprintln!("serving the mounts: {error}"))
            .is_ok(),
        Verb::Child { task } => child::live(&task),
    };
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn all(mounts: &Mounts, class: Option<&str>, skip: Option<&str>) -> bool {
    if !doctor(&mounts.a, mounts.allow_unknown_fuse) {
        return false;
    }
    let mut held = class.is_none_or(|class| say("class", || is_of(mounts, class)));
    for (name, trial) in TRIALS {
        if skip == Some(name) {
            println!("{name} skipped 0.0 as it was told to");
            continue;
        }
        held &= say(name, || trial(mounts));
    }
    held
}

/// Runs a trial and says how it ended: `name ok|FAIL seconds what`.
fn say(name: &str, trial: impl FnOnce() -> Result<String>) -> bool {
    let began = Instant::now();
    let ended = trial();
    let (held, verdict, what) = match ended {
        Ok(what) => (true, "ok", what),
        Err(error) => (false, "FAIL", error.to_string()),
    };
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    println!("{name} {verdict} {:.1} {what}", began.elapsed().as_secs_f64());
    held
}

/// Says `doctor fit class / primitive` or `doctor unfit why`.
fn doctor(directory: &Path, allow_unknown_fuse: bool) -> bool {
    let options = Options::new().allow_unknown_fuse(allow_unknown_fuse);
    match batchweave::doctor(directory, &options).and_then(|found| found.report.accept()) {
        Ok((class, primitive)) => println!("doctor fit {class} / {primitive}"),
        Err(error) => {
            println!("doctor unfit {error}");
            return false;
        }
    }
    true
}

fn is_of(mounts: &Mounts, expected: &str) -> Result<String> {
    let options = Options::new().allow_unknown_fuse(mounts.allow_unknown_fuse);
    let (class, _) = batchweave::doctor(&mounts.a, &options)?.report.accept()?;
    let class = class.to_string();
    if class != expected {
        return Err(format!("the mount is taken for {class}, but is {expected}").into());
    }
    Ok(class)
}

/// The contract suite as a child's life.
fn keep_contract(root: &Path) {
    batchweave_sim::contract::check(&Posix::new(), root);
}
