//! Records: what a commit says, by kind. One number and one encoding for each, for ever.
//!
//! - A record never contains its own version or step: both follow from its place.
//! - A record that needs history carries it ([`Rewind`]), so that replay is a function of state and record.
//! - Decoding checks a record's own sense only; whether it takes effect is for replay.

use super::corrupt;
use super::cursor::{Reader, Writer};
use super::part::{Item, PartDescriptor, align};
use crate::error::Result;
use crate::id::{Checksum, Generation, Incarnation, Part, Sequence, Step, Version};
use crate::limits::{
    COMMIT_HEADER_BYTES, METADATA_BYTES_MAX, PARTS_PER_COMMIT_MAX, PRODUCERS_MAX, REASON_BYTES_MAX,
    SLICE_ALIGN_BYTES, STATE_BYTES_MAX,
};
use crate::name::Name;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $required:literal, $word:literal;)*) => {
        /// The kind of a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            /// Every kind, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its number on disk.
            pub fn number(self) -> u16 {
                match self { $(Self::$name => $number,)* }
            }

            /// The kind of a number on disk, if this library knows it.
            pub fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            /// Whether a reader that doesn't know it has to stop there.
            pub fn required(self) -> bool {
                match self { $(Self::$name => $required,)* }
            }

            /// Its name for people.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

kinds! {
    /// Opens a producer's name.
    Open = 1, true, "open";
    /// Publishes parts.
    Parts = 2, true, "parts";
    /// Finishes a producer.
    Retire = 3, true, "retire";
    /// Drops a finished producer's name.
    Forget = 4, true, "forget";
    /// Sets a ring of producers that take turns.
    Turns = 5, true, "turns";
    /// Opens a group.
    Group = 6, true, "group";
    /// Retires a group.
    RetireGroup = 7, true, "retire-group";
    /// Marks a step as needed.
    Checkpoint = 8, true, "checkpoint";
    /// Releases a checkpoint.
    Drop = 9, true, "drop";
    /// Raises the floor.
    Floor = 10, true, "floor";
    /// Drops the newest steps.
    Rewind = 11, true, "rewind";
    /// Passes over published steps.
    Skip = 12, true, "skip";
    /// Ends the stream.
    Close = 13, true, "close";
    /// Goes on after an end.
    Reopen = 14, true, "reopen";
    /// Turns features on.
    Require = 15, true, "require";
}

/// Publishes parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Who publishes.
    pub producer: Name,
    /// As which incarnation.
    pub incarnation: Incarnation,
    /// The sequence of the first part; the others follow.
    pub first: Sequence,
    /// The parts, in the order of the file; at least one.
    pub parts: Vec<PartDescriptor>,
}

/// Marks a step as needed by a model checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Whose it is.
    pub group: Name,
    /// As which incarnation.
    pub incarnation: Incarnation,
    /// The next step to deliver.
    pub step: Step,
    /// The position's lineage.
    pub lineage: Checksum,
    /// Its name within the group.
    pub name: Name,
    /// Whether it stays until it is dropped by name.
    pub pinned: bool,
    /// The user's; at most 64 KiB.
    pub metadata: Vec<u8>,
}

/// What a rewind says of one producer, as of the step rewound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewound {
    /// The producer.
    pub producer: Name,
    /// Its next sequence.
    pub next: Sequence,
    /// Part checksum of its last part that is kept; zero without one.
    pub last: Checksum,
    /// That part; none without one.
    pub last_part: Option<Part>,
    /// Whether it was finished.
    pub finished: bool,
    /// Where its state begins in this commit.
    pub place: u64,
    /// Its state.
    pub state: Item,
}

/// Drops the newest steps and sets the producers back; self-contained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// The generation that it begins: the next one, except in a repair, which goes above any that it found in
    /// the log.
    pub generation: Generation,
    /// The next step.
    pub step: Step,
    /// The position's lineage at that step.
    pub lineage: Checksum,
    /// Bytes of all parts before it, over the store's life.
    pub bytes_before: u64,
    /// Whether it may take effect while two or more groups live.
    pub many_groups: bool,
    /// Whose turn it is, as (member, parts left); none without a ring.
    pub turn: Option<(u32, u32)>,
    /// Every producer, sorted by name.
    pub producers: Vec<Rewound>,
}

/// What a commit says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// Opens a producer's name.
    Open {
        /// The name.
        producer: Name,
        /// The newest valid Open of that name that its writer had replayed.
        last: Option<Version>,
    },
    /// Publishes parts.
    Parts(Parts),
    /// Finishes a producer.
    Retire {
        /// The name.
        producer: Name,
        /// As which incarnation.
        incarnation: Incarnation,
    },
    /// Drops a finished producer's name.
    Forget {
        /// The name.
        producer: Name,
        /// Its last incarnation.
        incarnation: Incarnation,
    },
    /// Sets a ring of producers that take turns.
    Turns {
        /// The newest valid Turns that its writer had replayed.
        last: Option<Version>,
        /// The members, in turn; none ends the ring.
        names: Vec<Name>,
        /// How many parts each publishes in its turn.
        parts_per_turn: u32,
    },
    /// Opens a group.
    Group {
        /// The name.
        group: Name,
        /// The newest valid Group of that name that its writer had replayed.
        last: Option<Version>,
        /// The next step to deliver.
        start: Step,
    },
    /// Retires a group.
    RetireGroup {
        /// The name.
        group: Name,
        /// As which incarnation.
        incarnation: Incarnation,
    },
    /// Marks a step as needed.
    Checkpoint(Checkpoint),
    /// Releases a checkpoint.
    Drop {
        /// Whose it is.
        group: Name,
        /// As which incarnation.
        incarnation: Incarnation,
        /// Where the Checkpoint is.
        checkpoint: Version,
    },
    /// Raises the floor.
    Floor {
        /// The first step that is still retained.
        step: Step,
        /// The position's lineage at that step.
        lineage: Checksum,
        /// Bytes of all parts before it, over the store's life.
        bytes_before: u64,
    },
    /// Drops the newest steps.
    Rewind(Rewind),
    /// Passes over published steps.
    Skip {
        /// The first of them.
        first: Step,
        /// The last of them.
        last: Step,
        /// Why.
        reason: String,
    },
    /// Ends the stream.
    Close {
        /// The next step.
        step: Step,
        /// How many valid Closes its writer had replayed.
        closes: u64,
        /// Whether a step of which parts are published already may be left open.
        open_step: bool,
    },
    /// Goes on after an end.
    Reopen {
        /// How many valid Closes its writer had replayed.
        closes: u64,
    },
    /// Turns features on from here.
    Require {
        /// The feature bits.
        features: u64,
    },
}

impl Record {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Open { .. } => Kind::Open,
            Self::Parts(_) => Kind::Parts,
            Self::Retire { .. } => Kind::Retire,
            Self::Forget { .. } => Kind::Forget,
            Self::Turns { .. } => Kind::Turns,
            Self::Group { .. } => Kind::Group,
            Self::RetireGroup { .. } => Kind::RetireGroup,
            Self::Checkpoint(_) => Kind::Checkpoint,
            Self::Drop { .. } => Kind::Drop,
            Self::Floor { .. } => Kind::Floor,
            Self::Rewind(_) => Kind::Rewind,
            Self::Skip { .. } => Kind::Skip,
            Self::Close { .. } => Kind::Close,
            Self::Reopen { .. } => Kind::Reopen,
            Self::Require { .. } => Kind::Require,
        }
    }

    /// The first byte after the parts or states that it describes; 4096 without any.
    pub fn payload_end(&self) -> Option<u64> {
        match self {
            Self::Parts(parts) => parts.parts.last().map(PartDescriptor::layout)?.map(|layout| layout.end),
            Self::Rewind(rewind) => rewind
                .producers
                .last()
                .map_or(Some(COMMIT_HEADER_BYTES), |last| last.place.checked_add(last.state.length.into())),
            _ => Some(COMMIT_HEADER_BYTES),
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_room(256);
        match self {
            Self::Open { producer, last } => to.name(producer).optional_version(*last),
            Self::Parts(parts) => encode_parts(parts, &mut to),
            Self::Retire { producer, incarnation } | Self::Forget { producer, incarnation } => {
                to.name(producer).u64(incarnation.get())
            }
            Self::Turns { last, names, parts_per_turn } => {
                to.optional_version(*last).u32(*parts_per_turn).count(names.len());
                names.iter().fold(&mut to, |to, name| to.name(name))
            }
            Self::Group { group, last, start } => to.name(group).optional_version(*last).u64(start.get()),
            Self::RetireGroup { group, incarnation } => to.name(group).u64(incarnation.get()),
            Self::Checkpoint(checkpoint) => {
                to.name(&checkpoint.group).u64(checkpoint.incarnation.get()).u64(checkpoint.step.get());
                to.checksum(checkpoint.lineage).name(&checkpoint.name).bool(checkpoint.pinned);
                to.bytes(&checkpoint.metadata)
            }
            Self::Drop { group, incarnation, checkpoint } => {
                to.name(group).u64(incarnation.get()).u64(checkpoint.get())
            }
            Self::Floor { step, lineage, bytes_before } => {
                to.u64(step.get()).checksum(*lineage).u64(*bytes_before)
            }
            Self::Rewind(rewind) => encode_rewind(rewind, &mut to),
            Self::Skip { first, last, reason } => {
                to.u64(first.get()).u64(last.get()).bytes(reason.as_bytes())
            }
            Self::Close { step, closes, open_step } => to.u64(step.get()).u64(*closes).bool(*open_step),
            Self::Reopen { closes } => to.u64(*closes),
            Self::Require { features } => to.u64(*features),
        };
        to.into_bytes()
    }

    /// Reads a record of this kind.
    ///
    /// # Errors
    /// `Corrupt` when the bytes aren't what [`Record::encode`] writes.
    pub fn decode(kind: Kind, bytes: &[u8]) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let record = match kind {
            Kind::Open => Self::Open { producer: from.name()?, last: from.optional_version()? },
            Kind::Parts => Self::Parts(decode_parts(&mut from)?),
            Kind::Retire => Self::Retire { producer: from.name()?, incarnation: from.u64()?.into() },
            Kind::Forget => Self::Forget { producer: from.name()?, incarnation: from.u64()?.into() },
            Kind::Turns => {
                let (last, parts_per_turn) = (from.optional_version()?, from.u32()?);
                let count = from.count(2, PRODUCERS_MAX)?;
                let names: Vec<_> = (0..count).map(|_| from.name()).collect::<Result<_>>()?;
                if parts_per_turn == 0 && !names.is_empty() {
                    return Err(corrupt("a ring of turns without parts would turn for ever"));
                }
                Self::Turns { last, names, parts_per_turn }
            }
            Kind::Group => {
                let (group, last) = (from.name()?, from.optional_version()?);
                let start = Step::new(from.u64()?);
                // The state says so that a group holds no step beside its checkpoints'.
                if start.get() == u64::MAX {
                    return Err(corrupt("a group starts at a step that no log reaches"));
                }
                Self::Group { group, last, start }
            }
            Kind::RetireGroup => Self::RetireGroup { group: from.name()?, incarnation: from.u64()?.into() },
            Kind::Checkpoint => Self::Checkpoint(Checkpoint {
                group: from.name()?,
                incarnation: from.u64()?.into(),
                step: from.u64()?.into(),
                lineage: from.checksum()?,
                name: from.name()?,
                pinned: from.bool()?,
                metadata: from.bytes(METADATA_BYTES_MAX)?.to_vec(),
            }),
            Kind::Drop => Self::Drop {
                group: from.name()?,
                incarnation: from.u64()?.into(),
                checkpoint: from.u64()?.into(),
            },
            Kind::Floor => {
                Self::Floor { step: from.u64()?.into(), lineage: from.checksum()?, bytes_before: from.u64()? }
            }
            Kind::Rewind => Self::Rewind(decode_rewind(&mut from)?),
            Kind::Skip => Self::Skip {
                first: from.u64()?.into(),
                last: from.u64()?.into(),
                reason: text(from.bytes(REASON_BYTES_MAX)?)?,
            },
            Kind::Close => {
                Self::Close { step: from.u64()?.into(), closes: from.u64()?, open_step: from.bool()? }
            }
            Kind::Reopen => Self::Reopen { closes: from.u64()? },
            Kind::Require => Self::Require { features: from.u64()? },
        };
        from.finish()?;
        Ok(record)
    }
}

fn encode_parts<'w>(parts: &Parts, to: &'w mut Writer) -> &'w mut Writer {
    to.name(&parts.producer).u64(parts.incarnation.get()).u64(parts.first.get()).count(parts.parts.len());
    for part in &parts.parts {
        part.encode(to);
    }
    to
}

fn decode_parts(from: &mut Reader<'_>) -> Result<Parts> {
    let (producer, incarnation) = (from.name()?, from.u64()?.into());
    let first = Sequence::new(from.u64()?);
    let count = from.count(PartDescriptor::BYTES, PARTS_PER_COMMIT_MAX)?;
    let parts = (0..count).map(|_| PartDescriptor::decode(from)).collect::<Result<Vec<_>>>()?;
    let mut place = Some(COMMIT_HEADER_BYTES);
    for part in &parts {
        if place != Some(part.place) {
            return Err(corrupt("a part isn't right after the one before"));
        }
        place = part.layout().and_then(|layout| align(layout.end, SLICE_ALIGN_BYTES));
    }
    if parts.is_empty() || first.get().checked_add(parts.len() as u64).is_none() {
        return Err(corrupt("a record of parts has none, or no sequence for them"));
    }
    Ok(Parts { producer, incarnation, first, parts })
}

fn encode_rewind<'w>(rewind: &Rewind, to: &'w mut Writer) -> &'w mut Writer {
    to.u64(rewind.generation.get()).u64(rewind.step.get()).checksum(rewind.lineage).u64(rewind.bytes_before);
    to.bool(rewind.many_groups).bool(rewind.turn.is_some());
    let (member, left) = rewind.turn.unwrap_or_default();
    to.u32(member).u32(left).count(rewind.producers.len());
    for one in &rewind.producers {
        to.name(&one.producer).u64(one.next.get()).checksum(one.last);
        to.u64(one.last_part.map_or(u64::MAX, Part::get)).bool(one.finished);
        to.u64(one.place).u32(one.state.length).checksum(one.state.checksum);
    }
    to
}

fn decode_rewind(from: &mut Reader<'_>) -> Result<Rewind> {
    let generation = from.u64()?.into();
    let (step, lineage, bytes_before) = (from.u64()?.into(), from.checksum()?, from.u64()?);
    let many_groups = from.bool()?;
    let (has_turn, member, left) = (from.bool()?, from.u32()?, from.u32()?);
    if !has_turn && (member, left) != (0, 0) {
        return Err(corrupt("a rewind without a ring has a turn"));
    }
    let turn = has_turn.then_some((member, left));
    let count = from.count(47, PRODUCERS_MAX)?;
    let mut producers: Vec<Rewound> = Vec::with_capacity(count);
    let mut place = COMMIT_HEADER_BYTES;
    for _ in 0..count {
        let one = Rewound {
            producer: from.name()?,
            next: from.u64()?.into(),
            last: from.checksum()?,
            last_part: from.optional_version()?.map(|part| Part::new(part.get())),
            finished: from.bool()?,
            place: from.u64()?,
            state: Item { length: from.u32()?, checksum: from.checksum()? },
        };
        if (one.next == Sequence::ZERO) != one.last_part.is_none() {
            return Err(corrupt("a rewind's producer has parts and no last one, or the other way round"));
        }
        if one.place != place || !one.state.is_sound(STATE_BYTES_MAX) {
            return Err(corrupt("a rewind's states contradict each other"));
        }
        if producers.last().is_some_and(|last| last.producer >= one.producer) {
            return Err(corrupt("a rewind's producers aren't sorted"));
        }
        place = place.saturating_add(one.state.length.into());
        producers.push(one);
    }
    Ok(Rewind { generation, step, lineage, bytes_before, many_groups, turn, producers })
}

fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| corrupt("a reason isn't UTF-8"))
}
