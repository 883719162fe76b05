//! Every schedule of small cases of the real engine (`batchweave_sim::cases`), as the model does with the
//! protocol in the abstract.
//!
//! With `BATCHWEAVE_EXHAUSTIVE=all` the larger ones too, which take half an hour.

use std::sync::atomic::{AtomicUsize, Ordering};

use batchweave_sim::Class;
use batchweave_sim::cases::{self, Case};

/// More than any of these needs.
const RUNS_MAX: u64 = 2_000_000;

fn holds(case: &Case) {
    let explored = case.explore(RUNS_MAX);
    let (runs, states, ends) = (explored.runs, explored.states, explored.ends.len());
    println!("{}: {runs} runs, {states} states, {ends} ends", case.name);
    if let Some((decisions, trouble)) = explored.failure {
        panic!("{trouble}\n{}", case.story(decisions));
    }
    assert!(explored.complete, "{} isn't searched to its end", case.name);
}

/// Two at a time: a run is mostly one thread handing on to another.
fn all_hold(cases: &[Case]) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    holds(case);
                }
            });
        }
    });
}

#[test]
fn every_schedule_of_the_small_cases_keeps_the_promises() {
    all_hold(&cases::small());
}

#[test]
fn every_schedule_of_the_large_cases_keeps_the_promises() {
    if std::env::var_os("BATCHWEAVE_EXHAUSTIVE").is_some_and(|which| which == "all") {
        all_hold(&cases::large());
    }
}

/// A call that nobody notices is made at once: with each counted as noticed, no other end is reached. (But for
/// who rings last, where nobody listens: so two writers here have no doorbell.)
#[test]
fn calls_that_nobody_notices_hide_nothing() {
    for case in [
        cases::publish_against_publish(Class::Coherent { bricks: 1 }),
        cases::publish_against_publish(Class::CloseToOpen),
        cases::a_sleeper_in_a_boundary(Class::Local),
        cases::a_sleeper_in_a_boundary(Class::CloseToOpen),
    ] {
        let plodding = Case { plods: true, ..case.clone() };
        let (fast, slow) = (case.explore(RUNS_MAX), plodding.explore(RUNS_MAX));
        assert!(fast.complete && slow.complete && fast.runs < slow.runs);
        assert_eq!(fast.ends, slow.ends, "{}", case.name);
    }
}
