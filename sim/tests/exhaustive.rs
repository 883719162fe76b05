//! Every schedule of small cases of the real engine (`batchweave_sim::cases`).
//!
//! With `BATCHWEAVE_EXHAUSTIVE=all` the larger ones too.

use batchweave_sim::cases::{CLASSES, LARGE, SMALL};

#[test]
fn every_schedule_of_the_small_cases_keeps_the_promises() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let max: u64 = std::env::var("MAX").map_or(20_000, |m| m.parse().unwrap());
    for kind in SMALL.iter().chain(&LARGE) {
        for class in CLASSES {
            let case = kind(class);
            if !case.name.contains(&only) {
                continue;
            }
            let began = std::time::Instant::now();
            let explored = case.explore(max);
            println!(
                "{}: {} runs, {} states, {} ends, {} {:?}",
                case.name,
                explored.runs,
                explored.states,
                explored.ends.len(), explored.complete,
                began.elapsed()
            );
            if let Some((decisions, trouble)) = explored.failure {
                println!("{trouble}\n{}", case.story(decisions).lines().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
    }
}
