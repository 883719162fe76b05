//! Simulates many runs of the real engine under a hostile filesystem, one seed at a time.

use batchweave_sim::Coverage;
use batchweave_sim::simulation::{Shape, shrink, simulate};
use std::sync::Arc;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let first: u64 = args.get(1).map_or(0, |a| a.parse().unwrap());
    let count: u64 = args.get(2).map_or(100, |a| a.parse().unwrap());
    let shape = args.get(3).map(|s| match s.as_str() {
        "s" => Shape::Sleepers,
        "d" => Shape::Damage,
        "e" => Shape::Endings,
        _ => Shape::Traffic,
    });
    let coverage = Arc::new(Coverage::default());
    let began = std::time::Instant::now();
    let mut calls = 0;
    let mut bad = 0;
    for seed in first..first + count {
        let report = simulate(seed, shape, &coverage);
        calls += report.calls;
        if let Some(t) = &report.trouble {
            bad += 1;
            println!("seed {seed}: {}", t.chars().take(260).collect::<String>());
            if count == 1 {
                let s = shrink(&report, shape, 400);
                println!("{s}");
            }
        }
    }
    let t = began.elapsed().as_secs_f64();
    println!("{count} runs, {bad} bad, {calls} calls, {:.1}/s", count as f64 / t);
    println!("{:?}", coverage.counts());
}
