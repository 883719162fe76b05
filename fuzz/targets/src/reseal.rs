//! Checksums made right over whatever bytes there are, so that what lies behind them is reached.
//!
//! Nothing here uses the format's own encoders: they write only what is sound.

use batchweave::Checksum;
use batchweave::format::checksum;

fn put(bytes: &mut [u8], at: usize, sum: Checksum) {
    if let Some(field) = bytes.get_mut(at..at + 8) {
        field.copy_from_slice(&sum.get().to_le_bytes());
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u64::from_le_bytes(*field) as usize)
}

/// The last `length` bytes are the checksum of those before.
pub fn tail(bytes: &mut [u8], length: usize) {
    if let Some(at) = bytes.len().checked_sub(length) {
        let sum = checksum::of(&bytes[..at]);
        put(bytes, at, sum);
    }
}

/// STORE's.
pub fn store(bytes: &mut [u8]) {
    if let Some(sealed) = bytes.get(..504) {
        let sum = checksum::of(sealed);
        put(bytes, 504, sum);
    }
}

/// An entry's at its index.
pub fn entry(bytes: &mut [u8], index: u64) {
    let sum = checksum::seeded(index, &bytes[..56]);
    put(bytes, 56, sum);
}

/// A header block's, of a commit whose record is `elsewhere` if it isn't in the block.
pub fn header(block: &mut [u8], elsewhere: &[u8]) {
    if number(block, 88) > 0 {
        put(block, 104, checksum::of(elsewhere));
    }
    put(block, 120, Checksum::ZERO);
    let sum = checksum::of(block);
    put(block, 120, sum);
}

/// A commit's: of the record that lies elsewhere, if it does, then of the header block.
pub fn commit(bytes: &mut [u8]) {
    let (offset, length) = (number(bytes, 88), number(bytes, 96));
    let Some((block, rest)) = bytes.split_at_mut_checked(4096) else { return };
    let record = offset.checked_sub(4096).and_then(|start| rest.get(start..)?.get(..length));
    header(block, record.unwrap_or_default());
}

/// The table of a commit's only part, each entry and the whole; then the record, then the commit.
pub fn parts(bytes: &mut [u8]) {
    let name = bytes.get(512).copied().unwrap_or(0) as usize;
    // The first descriptor, behind name, incarnation, sequence and count.
    let at = 512 + 1 + name + 8 + 8 + 4;
    let (place, slices, table) = (number(bytes, at), number(bytes, at + 8), number(bytes, at + 16));
    let start = place.saturating_add(table);
    let length = slices.saturating_mul(64).min(bytes.len());
    if let Some(table) = bytes.get_mut(start..start.saturating_add(length)) {
        for (index, bytes) in (0..).zip(table.chunks_exact_mut(64)) {
            entry(bytes, index);
        }
        let sum = checksum::of(table);
        put(bytes, at + 24, sum);
    }
    commit(bytes);
}

/// An index's: of the sections where its header places them, then of the header.
pub fn index(bytes: &mut [u8]) {
    for place in 0..4 {
        let at = 72 + 24 * place;
        let (offset, length) = (number(bytes, at), number(bytes, at + 8));
        if let Some(section) = bytes.get(offset..offset.saturating_add(length)) {
            let sum = checksum::of(section);
            put(bytes, at + 16, sum);
        }
    }
    if let Some(header) = bytes.get_mut(..256) {
        tail(header, 8);
    }
}

/// Whatever is sealed in a file of this path in a store.
pub fn file(path: &str, bytes: &mut [u8]) {
    match path.split('/').next() {
        Some("STORE") => store(bytes),
        Some("log") => parts(bytes),
        Some("index") => index(bytes),
        Some("groups") => tail(bytes, 8),
        _ => {}
    }
}
