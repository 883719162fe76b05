//! Parts and commits put together by hand, sealed as a writer seals them: what no writer would write, under
//! checksums that are right.

use batchweave::Counts;
use batchweave::format::checksum;
use batchweave::format::codec::{Codec, Encoder};
use batchweave::format::commit::{Draft, Header, People, Place, Seen, seal};
use batchweave::format::cursor::Writer;
use batchweave::format::part::{Attachment, Item, PartDescriptor, SliceEntry, align};
use batchweave::format::record::Record;
use batchweave::{Checksum, Generation, Nonce, Result, StoreUuid};
use std::io::Write as _;

/// A part's descriptor, as if it began its commit's file, and its bytes.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its place is for whoever puts it into a commit.
    pub descriptor: PartDescriptor,
    /// From its first slice to the end of its state.
    pub bytes: Vec<u8>,
}

/// What a part is made of.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The bytes before the slice table: the slices as they are stored.
    pub slices: Vec<u8>,
    /// The table.
    pub entries: Vec<SliceEntry>,
    /// As it is stored, and how.
    pub attachment: Vec<u8>,
    /// Its codec and its declared length; none for a raw one.
    pub packed: Option<u64>,
    /// The metadata.
    pub metadata: Vec<u8>,
    /// The state.
    pub state: Vec<u8>,
}

impl Contents {
    /// A raw or compressed slice where the layout wants the next one.
    pub fn slice(&mut self, bytes: &[u8], compress: bool) {
        let stored = if compress { zstd(bytes) } else { bytes.to_vec() };
        let offset = align(self.slices.len() as u64, 4096).expect("a small part");
        self.slices.resize(offset as usize, 0);
        self.slices.extend_from_slice(&stored);
        let blocks: Vec<Checksum> = stored.chunks(1 << 20).map(checksum::of).collect();
        let mut list = Writer::new();
        if blocks.len() > 1 {
            self.slices.resize(self.slices.len().next_multiple_of(8), 0);
            blocks.iter().for_each(|block| {
                list.checksum(*block);
            });
        }
        let list = list.into_bytes();
        self.slices.extend_from_slice(&list);
        self.entries.push(SliceEntry {
            offset,
            stored: stored.len() as u64,
            length: bytes.len() as u64,
            checksum: if list.is_empty() { checksum::of(&stored) } else { checksum::of(&list) },
            counts: Counts { samples: 1, tokens: bytes.len() as u64 },
            codec: if compress { Codec::Zstd } else { Codec::Raw },
        });
    }

    /// The part, sums and checksums as they are.
    pub fn part(&self) -> Part {
        let mut bytes = self.slices.clone();
        let sum = |of: fn(&SliceEntry) -> u64| {
            self.entries.iter().fold(0u64, |sum, entry| sum.saturating_add(of(entry)))
        };
        let mut descriptor = PartDescriptor {
            slices: self.entries.len() as u64,
            bytes: sum(|entry| entry.length),
            samples: sum(|entry| entry.counts.samples),
            tokens: sum(|entry| entry.counts.tokens),
            ..PartDescriptor::default()
        };
        if !self.entries.is_empty() {
            pad(&mut bytes, 64);
            descriptor.table = bytes.len() as u64;
            let mut table = Writer::new();
            for (index, entry) in (0..).zip(&self.entries) {
                entry.encode(index, &mut table);
            }
            let table = table.into_bytes();
            descriptor.table_checksum = checksum::of(&table);
            bytes.extend_from_slice(&table);
        }
        if !self.attachment.is_empty() {
            let stored = self.attachment.len() as u64;
            descriptor.attachment = Attachment {
                stored,
                length: self.packed.unwrap_or(stored),
                codec: if self.packed.is_some() { Codec::Zstd } else { Codec::Raw },
                checksum: checksum::of(&self.attachment),
            };
            bytes.extend_from_slice(&self.attachment);
        }
        for (item, content) in
            [(&mut descriptor.metadata, &self.metadata), (&mut descriptor.state, &self.state)]
        {
            pad(&mut bytes, 8);
            *item = Item { length: content.len() as u32, checksum: checksum::of(content) };
            bytes.extend_from_slice(content);
        }
        Part { descriptor, bytes }
    }
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

/// One zstd frame of these bytes.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), 3).expect("a level of zstd");
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// Puts parts one after another, as they lie in a commit; gives their bytes from 4096 on.
pub fn place(parts: &mut [Part]) -> Vec<u8> {
    let mut payload = Vec::new();
    for part in parts {
        pad(&mut payload, 4096);
        part.descriptor.place = 4096 + payload.len() as u64;
        payload.extend_from_slice(&part.bytes);
    }
    payload
}

/// Who a commit says it is.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The store.
    pub store: StoreUuid,
    /// The nonce.
    pub nonce: Nonce,
    /// The generation that it was written for.
    pub generation: Generation,
    /// What its writer had seen.
    pub seen: Option<Seen>,
}

/// A commit's file and its record checksum.
///
/// # Errors
/// As [`seal`].
pub fn commit(who: Who, record: &Record, payload: &[u8]) -> Result<(Vec<u8>, Checksum)> {
    let people = People { library: "by hand".into(), ..People::default() };
    let Who { store, nonce, generation, seen } = who;
    let sealed = seal(Draft { store, nonce, generation, seen, attempt_us: 1, people }, record)?;
    let mut bytes = sealed.block.to_vec();
    bytes.extend_from_slice(payload);
    if let Some((offset, record)) = sealed.elsewhere {
        bytes.resize(offset as usize, 0);
        bytes.extend_from_slice(&record);
    }
    Ok((bytes, sealed.checksum))
}

/// A commit of a kind that this library doesn't know, and its record checksum.
pub fn unknown(who: Who, kind: u16, required: bool) -> (Vec<u8>, Checksum) {
    let Who { store, nonce, generation, seen } = who;
    let record = b"what a later library says";
    let header = Header {
        store,
        nonce,
        kind,
        required,
        features: 0,
        generation,
        seen,
        attempt_us: 1,
        length: 4096,
        place: Place::Inline,
        record_length: record.len() as u64,
        people: People { library: "batchweave 9.9.9".into(), ..People::default() },
    };
    let (block, checksum) = header.encode(record);
    (block.to_vec(), checksum)
}
