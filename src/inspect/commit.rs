//! Every byte of one commit behind its header and record, which were verified when it was read.
//!
//! - Where bytes have to be is `layout`'s; here they are read, in blocks of 1 MiB, and held against it.
//! - After a fault the rest of the file is still looked at, as far as it can be told what it is.

use std::ops::Range;

use super::layout::{SliceWalk, Span, behind_table, control, payload_limit};
use super::sink::{Place, Sink};
use crate::error::{Error, Result};
use crate::format::checksum::{self, Running};
use crate::format::codec::{Codec, Trial};
use crate::format::part::{PartDescriptor, SliceEntry, listed_checksum};
use crate::format::record::Record;
use crate::id::{Checksum, Part};
use crate::limits::{CHECKSUM_BLOCK_BYTES, FINDINGS_PER_PART_MAX, SLICE_ENTRY_BYTES};
use crate::log::Log;
use crate::log::read::{self, Read};
use crate::storage::{File, read_exact_at};

const ENTRY: usize = SLICE_ENTRY_BYTES as usize;
const ENTRY_CHECKSUM_BYTES: u64 = 8;
/// Entries of a slice table that are read at once.
const TABLE_PIECE_BYTES: u64 = 64 << 10;

/// A commit that is verified.
pub(super) struct Commit<'a, 'p> {
    pub(super) log: &'a Log,
    pub(super) file: &'a File,
    pub(super) sink: &'a mut Sink<'p>,
    pub(super) place: Place,
}

impl Commit<'_, '_> {
    /// Verifies all of it; `first_part` is the number of its first part, if it has effect.
    pub(super) fn verify(&mut self, read: &Read, first_part: Option<Part>) {
        let length = read.header.length;
        match self.log.storage.size(self.file) {
            Ok(size) if size == length => {}
            Ok(size) => {
                self.fault(format!("the file has {size} bytes, not the {length} that its header says"));
                if size < length {
                    return;
                }
            }
            Err(error) => return self.fault(Error::io("can't ask for the file's size", error).sentence()),
        }
        self.sink.read(length.min(crate::limits::COMMIT_HEADER_BYTES));
        match &read.record {
            Some(Record::Parts(parts)) => {
                let begins = parts.parts.iter().skip(1).map(|part| part.place);
                let limits = begins.chain([payload_limit(&read.header)]);
                for ((part, limit), ordinal) in parts.parts.iter().zip(limits).zip(0u64..) {
                    self.place.step = first_part.map(|first| {
                        Part::new(first.get().saturating_add(ordinal)).step(self.log.parts_per_step())
                    });
                    self.part(part, limit);
                }
            }
            Some(record) => control(&read.header, record).into_iter().for_each(|span| self.span(&span)),
            // A kind that isn't known says nothing of what it holds.
            None => {}
        }
    }

    fn part(&mut self, part: &PartDescriptor, limit: u64) {
        self.sink.report.parts = self.sink.report.parts.saturating_add(1);
        let divisor = u64::from(self.log.identity.options.divisor);
        if part.slices.checked_rem(divisor) != Some(0) {
            self.fault(format!("{} slices aren't a multiple of the store's divisor, {divisor}", part.slices));
        }
        let Some(layout) = part.layout() else { return };
        self.table(part, layout.table);
        for span in behind_table(part, &layout, limit) {
            self.span(&span);
        }
    }

    /// Reads the slice table in pieces, and each slice as its entry comes.
    fn table(&mut self, part: &PartDescriptor, table: u64) {
        let (mut running, mut walk) = (Running::new(), SliceWalk::new(part));
        let (mut faults, mut index) = (0u32, 0u64);
        let end = table.saturating_add(part.slices.saturating_mul(SLICE_ENTRY_BYTES));
        for piece in pieces(table..end, TABLE_PIECE_BYTES) {
            let bytes = match self.bytes(piece) {
                Ok(bytes) => bytes,
                Err(error) => return self.fault(error.sentence()),
            };
            running.update(&bytes);
            let (entries, _) = bytes.as_chunks::<ENTRY>();
            for entry in entries {
                let right = self.slice(part, index, entry, &mut walk);
                index = index.saturating_add(1);
                faults = faults.saturating_add(u32::from(!right));
                if faults >= FINDINGS_PER_PART_MAX {
                    return self.fault("so many of its slices are broken that the others weren't looked at");
                }
            }
        }
        if running.finish() != part.table_checksum {
            self.fault("the checksum of the slice table differs");
        }
        match walk.finish() {
            Ok(padding) => self.span(&Span::Zero(padding)),
            Err(what) => self.fault(what),
        }
    }

    /// False if anything of the slice is wrong.
    fn slice(
        &mut self,
        part: &PartDescriptor,
        index: u64,
        bytes: &[u8; ENTRY],
        walk: &mut SliceWalk,
    ) -> bool {
        self.sink.report.slices = self.sink.report.slices.saturating_add(1);
        let entry = match SliceEntry::decode(index, bytes, part.table) {
            Ok(entry) => entry,
            Err(error) => {
                self.fault(error.sentence());
                walk.skip();
                return false;
            }
        };
        let padding = match walk.advance(&entry) {
            Ok(padding) => padding,
            Err(what) => {
                // Its bytes aren't read: a table that lies could have the same ones read over and over.
                self.fault(format!("slice {index}: {what}"));
                walk.skip();
                return false;
            }
        };
        padding.into_iter().for_each(|padding| self.span(&Span::Zero(padding)));
        let wrong = match self.blocks(part, &entry) {
            Ok(Found { right: true, sound: true }) => return true,
            Ok(Found { right: false, .. }) => format!("the checksum of the bytes of slice {index} differs"),
            Ok(_) => format!("slice {index} {}", unlike(entry.length)),
            Err(error) => format!("slice {index}: {}", error.sentence()),
        };
        self.fault(wrong);
        false
    }

    /// Whether a slice's blocks and their list have their checksums, and it unpacks to what it declares.
    fn blocks(&mut self, part: &PartDescriptor, entry: &SliceEntry) -> Result<Found> {
        let start = part.place.saturating_add(entry.offset);
        let bytes = start..start.saturating_add(entry.stored);
        let packed = (entry.codec == Codec::Zstd).then_some(entry.length);
        let Some(list) = entry.block_list() else {
            return self.item(bytes, entry.checksum, packed);
        };
        let mut trial = packed.map(Trial::new).transpose()?;
        let list = part.place.saturating_add(list);
        let list_end = list.saturating_add(entry.blocks().saturating_mul(ENTRY_CHECKSUM_BYTES));
        let (mut running, mut right) = (Running::new(), true);
        let mut blocks = pieces(bytes, CHECKSUM_BLOCK_BYTES);
        for piece in pieces(list..list_end, CHECKSUM_BLOCK_BYTES) {
            let listed = self.bytes(piece)?;
            running.update(&listed);
            for place in 0..(listed.len() as u64 / ENTRY_CHECKSUM_BYTES) {
                let Some(block) = blocks.next() else { break };
                let block = self.bytes(block)?;
                right &= checksum::of(&block) == listed_checksum(&listed, place)?;
                trial.iter_mut().for_each(|trial| trial.feed(&block));
            }
        }
        let right = right && running.finish() == entry.checksum;
        Ok(Found { right, sound: trial.is_none_or(|trial| trial.is_sound()) })
    }

    fn span(&mut self, span: &Span) {
        let what = match span {
            Span::Zero(range) => match self.is_zero(range.clone()) {
                Ok(true) => return,
                Ok(false) => format!("the padding at {}..{} isn't zero", range.start, range.end),
                Err(error) => error.sentence(),
            },
            Span::Item { range, checksum, packed, what } => {
                match self.item(range.clone(), *checksum, *packed) {
                    Ok(Found { right: true, sound: true }) => return,
                    Ok(Found { right: false, .. }) => format!("the checksum of {what} differs"),
                    Ok(_) => format!("{what} {}", unlike(packed.unwrap_or_default())),
                    Err(error) => error.sentence(),
                }
            }
        };
        self.fault(what);
    }

    fn is_zero(&mut self, range: Range<u64>) -> Result<bool> {
        let mut zero = true;
        for piece in pieces(range, CHECKSUM_BLOCK_BYTES) {
            zero &= self.bytes(piece)?.iter().all(|byte| *byte == 0);
        }
        Ok(zero)
    }

    fn item(&mut self, range: Range<u64>, expected: Checksum, packed: Option<u64>) -> Result<Found> {
        let (mut running, mut trial) = (Running::new(), packed.map(Trial::new).transpose()?);
        for piece in pieces(range, CHECKSUM_BLOCK_BYTES) {
            let bytes = self.bytes(piece)?;
            running.update(&bytes);
            trial.iter_mut().for_each(|trial| trial.feed(&bytes));
        }
        let right = running.finish() == expected;
        Ok(Found { right, sound: trial.is_none_or(|trial| trial.is_sound()) })
    }

    fn bytes(&mut self, piece: Range<u64>) -> Result<Vec<u8>> {
        let length = piece.end.saturating_sub(piece.start);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        read_exact_at(&*self.log.storage, self.file, &mut bytes, piece.start).map_err(read::short)?;
        self.sink.read(length);
        Ok(bytes)
    }

    fn fault(&mut self, what: impl Into<String>) {
        self.sink.find(self.place.clone(), what);
    }
}

/// What is found of bytes under a checksum.
struct Found {
    /// They are what was written.
    right: bool,
    /// They unpack to what they declare, if they are packed.
    sound: bool,
}

fn unlike(declared: u64) -> String {
    format!("doesn't unpack to the {declared} bytes it declares")
}

/// A range in pieces of at most `length`.
fn pieces(range: Range<u64>, length: u64) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    let step = usize::try_from(length).unwrap_or(usize::MAX);
    range.step_by(step).map(move |start| start..start.saturating_add(length).min(end))
}
