//! Where every byte of a commit has to be, and what it is: pure, without a file.
//!
//! - No byte is outside: header block, slices, block lists, tables, items and records are under a checksum,
//!   all between them is a [`Span::Zero`].
//! - A layout has no freedom: a slice that begins anywhere but right after the one before is a fault.

use std::ops::Range;

use crate::format::codec::Codec;
use crate::format::commit::{Header, Place};
use crate::format::part::{Layout, PartDescriptor, SliceEntry, align};
use crate::format::record::{Record, Rewind};
use crate::id::Checksum;
use crate::limits::SLICE_ENTRY_BYTES;

/// A range of a commit and what has to be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// Padding.
    Zero(Range<u64>),
    /// Bytes under one checksum; `packed` is how many they declare to be unpacked, if they are.
    Item { range: Range<u64>, checksum: Checksum, packed: Option<u64>, what: String },
}

/// Where the payload and its padding end: at the record, if that lies behind it, else with the file.
pub(super) fn payload_limit(header: &Header) -> u64 {
    match header.place {
        Place::Inline => header.length,
        Place::At { offset, .. } => offset,
    }
}

/// What lies behind the header block of a commit without parts.
pub(super) fn control(header: &Header, record: &Record) -> Vec<Span> {
    let end = record.payload_end().unwrap_or(header.length);
    let mut spans = match record {
        Record::Rewind(rewind) => states(rewind),
        _ => Vec::new(),
    };
    spans.push(Span::Zero(end..payload_limit(header)));
    spans
}

fn states(rewind: &Rewind) -> Vec<Span> {
    let state = |one: &crate::format::record::Rewound| Span::Item {
        range: one.place..one.place.saturating_add(one.state.length.into()),
        checksum: one.state.checksum,
        packed: None,
        what: format!("the state of producer {}", one.producer),
    };
    rewind.producers.iter().map(state).collect()
}

/// What lies in a part behind its slice table, up to `limit`, where the next part or the record begins or the
/// file ends.
pub(super) fn behind_table(part: &PartDescriptor, layout: &Layout, limit: u64) -> [Span; 6] {
    let item = |start: u64, length: u64, checksum, what: &str| Span::Item {
        range: start..start.saturating_add(length),
        checksum,
        packed: None,
        what: what.to_owned(),
    };
    let (attachment, metadata) = (part.attachment.stored, u64::from(part.metadata.length));
    [
        Span::Item {
            range: layout.attachment..layout.attachment.saturating_add(attachment),
            checksum: part.attachment.checksum,
            packed: (part.attachment.codec == Codec::Zstd).then_some(part.attachment.length),
            what: "the attachment".to_owned(),
        },
        Span::Zero(layout.attachment.saturating_add(attachment)..layout.metadata),
        item(layout.metadata, metadata, part.metadata.checksum, "the metadata"),
        Span::Zero(layout.metadata.saturating_add(metadata)..layout.state),
        item(layout.state, part.state.length.into(), part.state.checksum, "the producer's state"),
        Span::Zero(layout.end..limit),
    ]
}

/// Walks the slices of a part in order: each right after the one before, the table right after the last.
#[derive(Debug)]
pub(super) struct SliceWalk {
    part: PartDescriptor,
    /// Where the last slice ended, in the part.
    end: u64,
    /// Where the next has to begin; none after an entry that couldn't be read.
    next: Option<u64>,
    /// Whether every entry was read.
    whole: bool,
    sums: [u64; 3],
}

impl SliceWalk {
    pub(super) fn new(part: &PartDescriptor) -> Self {
        Self { part: *part, end: 0, next: Some(0), whole: true, sums: [0; 3] }
    }

    /// Goes on over an entry: gives the padding before its bytes, and between them and its block list, in the
    /// commit.
    ///
    /// # Errors
    /// Says why it can't be there; the slices after it can't be judged either then.
    pub(super) fn advance(&mut self, entry: &SliceEntry) -> Result<[Range<u64>; 2], String> {
        let expected = self.next.unwrap_or(entry.offset);
        if entry.offset != expected || entry.offset < self.end {
            return Err(format!("it begins at {} of its part, not at {expected}", entry.offset));
        }
        let place = |offset: u64| self.part.place.saturating_add(offset);
        // After an entry that couldn't be read, what lies before this one may be its slice.
        let before = if self.next.is_some() { self.end } else { entry.offset };
        let bytes_end = entry.offset.saturating_add(entry.stored);
        let list = entry.block_list().unwrap_or(bytes_end);
        let padding = [place(before)..place(entry.offset), place(bytes_end)..place(list)];
        for (sum, more) in self.sums.iter_mut().zip([entry.length, entry.counts.samples, entry.counts.tokens])
        {
            *sum = sum.saturating_add(more);
        }
        self.end = entry.end().unwrap_or(u64::MAX);
        self.next = entry.next_offset();
        Ok(padding)
    }

    /// Passes over an entry that can't be read.
    pub(super) fn skip(&mut self) {
        self.next = None;
        self.whole = false;
    }

    /// After the last slice: gives the padding before the table, in the commit.
    ///
    /// # Errors
    /// Says what doesn't add up.
    pub(super) fn finish(self) -> Result<Range<u64>, String> {
        let PartDescriptor { place, table, bytes, samples, tokens, .. } = self.part;
        if !self.whole {
            return Ok(0..0);
        }
        if align(self.end, SLICE_ENTRY_BYTES) != Some(table) {
            return Err(format!(
                "the slices end at {} of their part, but the table begins at {table}",
                self.end
            ));
        }
        if self.sums != [bytes, samples, tokens] {
            let [bytes_found, samples_found, tokens_found] = self.sums;
            return Err(format!(
                "the slices have {bytes_found} bytes, {samples_found} samples and {tokens_found} tokens, \
                 their part says {bytes}, {samples} and {tokens}"
            ));
        }
        Ok(place.saturating_add(self.end)..place.saturating_add(table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::part::{Counts, Item};
    use crate::format::record::Rewound;
    use crate::id::{Generation, Sequence, Step};
    use crate::limits::CHECKSUM_BLOCK_BYTES;
    use crate::name::Name;

    fn entry(offset: u64, length: u64) -> SliceEntry {
        let counts = Counts { samples: 1, tokens: 2 };
        SliceEntry { offset, stored: length, length, counts, ..SliceEntry::default() }
    }

    fn part(table: u64, slices: u64, bytes: u64) -> PartDescriptor {
        let (samples, tokens) = (slices, slices * 2);
        PartDescriptor { place: 4096, table, slices, bytes, samples, tokens, ..Default::default() }
    }

    #[test]
    fn slices_are_one_after_another_and_padding_is_between() {
        let large = CHECKSUM_BLOCK_BYTES + 1;
        let list = CHECKSUM_BLOCK_BYTES + 8;
        let second = CHECKSUM_BLOCK_BYTES + 4096;
        let mut walk = SliceWalk::new(&part(second + 64, 2, large + 5));
        assert_eq!(walk.advance(&entry(0, large)), Ok([4096..4096, 4096 + large..4096 + list]));
        let padding = [4096 + list + 16..4096 + second, 4096 + second + 5..4096 + second + 5];
        assert_eq!(walk.advance(&entry(second, 5)), Ok(padding));
        assert_eq!(walk.finish(), Ok(4096 + second + 5..4096 + second + 64));
    }

    #[test]
    fn anything_else_is_a_fault() {
        for wrong in [4096, 8192] {
            assert!(SliceWalk::new(&part(64, 1, 5)).advance(&entry(wrong, 5)).is_err());
        }
        for lie in [part(128, 1, 5), part(64, 1, 6), PartDescriptor { tokens: 9, ..part(64, 1, 5) }] {
            let mut walk = SliceWalk::new(&lie);
            walk.advance(&entry(0, 5)).unwrap();
            assert!(walk.finish().is_err(), "{lie:?}");
        }
    }

    #[test]
    fn after_an_unreadable_entry_slices_still_cannot_overlap() {
        let mut walk = SliceWalk::new(&part(12_288, 3, 0));
        walk.advance(&entry(0, 5000)).unwrap();
        walk.skip();
        assert!(walk.advance(&entry(4096, 5)).is_err());
        assert_eq!(walk.advance(&entry(12_288, 5)), Ok([16_384..16_384, 16_389..16_389]));
        assert_eq!(walk.finish(), Ok(0..0));
    }

    #[test]
    fn a_rewind_is_its_states_and_the_padding_before_its_record() {
        let state = Item { length: 13, checksum: Checksum::new(7) };
        let producer = Name::new("a").unwrap();
        let rewound = Rewound {
            producer,
            next: Sequence::ZERO,
            last: Checksum::ZERO,
            last_part: None,
            finished: false,
            place: 4096,
            state,
        };
        let rewind = Record::Rewind(Rewind {
            generation: Generation::new(1),
            step: Step::ZERO,
            lineage: Checksum::ZERO,
            bytes_before: 0,
            many_groups: false,
            turn: None,
            producers: vec![rewound],
        });
        let place = Place::At { offset: 4112, digest: Checksum::ZERO };
        let header = Header {
            store: crate::StoreUuid::new([0; 16]),
            nonce: crate::Nonce::new([0; 16]),
            kind: rewind.kind().number(),
            required: true,
            features: 0,
            generation: Generation::ZERO,
            seen: None,
            attempt_us: 0,
            length: 9999,
            place,
            record_length: 9999 - 4112,
            people: Default::default(),
        };
        let spans = control(&header, &rewind);
        assert_eq!(spans.last(), Some(&Span::Zero(4109..4112)));
        assert!(matches!(&spans[0], Span::Item { range, .. } if *range == (4096..4109)));
    }
}
