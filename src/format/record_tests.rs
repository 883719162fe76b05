//! Records by themselves: any bytes, changed bytes, and lies made by hand that no checksum stops.

use proptest::collection::vec;
use proptest::prelude::*;

use super::arbitrary::{change, placed, record};
use super::cursor::Writer;
use super::part::{Attachment, Item, PartDescriptor};
use super::record::{Kind, Parts, Record, Rewind, Rewound};
use crate::error::{ErrorKind, Result};
use crate::id::{Checksum, Generation, Part, Sequence};
use crate::name::Name;

/// Decodes; what is accepted has to be encoded to the same bytes.
fn decode(kind: Kind, bytes: &[u8]) -> Result<Record> {
    let record = Record::decode(kind, bytes)?;
    assert_eq!(record.kind(), kind);
    assert_eq!(record.encode(), bytes, "{record:?}");
    Ok(record)
}

proptest! {
    #[test]
    fn a_record_is_read_back(record in record()) {
        prop_assert_eq!(decode(record.kind(), &record.encode()).unwrap(), record);
    }

    #[test]
    fn a_cut_or_longer_record_is_corrupt(record in record(), at in any::<u32>()) {
        let mut bytes = record.encode();
        prop_assert!(decode(record.kind(), &bytes[..at as usize % bytes.len()]).is_err());
        bytes.push(0);
        prop_assert!(decode(record.kind(), &bytes).is_err());
    }

    #[test]
    fn a_changed_record_is_refused_or_canonical(record in record(), changes in vec(change(), 1..4)) {
        let mut bytes = record.encode();
        changes.iter().for_each(|change| change.apply(&mut bytes));
        for kind in Kind::ALL {
            let _ = decode(*kind, &bytes);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_canonical(bytes in vec(any::<u8>(), 0..400)) {
        for kind in Kind::ALL {
            let _ = decode(*kind, &bytes);
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn corrupt(record: &Record, lie: &str) {
    let read = Record::decode(record.kind(), &record.encode()).map_err(|error| error.kind());
    assert_eq!(read, Err(ErrorKind::Corrupt), "{lie}");
}

fn three_parts(change: impl FnOnce(&mut [PartDescriptor])) -> Record {
    let part = PartDescriptor {
        slices: 8,
        table: 4096,
        state: Item { length: 10, checksum: Checksum::new(1) },
        ..PartDescriptor::default()
    };
    let mut parts = placed(vec![part; 3]);
    change(&mut parts);
    Record::Parts(Parts { producer: name("p"), incarnation: 1.into(), first: 2.into(), parts })
}

#[test]
fn parts_lie_one_after_another() {
    let good = three_parts(|_| ());
    assert_eq!(decode(Kind::Parts, &good.encode()).unwrap(), good);
    corrupt(&three_parts(|parts| parts[1].place = parts[0].place), "overlapping parts");
    corrupt(&three_parts(|parts| parts[2].place += 4096), "a hole between parts");
    corrupt(&three_parts(|parts| parts.swap(1, 2)), "a part before the one before it");
    corrupt(&three_parts(|parts| parts[0].place = 0), "a part over the header");
    corrupt(&three_parts(|parts| parts[1].place = u64::MAX - 4095), "a part near the end of numbers");
    corrupt(&three_parts(|parts| parts[1].place += 1), "an unaligned part");
}

#[test]
fn a_group_starts_at_a_step_that_a_log_reaches() {
    let from = |start: u64| Record::Group { group: name("g"), last: None, start: start.into() };
    let last = from(u64::MAX - 1);
    assert_eq!(decode(Kind::Group, &last.encode()).unwrap(), last);
    corrupt(&from(u64::MAX), "what the state has for no step");
}

#[test]
fn a_part_keeps_to_its_bounds() {
    type Lie = fn(&mut PartDescriptor);
    let lies: [(&str, Lie); 12] = [
        ("unaligned table", |part| part.table += 8),
        ("table near the end of numbers", |part| part.table = u64::MAX - 63),
        ("huge count of slices", |part| part.slices = u64::MAX),
        ("a slice more than allowed", |part| part.slices = (1 << 32) + 1),
        ("table of no slices", |part| part.slices = 0),
        ("long state", |part| part.state.length = (1 << 20) + 1),
        ("long metadata", |part| part.metadata = Item { length: (64 << 10) + 1, checksum: Checksum::new(1) }),
        ("metadata of no bytes with a checksum of some", |part| part.metadata.checksum = Checksum::ZERO),
        ("raw attachment of two lengths", |part| {
            part.attachment = Attachment { stored: 1, ..part.attachment }
        }),
        ("attachment out of nothing", |part| part.attachment.length = 1),
        ("attachment of no bytes with a checksum of some", |part| part.attachment.checksum = Checksum::ZERO),
        ("attachment near the end of numbers", |part| {
            part.attachment.stored = u64::MAX - 8192;
            part.attachment.length = u64::MAX - 8192;
        }),
    ];
    for (lie, change) in lies {
        corrupt(&three_parts(|parts| change(&mut parts[2])), lie);
    }
}

#[test]
fn a_commit_has_at_most_65536_parts() {
    let of = |count| {
        let parts = placed(vec![PartDescriptor::default(); count]);
        Record::Parts(Parts { producer: name("p"), incarnation: 1.into(), first: 2.into(), parts })
    };
    assert!(decode(Kind::Parts, &of(65_536).encode()).is_ok());
    corrupt(&of(65_537), "a part more than allowed");
}

/// What precedes the parts, with a count of them that isn't true.
fn counted(count: u32) -> Vec<u8> {
    let mut to = Writer::new();
    to.name(&name("p")).u64(0).u64(0).u32(count);
    to.into_bytes()
}

#[test]
fn a_huge_count_is_refused_before_anything_is_taken_for_it() {
    for count in [1, 65_536, 65_537, u32::MAX] {
        assert!(decode(Kind::Parts, &counted(count)).is_err(), "{count} parts");
    }
    let mut turns = Writer::new();
    turns.u64(0).u32(1).u32(u32::MAX).zeros(100);
    assert!(decode(Kind::Turns, &turns.into_bytes()).is_err());
    let mut rewind = Writer::new();
    rewind.zeros(4 * 8 + 2 + 8).u32(u32::MAX).zeros(100);
    assert!(decode(Kind::Rewind, &rewind.into_bytes()).is_err());
    let mut skip = Writer::new();
    skip.u64(0).u64(0).u32(u32::MAX).zeros(100);
    assert!(decode(Kind::Skip, &skip.into_bytes()).is_err());
}

fn rewind_of(producers: Vec<Rewound>) -> Record {
    Record::Rewind(Rewind {
        generation: Generation::new(1),
        step: 1.into(),
        lineage: Checksum::new(2),
        bytes_before: 3,
        many_groups: true,
        turn: Some((0, 0)),
        producers,
    })
}

fn rewound(text: &str, place: u64, length: u32) -> Rewound {
    Rewound {
        producer: name(text),
        next: Sequence::new(1),
        last: Checksum::new(2),
        last_part: Some(Part::new(8)),
        finished: false,
        place,
        state: Item { length, checksum: Checksum::new(3) },
    }
}

#[test]
fn a_rewinds_states_lie_one_after_another_sorted() {
    let good = rewind_of(vec![rewound("a", 4096, 9), rewound("b", 4105, 1 << 20)]);
    assert_eq!(decode(Kind::Rewind, &good.encode()).unwrap(), good);
    assert_eq!(good.payload_end(), Some(4105 + (1 << 20)));
    for (lie, producers) in [
        ("unsorted", vec![rewound("b", 4096, 9), rewound("a", 4105, 1)]),
        ("twice", vec![rewound("a", 4096, 9), rewound("a", 4105, 1)]),
        ("overlapping", vec![rewound("a", 4096, 9), rewound("b", 4104, 1)]),
        ("backward", vec![rewound("a", 4096, 9), rewound("b", 0, 1)]),
        ("near the end of numbers", vec![rewound("a", u64::MAX, 9)]),
        ("too long", vec![rewound("a", 4096, (1 << 20) + 1)]),
        ("empty, with the checksum of something", vec![rewound("a", 4096, 0)]),
        ("parts, but no last one", vec![Rewound { last_part: None, ..rewound("a", 4096, 9) }]),
        ("a last part, but none", vec![Rewound { next: Sequence::ZERO, ..rewound("a", 4096, 9) }]),
    ] {
        corrupt(&rewind_of(producers), lie);
    }
    let Record::Rewind(rewind) = rewind_of(Vec::new()) else { unreachable!() };
    let mut bytes = Record::Rewind(Rewind { turn: None, ..rewind }).encode();
    bytes[34] = 1;
    assert!(decode(Kind::Rewind, &bytes).is_err(), "a turn without a ring");
}
