//! The index of a complete segment: which commits it has, where its parts are, and the state at its end.
//!
//! - Header, then four sections, each right after the one before and with its own checksum in the header: no
//!   byte is outside a checksum, and the header's own stands for the file.
//! - Its bytes are a function of the log (no sizes, no offsets of tails, sorted, uncompressed), so racing
//!   builders write the same file.
//! - A section is verified when it is first used; who reads parts never reads producers' states.

use std::ops::Range;

use super::checksum;
use super::corrupt;
use super::cursor::{Reader, Writer};
use crate::error::Result;
use crate::id::{Checksum, Nonce, Part, Segment, StoreUuid, Version};
use crate::limits::{INDEX_BYTES_MAX, PRODUCERS_MAX, STATE_BYTES_MAX};
use crate::name::Name;

const MAGIC: &[u8; 8] = b"BWindex\0";

/// The size of an index's header in bytes.
pub const INDEX_HEADER_BYTES: usize = 256;
/// The size of one version's entry in bytes.
pub const VERSION_ENTRY_BYTES: usize = 32;
/// The size of one part's entry in bytes.
pub const PART_ENTRY_BYTES: usize = 16;

/// The sections of an index, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// One entry for each of the segment's versions.
    Versions,
    /// One entry for each part committed in the segment and live at its end.
    Parts,
    /// The state at the segment's end, as tagged items.
    State,
    /// The producers' states by name.
    ProducerStates,
}

impl Section {
    /// Every section, in the order of the file.
    pub const ALL: [Self; 4] = [Self::Versions, Self::Parts, Self::State, Self::ProducerStates];

    /// Its name for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Versions => "versions",
            Self::Parts => "parts",
            Self::State => "state",
            Self::ProducerStates => "producer states",
        }
    }
}

/// Place and checksum of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Of its bytes.
    pub checksum: Checksum,
}

/// An index's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The store it belongs to.
    pub store: StoreUuid,
    /// The segment.
    pub segment: Segment,
    /// The first part in it: part `p` is entry `p - first`.
    pub first_part: Part,
    /// Number of version entries: the store's segment size.
    pub versions: u32,
    /// Number of part entries.
    pub parts: u64,
    /// The sections, in the order of [`Section::ALL`].
    pub sections: [Placed; 4],
}

/// One version of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionEntry {
    /// The commit's nonce.
    pub nonce: Nonce,
    /// Its record checksum.
    pub checksum: Checksum,
    /// The number of its record's kind.
    pub kind: u16,
    /// Why it has no effect; 0 if it has.
    pub void: u8,
}

/// Where a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartEntry {
    /// The commit that holds it.
    pub version: Version,
    /// Its place among that commit's parts, from 0.
    pub ordinal: u32,
}

/// What an index is built from.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The store.
    pub store: StoreUuid,
    /// The segment.
    pub segment: Segment,
    /// The number of the first part in `parts`, or of the next one if there is none.
    pub first_part: Part,
    /// Its versions, all of them.
    pub versions: Vec<VersionEntry>,
    /// Its live parts.
    pub parts: Vec<PartEntry>,
    /// The encoded state at its end.
    pub state: Vec<u8>,
    /// Every producer's last state, sorted by name.
    pub producer_states: Vec<(Name, Vec<u8>)>,
}

impl Contents {
    /// The file's bytes and its header.
    pub fn encode(&self) -> (Vec<u8>, Header) {
        let sections =
            [self.encode_versions(), self.encode_parts(), self.state.clone(), self.encode_states()];
        let mut header = Header {
            store: self.store,
            segment: self.segment,
            first_part: self.first_part,
            versions: u32::try_from(self.versions.len()).unwrap_or(u32::MAX),
            parts: self.parts.len() as u64,
            sections: [Placed::default(); 4],
        };
        let mut offset = INDEX_HEADER_BYTES as u64;
        for (placed, bytes) in header.sections.iter_mut().zip(&sections) {
            *placed = Placed { offset, length: bytes.len() as u64, checksum: checksum::of(bytes) };
            offset = offset.saturating_add(placed.length);
        }
        let mut bytes = header.encode();
        sections.iter().for_each(|section| bytes.extend_from_slice(section));
        (bytes, header)
    }

    fn encode_versions(&self) -> Vec<u8> {
        let mut to = Writer::new();
        for entry in &self.versions {
            to.raw(entry.nonce.bytes()).checksum(entry.checksum).u16(entry.kind).u8(entry.void).zeros(5);
        }
        to.into_bytes()
    }

    fn encode_parts(&self) -> Vec<u8> {
        let mut to = Writer::new();
        for entry in &self.parts {
            to.u64(entry.version.get()).u32(entry.ordinal).zeros(4);
        }
        to.into_bytes()
    }

    fn encode_states(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.count(self.producer_states.len());
        for (name, state) in &self.producer_states {
            to.name(name).bytes(state);
        }
        to.into_bytes()
    }
}

impl Header {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.raw(MAGIC).u16(super::FORMAT_VERSION).zeros(6).u64(0).raw(self.store.bytes());
        to.u64(self.segment.get()).u64(self.first_part.get()).u32(self.versions).zeros(4).u64(self.parts);
        for placed in &self.sections {
            to.u64(placed.offset).u64(placed.length).checksum(placed.checksum);
        }
        to.pad_to(INDEX_HEADER_BYTES - 8);
        let bytes = to.into_bytes();
        let checksum = checksum::of(&bytes);
        let mut to = Writer::new();
        to.raw(&bytes).checksum(checksum);
        to.into_bytes()
    }

    /// Reads a header.
    ///
    /// # Errors
    /// `Corrupt` when it isn't whole or contradicts itself, `Unsupported` when a newer library wrote it.
    pub fn decode(bytes: &[u8; INDEX_HEADER_BYTES]) -> Result<Self> {
        let (sealed, seal) = bytes.split_at_checked(INDEX_HEADER_BYTES - 8).unwrap_or((bytes, &[]));
        let mut from = Reader::new(sealed);
        if from.take(MAGIC.len())? != MAGIC {
            return Err(corrupt("the file doesn't begin as an index does"));
        }
        let format_version = from.u16()?;
        if Reader::new(seal).checksum()? != checksum::of(sealed) {
            return Err(corrupt("the checksum of the index's header differs"));
        }
        // What is reserved here may mean something to who wrote a newer version: that is asked first.
        let reserved = from.take(6)?;
        super::check_supported("the index", format_version, from.u64()?)?;
        Reader::new(reserved).zeros(6)?;
        let store = StoreUuid::new(from.array()?);
        let (segment, first_part) = (from.u64()?.into(), from.u64()?.into());
        let versions = from.u32()?;
        from.zeros(4)?;
        let parts = from.u64()?;
        let mut sections = [Placed::default(); 4];
        for placed in &mut sections {
            *placed = Placed { offset: from.u64()?, length: from.u64()?, checksum: from.checksum()? };
        }
        from.finish_padded()?;
        let header = Self { store, segment, first_part, versions, parts, sections };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<()> {
        let mut offset = Some(INDEX_HEADER_BYTES as u64);
        for placed in &self.sections {
            if offset != Some(placed.offset) {
                return Err(corrupt("the index's sections aren't one after another"));
            }
            offset = placed.offset.checked_add(placed.length).filter(|end| *end <= INDEX_BYTES_MAX);
        }
        let [versions, parts, ..] = &self.sections;
        let counted = versions.length == u64::from(self.versions).saturating_mul(VERSION_ENTRY_BYTES as u64)
            && Some(parts.length) == self.parts.checked_mul(PART_ENTRY_BYTES as u64)
            && self.first_part.get().checked_add(self.parts).is_some()
            && self.segment.get().checked_mul(self.versions.into()).is_some();
        if counted && offset.is_some() {
            return Ok(());
        }
        Err(corrupt("the index's counts contradict its sections"))
    }

    /// Place and checksum of a section.
    pub fn placed(&self, section: Section) -> Placed {
        let [versions, parts, state, producer_states] = self.sections;
        match section {
            Section::Versions => versions,
            Section::Parts => parts,
            Section::State => state,
            Section::ProducerStates => producer_states,
        }
    }

    /// The length of the whole file.
    pub fn file_length(&self) -> u64 {
        let last = self.placed(Section::ProducerStates);
        last.offset.saturating_add(last.length)
    }

    /// The numbers of the parts that it has.
    pub fn part_range(&self) -> Range<u64> {
        self.first_part.get()..self.first_part.get().saturating_add(self.parts)
    }
}

/// Checks a section's bytes.
///
/// # Errors
/// `Corrupt` when the checksum differs.
pub fn check_section(section: Section, placed: Placed, bytes: &[u8]) -> Result<()> {
    if bytes.len() as u64 == placed.length && checksum::of(bytes) == placed.checksum {
        return Ok(());
    }
    Err(corrupt(format!("the checksum of the index's section \"{}\" differs", section.word())))
}

/// The entry of the version at `slot`; `bytes` is the verified section.
///
/// # Errors
/// `Corrupt` when there is no such entry.
pub fn version_entry(bytes: &[u8], slot: u64) -> Result<VersionEntry> {
    let mut from = Reader::new(entry(bytes, slot, VERSION_ENTRY_BYTES)?);
    let read = VersionEntry {
        nonce: Nonce::new(from.array()?),
        checksum: from.checksum()?,
        kind: from.u16()?,
        void: from.u8()?,
    };
    from.zeros(5)?;
    Ok(read)
}

/// The entry at `place` among the parts; `bytes` is the verified section.
///
/// # Errors
/// `Corrupt` when there is no such entry.
pub fn part_entry(bytes: &[u8], place: u64) -> Result<PartEntry> {
    let mut from = Reader::new(entry(bytes, place, PART_ENTRY_BYTES)?);
    let read = PartEntry { version: from.u64()?.into(), ordinal: from.u32()? };
    from.zeros(4)?;
    Ok(read)
}

fn entry(bytes: &[u8], place: u64, length: usize) -> Result<&[u8]> {
    let start = usize::try_from(place).ok().and_then(|place| place.checked_mul(length));
    let found = start.and_then(|start| bytes.get(start..)?.get(..length));
    found.ok_or_else(|| corrupt(format!("the index has no entry {place}")))
}

/// The producers' states by name; `bytes` is the verified section.
///
/// # Errors
/// `Corrupt` when they aren't sorted or don't fit.
pub fn producer_states(bytes: &[u8]) -> Result<Vec<(Name, &[u8])>> {
    let mut from = Reader::new(bytes);
    let count = from.count(6, PRODUCERS_MAX)?;
    let mut states: Vec<(Name, &[u8])> = Vec::with_capacity(count);
    for _ in 0..count {
        let one = (from.name()?, from.bytes(STATE_BYTES_MAX)?);
        if states.last().is_some_and(|last| last.0 >= one.0) {
            return Err(corrupt("the index's producer states aren't sorted"));
        }
        states.push(one);
    }
    from.finish()?;
    Ok(states)
}
