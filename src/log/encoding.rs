//! The state as the index's section: tagged items.
//!
//! - An unknown required tag is `Unsupported`; an item that would be empty isn't written at all, so that a
//!   store that doesn't use it stays readable.
//! - What one state encodes to is read back as that state, and no other bytes are.

use super::groups::{GroupState, Kept};
use super::history::{History, Limit, Piece, Skipped};
use super::state::{ProducerState, State, StatePlace};
use super::turns::Ring;
use crate::error::{Error, ErrorKind, Result};
use crate::format::cursor::{Reader, Writer};
use crate::id::{Incarnation, Nonce, Part, Step, Version};
use crate::limits::{CHECKPOINTS_MAX, GROUPS_MAX, METADATA_BYTES_MAX, PRODUCERS_MAX};
use crate::name::Name;
use crate::planted::{Bug, is_planted};

const TAG_CORE: u16 = 1;
const TAG_PRODUCERS: u16 = 2;
const TAG_PIECES: u16 = 3;
const TAG_ENDS: u16 = 4;
const TAG_GROUPS: u16 = 5;
const TAG_LIMITS: u16 = 6;
const TAG_SKIPS: u16 = 7;
const TAG_TURNS: u16 = 8;
const TAG_ANEW: u16 = 9;
const FLAG_REQUIRED: u16 = 1;
/// Those up to [`TAG_PIECES`] are in every state.
const TAGS_ALWAYS: u8 = 3;
/// A producer with a name of one byte and no state.
const PRODUCER_BYTES_MIN: usize = 72;
/// A name of one byte and a version.
const ANEW_BYTES_MIN: usize = 10;
/// A group with a name of one byte and no checkpoint.
const GROUP_BYTES_MIN: usize = 54;
/// A checkpoint with a name of one byte and no metadata.
const KEPT_BYTES_MIN: usize = 39;
/// Closes, pieces, limits, skips: what operators do, one at a time.
const CHANGES_MAX: usize = 1 << 20;

impl State {
    /// The state as the index's section.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new();
        let ends = (!self.ends.is_empty()).then(|| self.encode_ends());
        let groups = (!self.groups.is_empty()).then(|| self.encode_groups());
        let history = &self.history;
        let limits = history.last_rewind.map(|nonce| encode_limits(history, nonce));
        let skips = history.last_skip.map(|nonce| encode_skips(history, nonce));
        for (tag, item) in [
            (TAG_CORE, Some(self.encode_core())),
            (TAG_PRODUCERS, Some(self.encode_producers())),
            (TAG_PIECES, Some(self.encode_pieces())),
            (TAG_ENDS, ends),
            (TAG_GROUPS, groups),
            (TAG_LIMITS, limits),
            (TAG_SKIPS, skips),
            (TAG_TURNS, self.ring.as_ref().map(encode_ring)),
            (TAG_ANEW, self.last_forget.map(|last| self.encode_anew(last))),
        ] {
            if let Some(item) = item {
                to.u16(tag).u16(FLAG_REQUIRED).bytes(&item);
            }
        }
        to.into_bytes()
    }

    fn encode_core(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.u64(self.next_version.get()).u64(self.next_part.get()).u64(self.floor.get());
        let closed = self.closed.filter(|_| !is_planted(Bug::CloseUnindexed));
        to.u64(self.generation.get()).u64(closed.map_or(u64::MAX, Step::get));
        to.u64(self.features).u64(self.bytes_written).u64(self.bytes_reclaimed);
        to.checksum(self.floor_lineage);
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

    /// The names that were begun since the first Forget.
    fn encode_anew(&self, last_forget: Version) -> Vec<u8> {
        let mut to = Writer::new();
        let anew: Vec<(&Name, Version)> =
            self.producers.iter().filter_map(|(name, one)| Some((name, one.anew?))).collect();
        to.u64(last_forget.get()).count(anew.len());
        for (name, version) in anew {
            to.name(name).u64(version.get());
        }
        to.into_bytes()
    }

    fn encode_pieces(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.count(self.history.pieces.len());
        for piece in &self.history.pieces {
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
        state.history.pieces.clear();
        let mut from = Reader::new(bytes);
        let (mut last_tag, mut always) = (0, 0u8);
        while !from.is_empty() {
            let (tag, flags) = (from.u16()?, from.u16()?);
            let item = from.bytes(bytes.len())?;
            if tag <= last_tag || flags & !FLAG_REQUIRED != 0 {
                return Err(corrupt("its items aren't in order"));
            }
            last_tag = tag;
            // What is known here is required, for every reader: another flag is another state's bytes.
            if (TAG_CORE..=TAG_ANEW).contains(&tag) && flags & FLAG_REQUIRED == 0 {
                return Err(corrupt("an item isn't marked as required"));
            }
            always = always.saturating_add((tag <= TAG_PIECES).into());
            match tag {
                TAG_CORE => state.decode_core(item)?,
                TAG_PRODUCERS => state.decode_producers(item)?,
                TAG_PIECES => state.decode_pieces(item)?,
                TAG_ENDS => state.decode_ends(item)?,
                TAG_GROUPS => state.decode_groups(item)?,
                TAG_LIMITS => decode_limits(item, &mut state.history)?,
                TAG_SKIPS => decode_skips(item, &mut state.history)?,
                TAG_TURNS => state.ring = Some(decode_ring(item)?),
                TAG_ANEW => state.decode_anew(item)?,
                _ if flags & FLAG_REQUIRED == 0 => {}
                _ => return Err(unknown_item(tag)),
            }
        }
        if always != TAGS_ALWAYS || state.history.pieces.is_empty() {
            return Err(corrupt("an item that every state has is missing or empty"));
        }
        crate::format::check_features("the index", state.features)?;
        // A floor beyond the end would excuse every file that is missing.
        let end = state.next_step();
        let skipped = state.history.skips.last().map(|skip| skip.last.next());
        if [Some(state.floor), state.closed, skipped].into_iter().flatten().any(|step| step > end) {
            return Err(corrupt("its floor, its close or a skip lies beyond its end"));
        }
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
        self.floor_lineage = from.checksum()?;
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
                anew: None,
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

    fn decode_anew(&mut self, item: &[u8]) -> Result<()> {
        let mut from = Reader::new(item);
        self.last_forget = Some(from.u64()?.into());
        let mut last: Option<Name> = None;
        for _ in 0..from.count(ANEW_BYTES_MIN, PRODUCERS_MAX)? {
            let name = from.name()?;
            if last.is_some_and(|last| last >= name) {
                return Err(corrupt("its names that were begun anew aren't sorted"));
            }
            let known = self.producers.get_mut(&name);
            let known = known.ok_or_else(|| corrupt("a name that it doesn't know was begun anew"))?;
            known.anew = Some(from.u64()?.into());
            last = Some(name);
        }
        from.finish()
    }

    fn decode_pieces(&mut self, item: &[u8]) -> Result<()> {
        let mut from = Reader::new(item);
        for _ in 0..from.count(24, CHANGES_MAX)? {
            let piece = Piece {
                step: from.u64()?.into(),
                version: from.u64()?.into(),
                generation: from.u64()?.into(),
            };
            if self
                .history
                .pieces
                .last()
                .is_some_and(|last| last.step >= piece.step || last.version >= piece.version)
            {
                return Err(corrupt("its pieces aren't in order"));
            }
            self.history.pieces.push(piece);
        }
        from.finish()
    }

    fn decode_ends(&mut self, item: &[u8]) -> Result<()> {
        let mut from = Reader::new(item);
        for _ in 0..from.count(8, CHANGES_MAX)? {
            self.ends.push(from.u64()?.into());
        }
        if self.ends.is_empty() {
            return Err(empty());
        }
        from.finish()
    }

    fn encode_groups(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.count(self.groups.len());
        for (name, one) in &self.groups {
            to.name(name).u64(one.incarnation.map_or(u64::MAX, Incarnation::get)).u64(one.last_group.get());
            to.raw(one.nonce.bytes()).u64(one.start.get()).u64(one.holds.map_or(u64::MAX, Step::get));
            to.count(one.checkpoints.len());
            for kept in &one.checkpoints {
                to.u64(kept.version.get()).u64(kept.generation.get()).u64(kept.step.get());
                to.checksum(kept.lineage).name(&kept.name).bool(kept.pinned).bytes(&kept.metadata);
            }
        }
        to.into_bytes()
    }

    fn decode_groups(&mut self, item: &[u8]) -> Result<()> {
        let mut from = Reader::new(item);
        for _ in 0..from.count(GROUP_BYTES_MIN, GROUPS_MAX)? {
            let name = from.name()?;
            let incarnation = from.optional_version()?.map(Version::incarnation);
            let (last_group, nonce) = (from.u64()?.into(), Nonce::new(from.array()?));
            let start = from.u64()?.into();
            let holds = from.optional_version()?.map(|step| Step::new(step.get()));
            let count = from.count(KEPT_BYTES_MIN, CHECKPOINTS_MAX)?;
            let checkpoints = (0..count).map(|_| decode_kept(&mut from)).collect::<Result<Vec<_>>>()?;
            if !checkpoints.is_sorted_by(|one, next| one.version < next.version) {
                return Err(corrupt("its checkpoints aren't in the order of the log"));
            }
            if self.groups.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(corrupt("its groups aren't sorted"));
            }
            let one = GroupState { incarnation, last_group, nonce, start, holds, checkpoints };
            self.groups.insert(name, one);
        }
        if self.groups.is_empty() {
            return Err(empty());
        }
        from.finish()
    }
}

fn decode_kept(from: &mut Reader<'_>) -> Result<Kept> {
    Ok(Kept {
        version: from.u64()?.into(),
        generation: from.u64()?.into(),
        step: from.u64()?.into(),
        lineage: from.checksum()?,
        name: from.name()?,
        pinned: from.bool()?,
        metadata: from.bytes(METADATA_BYTES_MAX)?.to_vec(),
    })
}

fn encode_limits(history: &History, last: Nonce) -> Vec<u8> {
    let mut to = Writer::new();
    to.raw(last.bytes()).count(history.limits.len());
    for limit in &history.limits {
        to.u64(limit.generation.get()).u64(limit.step.get());
    }
    to.into_bytes()
}

fn decode_limits(item: &[u8], history: &mut History) -> Result<()> {
    let mut from = Reader::new(item);
    history.last_rewind = Some(Nonce::new(from.array()?));
    for _ in 0..from.count(16, CHANGES_MAX)? {
        let limit = Limit { generation: from.u64()?.into(), step: from.u64()?.into() };
        let rises = |last: &Limit| last.generation < limit.generation && last.step < limit.step;
        if !history.limits.last().is_none_or(rises) {
            return Err(corrupt("its rewinds aren't in order"));
        }
        history.limits.push(limit);
    }
    from.finish()
}

fn encode_skips(history: &History, last: Nonce) -> Vec<u8> {
    let mut to = Writer::new();
    to.raw(last.bytes()).count(history.skips.len());
    for skip in &history.skips {
        to.u64(skip.first.get()).u64(skip.last.get());
    }
    to.into_bytes()
}

fn decode_skips(item: &[u8], history: &mut History) -> Result<()> {
    let mut from = Reader::new(item);
    history.last_skip = Some(Nonce::new(from.array()?));
    for _ in 0..from.count(16, CHANGES_MAX)? {
        let skip = Skipped { first: from.u64()?.into(), last: from.u64()?.into() };
        let apart = history.skips.last().is_none_or(|before| before.last.next() < skip.first);
        if !apart || skip.first > skip.last {
            return Err(corrupt("its skips aren't in order"));
        }
        history.skips.push(skip);
    }
    from.finish()
}

fn encode_ring(ring: &Ring) -> Vec<u8> {
    let mut to = Writer::new();
    to.u64(ring.last.get()).u32(ring.parts_per_turn).u32(ring.member).u32(ring.left);
    to.u64(ring.moved.get()).count(ring.names.len());
    for name in &ring.names {
        to.name(name);
    }
    to.into_bytes()
}

fn decode_ring(item: &[u8]) -> Result<Ring> {
    let mut from = Reader::new(item);
    let (last, parts_per_turn) = (from.u64()?.into(), from.u32()?);
    let (member, left, moved) = (from.u32()?, from.u32()?, from.u64()?.into());
    let count = from.count(2, PRODUCERS_MAX)?;
    let names = (0..count).map(|_| from.name()).collect::<Result<Vec<_>>>()?;
    let in_ring = (member as usize) < count && parts_per_turn > 0 && left <= parts_per_turn;
    let ended = count == 0 && (parts_per_turn, member, left) == (0, 0, 0);
    if !in_ring && !ended {
        return Err(corrupt("its turn isn't in its ring"));
    }
    from.finish()?;
    Ok(Ring { last, names, parts_per_turn, member, left, moved })
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

fn empty() -> Error {
    corrupt("an item is written that is empty")
}

fn unknown_item(tag: u16) -> Error {
    let known = crate::format::FORMAT_VERSION;
    let what = format!(
        "the index's state has a required item {tag} that this library (format version {known}) lacks"
    );
    Error::new(ErrorKind::Unsupported, what)
}
