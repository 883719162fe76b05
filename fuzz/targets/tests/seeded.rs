//! The fuzz targets without a fuzzer. The method: every seed and every input that once went wrong, then
//! inputs that a seeded mutator makes of them, each under a bound on memory; a failing one is printed and
//! kept.
//!
//! `BATCHWEAVE_FUZZ_SECONDS` is how long each target gets, instead of a number of cases;
//! `BATCHWEAVE_FUZZ_SEED` is another seed than the one of every run. The argument is the name of a target,
//! after it perhaps a file to run again.

use std::alloc::System;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use batchweave_fuzz_targets::mutate::Mutator;
use batchweave_fuzz_targets::{TARGETS, Target, hostile, kept, seeds};
use cap::Cap;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// What one case may hold at once beyond what was there: a store of some MiB, read, and what frames declare.
const BYTES_MAX: usize = 192 << 20;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    // What a test runner asks of every test binary.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let sound = match (arguments.next(), arguments.next()) {
        (None, _) => hostile() & side_by_side(),
        (Some(name), file) => match TARGETS.iter().find(|target| target.name == name) {
            Some(target) => one(target, file.as_deref()),
            // It may be a test's name, for all of the workspace.
            None => {
                println!("there is no target {name}");
                true
            }
        },
    };
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Each target in a process of its own, since memory is counted by process; as many at once as there are
/// cores.
fn side_by_side() -> bool {
    let this = std::env::current_exe().expect("this program has a file");
    let (next, sound) = (AtomicUsize::new(0), AtomicBool::new(true));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let status = Command::new(&this).arg(target.name).status().expect("it runs");
                    if !status.success() {
                        println!("{:<10} FAILED: {status}", target.name);
                        sound.store(false, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    sound.into_inner()
}

/// All cases of a target, or a file's.
fn one(target: &Target, file: Option<&str>) -> bool {
    let runs = match file {
        Some(file) => case(target, &fs::read(file).expect("an input")).map(|()| 1),
        None => all(target),
    };
    match &runs {
        Ok(cases) => println!("{:<10} {cases} cases", target.name),
        Err(kept) => println!("{:<10} FAILED: {}", target.name, kept.display()),
    }
    runs.is_ok()
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// The cases of a target without a time of their own: whole stores cost a thousand times what a piece does.
fn cases_of(target: &Target) -> u64 {
    match target.name {
        "tree" | "crafted" => 300,
        "replay" | "state" => 2_000,
        _ => 20_000,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long it runs is for whoever runs it; no answer rests on it"
)]
fn all(target: &Target) -> Result<u64, PathBuf> {
    let mut cases = 0;
    let mut corpus = seeds::of(target.name);
    corpus.extend(kept(target.name));
    for input in &corpus {
        case(target, input)?;
        cases += 1;
    }
    let mut mutator = Mutator::new(setting("BATCHWEAVE_FUZZ_SEED").unwrap_or(2026));
    let until =
        setting("BATCHWEAVE_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let most = if until.is_some() { u64::MAX } else { cases + cases_of(target) };
    while cases < most && until.is_none_or(|until| Instant::now() < until) {
        case(target, &mutator.input(&corpus))?;
        cases += 1;
    }
    Ok(cases)
}

/// Reads the stores that were made to hurt.
fn hostile() -> bool {
    let mut sound = true;
    for store in hostile::stores() {
        if let Err(why) = bounded(|| store.read()) {
            println!("hostile    FAILED: {}: {why}", store.what);
            sound = false;
        }
    }
    sound
}

/// Runs something under a bound on memory; says what it did if that wasn't well.
fn bounded(run: impl FnOnce()) -> Result<(), String> {
    let (before, most_before) = (MEMORY.allocated(), MEMORY.max_allocated());
    let ran = panic::catch_unwind(AssertUnwindSafe(run));
    let most = MEMORY.max_allocated();
    // Only a new maximum says anything. It is never beyond the bound of the first case that raised it.
    let taken = if most > most_before { most.saturating_sub(before) } else { 0 };
    match ran {
        Err(_) => Err("it panicked".to_owned()),
        Ok(()) if taken > BYTES_MAX => Err(format!("it took {taken} bytes at once, more than {BYTES_MAX}")),
        Ok(()) => Ok(()),
    }
}

/// Runs one input; where that fails, keeps it and says where.
fn case(target: &Target, input: &[u8]) -> Result<(), PathBuf> {
    let Err(why) = bounded(|| (target.run)(input)) else { return Ok(()) };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{:016x}", target.name, hash(input)));
    fs::write(&path, input).expect("room for what fails");
    println!("target {}: {why}: an input of {} bytes: {input:02x?}", target.name, input.len());
    Err(path)
}

fn hash(input: &[u8]) -> u64 {
    batchweave::format::checksum::of(input).get()
}
