//! The header block of a commit: identity, what its writer had seen, the record or where it is.
//!
//! - The header is 4096 bytes. A record of up to 3584 lies in it; a larger one lies at the end of the file,
//!   at a multiple of 8, and is in the header by its digest.
//! - The *record checksum* is XXH3-64 of the whole header block, its own field zero: so it covers the record,
//!   and through the record every part.
//! - People's fields (time, host, pid, job, library) are never read by replay.
//! - Nothing is sealed that a reader would refuse: a commit that has its name can't be taken back.

use super::checksum;
use super::cursor::{Reader, Writer};
use super::part::align;
use super::record::{Kind, Record};
use super::{check_features, corrupt};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Checksum, Generation, Nonce, StoreUuid, Version};
use crate::limits::{COMMIT_BYTES_MAX, COMMIT_HEADER_BYTES, PEOPLE_TEXT_BYTES_MAX, RECORD_BYTES_MAX};

const MAGIC: &[u8; 8] = b"BWcommit";
const HEADER: usize = COMMIT_HEADER_BYTES as usize;
const CHECKSUM_AT: usize = 120;
const PEOPLE_AT: usize = 128;
const RECORD_AT: usize = 512;
const RECORD_ALIGN_BYTES: u64 = 8;
const FLAG_REQUIRED: u32 = 1;

/// The longest record that lies in the header block.
pub const INLINE_RECORD_BYTES_MAX: usize = HEADER - RECORD_AT;

/// A header block.
pub type Block = [u8; HEADER];

/// What a commit's writer had replayed last (R10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The version.
    pub version: Version,
    /// That commit's record checksum.
    pub checksum: Checksum,
}

/// Who wrote a commit and when, for people only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct People {
    /// Microseconds since 1970 by the writer's clock.
    pub wall_us: u64,
    /// The writer's process.
    pub pid: u32,
    /// The writer's host.
    pub host: String,
    /// The writer's batch job.
    pub job: String,
    /// The library that wrote it.
    pub library: String,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the header block.
    Inline,
    /// Elsewhere in the file.
    At {
        /// Its first byte.
        offset: u64,
        /// Of its bytes.
        digest: Checksum,
    },
}

/// A commit's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The store it belongs to.
    pub store: StoreUuid,
    /// Tells it from every other commit.
    pub nonce: Nonce,
    /// The kind of its record: a number, since it may be a newer library's.
    pub kind: u16,
    /// Whether a reader that doesn't know the kind has to stop.
    pub required: bool,
    /// Feature bits without which it can't be read.
    pub features: u64,
    /// The generation it was written for.
    pub generation: Generation,
    /// What its writer had seen; none for the first.
    pub seen: Option<Seen>,
    /// What an attempt to commit costs its writer, in microseconds.
    pub attempt_us: u32,
    /// Length of the whole file.
    pub length: u64,
    /// Where the record is.
    pub place: Place,
    /// Length of the record.
    pub record_length: u64,
    /// For people.
    pub people: People,
}

/// What a writer gives for a header; the rest follows from the record.
#[derive(Clone, Debug)]
pub struct Draft {
    /// See [`Header::store`].
    pub store: StoreUuid,
    /// See [`Header::nonce`].
    pub nonce: Nonce,
    /// See [`Header::generation`].
    pub generation: Generation,
    /// See [`Header::seen`].
    pub seen: Option<Seen>,
    /// See [`Header::attempt_us`].
    pub attempt_us: u32,
    /// See [`Header::people`].
    pub people: People,
}

/// A commit's finished header, and its record if that doesn't fit in.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// The header block.
    pub block: Box<Block>,
    /// Offset and bytes of a record that lies elsewhere.
    pub elsewhere: Option<(u64, Vec<u8>)>,
    /// The record checksum.
    pub checksum: Checksum,
    /// Length of the whole file.
    pub length: u64,
}

/// Seals a record under a header.
///
/// # Errors
/// `Invalid` when a reader would refuse the record, or it or the file would be too long.
pub fn seal(draft: Draft, record: &Record) -> Result<Sealed> {
    let bytes = record.encode();
    let refused = |why: String| {
        Error::new(
            ErrorKind::Invalid,
            format!("a record of kind {} can't be written: {why}", record.kind().word()),
        )
    };
    if Record::decode(record.kind(), &bytes).map_err(|error| refused(error.to_string()))? != *record {
        return Err(refused("a reader would read another one".into()));
    }
    let too_long = || Error::new(ErrorKind::Invalid, "a commit or its record is too long");
    let payload_end = record.payload_end().ok_or_else(too_long)?;
    if bytes.len() as u64 > RECORD_BYTES_MAX {
        return Err(too_long());
    }
    let inline = bytes.len() <= INLINE_RECORD_BYTES_MAX;
    let offset = align(payload_end, RECORD_ALIGN_BYTES).ok_or_else(too_long)?;
    let (place, length) = if inline {
        (Place::Inline, payload_end)
    } else {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= COMMIT_BYTES_MAX);
        (Place::At { offset, digest: checksum::of(&bytes) }, end.ok_or_else(too_long)?)
    };
    let header = Header {
        store: draft.store,
        nonce: draft.nonce,
        kind: record.kind().number(),
        required: record.kind().required(),
        features: 0,
        generation: draft.generation,
        seen: draft.seen,
        attempt_us: draft.attempt_us,
        length,
        place,
        record_length: bytes.len() as u64,
        people: draft.people,
    };
    header.check_record(record).map_err(|error| refused(error.to_string()))?;
    let (block, checksum) = header.encode(if inline { &bytes } else { &[] });
    Ok(Sealed { block, elsewhere: (!inline).then_some((offset, bytes)), checksum, length })
}

impl Header {
    /// The block, with the record in it if that is inline, and the record checksum. Takes the fields as they
    /// are: [`seal`] is what makes them agree.
    pub fn encode(&self, inline: &[u8]) -> (Box<Block>, Checksum) {
        let mut to = Writer::with_room(HEADER);
        let flags = if self.required { FLAG_REQUIRED } else { 0 };
        to.raw(MAGIC).u16(super::FORMAT_VERSION).u16(self.kind).u32(flags).u64(self.features);
        to.raw(self.store.bytes()).raw(self.nonce.bytes()).u64(self.generation.get());
        to.optional_version(self.seen.map(|seen| seen.version));
        to.checksum(self.seen.map_or(Checksum::ZERO, |seen| seen.checksum)).u64(self.length);
        let (offset, digest) = match self.place {
            Place::Inline => (0, Checksum::ZERO),
            Place::At { offset, digest } => (offset, digest),
        };
        to.u64(offset).u64(self.record_length).checksum(digest).u32(self.attempt_us).pad_to(PEOPLE_AT);
        to.u64(self.people.wall_us).u32(self.people.pid);
        for text in [&self.people.host, &self.people.job, &self.people.library] {
            let text = cut(text);
            to.u8(u8::try_from(text.len()).unwrap_or(0)).raw(text.as_bytes());
        }
        to.pad_to(RECORD_AT).raw(inline);
        let mut block = to.into_bytes();
        block.resize(HEADER, 0);
        // Its own field is still zero, as the checksum has it.
        let checksum = checksum::of(&block);
        if let Some(field) = block.get_mut(CHECKSUM_AT..PEOPLE_AT) {
            field.copy_from_slice(&checksum.get().to_le_bytes());
        }
        let block = block.into_boxed_slice().try_into();
        (block.unwrap_or_else(|_| Box::new([0; HEADER])), checksum)
    }

    /// Reads a header block; gives the record checksum too.
    ///
    /// # Errors
    /// `Corrupt` when it isn't one or its checksum differs; `Unsupported` when a newer library wrote it.
    pub fn decode(block: &Block) -> Result<(Self, Checksum)> {
        let mut from = Reader::new(block);
        if from.take(MAGIC.len())? != MAGIC {
            return Err(corrupt("the file doesn't begin as a commit does"));
        }
        let format_version = from.u16()?;
        let stated = Reader::new(block.get(CHECKSUM_AT..).unwrap_or_default()).checksum()?;
        let found = record_checksum(block);
        if found != stated {
            return Err(corrupt(format!("the header's checksum is {found}, not {stated}")));
        }
        super::check_supported("the commit", format_version, 0)?;
        Ok((Self::decode_fields(&mut from)?, stated))
    }

    fn decode_fields(from: &mut Reader<'_>) -> Result<Self> {
        let kind = from.u16()?;
        let flags = from.u32()?;
        let features = from.u64()?;
        // A feature may give a meaning to what is refused below, so it is asked first.
        check_features("the commit", features)?;
        let (store, nonce) = (StoreUuid::new(from.array()?), Nonce::new(from.array()?));
        let generation = from.u64()?.into();
        let (seen_version, seen_checksum) = (from.optional_version()?, from.checksum()?);
        let seen = seen_version.map(|version| Seen { version, checksum: seen_checksum });
        let length = from.u64()?;
        let (offset, record_length, digest) = (from.u64()?, from.u64()?, from.checksum()?);
        let attempt_us = from.u32()?;
        from.zeros(4)?;
        from.checksum()?;
        let people = People::decode(Reader::new(from.take(RECORD_AT - PEOPLE_AT)?))?;
        if flags & !FLAG_REQUIRED != 0 || (seen.is_none() && seen_checksum != Checksum::ZERO) {
            return Err(corrupt("the header contradicts itself"));
        }
        let place = if offset == 0 { Place::Inline } else { Place::At { offset, digest } };
        let header = Self {
            store,
            nonce,
            kind,
            required: flags & FLAG_REQUIRED != 0,
            features,
            generation,
            seen,
            attempt_us,
            length,
            place,
            record_length,
            people,
        };
        header.check_lengths(digest)?;
        Ok(header)
    }

    fn check_lengths(&self, digest: Checksum) -> Result<()> {
        let fits = match self.place {
            Place::Inline => {
                self.record_length <= INLINE_RECORD_BYTES_MAX as u64
                    && self.length >= COMMIT_HEADER_BYTES
                    && digest == Checksum::ZERO
            }
            Place::At { offset, .. } => {
                offset >= COMMIT_HEADER_BYTES
                    && offset.is_multiple_of(RECORD_ALIGN_BYTES)
                    && self.record_length > INLINE_RECORD_BYTES_MAX as u64
                    && self.record_length <= RECORD_BYTES_MAX
                    && offset.checked_add(self.record_length) == Some(self.length)
            }
        };
        if fits && self.length <= COMMIT_BYTES_MAX {
            return Ok(());
        }
        Err(corrupt("the header's lengths contradict each other"))
    }

    /// Reads the record: from the block, or from `elsewhere`, the file's bytes at its place. None if it is of
    /// an unknown kind that is optional.
    ///
    /// # Errors
    /// As [`Record::decode`]; `Corrupt` also when the record's length or digest differs; `Unsupported` if the
    /// kind is unknown and required.
    pub fn record(&self, block: &Block, elsewhere: &[u8]) -> Result<Option<Record>> {
        let length = usize::try_from(self.record_length).unwrap_or(usize::MAX);
        let mut area = Reader::new(block.get(RECORD_AT..).unwrap_or_default());
        let bytes = match self.place {
            Place::Inline => area.take(length)?,
            Place::At { digest, .. } if elsewhere.len() == length && checksum::of(elsewhere) == digest => {
                elsewhere
            }
            Place::At { .. } => return Err(corrupt("the length or the digest of the record differs")),
        };
        area.finish_padded()?;
        let Some(kind) = self.known_kind() else {
            return if self.required { Err(self.unknown_kind()) } else { Ok(None) };
        };
        let record = Record::decode(kind, bytes)?;
        self.check_record(&record)?;
        Ok(Some(record))
    }

    fn unknown_kind(&self) -> Error {
        let (kind, version, library) = (self.kind, super::FORMAT_VERSION, &self.people.library);
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "a required record of kind {kind}, format version {version}, written by {library:?}, is \
                 unknown: {} reads format version {version}, kinds up to {}",
                super::THIS,
                Kind::ALL.len()
            ),
        )
    }

    fn check_record(&self, record: &Record) -> Result<()> {
        let end = record.payload_end();
        let right = match self.place {
            Place::Inline => end == Some(self.length),
            Place::At { offset, .. } => end.and_then(|end| align(end, RECORD_ALIGN_BYTES)) == Some(offset),
        };
        let onward = match record {
            Record::Rewind(rewind) => rewind.generation > self.generation,
            _ => true,
        };
        if right && onward && self.required == record.kind().required() {
            return Ok(());
        }
        Err(corrupt("the record doesn't fit its header"))
    }

    /// The kind, if this library knows it.
    pub fn known_kind(&self) -> Option<Kind> {
        Kind::from_number(self.kind)
    }
}

impl People {
    fn decode(mut from: Reader<'_>) -> Result<Self> {
        let (wall_us, pid) = (from.u64()?, from.u32()?);
        let mut text = || -> Result<String> {
            let length = usize::from(from.u8()?);
            let text =
                std::str::from_utf8(from.take(length)?).ok().filter(|_| length <= PEOPLE_TEXT_BYTES_MAX);
            text.map(str::to_owned).ok_or_else(|| corrupt("a text for people isn't one, or is too long"))
        };
        let people = Self { wall_us, pid, host: text()?, job: text()?, library: text()? };
        from.finish_padded()?;
        Ok(people)
    }
}

/// Of the whole block, the field that states it zero.
fn record_checksum(block: &Block) -> Checksum {
    let mut unsealed = *block;
    if let Some(field) = unsealed.get_mut(CHECKSUM_AT..PEOPLE_AT) {
        field.fill(0);
    }
    checksum::of(&unsealed)
}

/// At most 64 bytes of `text`, whole characters.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(PEOPLE_TEXT_BYTES_MAX)).unwrap_or_default()
}
