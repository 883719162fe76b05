//! Reading what is in the page cache: mapped, copied, and the hand-out of what is ready.
//!
//! - The consumer touches every byte that it is given, in the engine's rounds on top of the engine's own
//!   verification.
//! - Raw and engine read the same files, by the same implementation of XXH3.

use std::fs::File;
use std::hint::black_box;
use std::path::PathBuf;

use batchweave::format::checksum;
use batchweave::{Batch, Consumer, Durability, Options, ReadMode, Settings, Share, Start, Step, Store};

use super::raw::{aligned, map, now_ns};
use super::rounds::{About, Better, Figure, compare, quantile};
use super::writes::{LARGE_BATCH_BYTES, publish};
use super::{Bench, MIB, Result};

const HEADER_BYTES: usize = 4096;
/// Batches handed out in a round: small ones, since a hand-out costs the same whatever their size.
const HAND_OUTS: usize = 256;
const HAND_OUT_SLICE_BYTES: usize = 4096;
/// How long the consumer is busy with a batch before it asks for the next, which is ready by then.
const STEP_NS: u64 = 300_000;
/// More than a consumer at the defaults ever holds at once: the window, one being read, one in hand.
const HELD_BATCHES: usize = 12;

/// The mapped stream at its defaults.
pub(super) fn mapped(bench: &Bench, store: &Store) -> Result<Figure> {
    let files = files_of(store)?;
    let about = About {
        name: "read_ratio",
        unit: "MiB/s",
        better: Better::Higher,
        target: 0.9,
        per_round: files.len() as u64,
        engine_does: "open a run and a consumer at the defaults in map mode (prefetch and verification \
                      on: the thread that reads ahead reads, and the consumer's while it has to wait), take \
                      all batches, and touch every byte as the consumer",
        raw_does: "on one thread, for each file: open, fstat, mmap with MAP_POPULATE, XXH3 over all but the \
                   header, munmap",
    };
    let store = Store::open_with(store.path(), &Settings::new().read_mode(ReadMode::Map))?;
    let engine = || throughput(&files, || consume(&store, files.len()));
    let raw = || {
        throughput(&files, || {
            for path in &files {
                let map = map(&File::open(path)?, true)?;
                black_box(checksum::of(&map[HEADER_BYTES..]));
            }
            Ok(())
        })
    };
    compare(&bench.progress, bench.rounds, about, engine, raw)
}

/// The copied stream; the number is that of the buffers that had to be made once it was warm.
pub(super) fn copied(bench: &Bench, store: &Store) -> Result<(Figure, u64)> {
    let files = files_of(store)?;
    let about = About {
        name: "copy_ratio",
        unit: "MiB/s",
        better: Better::Higher,
        target: 0.9,
        per_round: files.len() as u64,
        engine_does: "open a run and a consumer at the defaults in copy mode (prefetch and verification \
                      on: the thread that reads ahead reads, and the consumer's while it has to wait), take \
                      all batches, and touch every byte as the consumer",
        raw_does: "on one thread, for each file: open, preads of 1 MiB into one aligned buffer for the \
                   batch, used again for the next, XXH3 of each piece right after its pread",
    };
    let store = Store::open_with(store.path(), &Settings::new().read_mode(ReadMode::Copy))?;
    let mut buffer = aligned(LARGE_BATCH_BYTES)?;
    // As many batches at once as a consumer and its window ever hold: warm means that they all have a buffer.
    let mut all = consumer(&store)?;
    let held: Result<Vec<_>> = (0..HELD_BATCHES.min(files.len())).map(|_| Ok(all.next_batch()?)).collect();
    drop((held?, all));
    let misses_cold = store.stats().pool_misses;
    let engine = || throughput(&files, || consume(&store, files.len()));
    let raw = || {
        throughput(&files, || {
            for path in &files {
                let file = File::open(path)?;
                for (number, piece) in buffer.chunks_mut(MIB).enumerate() {
                    let offset = HEADER_BYTES + number * MIB;
                    let read = rustix::io::pread(&file, &mut *piece, offset as u64)?;
                    black_box(checksum::of(&piece[..read]));
                }
            }
            Ok(())
        })
    };
    let figure = compare(&bench.progress, bench.rounds, about, engine, raw)?;
    Ok((figure, store.stats().pool_misses - misses_cold))
}

/// What a hand-out costs when the batch is ready: median and 99th percentile in us, and how many were timed.
pub(super) fn hand_out(bench: &Bench) -> Result<(f64, f64, usize)> {
    let path = bench.directory.path().join("hand-out");
    let options = Options::new().durability(Durability::Unsynced);
    let store = Store::open_or_create(&path, options)?;
    let mut producer = store.producer("bench")?;
    for _ in 0..HAND_OUTS {
        publish(&mut producer, &[&bench.bytes[..HAND_OUT_SLICE_BYTES]; 8])?;
    }
    let store = Store::open_with(&path, &Settings::new().read_mode(ReadMode::Map))?;
    let mut times = Vec::new();
    for round in 0..bench.rounds {
        bench.progress.say(&format!("next_p50_us: round {} of {}", round + 1, bench.rounds));
        let mut consumer = consumer(&store)?;
        for number in 0..HAND_OUTS {
            let began = now_ns();
            let batch = consumer.next_batch()?.ok_or("the stream ended early")?;
            let took = now_ns() - began;
            // The first is read on demand, the second may be.
            if number >= 2 {
                times.push(took as f64 / 1e3);
            }
            while now_ns() - began < STEP_NS {
                touch(&batch)?;
            }
        }
    }
    Ok((quantile(&mut times, 0.5), quantile(&mut times, 0.99), times.len()))
}

fn files_of(store: &Store) -> Result<Vec<PathBuf>> {
    let steps = store.info()?.next_step.get();
    (0..steps).map(|step| Ok(store.batch(Step::new(step))?.location(0)?.path)).collect()
}

fn consumer(store: &Store) -> Result<Consumer> {
    Ok(store.run(Start::Beginning)?.consumer(Share::WHOLE)?)
}

fn consume(store: &Store, batches: usize) -> Result<()> {
    let mut consumer = consumer(store)?;
    for _ in 0..batches {
        touch(&consumer.next_batch()?.ok_or("the stream ended early")?)?;
    }
    Ok(())
}

fn touch(batch: &Batch) -> Result<()> {
    for slice in batch.slices() {
        black_box(sum(&slice?));
    }
    Ok(())
}

/// A sum over every byte: the least that touches them all.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let words = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(words, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

fn throughput(files: &[PathBuf], all: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = now_ns();
    all()?;
    let mib = (files.len() * LARGE_BATCH_BYTES / MIB) as f64;
    Ok(mib * 1e9 / (now_ns() - began) as f64)
}
