//! What targets begin from: pieces of sound stores, and inputs that hurt.

use std::sync::OnceLock;

use batchweave::format::commit::Header;
use batchweave::format::index::{Header as IndexHeader, Section};
use batchweave::format::names;
use batchweave::format::record::{Kind, Record};

use crate::{craft, files, golden, mutate};

/// Files of sound stores, by their paths.
fn sound() -> &'static [(String, Vec<u8>)] {
    static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let stores = [golden::plain(0), golden::unknown(false)];
        let each = stores.iter().flat_map(|memory| {
            let read = |path: String| files::read(memory, &path).map(|bytes| (path, bytes));
            files::all(memory).into_iter().filter_map(read).collect::<Vec<_>>()
        });
        each.collect()
    })
}

fn in_room(room: &str) -> impl Iterator<Item = &'static Vec<u8>> {
    let inside = move |path: &str| path == room || path.split('/').next() == Some(room);
    sound().iter().filter(move |(path, _)| inside(path)).map(|(_, bytes)| bytes)
}

/// Every record of the sound stores, in bytes, by its kind's place among all.
fn records() -> Vec<(u8, Vec<u8>)> {
    let record = |bytes: &Vec<u8>| {
        let block = bytes.first_chunk()?;
        let (header, _) = Header::decode(block).ok()?;
        let kind = Kind::ALL.iter().position(|kind| Some(*kind) == header.known_kind())?;
        let record = bytes.get(512..)?.get(..header.record_length as usize)?;
        Some((kind as u8, record.to_vec()))
    };
    in_room(names::LOG).filter_map(record).collect()
}

/// The inputs that a target begins from.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = match target {
        "store" => in_room(names::STORE).cloned().collect(),
        "header" => in_room(names::LOG).map(|bytes| bytes[..4096].to_vec()).collect(),
        "record" => {
            let joined = records().into_iter().map(|(kind, record)| [vec![kind], record].concat());
            joined.chain(hostile_records()).collect()
        }
        "part" => parts(),
        "index" => in_room(names::INDEX).cloned().chain(hostile_indexes()).collect(),
        "state" => in_room(names::INDEX).filter_map(|bytes| state(bytes)).chain(hostile_states()).collect(),
        "codec" => frames(),
        "names" => staged(),
        _ => Vec::new(),
    };
    // Decisions have no format: what draws from an input begins from noise of several lengths.
    if matches!(target, "replay" | "tree" | "crafted") {
        let mut mutator = mutate::Mutator::new(7);
        seeds.extend((0..63).map(|number| mutator.noise(64 << (number % 7))));
    }
    seeds.push(Vec::new());
    seeds
}

fn parts() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (kind, bytes) in records() {
        let Ok(Record::Parts(parts)) = Record::decode(Kind::ALL[usize::from(kind)], &bytes) else { continue };
        let descriptors = &bytes[bytes.len() - 112 * parts.parts.len()..];
        // A descriptor, index and block as drawn, then an entry.
        let mut seed = descriptors[..112].to_vec();
        seed.extend([0, 0]);
        seed.extend(std::iter::repeat_n(0, 64));
        seeds.push(seed);
    }
    // Counts and places at every border.
    for at in (0..112).step_by(8) {
        for lie in [0, 1, 1 << 32, (1 << 32) + 1, i64::MAX as u64, u64::MAX, u64::MAX - 63] {
            let Some(mut seed) = seeds.first().cloned() else { continue };
            seed[at..at + 8].copy_from_slice(&u64::to_le_bytes(lie));
            seeds.push(seed);
        }
    }
    seeds
}

fn hostile_records() -> Vec<Vec<u8>> {
    let huge = u32::MAX.to_le_bytes();
    let of = |kind: Kind, bytes: &[u8]| {
        let place = Kind::ALL.iter().position(|known| *known == kind).expect("a kind");
        [&[place as u8], bytes].concat()
    };
    let name = [1, b'a'];
    vec![
        // Counts that no record has room for.
        of(Kind::Parts, &[&name[..], &[0; 16], &huge].concat()),
        of(Kind::Turns, &[&[0; 12][..], &huge].concat()),
        of(Kind::Rewind, &[&[0; 42][..], &huge].concat()),
        of(Kind::Checkpoint, &[&name[..], &[0; 24], &name, &[0], &huge].concat()),
        // A sequence that has no next one.
        of(Kind::Parts, &[&name[..], &[0; 8], &[0xff; 8], &1u32.to_le_bytes(), &[0; 112]].concat()),
    ]
}

fn state(index: &[u8]) -> Option<Vec<u8>> {
    let header = IndexHeader::decode(index.first_chunk()?).ok()?;
    let placed = header.placed(Section::State);
    let section = index.get(placed.offset as usize..)?.get(..placed.length as usize)?;
    Some([&[1], section].concat())
}

fn hostile_states() -> Vec<Vec<u8>> {
    let item = |tag: u16, flags: u16, bytes: &[u8]| {
        [&tag.to_le_bytes()[..], &flags.to_le_bytes(), &(bytes.len() as u32).to_le_bytes(), bytes].concat()
    };
    let core = item(1, 1, &[0; 72]);
    let producers = item(2, 1, &[0; 4]);
    let pieces = item(3, 1, &[&[1, 0, 0, 0][..], &[0; 24]].concat());
    let with = |items: &[&[u8]]| [&[0][..], &items.concat()].concat();
    vec![
        with(&[&core, &producers, &pieces]),
        with(&[&core, &producers, &pieces, &item(999, 0, b"later")]),
        with(&[&core, &producers, &pieces, &item(999, 1, b"later")]),
        // Twice, missing, in another order, optional though it isn't, counts without what they count.
        with(&[&core, &core, &producers, &pieces]),
        with(&[&pieces]),
        with(&[&pieces, &core]),
        with(&[&item(1, 0, &[0; 72]), &producers, &pieces]),
        with(&[&core, &item(2, 1, &[0xff; 4]), &pieces]),
        with(&[&core, &producers, &item(3, 1, &[0xff; 4])]),
        with(&[&core, &producers, &pieces, &item(8, 1, &[0xff; 40])]),
        // Written, though they are empty.
        with(&[&core, &producers, &pieces, &item(4, 1, &[0; 4])]),
        with(&[&core, &producers, &pieces, &item(5, 1, &[0; 4])]),
    ]
}

/// Sections that point backwards, at each other, or beyond anything.
fn hostile_indexes() -> Vec<Vec<u8>> {
    let Some(sound) = in_room(names::INDEX).next() else { return Vec::new() };
    let mut seeds = Vec::new();
    for section in 0..4 {
        for (field, lie) in [
            (0, 0),
            (0, 72),
            (0, 256),
            (0, u64::MAX),
            (8, 0),
            (8, u64::MAX),
            (8, u64::MAX - 255),
            (8, 1 << 32),
        ] {
            let mut bytes = sound.clone();
            let at = 72 + 24 * section + field;
            bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(lie));
            seeds.push(bytes);
        }
    }
    seeds.extend([0, 1, 255, 256, 257].map(|length| sound[..length].to_vec()));
    seeds
}

fn frames() -> Vec<Vec<u8>> {
    // A length as it is drawn: a number by itself, in eight bytes.
    let declared = |length: u64, frame: &[u8]| [&[255][..], &length.to_le_bytes(), frame].concat();
    let (small, bomb) = (craft::zstd(b"a small item"), craft::zstd(&vec![0; 64 << 20]));
    let cut = &small[..small.len() - 1];
    let twice = [&small[..], &small].concat();
    vec![
        declared(12, &small),
        declared(11, &small),
        declared(u64::MAX, &small),
        declared(12, cut),
        declared(12, &twice),
        declared(1000, &bomb),
        declared(1 << 40, &bomb[..bomb.len() / 2]),
        declared(0, &craft::zstd(&[])),
    ]
}

fn staged() -> Vec<Vec<u8>> {
    let nonce = "000102030405060708090a0b0c0d0e0f";
    let names = [
        format!("tok-017.3.12.{nonce}"),
        format!("a.b.1.2.{nonce}"),
        format!("-open.{nonce}"),
        format!("-.{nonce}"),
        format!("a.+1.02.{}", nonce.to_uppercase()),
        "000000000012".to_owned(),
        "00000000000000000012".to_owned(),
        "18446744073709551616".to_owned(),
        "..".to_owned(),
    ];
    names.map(String::into_bytes).to_vec()
}

#[cfg(test)]
mod tests {
    use batchweave::format::part::PartDescriptor;
    use batchweave::format::{codec, cursor::Reader, store::Identity};
    use batchweave::log::state::State;

    use super::*;

    #[test]
    fn sound_seeds_are_read_and_hostile_ones_are_not() {
        let count = |target: &str, sound: fn(&[u8]) -> bool| {
            let seeds = of(target);
            let sound = seeds.iter().filter(|seed| sound(seed)).count();
            (sound, seeds.len() - sound)
        };
        let stores = count("store", |seed| Identity::decode(seed).is_ok());
        assert_eq!(stores, (2, 1));
        let (read, _) =
            count("header", |seed| seed.first_chunk().is_some_and(|seed| Header::decode(seed).is_ok()));
        assert!(read > 60, "{read}");
        let (read, refused) = count("record", |seed| {
            seed.split_first()
                .is_some_and(|(kind, seed)| Record::decode(Kind::ALL[usize::from(*kind)], seed).is_ok())
        });
        assert!(read > 60 && refused >= 5, "{read} {refused}");
        let (read, refused) = count("part", |seed| PartDescriptor::decode(&mut Reader::new(seed)).is_ok());
        assert!(read > 20 && refused > 20, "{read} {refused}");
        let state = count("state", |seed| seed.get(1..).is_some_and(|seed| State::decode(seed, 2).is_ok()));
        assert_eq!(state, (5, 11));
        let frames = count("codec", |seed| {
            let Some((length, frame)) = seed.get(1..).and_then(|seed| seed.split_first_chunk()) else {
                return false;
            };
            codec::decompress(frame, u64::from_le_bytes(*length)).is_ok()
        });
        assert_eq!(frames, (2, 7));
    }
}
