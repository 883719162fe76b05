//! A producer: packs its partition of the corpus and publishes it, one global batch after the other. While
//! one is packed, those before it are committed.
//!
//! It may die at any instruction. The next process that opens the name fences it and goes on from the cursor
//! that was committed with the last batch that is in: nothing is left out, nothing comes twice. A rewind
//! takes that cursor back with the batches, and fences it too: it ends, and is started again.

use std::collections::VecDeque;
use std::io::Write;

use batchweave::{Bounds, Counts, Error, Store, Ticket};

use crate::corpus::{Corpus, Cursor, Packer, WINDOW, Window};
use crate::job::{Job, PATIENCE, RETAINED_BYTES_MAX, Result, SLICES, Said, WINDOWS_PER_BATCH, producer_name};

pub fn produce(job: &Job, partition: usize) -> Result<()> {
    let corpus = Corpus::load(&job.run)?;
    let store = Store::open(&job.store)?;
    let mut producer = store.producer(&producer_name(partition))?;
    producer.set_bounds(Bounds::new().retained_bytes(RETAINED_BYTES_MAX).timeout(PATIENCE));
    let cursor = match producer.state() {
        none if none.is_empty() => Cursor::default(),
        committed => serde_json::from_slice(&committed)?,
    };
    let mut packer = Packer::new(&corpus, partition, cursor);
    Said::Opened { batches: producer.next_sequence().get() }.say()?;

    let mut tickets = VecDeque::new();
    while let Some(windows) = next_windows(&mut packer)? {
        let mut draft = producer.draft()?;
        // Always 8 slices, also when there is too little left to fill them.
        let windows: Vec<_> = Window::all_in(&windows).collect();
        let mut micros = windows.chunks(windows.len().div_ceil(SLICES));
        for _ in 0..SLICES {
            let micro = micros.next().unwrap_or_default();
            let mut slice = draft.slice()?;
            for window in micro {
                slice.write_all(&window.id.to_le_bytes())?;
                slice.write_all(window.tokens)?;
            }
            slice.finish(Counts { samples: micro.len() as u64, tokens: (micro.len() * WINDOW) as u64 })?;
        }
        let ids: Vec<u8> = windows.iter().flat_map(|window| window.id.to_le_bytes()).collect();
        draft.attach(&ids)?;
        let cursor = serde_json::to_vec(&packer.cursor)?;
        tickets.push_back(producer.publish(draft, cursor).map_err(Error::from)?);
        say_committed(&mut tickets)?;
    }
    producer.flush()?;
    say_committed(&mut tickets)?;
    producer.finish()?;
    Ok(())
}

/// Says how far it is committed.
fn say_committed(tickets: &mut VecDeque<Ticket>) -> Result<()> {
    while let Some(published) = tickets.front().and_then(Ticket::published) {
        tickets.pop_front();
        Said::Published { batches: published.sequence.next().get() }.say()?;
    }
    Ok(())
}

/// The windows of the next global batch, as they lie in a slice; none at the end.
fn next_windows(packer: &mut Packer<'_>) -> Result<Option<Vec<u8>>> {
    let mut windows = Vec::new();
    for _ in 0..WINDOWS_PER_BATCH {
        if !packer.pack(&mut windows)? {
            break;
        }
    }
    Ok(Some(windows).filter(|windows| !windows.is_empty()))
}
