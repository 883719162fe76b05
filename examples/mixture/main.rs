//! A mixture: every global batch has one part of each of several sources, prepared in parallel by producers
//! of their own, in the same order in every run.
//!
//! - The store's steps have as many parts as there are sources, and the producers take turns of one part.
//! - Each source is as slow as it likes, from part to part; only who is next is waited for.
//! - The run is made twice, in two stores, with delays of its own; both have the same bytes at every step.
//!
//! `cargo run --release --example mixture`
#![expect(
    clippy::disallowed_methods,
    reason = "an application, not the engine: threads, and sleeps that stand for work, are its own"
)]

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use batchweave::{Counts, Durability, Options, Result, Step, Store};

const SOURCES: [&str; 3] = ["web", "code", "math"];
/// Slices of a part: microbatches that are all of one source.
const SLICES: u32 = 2;
const STEPS: u64 = 40;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let runs = [mix(&home.path().join("one"), 1)?, mix(&home.path().join("other"), 2)?];
    for (number, digest) in runs.iter().enumerate() {
        println!("run {number}: {STEPS} steps of {} sources, digest {digest:016x}", SOURCES.len());
    }
    if runs[0] == runs[1] { Ok(()) } else { Err("the two runs differ".into()) }
}

/// Fills a store; gives a digest of which step has which bytes.
fn mix(path: &Path, run: u64) -> Result<u64> {
    let options = Options::new().parts_per_step(SOURCES.len() as u32).divisor(SLICES);
    let store = Store::create(path, options.durability(Durability::Unsynced))?;
    let source = |name| {
        let store = store.clone();
        move || produce(&store, name, run)
    };
    let threads: Vec<_> = SOURCES.iter().map(|name| thread::spawn(source(name))).collect();
    for thread in threads {
        thread.join().expect("a source doesn't panic")?;
    }
    store.close(false)?;
    let mut digest = DefaultHasher::new();
    for step in 0..STEPS {
        for slice in store.batch(Step::new(step))?.slices() {
            slice?.hash(&mut digest);
        }
    }
    Ok(digest.finish())
}

/// One source's producer.
fn produce(store: &Store, name: &str, run: u64) -> Result<()> {
    // Every producer says it; the first one has set it.
    store.set_turns(SOURCES, 1)?;
    let mut producer = store.producer(name)?;
    while producer.next_sequence().get() < STEPS {
        let sequence = producer.next_sequence().get();
        let mut draft = producer.draft()?;
        for slice in 0..SLICES {
            work(name, run, sequence);
            let text = format!("{name}: slice {slice} of part {sequence}");
            draft.add_slice(text.as_bytes(), Counts { samples: 1, tokens: text.len() as u64 })?;
        }
        producer.publish(draft, sequence.to_string())?.wait()?;
    }
    producer.finish()
}

/// Stands for reading and tokenising, which take another time in every run: that the order is the same
/// whatever they take is what this shows. Nobody waits by it for anybody.
fn work(name: &str, run: u64, sequence: u64) {
    let mut time = DefaultHasher::new();
    (name, run, sequence).hash(&mut time);
    thread::sleep(Duration::from_micros(time.finish() % 2000));
}
