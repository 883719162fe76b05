//! What a commit takes in a real directory, through the public API.
//!
//! - Two threads race for the first figure of contention: how much longer a commit is while another's wait.
//! - The only part of this example that reads a clock.

use std::path::Path;
use std::time::Instant;

use batchweave::{Counts, Options, Store};

/// What was measured, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// A small part published and acknowledged, alone, the median in a log that begins.
    pub alone: f64,
    /// The same behind some thousand commits.
    pub later: f64,
    /// The mean time between two commits of two producers that race.
    pub racing: f64,
}

const SAMPLES: usize = 200;
const LATER: usize = 2000;

/// Measures in a directory of its own below `parent`, which it removes again.
pub fn measure(parent: &Path) -> batchweave::Result<Measured> {
    let root = parent.join(format!("contention-{}", std::process::id()));
    let store = Store::open_or_create(&root, Options::new())?;
    let publish = |name: &str, count: usize| -> batchweave::Result<Vec<f64>> {
        let mut producer = store.producer(name)?;
        let mut took = Vec::new();
        for _ in 0..count {
            let mut draft = producer.draft()?;
            draft.add_slice(&[7; 4096], Counts { samples: 1, tokens: 1024 })?;
            let started = Instant::now();
            producer.publish(draft, b"cursor")?.wait()?;
            took.push(started.elapsed().as_secs_f64());
        }
        Ok(took)
    };
    let alone = median(publish("a", SAMPLES)?);
    publish("a", LATER)?;
    let later = median(publish("a", SAMPLES)?);
    let started = Instant::now();
    let raced: Vec<_> = std::thread::scope(|scope| {
        let racers = ["b", "c"].map(|name| scope.spawn(move || publish(name, SAMPLES)));
        racers.into_iter().map(|racer| racer.join().expect("it doesn't panic")).collect()
    });
    raced.into_iter().collect::<batchweave::Result<Vec<_>>>()?;
    let racing = started.elapsed().as_secs_f64() / (2 * SAMPLES) as f64;
    drop(store);
    let _ = std::fs::remove_dir_all(&root);
    Ok(Measured { alone, later, racing })
}

fn median(mut values: Vec<f64>) -> f64 {
    crate::figures::quantile(&mut values, 0.5)
}
