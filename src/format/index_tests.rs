//! Indexes: built the same by every builder, read by section, and no byte outside a checksum.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::arbitrary::{change, name};
use super::checksum;
use super::index::{
    Contents, Header, INDEX_HEADER_BYTES, PartEntry, Placed, Section, VersionEntry, check_section,
    part_entry, producer_states, version_entry,
};
use crate::error::{ErrorKind, Result};
use crate::id::{Checksum, Nonce, Part, Segment, StoreUuid};
use crate::name::Name;

fn version() -> impl Strategy<Value = VersionEntry> {
    (any::<[u8; 16]>(), any::<u64>(), any::<u16>(), any::<u8>()).prop_map(|(nonce, sum, kind, void)| {
        VersionEntry { nonce: Nonce::new(nonce), checksum: Checksum::new(sum), kind, void }
    })
}

fn part() -> impl Strategy<Value = PartEntry> {
    any::<(u64, u32)>().prop_map(|(version, ordinal)| PartEntry { version: version.into(), ordinal })
}

fn contents() -> impl Strategy<Value = Contents> {
    let place = any::<(u32, u32)>();
    let states = btree_map(name(), vec(any::<u8>(), 0..300), 0..8);
    (any::<[u8; 16]>(), place, vec(version(), 16..40), vec(part(), 0..40), vec(any::<u8>(), 0..500), states)
        .prop_map(|(store, (segment, first), versions, parts, state, states)| Contents {
            store: StoreUuid::new(store),
            segment: Segment::new(segment.into()),
            first_part: Part::new(first.into()),
            versions,
            parts,
            state,
            producer_states: states.into_iter().collect(),
        })
}

fn header(bytes: &[u8]) -> Result<Header> {
    Header::decode(bytes.first_chunk().unwrap())
}

fn section<'a>(header: &Header, bytes: &'a [u8], section: Section) -> Result<&'a [u8]> {
    let Placed { offset, length, .. } = header.placed(section);
    let found = bytes.get(offset as usize..).and_then(|rest| rest.get(..length as usize)).unwrap_or_default();
    check_section(section, header.placed(section), found).map(|()| found)
}

/// Reads all of an index; what is accepted has to be encoded to the same bytes.
fn read(bytes: &[u8]) -> Result<Contents> {
    let header = header(bytes)?;
    if header.file_length() != bytes.len() as u64 {
        return Err(crate::Error::new(ErrorKind::Corrupt, "length"));
    }
    let [versions, parts, state, states] = Section::ALL.map(|one| section(&header, bytes, one));
    let (versions, parts) = (versions?, parts?);
    let states = producer_states(states?)?;
    let contents = Contents {
        store: header.store,
        segment: header.segment,
        first_part: header.first_part,
        versions: (0..header.versions.into())
            .map(|slot| version_entry(versions, slot))
            .collect::<Result<_>>()?,
        parts: (0..header.parts).map(|place| part_entry(parts, place)).collect::<Result<_>>()?,
        state: state?.to_vec(),
        producer_states: states.into_iter().map(|(name, state)| (name, state.to_vec())).collect(),
    };
    assert!(version_entry(versions, header.versions.into()).is_err(), "an entry beyond the last");
    assert!(part_entry(parts, u64::MAX).is_err(), "an entry near the end of numbers");
    let (again, header_again) = contents.encode();
    assert_eq!((again.as_slice(), header_again), (bytes, header));
    Ok(contents)
}

fn reseal(bytes: &mut [u8]) {
    let sum = checksum::of(&bytes[..INDEX_HEADER_BYTES - 8]).get();
    bytes[INDEX_HEADER_BYTES - 8..INDEX_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Gives every section that still lies in the file the checksum of the bytes it has.
fn reseal_sections(bytes: &mut [u8]) {
    for (nth, _) in Section::ALL.iter().enumerate() {
        let field =
            |at: usize, bytes: &[u8]| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
        let at = 72 + 24 * nth;
        let (offset, length) = (field(at, bytes), field(at + 8, bytes));
        if let Some(section) = bytes.get(offset..).and_then(|rest| rest.get(..length)) {
            let sum = checksum::of(section).get();
            bytes[at + 16..at + 24].copy_from_slice(&sum.to_le_bytes());
        }
    }
    reseal(bytes);
}

proptest! {
    #[test]
    fn an_index_is_read_back_and_built_the_same_by_all(contents in contents()) {
        let (bytes, header) = contents.encode();
        prop_assert_eq!(&contents.clone().encode().0, &bytes);
        prop_assert_eq!(header.part_range().count(), contents.parts.len());
        let read = read(&bytes).unwrap();
        prop_assert_eq!((read.versions, read.parts), (contents.versions, contents.parts));
        prop_assert_eq!((read.state, read.producer_states), (contents.state, contents.producer_states));
    }

    #[test]
    fn a_flipped_bit_of_an_index_is_found(contents in contents(), at in any::<u32>(), bit in 0..8u32) {
        let (mut bytes, _) = contents.encode();
        let at = at as usize % bytes.len();
        bytes[at] ^= 1 << bit;
        prop_assert!(read(&bytes).is_err());
        let at_header = at < INDEX_HEADER_BYTES;
        prop_assert_eq!(header(&bytes).is_err(), at_header, "sections aren't read for the header's sake");
        if let (false, Ok(header)) = (at_header, header(&bytes)) {
            let is_broken = |one: &Section| section(&header, &bytes, *one).is_err();
            let broken = Section::ALL.iter().filter(|one| is_broken(one)).count();
            prop_assert_eq!(broken, 1, "a section is verified by its own checksum");
        }
    }

    #[test]
    fn a_changed_and_resealed_index_is_refused_or_canonical(
        contents in contents(), changes in vec(change(), 1..4), in_header in any::<bool>(),
    ) {
        let (mut bytes, _) = contents.encode();
        let reach = if in_header { 176 } else { bytes.len() };
        changes.iter().for_each(|change| change.apply(&mut bytes[8..reach]));
        reseal_sections(&mut bytes);
        let _ = read(&bytes);
    }

    #[test]
    fn any_bytes_are_refused_or_canonical(noise in vec(any::<u8>(), 0..600)) {
        let mut bytes = noise.clone();
        bytes.resize(INDEX_HEADER_BYTES.max(noise.len()), 0);
        bytes[..10].copy_from_slice(b"BWindex\0\x01\0");
        reseal(&mut bytes);
        let _ = read(&bytes);
        let _ = producer_states(&noise);
        let _ = (version_entry(&noise, 1), part_entry(&noise, u64::MAX / 16));
    }
}

fn small() -> Contents {
    Contents {
        store: StoreUuid::new([1; 16]),
        segment: Segment::new(2),
        first_part: Part::new(3),
        versions: vec![
            VersionEntry {
                nonce: Nonce::new([4; 16]),
                checksum: Checksum::new(5),
                kind: 2,
                void: 0
            };
            16
        ],
        parts: vec![PartEntry { version: 32.into(), ordinal: 0 }],
        state: b"state".to_vec(),
        producer_states: ["a", "b"].map(|text| (Name::new(text).unwrap(), vec![7])).to_vec(),
    }
}

#[test]
fn a_sealed_lie_in_a_header_is_refused() {
    let with = |at: usize, new: &[u8]| {
        let (mut bytes, _) = small().encode();
        bytes[at..at + new.len()].copy_from_slice(new);
        reseal(&mut bytes);
        header(&bytes).map(|_| ()).map_err(|error| error.kind())
    };
    let huge = u64::MAX.to_le_bytes();
    assert_eq!(with(8, &[1]), Ok(()));
    assert_eq!(with(8, &[2]), Err(ErrorKind::Unsupported), "format version");
    assert_eq!(
        with(15, &[1, 4]),
        Err(ErrorKind::Unsupported),
        "feature bit, with a reserved byte of its own"
    );
    for (at, new, lie) in [
        (15, &[1][..], "reserved"),
        (40, &huge, "a segment whose versions are beyond all numbers"),
        (48, &huge, "parts beyond all numbers"),
        (56, &[17], "a version more than its section has"),
        (64, &huge, "a huge count of parts"),
        (72, &[0, 0], "a section over the header"),
        (80, &huge, "a section near the end of numbers"),
        (96, &[0, 1], "a section over the one before"),
        (104, &huge, "a section beyond the bound"),
        (200, &[1], "after the sections"),
    ] {
        assert_eq!(with(at, new), Err(ErrorKind::Corrupt), "{lie}");
    }
}

#[test]
fn producers_are_sorted_and_once() {
    let states = |names: [&str; 2]| {
        let producer_states = names.map(|text| (Name::new(text).unwrap(), vec![7])).to_vec();
        read(&Contents { producer_states, ..small() }.encode().0).map(|_| ())
    };
    assert!(states(["a", "b"]).is_ok());
    assert!(states(["b", "a"]).is_err());
    assert!(states(["a", "a"]).is_err());
    assert!(producer_states(&u32::MAX.to_le_bytes()).is_err(), "a huge count");
}
