//! The real engine under a hostile filesystem, by random schedules: a fixed set of seeds, and fresh ones
//! for as long as there is time.
//!
//! - A seed that goes wrong is shrunk, and told in words; `simulate --seed N` tells it again.
//! - `BATCHWEAVE_SIM_SECONDS` says how long fresh seeds are tried, 30 unless told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use batchweave_sim::simulation::{Report, Shape, jobs, on_cores, shrink, simulate};
use batchweave_sim::{Coverage, Met, Wrong};

/// Seeds of every shape that are always tried.
const FIXED: u64 = 400;
/// Of the lifecycle: its runs are longer, and each is examined after a reclaim too.
const FIXED_LIFECYCLE: u64 = 200;
/// Runs that are spent on making a failing one tame.
const SHRINKING: u32 = 300;

/// Tries seeds from `first` on, on all cores, until `done` says so; the number of runs.
fn try_seeds(
    first: u64,
    shape: Option<Shape>,
    coverage: &Arc<Coverage>,
    done: impl Fn(u64) -> bool + Sync,
) -> u64 {
    let (next, stop) = (AtomicU64::new(first), AtomicBool::new(false));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if done(seed - first) {
                break;
            }
            let report = simulate(seed, shape, coverage);
            if report.trouble.is_some() {
                stop.store(true, Ordering::Relaxed);
                panic!("{}", tell(&report, shape));
            }
        }
    };
    on_cores(jobs(), work);
    next.load(Ordering::Relaxed) - first
}

fn tell(report: &Report, shape: Option<Shape>) -> String {
    let tame = shrink(report, shape, SHRINKING);
    format!("seed {} of shape {shape:?} goes wrong; shrunk:\n{tame}", report.seed)
}

#[test]
fn a_fixed_set_of_seeds_keeps_every_promise_and_meets_every_fault() {
    let coverage = Arc::new(Coverage::default());
    for shape in Shape::ALL {
        let seeds = if shape == Shape::Lifecycle { FIXED_LIFECYCLE } else { FIXED };
        try_seeds(0, Some(shape), &coverage, |tried| tried >= seeds);
    }
    let mets = coverage.mets();
    let never: Vec<&str> = Met::ALL.iter().filter(|met| mets[met] == 0).map(|met| met.words()).collect();
    assert!(never.is_empty(), "the lifecycle never came across these: {never:?}");
    let counts = coverage.counts();
    let never: Vec<&str> =
        Wrong::ALL.iter().filter(|wrong| counts[wrong] == 0).map(|wrong| wrong.words()).collect();
    assert!(never.is_empty(), "these never came up: {never:?}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long seeds are tried is real time")]
fn fresh_seeds_keep_every_promise() {
    let seconds =
        std::env::var("BATCHWEAVE_SIM_SECONDS").ok().and_then(|told| told.parse().ok()).unwrap_or(30);
    let began = Instant::now();
    let mut first = [0; 8];
    getrandom(&mut first);
    let first = u64::from_le_bytes(first) >> 1;
    let coverage = Arc::new(Coverage::default());
    let runs = try_seeds(first, None, &coverage, |_| began.elapsed() >= Duration::from_secs(seconds));
    println!("{runs} fresh seeds from {first} on");
}

fn getrandom(bytes: &mut [u8]) {
    use batchweave::env::{Env, System};
    System::new().entropy(bytes).expect("the system's generator");
}

#[test]
fn a_seed_tells_the_same_story_again() {
    let coverage = Arc::new(Coverage::default());
    for shape in Shape::ALL {
        for seed in 0..5 {
            let (one, two) = (simulate(seed, Some(shape), &coverage), simulate(seed, Some(shape), &coverage));
            assert_eq!(one.story.to_string(), two.story.to_string(), "seed {seed} of {shape:?}");
            assert_eq!((one.decisions, one.calls), (two.decisions, two.calls));
        }
    }
}

#[test]
fn its_decisions_tell_the_story_again_too() {
    let coverage = Arc::new(Coverage::default());
    let one = simulate(1, None, &coverage);
    let answers = one.decisions.iter().map(|taken| taken.answer).collect();
    let two = batchweave_sim::simulation::repeat(1, None, answers);
    assert_eq!(one.story.to_string(), two.story.to_string());
}
