//! What the tests of the format draw from: valid values of every kind, and ways to break their bytes.
//!
//! - Every drawn record is one that an encoder may write; what breaks it is always the test's own doing.
//! - A change of bytes is chosen from what hurts decoders (zeros, ones, borders, huge numbers), not from
//!   noise alone.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::codec::Codec;
use super::commit::{Draft, People, Seen};
use super::part::{Attachment, Item, PartDescriptor, align};
use super::record::{Checkpoint, Kind, Parts, Record, Rewind, Rewound};
use crate::id::{Checksum, Generation, Nonce, Part, Sequence, Step, StoreUuid, Version};
use crate::limits::{METADATA_BYTES_MAX, SLICE_ALIGN_BYTES, STATE_BYTES_MAX};
use crate::name::Name;

/// The generation that drawn commits are written for.
pub(super) const WRITTEN_FOR: u64 = 7;

pub(super) fn name() -> impl Strategy<Value = Name> {
    "[A-Za-z0-9_][A-Za-z0-9._-]{0,99}".prop_map(|text| Name::new(&text).unwrap())
}

fn checksum() -> impl Strategy<Value = Checksum> {
    any::<u64>().prop_map(Checksum::new)
}

fn version() -> impl Strategy<Value = Version> {
    (0..u64::MAX).prop_map(Version::new)
}

fn item(max: usize) -> impl Strategy<Value = Item> {
    let some = (1..=max as u32, checksum()).prop_map(|(length, checksum)| Item { length, checksum });
    prop_oneof![Just(Item::default()), some]
}

fn attachment() -> impl Strategy<Value = Attachment> {
    let some =
        (1..1u64 << 33, any::<u32>(), any::<bool>(), checksum()).prop_map(|(stored, more, packed, sum)| {
            let (codec, more) = if packed { (Codec::Zstd, u64::from(more)) } else { (Codec::Raw, 0) };
            Attachment { stored, length: stored + more, codec, checksum: sum }
        });
    prop_oneof![Just(Attachment::default()), some]
}

fn descriptor() -> impl Strategy<Value = PartDescriptor> {
    let items = (attachment(), item(METADATA_BYTES_MAX), item(STATE_BYTES_MAX));
    (0..1000u64, 0..1u64 << 30, checksum(), items, any::<[u64; 3]>()).prop_map(
        |(slices, table, sum, (attachment, metadata, state), [bytes, samples, tokens])| {
            let none = PartDescriptor::default();
            PartDescriptor {
                place: 0,
                slices,
                table: if slices == 0 { 0 } else { table * 64 },
                table_checksum: if slices == 0 { none.table_checksum } else { sum },
                attachment,
                metadata,
                state,
                bytes,
                samples,
                tokens,
            }
        },
    )
}

/// Puts parts one after another, as they lie in a commit.
pub(super) fn placed(mut parts: Vec<PartDescriptor>) -> Vec<PartDescriptor> {
    let mut place = 4096;
    for part in &mut parts {
        part.place = place;
        place = align(part.layout().unwrap().end, SLICE_ALIGN_BYTES).unwrap();
    }
    parts
}

pub(super) fn parts(count: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Record> {
    (name(), any::<[u32; 2]>(), vec(descriptor(), count)).prop_map(
        |(producer, [incarnation, first], parts)| {
            Record::Parts(Parts {
                producer,
                incarnation: u64::from(incarnation).into(),
                first: u64::from(first).into(),
                parts: placed(parts),
            })
        },
    )
}

type Producer = (u64, u64, bool, Item);

fn rewound(producers: BTreeMap<Name, Producer>) -> Vec<Rewound> {
    let mut place = 4096;
    let lay = |(producer, (next, last, finished, state)): (Name, Producer)| {
        let one = Rewound {
            producer,
            next: Sequence::new(next),
            last: Checksum::new(last),
            last_part: (next > 0).then(|| Part::new(next / 2)),
            finished,
            place,
            state,
        };
        place += u64::from(state.length);
        one
    };
    producers.into_iter().map(lay).collect()
}

pub(super) fn rewind(count: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Record> {
    let producer = (any::<u64>(), any::<u64>(), any::<bool>(), item(STATE_BYTES_MAX));
    let numbers = any::<[u64; 3]>();
    let turn = any::<Option<(u32, u32)>>();
    (WRITTEN_FOR + 1.., numbers, any::<bool>(), turn, btree_map(name(), producer, count)).prop_map(
        |(generation, [step, lineage, bytes_before], many_groups, turn, producers)| {
            Record::Rewind(Rewind {
                generation: Generation::new(generation),
                step: step.into(),
                lineage: Checksum::new(lineage),
                bytes_before,
                many_groups,
                turn,
                producers: rewound(producers),
            })
        },
    )
}

fn checkpoint() -> impl Strategy<Value = Record> {
    (name(), any::<[u64; 3]>(), name(), any::<bool>(), vec(any::<u8>(), 0..6000)).prop_map(
        |(group, [incarnation, step, lineage], name, pinned, metadata)| {
            Record::Checkpoint(Checkpoint {
                group,
                incarnation: incarnation.into(),
                step: step.into(),
                lineage: Checksum::new(lineage),
                name,
                pinned,
                metadata,
            })
        },
    )
}

fn turns() -> impl Strategy<Value = Record> {
    (proptest::option::of(version()), vec(name(), 0..60), 1u32..)
        .prop_map(|(last, names, parts_per_turn)| Record::Turns { last, names, parts_per_turn })
}

/// A record of this kind that a writer may write.
pub(super) fn record_of(kind: Kind) -> BoxedStrategy<Record> {
    let (last, number) = (proptest::option::of(version()), any::<u64>());
    match kind {
        Kind::Open => (name(), last).prop_map(|(producer, last)| Record::Open { producer, last }).boxed(),
        Kind::Parts => parts(1..40).boxed(),
        Kind::Retire => (name(), number)
            .prop_map(|(producer, number)| Record::Retire { producer, incarnation: number.into() })
            .boxed(),
        Kind::Forget => (name(), number)
            .prop_map(|(producer, number)| Record::Forget { producer, incarnation: number.into() })
            .boxed(),
        Kind::Turns => turns().boxed(),
        Kind::Group => (name(), last, 0..u64::MAX)
            .prop_map(|(group, last, start)| Record::Group { group, last, start: start.into() })
            .boxed(),
        Kind::RetireGroup => (name(), number)
            .prop_map(|(group, number)| Record::RetireGroup { group, incarnation: number.into() })
            .boxed(),
        Kind::Checkpoint => checkpoint().boxed(),
        Kind::Drop => (name(), number, version())
            .prop_map(|(group, number, checkpoint)| Record::Drop {
                group,
                incarnation: number.into(),
                checkpoint,
            })
            .boxed(),
        Kind::Floor => any::<[u64; 3]>()
            .prop_map(|[step, lineage, bytes_before]| Record::Floor {
                step: step.into(),
                lineage: Checksum::new(lineage),
                bytes_before,
            })
            .boxed(),
        Kind::Rewind => rewind(0..40).boxed(),
        Kind::Skip => (any::<[u64; 2]>(), ".{0,200}")
            .prop_map(|([first, last], reason)| Record::Skip {
                first: first.into(),
                last: last.into(),
                reason,
            })
            .boxed(),
        Kind::Close => (any::<[u64; 2]>(), any::<bool>())
            .prop_map(|([step, closes], open_step)| Record::Close {
                step: Step::new(step),
                closes,
                open_step,
            })
            .boxed(),
        Kind::Reopen => number.prop_map(|closes| Record::Reopen { closes }).boxed(),
        Kind::Require => number.prop_map(|features| Record::Require { features }).boxed(),
    }
}

/// A record of any kind.
pub(super) fn record() -> impl Strategy<Value = Record> {
    proptest::sample::select(Kind::ALL).prop_flat_map(record_of)
}

pub(super) fn draft() -> impl Strategy<Value = Draft> {
    let seen = proptest::option::of((version(), checksum()));
    let people = (any::<u64>(), any::<u32>(), "\\PC{0,16}", "\\PC{0,16}", "\\PC{0,16}");
    (any::<[[u8; 16]; 2]>(), seen, any::<u32>(), people).prop_map(
        |([store, nonce], seen, attempt_us, (wall_us, pid, host, job, library))| Draft {
            store: StoreUuid::new(store),
            nonce: Nonce::new(nonce),
            generation: Generation::new(WRITTEN_FOR),
            seen: seen.map(|(version, checksum)| Seen { version, checksum }),
            attempt_us,
            people: People { wall_us, pid, host, job, library },
        },
    )
}

/// One change of bytes: a number of this width written over what is at this share of the length.
#[derive(Clone, Debug)]
pub(super) struct Change {
    at: u32,
    width: usize,
    value: u64,
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    let border = prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(u64::MAX - 4095),
        Just(i64::MAX as u64),
        Just(1 << 32),
        Just(4096),
        0..300u64,
        any::<u64>(),
    ];
    (any::<u32>(), proptest::sample::select(&[1usize, 2, 4, 8]), border)
        .prop_map(|(at, width, value)| Change { at, width, value })
}

impl Change {
    pub(super) fn apply(&self, bytes: &mut [u8]) {
        let start = ((u64::from(self.at) * bytes.len() as u64) >> 32) as usize;
        bytes
            .iter_mut()
            .skip(start)
            .zip(self.value.to_le_bytes())
            .take(self.width)
            .for_each(|(byte, new)| *byte = new);
    }
}
