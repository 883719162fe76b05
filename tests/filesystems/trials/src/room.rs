//! A small disk that runs full, of bytes or of inodes; or a quota, of which a disk's free space says nothing.
//!
//! - Producers are told `Full` while a margin is left, and again when nothing is. A quota leaves no margin:
//!   what is there for a checkpoint is what the part that didn't fit has given back.
//! - A checkpoint can still be written then, and a reclaim: of inodes the ballast has one, so where others
//!   have taken all of them the reclaim may be told `Full` until there is one again.
//! - With room again all goes on; what was acknowledged is there, once, and nothing else.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use batchweave::{ErrorKind, Producer, ReclaimOptions, Share, Start, Store};

use crate::{Result, judge, part};

/// More parts than a small disk holds.
const PARTS_MAX: u64 = 100_000;
const GROUP: &str = "job";

/// What a disk is short of.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Short {
    Bytes,
    Inodes,
    Quota,
}

pub(crate) fn full(directory: &Path, short: Short) -> Result<String> {
    let path = directory.join("store");
    let store = Store::create(&path, part::options())?;
    let mut producer = store.producer("tok")?;
    let run = store.group(GROUP)?.begin(Start::Beginning)?;
    let fill = directory.join("fill");
    fs::create_dir(&fill)?;
    let kept = until_full(&mut producer)?;
    if kept.contains("kept from parts") == (short == Short::Quota) {
        return Err(format!("what was kept from parts isn't what could be known: {kept}").into());
    }
    let acknowledged = producer.next_sequence().get();
    // Somebody else takes what is left.
    fill_up(&fill, short)?;
    until_full(&mut producer)?;
    let mut consumer = run.consumer(Share::WHOLE)?;
    for _ in 0..acknowledged * 3 / 4 {
        consumer.next_batch_timeout(crate::child::PATIENCE)?.ok_or("the stream ended early")?;
    }
    run.checkpoint(consumer.position(), "kept")
        .map_err(|error| format!("on the full disk no checkpoint could be written: {error}"))?;
    let reclaim = || store.reclaim(&ReclaimOptions::new().keep(1));
    let on_full = match reclaim() {
        Ok(reclaimed) => Some(reclaimed),
        Err(error) if short == Short::Inodes && error.kind() == ErrorKind::Full => None,
        Err(error) => return Err(format!("on the full disk nothing could be reclaimed: {error}").into()),
    };
    fs::remove_dir_all(&fill)?;
    let when = if on_full.is_some() { "on the full disk" } else { "once there was an inode" };
    let reclaimed = on_full.map_or_else(reclaim, Ok)?;
    if reclaimed.segments.count == 0 {
        return Err("the reclaim freed nothing".into());
    }
    for _ in 0..20 {
        part::publish(&mut producer)?;
    }
    let expected = acknowledged + 20;
    let run = store.run(reclaimed.floor)?;
    let mut consumer = run.consumer(Share::WHOLE)?;
    for sequence in reclaimed.floor.get()..expected {
        let batch = consumer.next_batch_timeout(crate::child::PATIENCE)?.ok_or("the stream ended early")?;
        let id = part::check(&batch)?;
        if !id.is("tok", sequence) {
            return Err(format!("step {sequence} holds {id}").into());
        }
    }
    if store.info()?.next_step.get() != expected {
        return Err("there are more steps than were acknowledged".into());
    }
    judge::verify(&path)?;
    let segments = reclaimed.segments.count;
    Ok(format!(
        "Full after {acknowledged} parts; a checkpoint on the full disk, {segments} segments reclaimed {when}"
    ))
}

/// Publishes until it is told `Full`; gives the sentence.
fn until_full(producer: &mut Producer) -> Result<String> {
    for _ in 0..PARTS_MAX {
        match part::publish(producer) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Full => return Ok(error.to_string()),
            Err(error) => return Err(format!("instead of Full it is told {}: {error}", error.kind()).into()),
        }
    }
    Err(format!("{PARTS_MAX} parts, and the disk isn't full").into())
}

/// Takes all bytes, or all inodes. What a quota has left stays: nothing is kept there for a checkpoint.
fn fill_up(directory: &Path, short: Short) -> Result<()> {
    let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
    let filled = match short {
        Short::Bytes => {
            let mut file = File::create(directory.join("bytes"))?;
            // By halves at the end, so that no block is left.
            let mut length = 1 << 20;
            let mut written = Ok(());
            while length > 0 {
                written = file.write_all(&vec![0xee; length]).and_then(|()| file.sync_data());
                if written.is_err() {
                    length /= 2;
                }
            }
            written
        }
        Short::Inodes => {
            let made =
                (0..PARTS_MAX).map(|number| File::create(directory.join(number.to_string())).map(drop));
            made.collect()
        }
        Short::Quota => return Ok(()),
    };
    match filled {
        Err(error) if is_full(&error) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Err("the disk couldn't be filled".into()),
    }
}
