//! Writing: small durable commits, the protocol's own cost, and large batches.

use batchweave::{Counts, Durability, Options, Producer, Step, Store};

use super::raw::{RawLog, now_ns, write_file};
use super::rounds::{About, Better, Figure, compare};
use super::{Bench, MIB, Result};

const SMALL_SLICE_BYTES: usize = 1024;
const COMMITS: u64 = 32;
const UNSYNCED_COMMITS: u64 = 512;
const BATCHES: u64 = 2;
/// Slices of a large batch, of 2 MiB each.
pub(super) const LARGE_SLICES: usize = 8;
/// Bytes in a large batch.
pub(super) const LARGE_BATCH_BYTES: usize = LARGE_SLICES * 2 * MIB;

/// Small commits that survive a power cut.
pub(super) fn commit(bench: &Bench) -> Result<Figure> {
    let about = About {
        name: "commit_ratio",
        unit: "commits/s",
        better: Better::Higher,
        target: 0.8,
        per_round: COMMITS,
        engine_does: "publish a part of one slice of 1 KiB and 8 bytes of state to a synced store, \
        segment boundaries \
                      included",
        raw_does: "create, one pwrite of as many bytes, fdatasync, close, link, unlink, fsync of the dir",
    };
    small(bench, about, Durability::Synced)
}

/// Small commits without syncs: what is left is the protocol.
pub(super) fn protocol(bench: &Bench) -> Result<Figure> {
    let about = About {
        name: "protocol_ratio",
        unit: "commits/s",
        better: Better::Higher,
        target: 0.8,
        per_round: UNSYNCED_COMMITS,
        engine_does: "publish a part of one slice of 1 KiB and 8 bytes of state to an unsynced \
        store, segment \
                      boundaries included",
        raw_does: "create, one pwrite of as many bytes, close, link, unlink; open marks/ anew, list \
        it, open an absent \
                   mark, open the absent next name",
    };
    small(bench, about, Durability::Unsynced)
}

fn small(bench: &Bench, about: About, durability: Durability) -> Result<Figure> {
    let synced = durability == Durability::Synced;
    let store = Store::create(bench.path(about.name), Options::new().durability(durability))?;
    let mut producer = store.producer("bench")?;
    let slice = &bench.bytes[..SMALL_SLICE_BYTES];
    publish(&mut producer, &[slice])?;
    let length = std::fs::metadata(store.batch(Step::ZERO)?.location(0)?.path)?.len();
    let file = &bench.bytes[..usize::try_from(length)?];
    let mut log = RawLog::create(&bench.path(&format!("{}-raw", about.name)))?;
    let engine = || rate(about.per_round, || publish(&mut producer, &[slice]));
    let raw = || {
        rate(about.per_round, || {
            log.commit(file, synced)?;
            if !synced {
                log.look()?;
            }
            Ok(())
        })
    };
    compare(&bench.progress, bench.rounds, about, engine, raw)
}

/// Large batches that survive a power cut; what it leaves in the store is read later.
pub(super) fn ingest(bench: &Bench, target: f64) -> Result<(Figure, Store)> {
    let about = About {
        name: "ingest_ratio",
        unit: "MiB/s",
        better: Better::Higher,
        target,
        per_round: BATCHES,
        engine_does: "publish a part of 8 slices of 2 MiB to a synced store, checksums and all",
        raw_does: "create, 8 pwrites of 2 MiB, fdatasync, close",
    };
    let store = Store::create(bench.path("ingest"), Options::new())?;
    let mut producer = store.producer("bench")?;
    let slices = [&bench.bytes[..2 * MIB]; LARGE_SLICES];
    let files = bench.path("ingest-raw");
    std::fs::create_dir(&files)?;
    let mut number = 0u64;
    let mib = (LARGE_BATCH_BYTES / MIB) as f64;
    let engine = || Ok(mib * rate(BATCHES, || publish(&mut producer, &slices))?);
    let raw = || {
        // The files stay: blocks just freed are quicker to write than those that the engine gets.
        let per_second = rate(BATCHES, || {
            number += 1;
            Ok(write_file(&files.join(number.to_string()), slices[0], LARGE_SLICES)?)
        })?;
        Ok(mib * per_second)
    };
    let figure = compare(&bench.progress, bench.rounds, about, engine, raw)?;
    std::fs::remove_dir_all(files)?;
    Ok((figure, store))
}

/// Publishes one part of these slices.
pub(super) fn publish(producer: &mut Producer, slices: &[&[u8]]) -> Result<()> {
    let mut draft = producer.draft()?;
    for slice in slices {
        draft.add_slice(slice, Counts { samples: 1, tokens: 256 })?;
    }
    let state = producer.next_sequence().get().to_le_bytes();
    producer.publish_now(draft, state)?;
    Ok(())
}

fn rate(times: u64, mut one: impl FnMut() -> Result<()>) -> Result<f64> {
    let began = now_ns();
    for _ in 0..times {
        one()?;
    }
    Ok(times as f64 * 1e9 / (now_ns() - began) as f64)
}
