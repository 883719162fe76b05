//! Building the index of a complete segment: its bytes, a function of the log alone.
//!
//! - The state has to be that of the segment's end: every version of it replayed, none of the next.
//! - A producer's state comes from the commit that holds it, if that is in the segment, else from the index
//!   before.
//! - Nothing is written here; staging and putting the bytes is the writer's (R4).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Log;
use super::index::Index;
use super::read;
use super::state::{State, StatePlace};
use super::tail::Tail;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum;
use crate::format::cursor::Writer;
use crate::format::index::{Contents, Header, PartEntry};
use crate::id::{Segment, Version};
use crate::limits::STATE_BYTES_MAX;
use crate::name::Name;
use crate::planted::{Bug, is_planted};
use crate::storage::read_exact_at;

/// The index of `segment`, which the tail has just completed.
///
/// # Errors
/// `Corrupt` or `Io` when a producer's state can't be read.
pub fn index(log: &Log, tail: &Tail, segment: Segment) -> Result<(Vec<u8>, Header)> {
    let size = log.segment_size();
    let first = segment.first_version(size);
    let complete = tail.state.next_version == segment.next().first_version(size) && tail.base() <= first;
    if !complete {
        let what = format!("the index of segment {segment} can't be built from what was replayed");
        return Err(Error::new(ErrorKind::Invalid, what).at(&log.path));
    }
    let mut contents = Contents {
        store: log.identity.uuid,
        segment,
        first_part: tail.state.next_part,
        versions: Vec::new(),
        parts: Vec::new(),
        state: tail.state.encode(),
        producer_states: producer_states(log, tail)?.into_iter().collect(),
    };
    for (version, entry) in tail.entries().filter(|(version, _)| *version >= first) {
        contents.versions.push(entry.indexed());
        if is_planted(Bug::IndexPartial) && version.next() == tail.state.next_version {
            continue;
        }
        if contents.parts.is_empty() && entry.parts > 0 {
            contents.first_part = entry.first_part;
        }
        contents.parts.extend((0..entry.parts).map(|ordinal| PartEntry { version, ordinal }));
    }
    if is_planted(Bug::IndexOfBuilder) {
        // As an item that readers pass over.
        let mut item = Writer::new();
        item.u16(u16::MAX).u16(0).bytes(log.nonce()?.bytes());
        contents.state.extend(item.into_bytes());
    }
    Ok(contents.encode())
}

/// The bytes of every producer's last state: from the commit, or from the index before the newest segments
/// if the commit lies behind them.
///
/// # Errors
/// `Corrupt` or `Io` when one can't be read.
pub fn producer_states(log: &Log, tail: &Tail) -> Result<BTreeMap<Name, Vec<u8>>> {
    states_of(log, &tail.state, tail.base(), || tail.index_before(log))
}

/// As [`producer_states`], of any state: what lies before `base` is in the index `before`.
pub(super) fn states_of(
    log: &Log,
    state: &State,
    base: Version,
    before: impl FnOnce() -> Result<Option<Arc<Index>>>,
) -> Result<BTreeMap<Name, Vec<u8>>> {
    let mut states = BTreeMap::new();
    let mut behind = Vec::new();
    for (name, producer) in &state.producers {
        match producer.state {
            None => {}
            Some(place) if place.version >= base => {
                states.insert(name.clone(), read_state(log, &place)?);
            }
            Some(place) => behind.push((name, place)),
        }
    }
    if behind.is_empty() {
        return Ok(states);
    }
    let index = before()?;
    let indexed: BTreeMap<Name, &[u8]> = match &index {
        Some(index) => index.producer_states()?.into_iter().collect(),
        None => BTreeMap::new(),
    };
    for (name, place) in behind {
        let bytes = indexed.get(name).ok_or_else(|| missing(name))?;
        check(bytes, &place)?;
        states.insert(name.clone(), bytes.to_vec());
    }
    Ok(states)
}

fn missing(name: &Name) -> Error {
    Error::new(ErrorKind::Corrupt, format!("no index has the state of producer {name}"))
}

/// The bytes of a producer's state: from the commit, or from the newest index if the commit lies behind it.
///
/// # Errors
/// `Corrupt` or `Io`.
pub fn state_of(log: &Log, tail: &Tail, name: &Name) -> Result<Vec<u8>> {
    let Some(place) = tail.state.producers.get(name).and_then(|producer| producer.state) else {
        return Ok(Vec::new());
    };
    if place.version >= tail.base() {
        return read_state(log, &place);
    }
    let index = tail.index_before(log)?.ok_or_else(|| missing(name))?;
    let states = index.producer_states()?;
    let (_, bytes) = states.into_iter().find(|(indexed, _)| indexed == name).ok_or_else(|| missing(name))?;
    check(bytes, &place)?;
    Ok(bytes.to_vec())
}

fn read_state(log: &Log, place: &StatePlace) -> Result<Vec<u8>> {
    read_state_bytes(log, place)
        .map_err(|error| error.version(place.version).at(log.commit_path(place.version)))
}

fn read_state_bytes(log: &Log, place: &StatePlace) -> Result<Vec<u8>> {
    let length = usize::try_from(place.length).unwrap_or(usize::MAX).min(STATE_BYTES_MAX);
    let mut bytes = vec![0; length];
    if length > 0 {
        let file = log.open_behind(place.version).map_err(|error| Error::io("can't open a commit", error))?;
        read_exact_at(&*log.storage, &file, &mut bytes, place.offset).map_err(read::short)?;
    }
    check(&bytes, place)?;
    Ok(bytes)
}

fn check(bytes: &[u8], place: &StatePlace) -> Result<()> {
    let right = bytes.len() as u64 == u64::from(place.length) && checksum::of(bytes) == place.checksum;
    if right {
        return Ok(());
    }
    let what = "the checksum of a producer's state differs";
    Err(Error::new(ErrorKind::Corrupt, what).version(place.version))
}
