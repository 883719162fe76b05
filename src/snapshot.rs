//! A [`Snapshot`]: what one rank gives the others, so that all start from one view with a handful of calls.
//!
//! - It is bytes for the trainer's own broadcast; it isn't for keeping: a position is.
//! - All that is in it is under one checksum.

use std::sync::Arc;

use crate::consumer::View;
use crate::error::{Error, ErrorKind, Result};
use crate::format::FORMAT_VERSION;
use crate::format::checksum;
use crate::format::cursor::{Reader, Writer};
use crate::id::{Incarnation, Step, StoreUuid, Version};
use crate::log::history::Skipped;
use crate::log::tail::Tail;
use crate::name::Name;
use crate::position::Position;

const MAGIC: &[u8; 8] = b"BWsnap\0\0";
const SKIPS_MAX: usize = 1 << 20;

/// What a run is, and the log's end as its handle knows it.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) position: Position,
    pub(crate) view: View,
    pub(crate) group: Option<(Name, Incarnation)>,
    pub(crate) tail: Tail,
}

/// A run as bytes, with a tail.
pub(crate) fn encode(
    position: &Position,
    view: &View,
    group: Option<&(Name, Incarnation)>,
    parts_per_step: u32,
    tail: &Tail,
) -> Vec<u8> {
    let mut to = Writer::new();
    to.raw(MAGIC).u16(FORMAT_VERSION).raw(position.store.bytes()).u32(parts_per_step);
    to.u64(position.generation.get()).u64(position.step.get()).checksum(position.lineage);
    to.u64(view.generation.get()).u64(view.closes).u64(view.closed.map_or(u64::MAX, Step::get));
    to.count(view.skips.len());
    for skip in view.skips.iter() {
        to.u64(skip.first.get()).u64(skip.last.get());
    }
    to.bool(group.is_some());
    if let Some((name, incarnation)) = group {
        to.name(name).u64(incarnation.get());
    }
    tail.encode(&mut to);
    let bytes = to.into_bytes();
    let checksum = checksum::of(&bytes);
    let mut to = Writer::with_room(bytes.len().saturating_add(8));
    to.raw(&bytes).checksum(checksum);
    to.into_bytes()
}

/// Whose snapshot it is.
///
/// # Errors
/// `Invalid` when the bytes aren't a whole snapshot, `Unsupported` when a library of another format wrote it.
pub(crate) fn store_of(bytes: &[u8]) -> Result<StoreUuid> {
    head(bytes).map(|(store, _)| store)
}

/// Reads a snapshot of a store with so many parts in a step.
///
/// # Errors
/// As [`store_of`].
pub(crate) fn decode(bytes: &[u8], parts_per_step: u32) -> Result<Snapshot> {
    let (store, mut from) = head(bytes)?;
    if from.u32()? != parts_per_step {
        return Err(invalid("it speaks of another number of parts per step"));
    }
    let position = Position {
        store,
        generation: from.u64()?.into(),
        step: from.u64()?.into(),
        lineage: from.checksum()?,
    };
    let (generation, closes) = (from.u64()?.into(), from.u64()?);
    let closed = from.optional_version()?.map(|step| Step::new(step.get()));
    let count = from.count(16, SKIPS_MAX)?;
    let skip = |from: &mut Reader<'_>| Ok(Skipped { first: from.u64()?.into(), last: from.u64()?.into() });
    let skips = (0..count).map(|_| skip(&mut from)).collect::<Result<Arc<[_]>>>()?;
    let group = match from.bool()? {
        true => Some((from.name()?, Version::new(from.u64()?).incarnation())),
        false => None,
    };
    let tail = Tail::decode(&mut from, parts_per_step)?;
    from.finish()?;
    Ok(Snapshot { position, view: View { generation, closes, closed, skips }, group, tail })
}

fn head(bytes: &[u8]) -> Result<(StoreUuid, Reader<'_>)> {
    let cut = bytes.len().checked_sub(8).and_then(|end| bytes.split_at_checked(end));
    let (sealed, seal) = cut.ok_or_else(|| invalid("it is too short"))?;
    let mut from = Reader::new(sealed);
    if from.take(MAGIC.len()).ok() != Some(MAGIC) {
        return Err(invalid("it doesn't begin as one does"));
    }
    let version = from.u16()?;
    if Reader::new(seal).checksum()? != checksum::of(sealed) {
        return Err(invalid("its checksum differs: it was cut or changed on its way"));
    }
    if version != FORMAT_VERSION {
        let what = format!(
            "the snapshot is of format version {version}, this library's is {FORMAT_VERSION}: all ranks need \
             one library"
        );
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    Ok((StoreUuid::new(from.array()?), from))
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("the bytes aren't a run's snapshot: {what}"))
}
