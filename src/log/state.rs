//! The state of a store: a pure function of its log.
//!
//! - It holds O(producers) and nothing that grows with the steps ever written (P9).
//! - It knows where a producer's state lies, never its bytes: consumers don't read them.
//! - It encodes to the index's state section as tagged items: an unknown required tag is `Unsupported`, an
//!   empty optional part of the state isn't written at all, so that a store that doesn't use it stays
//!   readable.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::format::cursor::{Reader, Writer};
use crate::id::{Checksum, Generation, Incarnation, Nonce, Part, Sequence, Step, Version};
use crate::limits::PRODUCERS_MAX;
use crate::name::Name;

/// Where a producer's committed state lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatePlace {
    /// The commit.
    pub version: Version,
    /// Its first byte in the commit.
    pub offset: u64,
    /// Its length.
    pub length: u32,
    /// Of its bytes.
    pub checksum: Checksum,
}

/// What replay knows of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// The incarnation that may publish; none once retired.
    pub incarnation: Option<Incarnation>,
    /// The newest valid Open.
    pub last_open: Version,
    /// That Open's nonce, by which its writer knows it for its own (R6).
    pub open_nonce: Nonce,
    /// The next sequence.
    pub next: Sequence,
    /// Part checksum of the last part; zero before the first.
    pub last_checksum: Checksum,
    /// The last part; none before the first.
    pub last_part: Option<Part>,
    /// Whether it has retired.
    pub finished: bool,
    /// Its state; none before its first part.
    pub state: Option<StatePlace>,
    /// Its newest valid commit.
    pub last_version: Version,
    /// What an attempt to commit cost it, as its newest valid commit says, in microseconds.
    pub attempt_us: u32,
}

/// A run of steps that were written one after another in one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first step.
    pub step: Step,
    /// No part of it lies before this version.
    pub version: Version,
    /// The generation it was written in.
    pub generation: Generation,
}

/// The state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Parts in a step; a fixed choice of the store.
    pub parts_per_step: u32,
    /// The version after the newest replayed one.
    pub next_version: Version,
    /// The part after the newest one.
    pub next_part: Part,
    /// The first step that is still retained.
    pub floor: Step,
    /// The generation.
    pub generation: Generation,
    /// The step of every valid Close, in log order: a view that saw `n` of them ends at the one after
    /// those, also when a Reopen has followed since.
    pub ends: Vec<Step>,
    /// The step at which the stream ends; none while it goes on.
    pub closed: Option<Step>,
    /// Feature bits that are turned on.
    pub features: u64,
    /// Bytes in all parts ever valid.
    pub bytes_written: u64,
    /// Bytes in all parts below the floor.
    pub bytes_reclaimed: u64,
    /// By name.
    pub producers: BTreeMap<Name, ProducerState>,
    /// Where steps above the floor are, by first step.
    pub pieces: Vec<Piece>,
}

const TAG_CORE: u16 = 1;
const TAG_PRODUCERS: u16 = 2;
const TAG_PIECES: u16 = 3;
const TAG_ENDS: u16 = 4;
const FLAG_REQUIRED: u16 = 1;
/// A producer with a name of one byte and no state.
const PRODUCER_BYTES_MIN: usize = 72;
const PIECES_MAX: usize = 1 << 20;
const ENDS_MAX: usize = 1 << 20;

impl State {
    /// The state of an empty log.
    pub fn new(parts_per_step: u32) -> Self {
        Self {
            parts_per_step,
            next_version: Version::ZERO,
            next_part: Part::ZERO,
            floor: Step::ZERO,
            generation: Generation::ZERO,
            ends: Vec::new(),
            closed: None,
            features: 0,
            bytes_written: 0,
            bytes_reclaimed: 0,
            producers: BTreeMap::new(),
            pieces: vec![Piece { step: Step::ZERO, version: Version::ZERO, generation: Generation::ZERO }],
        }
    }

    /// How many valid Closes there were.
    pub fn closes(&self) -> u64 {
        self.ends.len() as u64
    }

    /// The next step: the number of steps that are visible.
    pub fn next_step(&self) -> Step {
        self.next_part.step(self.parts_per_step)
    }

    /// Whether parts of the next step are published already.
    pub fn has_open_step(&self) -> bool {
        self.next_step().first_part(self.parts_per_step) != self.next_part
    }

    /// The piece that holds a step; none below the first.
    pub fn piece_of(&self, step: Step) -> Option<&Piece> {
        self.pieces.iter().rev().find(|piece| piece.step <= step)
    }

    /// The state as the index's section.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new();
        for (tag, item) in [
            (TAG_CORE, self.encode_core()),
            (TAG_PRODUCERS, self.encode_producers()),
            (TAG_PIECES, self.encode_pieces()),
            (TAG_ENDS, self.encode_ends()),
        ] {
            if tag == TAG_ENDS && self.ends.is_empty() {
                continue;
            }
            to.u16(tag).u16(FLAG_REQUIRED).bytes(&item);
        }
        to.into_bytes()
    }

    fn encode_core(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.u64(self.next_version.get()).u64(self.next_part.get()).u64(self.floor.get());
        to.u64(self.generation.get()).u64(self.closed.map_or(u64::MAX, Step::get));
        to.u64(self.features).u64(self.bytes_written).u64(self.bytes_reclaimed);
        to.into_bytes()
    }

    fn encode_producers(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.count(self.producers.len());
        for (name, one) in &self.producers {
            to.name(name).u64(one.incarnation.map_or(u64::MAX, Incarnation::get)).u64(one.last_open.get());
            to.raw(one.open_nonce.bytes()).u64(one.next.get()).checksum(one.last_checksum);
            to.u64(one.last_part.map_or(u64::MAX, Part::get)).bool(one.finished).bool(one.state.is_some());
            if let Some(state) = &one.state {
                to.u64(state.version.get()).u64(state.offset).u32(state.length).checksum(state.checksum);
            }
            to.u64(one.last_version.get()).u32(one.attempt_us);
        }
        to.into_bytes()
    }

    fn encode_pieces(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.count(self.pieces.len());
        for piece in &self.pieces {
            to.u64(piece.step.get()).u64(piece.version.get()).u64(piece.generation.get());
        }
        to.into_bytes()
    }

    fn encode_ends(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.count(self.ends.len());
        for step in &self.ends {
            to.u64(step.get());
        }
        to.into_bytes()
    }

    /// Reads an index's state section.
    ///
    /// # Errors
    /// `Corrupt` when it isn't one, `Unsupported` when it holds a required item of a newer library.
    pub fn decode(bytes: &[u8], parts_per_step: u32) -> Result<Self> {
        let mut state = Self::new(parts_per_step);
        state.pieces.clear();
        let mut from = Reader::new(bytes);
        let mut last_tag = 0;
        while !from.is_empty() {
            let (tag, flags) = (from.u16()?, from.u16()?);
            let item = from.bytes(bytes.len())?;
            if tag <= last_tag || flags & !FLAG_REQUIRED != 0 {
                return Err(corrupt("its items aren't in order"));
            }
            last_tag = tag;
            match tag {
                TAG_CORE => state.decode_core(item)?,
                TAG_PRODUCERS => state.decode_producers(item)?,
                TAG_PIECES => state.decode_pieces(item)?,
                TAG_ENDS => state.decode_ends(item)?,
                _ if flags & FLAG_REQUIRED == 0 => {}
                _ => return Err(unknown_item(tag)),
            }
        }
        if state.pieces.is_empty() {
            return Err(corrupt("it has no piece"));
        }
        crate::format::check_features("the index", state.features)?;
        Ok(state)
    }

    fn decode_core(&mut self, item: &[u8]) -> Result<()> {
        let mut from = Reader::new(item);
        self.next_version = from.u64()?.into();
        self.next_part = from.u64()?.into();
        self.floor = from.u64()?.into();
        self.generation = from.u64()?.into();
        self.closed = from.optional_version()?.map(|step| Step::new(step.get()));
        self.features = from.u64()?;
        self.bytes_written = from.u64()?;
        self.bytes_reclaimed = from.u64()?;
        from.finish()
    }

    fn decode_producers(&mut self, item: &[u8]) -> Result<()> {
        let mut from = Reader::new(item);
        for _ in 0..from.count(PRODUCER_BYTES_MIN, PRODUCERS_MAX)? {
            let name = from.name()?;
            let incarnation = from.optional_version()?.map(Version::incarnation);
            let (last_open, open_nonce) = (from.u64()?.into(), Nonce::new(from.array()?));
            let (next, last_checksum) = (from.u64()?.into(), from.checksum()?);
            let last_part = from.optional_version()?.map(|part| Part::new(part.get()));
            let (finished, has_state) = (from.bool()?, from.bool()?);
            let state = if has_state { Some(decode_place(&mut from)?) } else { None };
            let (last_version, attempt_us) = (from.u64()?.into(), from.u32()?);
            let sorted = self.producers.last_key_value().is_none_or(|(last, _)| *last < name);
            if !sorted {
                return Err(corrupt("its producers aren't sorted"));
            }
            let one = ProducerState {
                incarnation,
                last_open,
                open_nonce,
                next,
                last_checksum,
                last_part,
                finished,
                state,
                last_version,
                attempt_us,
            };
            self.producers.insert(name, one);
        }
        from.finish()
    }

    fn decode_pieces(&mut self, item: &[u8]) -> Result<()> {
        let mut from = Reader::new(item);
        for _ in 0..from.count(24, PIECES_MAX)? {
            let piece = Piece {
                step: from.u64()?.into(),
                version: from.u64()?.into(),
                generation: from.u64()?.into(),
            };
            if self.pieces.last().is_some_and(|last| last.step >= piece.step || last.version >= piece.version)
            {
                return Err(corrupt("its pieces aren't in order"));
            }
            self.pieces.push(piece);
        }
        from.finish()
    }

    fn decode_ends(&mut self, item: &[u8]) -> Result<()> {
        let mut from = Reader::new(item);
        for _ in 0..from.count(8, ENDS_MAX)? {
            self.ends.push(from.u64()?.into());
        }
        from.finish()
    }
}

fn decode_place(from: &mut Reader<'_>) -> Result<StatePlace> {
    Ok(StatePlace {
        version: from.u64()?.into(),
        offset: from.u64()?,
        length: from.u32()?,
        checksum: from.checksum()?,
    })
}

fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the state in the index is broken: {what}"))
}

fn unknown_item(tag: u16) -> Error {
    let known = crate::format::FORMAT_VERSION;
    let what = format!(
        "the index's state has a required item {tag} that this library (format version {known}) lacks"
    );
    Error::new(ErrorKind::Unsupported, what)
}
