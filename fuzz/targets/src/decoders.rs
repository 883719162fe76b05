//! Every decoder of the format: any bytes are refused, or are just what the encoder writes of what was read.
//!
//! - Each takes the input as it is, and once more with the checksums made right, or nothing behind them would
//!   ever be reached.
//! - Errors are `Corrupt` or `Unsupported`: bytes have no other fault.

use batchweave::format::codec;
use batchweave::format::commit::{Block, Draft, Header, People, Place, seal};
use batchweave::format::cursor::{Reader, Writer};
use batchweave::format::index::{self, Contents, INDEX_HEADER_BYTES, Section};
use batchweave::format::part::{PartDescriptor, SliceEntry, listed_checksum};
use batchweave::format::record::{Kind, Record};
use batchweave::format::stopper;
use batchweave::format::store::{Identity, STORE_BYTES};
use batchweave::log::state::State;
use batchweave::{ErrorKind, Generation, Nonce, Result, StoreUuid};

use crate::input::Input;
use crate::reseal;

/// What was read, if the bytes were good; else the error has to be one that bytes can have.
fn sound<T>(read: Result<T>) -> Option<T> {
    match read {
        Ok(read) => Some(read),
        Err(error) => {
            let kind = error.kind();
            assert!(
                kind == ErrorKind::Corrupt || kind == ErrorKind::Unsupported,
                "bytes can't be {kind}: {error}"
            );
            None
        }
    }
}

/// As the input is, then with its checksum made right.
fn both<const N: usize>(data: &[u8], seal: impl Fn(&mut [u8]), then: impl Fn(&[u8; N])) {
    let mut bytes = [0; N];
    let length = data.len().min(N);
    bytes[..length].copy_from_slice(&data[..length]);
    then(&bytes);
    seal(&mut bytes);
    then(&bytes);
}

/// STORE, and a stopper.
pub fn store(data: &[u8]) {
    let read = |bytes: &[u8]| {
        if let Some(identity) = sound(Identity::decode(bytes)) {
            assert_eq!(identity.encode(), bytes, "STORE is read as another one");
        }
    };
    read(data);
    both::<STORE_BYTES>(data, reseal::store, |bytes| read(bytes));
    both::<{ stopper::STOPPER_BYTES }>(
        data,
        |bytes| reseal::tail(bytes, 8),
        |bytes| {
            if let Some(generation) = stopper::decode(bytes) {
                assert_eq!(stopper::encode(generation), bytes);
            }
        },
    );
}

/// A commit's header block and its record, in it or right after it in the input.
pub fn header(data: &[u8]) {
    let (block, elsewhere) = data.split_at(data.len().min(4096));
    both::<4096>(
        block,
        |bytes| reseal::header(bytes, elsewhere),
        |block: &Block| {
            let Some((header, checksum)) = sound(Header::decode(block)) else { return };
            let inline = match header.place {
                Place::Inline => &block[512..512 + header.record_length as usize],
                Place::At { .. } => &[],
            };
            let Some(record) = sound(header.record(block, elsewhere)) else { return };
            let (again, checksum_again) = header.encode(inline);
            assert!(*again == *block && checksum == checksum_again, "a header is read as another one");
            let Some(record) = record else { return };
            assert_eq!(header.known_kind(), Some(record.kind()));
            let bytes = if inline.is_empty() { elsewhere } else { inline };
            assert_eq!(record.encode(), bytes, "a record is read as another one");
        },
    );
}

/// A record of the kind that the first byte says.
pub fn record(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = *input.pick(Kind::ALL);
    let bytes = input.rest();
    let Some(record) = sound(Record::decode(kind, bytes)) else { return };
    assert_eq!(record.encode(), bytes, "a record is read as another one");
    let draft = Draft {
        store: StoreUuid::new([1; 16]),
        nonce: Nonce::new([2; 16]),
        generation: Generation::ZERO,
        seen: None,
        attempt_us: 3,
        people: People::default(),
    };
    // What is sealed is read back as it was: a commit that has its name can't be taken back.
    match seal(draft, &record) {
        Ok(sealed) => {
            let (header, checksum) = Header::decode(&sealed.block).expect("a sealed header");
            let elsewhere = sealed.elsewhere.map(|(_, bytes)| bytes).unwrap_or_default();
            let read = header.record(&sealed.block, &elsewhere).expect("a sealed record");
            assert_eq!((read, checksum, header.length), (Some(record), sealed.checksum, sealed.length));
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
    }
}

/// A part's descriptor, and the entries of a slice table.
pub fn part(data: &[u8]) {
    let mut input = Input::new(data);
    let mut bytes = [0; PartDescriptor::BYTES];
    let taken = input.take(bytes.len());
    bytes[..taken.len()].copy_from_slice(taken);
    let descriptor = sound(PartDescriptor::decode(&mut Reader::new(&bytes)));
    if let Some(part) = descriptor {
        let mut to = Writer::new();
        part.encode(&mut to);
        assert_eq!(to.into_bytes(), bytes, "a descriptor is read as another one");
        let layout = part.layout().expect("a descriptor that is read has a layout");
        let order = [part.place, layout.table, layout.attachment, layout.metadata, layout.state, layout.end];
        assert!(order.is_sorted(), "the pieces of a part overlap: {layout:?}");
        let moved = PartDescriptor { place: part.place ^ 4096, ..part };
        assert_eq!(moved.checksum(), part.checksum());
    }
    let table = descriptor.map_or_else(|| input.number(1 << 20), |part| part.table);
    let (index, block) = (input.number(0), input.number(0));
    both::<64>(
        input.take(64),
        |bytes| reseal::entry(bytes, index),
        |bytes| {
            let Some(entry) = sound(SliceEntry::decode(index, bytes, table)) else { return };
            let mut to = Writer::new();
            entry.encode(index, &mut to);
            assert_eq!(to.into_bytes(), bytes, "an entry is read as another one");
            let end = entry.end().expect("an entry that is read has an end");
            assert!(entry.offset + entry.stored <= end && end <= table, "a slice beyond its table");
            assert!(entry.next_offset().is_none_or(|next| next >= end));
            assert!(entry.block_list().is_none_or(|list| list >= entry.offset + entry.stored));
        },
    );
    sound(listed_checksum(input.rest(), block));
}

/// An index: its header, and the sections as it places them, wherever their checksums are right.
pub fn index(data: &[u8]) {
    both::<INDEX_HEADER_BYTES>(
        data,
        |bytes| reseal::tail(bytes, 8),
        |bytes| {
            if let Some(header) = sound(index::Header::decode(bytes)) {
                assert_eq!(header.encode(), bytes, "an index's header is read as another one");
                assert!(header.file_length() <= batchweave::limits::INDEX_BYTES_MAX);
            }
        },
    );
    index_file(data);
    let mut bytes = data.to_vec();
    reseal::index(&mut bytes);
    index_file(&bytes);
}

fn index_file(bytes: &[u8]) {
    let Some(header) = bytes.first_chunk().and_then(|head| sound(index::Header::decode(head))) else {
        return;
    };
    let section = |section: Section| {
        let placed = header.placed(section);
        let (start, length) = (placed.offset as usize, placed.length as usize);
        let bytes = bytes.get(start..)?.get(..length)?;
        sound(index::check_section(section, placed, bytes)).map(|()| bytes)
    };
    let Some([versions, parts, state, states]) = each(Section::ALL.map(section)) else { return };
    let all = (0..u64::from(header.versions)).map(|slot| sound(index::version_entry(versions, slot)));
    let Some(versions) = all.collect::<Option<Vec<_>>>() else { return };
    let all = (0..header.parts).map(|place| sound(index::part_entry(parts, place)));
    let Some(parts) = all.collect::<Option<Vec<_>>>() else { return };
    let Some(states) = sound(index::producer_states(states)) else { return };
    let contents = Contents {
        store: header.store,
        segment: header.segment,
        first_part: header.first_part,
        versions,
        parts,
        state: state.to_vec(),
        producer_states: states.into_iter().map(|(name, state)| (name, state.to_vec())).collect(),
    };
    let (again, _) = contents.encode();
    assert!(bytes.starts_with(&again), "an index is read as another one");
    state_of(state, 1);
}

fn each<T, const N: usize>(all: [Option<T>; N]) -> Option<[T; N]> {
    let all: Vec<T> = all.into_iter().collect::<Option<_>>()?;
    all.try_into().ok()
}

/// The state as tagged items.
pub fn state(data: &[u8]) {
    let mut input = Input::new(data);
    let parts_per_step = 1 + u32::from(input.u8() % 4);
    state_of(input.rest(), parts_per_step);
}

fn state_of(bytes: &[u8], parts_per_step: u32) {
    let Some(state) = sound(State::decode(bytes, parts_per_step)) else { return };
    // Optional items of later libraries are passed over, and nothing else is.
    assert_eq!(state.encode(), without_optional(bytes), "a state is read as another one");
    // What asks it has to cope with whatever it says.
    let _ = (state.next_step(), state.has_open_step(), state.bytes_carried(), state.turn());
    let _ = (state.needed(), state.history.piece_of(state.floor), state.history.piece_after(state.floor));
    let _ = state.history.limit_of(state.generation);
    for name in state.producers.keys() {
        let _ = state.turn_of(name);
    }
    crate::replay::any_records_on(state, &bytes[bytes.len() / 2..]);
}

/// The items of a state but those that are optional.
fn without_optional(bytes: &[u8]) -> Vec<u8> {
    let (mut from, mut to) = (Reader::new(bytes), Writer::new());
    while !from.is_empty() {
        let (tag, flags) = (from.u16().expect("a tag"), from.u16().expect("flags"));
        let item = from.bytes(bytes.len()).expect("an item");
        if flags & 1 == 1 {
            to.u16(tag).u16(flags).bytes(item);
        }
    }
    to.into_bytes()
}

/// A packed item that declares the length that the first bytes say.
pub fn codec(data: &[u8]) {
    let mut input = Input::new(data);
    let length = input.number(1 << 10);
    let stored = input.rest();
    match codec::decompress(stored, length) {
        Ok(bytes) => assert_eq!(bytes.len() as u64, length),
        Err(error) => {
            let kind = error.kind();
            assert!(
                [ErrorKind::Corrupt, ErrorKind::Unsupported, ErrorKind::Full].contains(&kind),
                "a frame can't be {kind}"
            );
        }
    }
}
