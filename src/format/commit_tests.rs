//! Whole commits: every kind through seal, [`Header::decode`] and [`Header::record`], and what must not get
//! through.
//!
//! - Broken bytes are sealed again where a checksum would otherwise stop them before the field under test.
//! - Whatever is accepted is encoded again and has to be the same bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use super::arbitrary::{WRITTEN_FOR, change, draft, parts, record, rewind};
use super::checksum;
use super::commit::{Block, Draft, Header, INLINE_RECORD_BYTES_MAX, People, Place, Sealed, seal};
use super::part::{Item, PartDescriptor};
use super::record::{Checkpoint, Kind, Parts, Record, Rewind};
use crate::error::ErrorKind;
use crate::id::{Checksum, Generation, Nonce, StoreUuid};
use crate::limits::METADATA_BYTES_MAX;
use crate::name::Name;

const CHECKSUM: std::ops::Range<usize> = 120..128;
const DIGEST: std::ops::Range<usize> = 104..112;

fn plain() -> Draft {
    Draft {
        store: StoreUuid::new([1; 16]),
        nonce: Nonce::new([2; 16]),
        generation: Generation::new(WRITTEN_FOR),
        seen: None,
        attempt_us: 3,
        people: People { library: "batchweave 9.9.9".into(), ..People::default() },
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Makes the record checksum right again.
fn reseal(block: &mut Block) {
    block[CHECKSUM].fill(0);
    let sum = checksum::of(block.as_slice()).get();
    block[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
}

/// Reads a commit; what is accepted has to be encoded to the same bytes.
fn read(block: &Block, elsewhere: &[u8]) -> crate::Result<Option<Record>> {
    let (header, _) = Header::decode(block)?;
    let record = header.record(block, elsewhere)?;
    let inline = match header.place {
        Place::Inline => block[512..][..header.record_length as usize].to_vec(),
        Place::At { .. } => Vec::new(),
    };
    assert_eq!(header.encode(&inline).0, Box::new(*block), "another header was read than was written");
    if let Some(record) = &record {
        let bytes = if inline.is_empty() { elsewhere } else { &inline };
        assert_eq!(record.encode(), bytes, "another record was read than was written");
    }
    Ok(record)
}

fn read_sealed(sealed: &Sealed) -> crate::Result<Option<Record>> {
    read(&sealed.block, sealed.elsewhere.as_ref().map_or(&[], |(_, bytes)| bytes))
}

proptest! {
    #[test]
    fn every_record_is_read_back_through_its_commit(draft in draft(), record in record()) {
        let sealed = seal(draft.clone(), &record).unwrap();
        let (header, sum) = Header::decode(&sealed.block).unwrap();
        prop_assert_eq!((sum, header.length), (sealed.checksum, sealed.length));
        prop_assert_eq!((header.store, header.nonce, header.seen), (draft.store, draft.nonce, draft.seen));
        prop_assert_eq!((header.generation, header.attempt_us), (draft.generation, draft.attempt_us));
        prop_assert_eq!(&header.people, &draft.people);
        let kind = record.kind();
        prop_assert_eq!((header.known_kind(), header.required), (Some(kind), kind.required()));
        let inline = record.encode().len() <= INLINE_RECORD_BYTES_MAX;
        prop_assert_eq!(header.place == Place::Inline, inline);
        prop_assert_eq!(read_sealed(&sealed).unwrap(), Some(record));
    }

    #[test]
    fn a_flipped_bit_of_a_header_is_found(draft in draft(), record in record(), bit in 0usize..4096 * 8) {
        let mut block = seal(draft, &record).unwrap().block;
        block[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Header::decode(&block).is_err());
    }

    #[test]
    fn a_flipped_bit_of_a_record_elsewhere_is_found(
        record in parts(32..40), at in any::<u32>(), bit in 0..8u32,
    ) {
        let sealed = seal(plain(), &record).unwrap();
        let (_, mut bytes) = sealed.elsewhere.clone().unwrap();
        let (header, _) = Header::decode(&sealed.block).unwrap();
        let at = at as usize % bytes.len();
        prop_assert!(header.record(&sealed.block, &bytes[1..]).is_err());
        bytes[at] ^= 1 << bit;
        prop_assert!(header.record(&sealed.block, &bytes).is_err());
    }

    #[test]
    fn a_changed_and_resealed_header_is_refused_or_canonical(
        draft in draft(), record in record(), changes in vec(change(), 1..4), whole in any::<bool>(),
    ) {
        let sealed = seal(draft, &record).unwrap();
        let mut block = sealed.block.clone();
        let reach = if whole { 4096 } else { 128 };
        changes.iter().for_each(|change| change.apply(&mut block[8..reach]));
        reseal(&mut block);
        let _ = read(&block, sealed.elsewhere.as_ref().map_or(&[], |(_, bytes)| bytes));
    }

    #[test]
    fn a_changed_and_resealed_record_is_refused_or_canonical(
        record in record(), changes in vec(change(), 1..4),
    ) {
        let mut sealed = seal(plain(), &record).unwrap();
        let length = record.encode().len();
        if let Some((_, bytes)) = &mut sealed.elsewhere {
            changes.iter().for_each(|change| change.apply(bytes));
            sealed.block[DIGEST].copy_from_slice(&checksum::of(bytes).get().to_le_bytes());
        } else {
            changes.iter().for_each(|change| change.apply(&mut sealed.block[512..][..length]));
        }
        reseal(&mut sealed.block);
        let _ = read_sealed(&sealed);
    }

    #[test]
    fn any_block_is_refused_or_canonical(noise in vec(any::<u8>(), 4096 - 10)) {
        let mut block: Box<Block> = Box::new([0; 4096]);
        block[..10].copy_from_slice(b"BWcommit\x01\0");
        block[10..].copy_from_slice(&noise);
        reseal(&mut block);
        let _ = read(&block, &noise);
    }
}

#[test]
fn every_byte_of_a_header_is_under_its_checksum() {
    let block = seal(plain(), &Record::Reopen { closes: 4 }).unwrap().block;
    for at in 0..block.len() {
        let mut broken = block.clone();
        broken[at] ^= 1 << (at % 8);
        assert!(Header::decode(&broken).is_err(), "byte {at}");
    }
}

fn drawn(strategy: impl Strategy<Value = Record>) -> Record {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    strategy.new_tree(&mut runner).unwrap().current()
}

#[test]
fn large_records_lie_elsewhere_and_are_read_back() {
    let metadata = vec![0xa5; METADATA_BYTES_MAX];
    for record in [drawn(parts(1000)), drawn(rewind(1000)), checkpoint(metadata)] {
        let sealed = seal(plain(), &record).unwrap();
        let (offset, bytes) = sealed.elsewhere.as_ref().unwrap();
        assert_eq!((offset % 8, offset + bytes.len() as u64), (0, sealed.length));
        assert!(*offset >= record.payload_end().unwrap(), "the record lies over what it describes");
        assert_eq!(read_sealed(&sealed).unwrap(), Some(record));
    }
}

fn checkpoint(metadata: Vec<u8>) -> Record {
    Record::Checkpoint(Checkpoint {
        group: name("llama"),
        incarnation: 1.into(),
        step: 2.into(),
        lineage: Checksum::new(3),
        name: name("step-2"),
        pinned: false,
        metadata,
    })
}

fn rewind_to(generation: u64) -> Record {
    Record::Rewind(Rewind {
        generation: Generation::new(generation),
        step: 1.into(),
        lineage: Checksum::new(2),
        bytes_before: 3,
        many_groups: false,
        turn: None,
        producers: Vec::new(),
    })
}

fn one_part(first: u64, part: PartDescriptor) -> Record {
    Record::Parts(Parts {
        producer: name("p"),
        incarnation: 0.into(),
        first: first.into(),
        parts: vec![part],
    })
}

#[test]
fn what_a_reader_would_refuse_is_not_sealed() {
    let part = PartDescriptor { place: 4096, ..Default::default() };
    let no_parts = Parts { producer: name("p"), incarnation: 0.into(), first: 0.into(), parts: Vec::new() };
    assert!(seal(plain(), &one_part(0, part)).is_ok());
    for record in [
        Record::Parts(no_parts),
        one_part(u64::MAX, part),
        one_part(0, PartDescriptor { place: 8192, ..part }),
        one_part(0, PartDescriptor { state: Item { length: 0, checksum: Checksum::ZERO }, ..part }),
        one_part(0, PartDescriptor { slices: 1, table: u64::MAX - 63, ..part }),
        checkpoint(vec![0; METADATA_BYTES_MAX + 1]),
        Record::Skip { first: 0.into(), last: 0.into(), reason: "x".repeat(4097) },
        Record::Turns { last: None, names: vec![name("p")], parts_per_turn: 0 },
        Record::Open { producer: name("p"), last: Some(u64::MAX.into()) },
        rewind_to(WRITTEN_FOR),
    ] {
        let error = seal(plain(), &record).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[test]
fn an_unknown_kind_stops_a_reader_only_if_it_is_required() {
    let known = Header::decode(&seal(plain(), &Record::Reopen { closes: 4 }).unwrap().block).unwrap().0;
    let newer = |required| {
        let header = Header { kind: 999, required, record_length: 5, ..known.clone() };
        read(&header.encode(b"newer").0, &[])
    };
    assert_eq!(newer(false).unwrap(), None);
    let error = newer(true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let sentence = error.to_string();
    for side in
        ["999", "format version 1", "batchweave 9.9.9", concat!("batchweave ", env!("CARGO_PKG_VERSION"))]
    {
        assert!(sentence.contains(side), "{sentence}");
    }
    let optional = Header { required: false, ..known };
    assert!(
        read(&optional.encode(&4u64.to_le_bytes()).0, &[]).is_err(),
        "a required kind that isn't said to be"
    );
}

/// Writes a number into the block of a small commit, seals it, reads it.
fn with_field(at: usize, bytes: &[u8]) -> ErrorKind {
    let mut block = seal(plain(), &Record::Reopen { closes: 4 }).unwrap().block;
    block[at..at + bytes.len()].copy_from_slice(bytes);
    reseal(&mut block);
    read(&block, &[]).unwrap_err().kind()
}

#[test]
fn a_newer_commit_is_unsupported_whatever_else_it_has() {
    assert_eq!(with_field(8, &[2]), ErrorKind::Unsupported, "format version");
    assert_eq!(with_field(16, &[4]), ErrorKind::Unsupported, "feature bit");
    assert_eq!(
        with_field(12, &[3, 0, 0, 0, 4]),
        ErrorKind::Unsupported,
        "feature bit with a flag of its own"
    );
}

#[test]
fn a_sealed_lie_in_a_header_is_corrupt() {
    let huge = u64::MAX.to_le_bytes();
    for (at, bytes, lie) in [
        (12, &[3][..], "unknown flag"),
        (72, &[1], "checksum of a seen that is none"),
        (80, &[0; 8], "no length"),
        (80, &huge, "length beyond any file"),
        (88, &[0, 16], "elsewhere, though it would fit in"),
        (88, &huge, "offset near the end of numbers"),
        (96, &[9], "record length"),
        (96, &huge, "huge record length"),
        (104, &[1], "digest of an inline record"),
        (116, &[1], "reserved"),
        (140, &[65], "a host that is too long"),
        (140, &[255, 255], "a host that reaches into the record"),
        (141, &[1, 0xff], "a job that isn't text"),
        (400, &[1], "after people's fields"),
        (4095, &[1], "after the record"),
    ] {
        assert_eq!(with_field(at, bytes), ErrorKind::Corrupt, "{lie}");
    }
}

#[test]
fn a_lie_beside_a_record_elsewhere_is_corrupt() {
    let sealed = seal(plain(), &checkpoint(vec![1; 5000])).unwrap();
    let (offset, bytes) = sealed.elsewhere.clone().unwrap();
    let with = |at: usize, new: &[u8]| {
        let mut block = sealed.block.clone();
        block[at..at + new.len()].copy_from_slice(new);
        reseal(&mut block);
        read(&block, &bytes).map_err(|error| error.kind())
    };
    assert!(with(88, &offset.to_le_bytes()).is_ok());
    let length = bytes.len() as u64;
    let mut moved = [(offset + 8).to_le_bytes(), length.to_le_bytes()].concat();
    moved.splice(0..0, (offset + 8 + length).to_le_bytes());
    assert_eq!(with(80, &moved), Err(ErrorKind::Corrupt), "a gap before the record");
    let mut backward = [2048u64.to_le_bytes(), length.to_le_bytes()].concat();
    backward.splice(0..0, (2048 + length).to_le_bytes());
    assert_eq!(with(80, &backward), Err(ErrorKind::Corrupt), "a record over the header");
    assert_eq!(with(1000, &[1]), Err(ErrorKind::Corrupt), "bytes where an inline record would be");
}

#[test]
fn a_record_that_fits_in_does_not_lie_elsewhere() {
    let known = Header::decode(&seal(plain(), &Record::Reopen { closes: 4 }).unwrap().block).unwrap().0;
    let bytes = 4u64.to_le_bytes();
    let place = Place::At { offset: 4096, digest: checksum::of(&bytes) };
    let block = Header { place, length: 4096 + 8, ..known }.encode(&[]).0;
    assert_eq!(read(&block, &bytes).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn every_kind_has_one_number_for_ever() {
    let numbers: Vec<_> =
        Kind::ALL.iter().map(|kind| (kind.number(), kind.word(), kind.required())).collect();
    let words = [
        "open",
        "parts",
        "retire",
        "forget",
        "turns",
        "group",
        "retire-group",
        "checkpoint",
        "drop",
        "floor",
        "rewind",
        "skip",
        "close",
        "reopen",
        "require",
    ];
    let expected: Vec<_> = (1..).zip(words).map(|(number, word)| (number, word, true)).collect();
    assert_eq!(numbers, expected);
}
