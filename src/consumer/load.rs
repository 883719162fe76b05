//! Reading and verifying slices, mapped or copied.
//!
//! - Nothing is handed out before its checksum was right: block by block, hashed while it is in the cache.
//! - Only what is asked for is read: a reader's own entries, and for a range the blocks that it touches. So
//!   one slice of 8 and one of 65,536 cost the same.
//! - Slices that follow each other are read in runs; in copy mode a run shares a pooled buffer.

use std::ops::Range;
use std::sync::Arc;

use super::Reader;
use super::commits::{Body, OpenCommit, faulted, of_mapping};
use super::slice::Slice;
use super::together::Desk;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::{self, Running};
use crate::format::codec::{self, Codec};
use crate::format::part::{PartDescriptor, SliceEntry, listed_checksum};
use crate::id::Checksum;
use crate::limits::{CHECKSUM_BLOCK_BYTES, COPY_PIECE_BYTES, RUN_BYTES, SLICE_ENTRY_BYTES};
use crate::log::Log;
use crate::storage::{Buffer, Mapping};

const ENTRY: usize = SLICE_ENTRY_BYTES as usize;
const SLICE_BYTES: &str = "a slice's bytes";
const BLOCK_LIST: &str = "a slice's list of block checksums";

/// The entry of slice `within` of a part.
pub(super) fn entry(
    log: &Log,
    commit: &OpenCommit,
    part: &PartDescriptor,
    within: u64,
) -> Result<SliceEntry> {
    let mut bytes = [0; ENTRY];
    commit.read(log, &mut bytes, entry_place(part, within)?)?;
    SliceEntry::decode(within, &bytes, part.table)
}

fn entry_place(part: &PartDescriptor, within: u64) -> Result<u64> {
    let place =
        within.checked_mul(SLICE_ENTRY_BYTES).and_then(|offset| part.layout()?.table.checked_add(offset));
    place.ok_or_else(|| Error::new(ErrorKind::Corrupt, "a slice's entry lies beyond any file"))
}

/// The entries of slices `range` of a part.
fn entries(
    log: &Log,
    commit: &OpenCommit,
    part: &PartDescriptor,
    range: Range<u64>,
) -> Result<Vec<SliceEntry>> {
    let length = range.end.saturating_sub(range.start).saturating_mul(SLICE_ENTRY_BYTES);
    let place = entry_place(part, range.start)?;
    let copied;
    let bytes: &[u8] = match &commit.body {
        Body::Mapped(mapping) => faulted(log, mapping, place..place.saturating_add(length))?,
        Body::File(_) => {
            commit.check_reach(log, place, length)?;
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
            commit.read(log, &mut bytes, place)?;
            copied = bytes;
            &copied
        }
    };
    let (all, _) = bytes.as_chunks::<ENTRY>();
    let decode = |(within, bytes)| SliceEntry::decode(within, bytes, part.table);
    let entries = (range.start..).zip(all).map(decode).collect::<Result<Vec<_>>>()?;
    check_order(range.start, &entries)?;
    Ok(entries)
}

/// The layout has no freedom: slices that overlap would take more memory than there are bytes in the file.
fn check_order(first: u64, entries: &[SliceEntry]) -> Result<()> {
    let begins = first > 0 || entries.first().is_none_or(|entry| entry.offset == 0);
    if begins && entries.is_sorted_by(|one, next| one.next_offset() == Some(next.offset)) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, "a slice doesn't begin right after the one before"))
}

/// Slices `range` of a part, all verified; large ones with others' help, if there is a desk.
pub(super) fn slices(
    reader: &Reader,
    commit: &Arc<OpenCommit>,
    part: &PartDescriptor,
    range: Range<u64>,
    desk: Option<&Desk>,
) -> Result<Vec<Slice>> {
    let entries = entries(&reader.log, commit, part, range)?;
    let cut = cut(&entries);
    if let (Some(desk), 2..) = (desk, cut.len()) {
        return desk.read(reader, commit, part, entries, cut);
    }
    let mut slices = Vec::with_capacity(entries.len());
    for entries in cut.into_iter().filter_map(|run| entries.get(run)) {
        run(reader, commit, part, entries, &mut slices)?;
    }
    Ok(slices)
}

/// Which of these entries are read together: each run at least one.
fn cut(entries: &[SliceEntry]) -> Vec<Range<usize>> {
    let mut cut = Vec::new();
    let (mut start, mut bytes) = (0, 0u64);
    for (number, entry) in entries.iter().enumerate() {
        let longer = bytes.saturating_add(entry.stored);
        if longer > RUN_BYTES && start < number {
            cut.push(start..number);
            (start, bytes) = (number, entry.stored);
        } else {
            bytes = longer;
        }
    }
    if start < entries.len() {
        cut.push(start..entries.len());
    }
    cut
}

/// Slices that follow each other, all verified.
pub(super) fn run(
    reader: &Reader,
    commit: &OpenCommit,
    part: &PartDescriptor,
    entries: &[SliceEntry],
    slices: &mut Vec<Slice>,
) -> Result<()> {
    let Body::Mapped(mapping) = &commit.body else {
        return copy_together(reader, commit, part, entries, slices);
    };
    if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
        let end = last.end().unwrap_or(u64::MAX).saturating_add(part.place);
        faulted(&reader.log, mapping, first.offset.saturating_add(part.place)..end)?;
    }
    for entry in entries {
        slices.push(mapped_slice(mapping, part, entry)?);
    }
    Ok(())
}

/// One slice of a part, verified.
pub(super) fn slice(
    reader: &Reader,
    commit: &OpenCommit,
    part: &PartDescriptor,
    entry: &SliceEntry,
) -> Result<Slice> {
    match &commit.body {
        Body::Mapped(mapping) => {
            let start = part.place.saturating_add(entry.offset);
            let end = part.place.saturating_add(entry.end().unwrap_or(u64::MAX));
            faulted(&reader.log, mapping, start..end)?;
            mapped_slice(mapping, part, entry)
        }
        Body::File(_) => {
            let mut slices = Vec::with_capacity(1);
            copy_together(reader, commit, part, std::slice::from_ref(entry), &mut slices)?;
            slices.pop().ok_or_else(|| Error::new(ErrorKind::Corrupt, "a slice wasn't read"))
        }
    }
}

/// One slice of a mapped part, verified; its bytes and their list are faulted in already, which costs as
/// much as hashing.
fn mapped_slice(mapping: &Arc<Mapping>, part: &PartDescriptor, entry: &SliceEntry) -> Result<Slice> {
    let start = part.place.saturating_add(entry.offset);
    let bytes = of_mapping(mapping, start..start.saturating_add(entry.stored))?;
    let list = match entry.block_list() {
        None => &[],
        Some(offset) => {
            let place = part.place.saturating_add(offset);
            let list = of_mapping(mapping, place..place.saturating_add(entry.blocks().saturating_mul(8)))?;
            differs(checksum::of(list), entry.checksum, BLOCK_LIST)?;
            list
        }
    };
    for (index, block) in (0..).zip(bytes.chunks(CHECKSUM_BLOCK_BYTES as usize)) {
        check_block(entry, list, index, block)?;
    }
    if bytes.is_empty() {
        check_block(entry, list, 0, &[])?;
    }
    match entry.codec {
        Codec::Zstd => codec::decompress(bytes, entry.length).map(|bytes| Slice::owned(bytes, entry.counts)),
        Codec::Raw if bytes.is_empty() => Ok(Slice::empty(entry.counts)),
        Codec::Raw => {
            let start = usize::try_from(start).unwrap_or(usize::MAX);
            Ok(Slice::mapped(mapping, start, bytes.len(), entry.counts))
        }
    }
}

/// Bytes `range` of a slice; of a raw one only the blocks that it touches are read and verified.
pub(super) fn range(
    reader: &Reader,
    commit: &OpenCommit,
    part: &PartDescriptor,
    entry: &SliceEntry,
    range: Range<u64>,
) -> Result<Slice> {
    let log = &reader.log;
    if entry.codec != Codec::Raw {
        let whole = slice(reader, commit, part, entry)?;
        return whole.range(within(&range, 0)?);
    }
    if range.is_empty() {
        return Ok(Slice::empty(entry.counts));
    }
    let first = range.start / CHECKSUM_BLOCK_BYTES;
    let start = first.saturating_mul(CHECKSUM_BLOCK_BYTES);
    let end = range.end.next_multiple_of(CHECKSUM_BLOCK_BYTES).min(entry.stored);
    let list = block_list(log, commit, part, entry)?;
    let place = part.place.saturating_add(entry.offset);
    let wanted = within(&range, start)?;
    match &commit.body {
        Body::Mapped(mapping) => {
            let from = place.saturating_add(start);
            let bytes = faulted(log, mapping, from..place.saturating_add(end))?;
            for (index, block) in (first..).zip(bytes.chunks(CHECKSUM_BLOCK_BYTES as usize)) {
                check_block(entry, &list, index, block)?;
            }
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            Slice::mapped(mapping, from, bytes.len(), entry.counts).range(wanted)
        }
        Body::File(_) => {
            let length = end.saturating_sub(start);
            commit.check_reach(log, place.saturating_add(start), length)?;
            let mut buffer = reader.log.pool.take(usize::try_from(length).unwrap_or(usize::MAX))?;
            copy_blocks(log, commit, entry, &list, first, &mut buffer, place.saturating_add(start))?;
            let length = buffer.len();
            Slice::pooled(&Arc::new(buffer), 0, length, entry.counts).range(wanted)
        }
    }
}

fn within(range: &Range<u64>, start: u64) -> Result<Range<usize>> {
    let place = |offset: u64| usize::try_from(offset.saturating_sub(start));
    match (place(range.start), place(range.end)) {
        (Ok(start), Ok(end)) => Ok(start..end),
        _ => Err(Error::new(ErrorKind::Invalid, "a range beyond this machine's memory")),
    }
}

/// Reads entries that follow each other into one buffer, verifying as it goes.
fn copy_together(
    reader: &Reader,
    commit: &OpenCommit,
    part: &PartDescriptor,
    entries: &[SliceEntry],
    slices: &mut Vec<Slice>,
) -> Result<()> {
    let log = &reader.log;
    let total = entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.stored));
    let mut buffer = if total > 0 {
        if let Some(last) = entries.last() {
            commit.check_reach(log, part.place.saturating_add(last.offset), last.stored)?;
        }
        Some(reader.log.pool.take(usize::try_from(total).unwrap_or(usize::MAX))?)
    } else {
        None
    };
    let mut rest: &mut [u8] = buffer.as_mut().map_or(&mut [], |buffer| &mut **buffer);
    for entry in entries {
        let length = usize::try_from(entry.stored).unwrap_or(usize::MAX);
        let (bytes, after) = rest
            .split_at_mut_checked(length)
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "the slices' lengths don't add up"))?;
        let list = block_list(log, commit, part, entry)?;
        copy_blocks(log, commit, entry, &list, 0, bytes, part.place.saturating_add(entry.offset))?;
        rest = after;
    }
    hand_out(buffer.map(Arc::new), entries, slices)
}

fn hand_out(buffer: Option<Arc<Buffer>>, entries: &[SliceEntry], slices: &mut Vec<Slice>) -> Result<()> {
    let mut start = 0usize;
    for entry in entries {
        let length = usize::try_from(entry.stored).unwrap_or(usize::MAX);
        let end = start.saturating_add(length);
        slices.push(match (&buffer, entry.codec) {
            (Some(buffer), Codec::Raw) if length > 0 => Slice::pooled(buffer, start, length, entry.counts),
            (_, Codec::Raw) => Slice::empty(entry.counts),
            (buffer, Codec::Zstd) => {
                let stored = buffer.as_ref().and_then(|buffer| buffer.get(start..end)).unwrap_or_default();
                Slice::owned(codec::decompress(stored, entry.length)?, entry.counts)
            }
        });
        start = end;
    }
    Ok(())
}

/// Reads blocks from `first` on into `buffer`, each hashed right after it was read.
fn copy_blocks(
    log: &Log,
    commit: &OpenCommit,
    entry: &SliceEntry,
    list: &[u8],
    first: u64,
    buffer: &mut [u8],
    offset: u64,
) -> Result<()> {
    if buffer.is_empty() {
        return check_block(entry, list, first, &[]);
    }
    let mut offset = offset;
    // A remote mount is asked for much at once; a local one for no more than stays in the cache until it is
    // hashed.
    let piece_bytes = if log.class.is_remote() { CHECKSUM_BLOCK_BYTES as usize } else { COPY_PIECE_BYTES };
    for (index, block) in (first..).zip(buffer.chunks_mut(CHECKSUM_BLOCK_BYTES as usize)) {
        let mut found = Running::new();
        for piece in block.chunks_mut(piece_bytes) {
            commit.read(log, piece, offset)?;
            found.update(piece);
            offset = offset.saturating_add(piece.len() as u64);
        }
        differs(found.finish(), block_checksum(entry, list, index)?, SLICE_BYTES)?;
    }
    Ok(())
}

/// The verified list of a slice's block checksums; empty for a slice of one block.
fn block_list(log: &Log, commit: &OpenCommit, part: &PartDescriptor, entry: &SliceEntry) -> Result<Vec<u8>> {
    let Some(offset) = entry.block_list() else { return Ok(Vec::new()) };
    let place = part.place.saturating_add(offset);
    let length = entry.blocks().saturating_mul(8);
    commit.check_reach(log, place, length)?;
    let mut list = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    commit.read(log, &mut list, place)?;
    differs(checksum::of(&list), entry.checksum, BLOCK_LIST)?;
    Ok(list)
}

fn check_block(entry: &SliceEntry, list: &[u8], index: u64, block: &[u8]) -> Result<()> {
    differs(checksum::of(block), block_checksum(entry, list, index)?, SLICE_BYTES)
}

fn block_checksum(entry: &SliceEntry, list: &[u8], index: u64) -> Result<Checksum> {
    if list.is_empty() { Ok(entry.checksum) } else { listed_checksum(list, index) }
}

fn differs(found: Checksum, expected: Checksum, what: &str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, format!("the checksum of {what} is {found}, not {expected}")))
}
