//! A file's bytes in pages; a page that was never written is a hole of zeros and costs nothing.
//!
//! - Pages are shared between copies until written to, so a durable copy costs what has changed since.
//! - Bytes beyond `length` in the last page are zero.
//! - A page is kept up to some byte behind which all of it is zeros: most of a header is.
//! - Zeros written to a hole leave the hole.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave::format::checksum;

/// The granularity of holes, of space accounting and of what a power cut tears.
pub(super) const PAGE_BYTES: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    length: u64,
    pages: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Pages {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Pages that take room.
    pub(super) fn allocated(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Fills what it can of `buffer` from `offset`; fewer at the end.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let mut rest = &mut buffer[..length];
        let mut at = offset;
        while !rest.is_empty() {
            let (page, start, take) = piece(at, rest.len());
            let (now, later) = rest.split_at_mut(take);
            let bytes = self.pages.get(&page).and_then(|bytes| bytes.get(start..)).unwrap_or_default();
            let (kept, zeros) = now.split_at_mut(bytes.len().min(take));
            kept.copy_from_slice(&bytes[..kept.len()]);
            zeros.fill(0);
            rest = later;
            at += take as u64;
        }
        length
    }

    /// Writes what fits into `room` more pages; gives what was written. As write(2) on a disk that fills up.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64, room: u64) -> usize {
        let room = self.allocated().saturating_add(room);
        let mut written = 0;
        while written < bytes.len() {
            let (page, start, take) = piece(offset + written as u64, bytes.len() - written);
            let now = &bytes[written..written + take];
            let used = without_zeros(now).len();
            if used > 0 && !self.pages.contains_key(&page) {
                if self.allocated() >= room {
                    break;
                }
                self.pages.insert(page, Arc::default());
            }
            if let Some(target) = self.pages.get_mut(&page) {
                let target = Arc::make_mut(target);
                if used > 0 {
                    target.resize(target.len().max(start + used), 0);
                }
                if let Some(rest) = target.get_mut(start..) {
                    let kept = rest.len().min(take);
                    rest[..kept].copy_from_slice(&now[..kept]);
                }
            }
            written += take;
        }
        if written > 0 {
            self.length = self.length.max(offset + written as u64);
        }
        written
    }

    /// The pages in which `self` differs from its older copy.
    pub(super) fn changed_since(&self, older: &Self) -> Vec<u64> {
        self.pages.keys().copied().filter(|page| !self.shares_page(older, *page)).collect()
    }

    /// Whether a page is the same one, not written to since either was copied from the other.
    pub(super) fn shares_page(&self, other: &Self, page: u64) -> bool {
        match (self.pages.get(&page), other.pages.get(&page)) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }

    /// A hash of the bytes.
    pub(super) fn digest(&self) -> u64 {
        let mut running = checksum::Running::new();
        running.update(&self.length.to_le_bytes());
        for (page, bytes) in &self.pages {
            let bytes = without_zeros(bytes);
            running.update(&page.to_le_bytes());
            running.update(&bytes.len().to_le_bytes());
            running.update(bytes);
        }
        running.finish().get()
    }

    /// Takes one page over from a newer copy.
    pub(super) fn take_page(&mut self, newer: &Self, page: u64) {
        if let Some(bytes) = newer.pages.get(&page) {
            self.pages.insert(page, Arc::clone(bytes));
        }
    }

    /// Sets the length; what lies beyond becomes zero.
    pub(super) fn set_length(&mut self, length: u64) {
        self.length = length;
        let (page, start, _) = piece(length, 1);
        self.pages.split_off(&page.saturating_add(u64::from(start > 0)));
        if let Some(last) = self.pages.get_mut(&page) {
            Arc::make_mut(last).truncate(start);
        }
    }
}

/// The bytes but for the zeros at their end.
fn without_zeros(mut bytes: &[u8]) -> &[u8] {
    // By the piece as long as that goes: headers are mostly zeros, and every write comes by here.
    while let Some(rest) = bytes.strip_suffix(&[0; 64]) {
        bytes = rest;
    }
    &bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}

/// The page that holds `at`, where in it, and how many of `length` bytes it takes.
fn piece(at: u64, length: usize) -> (u64, usize, usize) {
    let start = (at % PAGE_BYTES as u64) as usize;
    (at / PAGE_BYTES as u64, start, length.min(PAGE_BYTES - start))
}

/// The stamp of a content to which these bytes are written.
pub(super) fn stamp_after(stamp: u64, bytes: &[u8], offset: u64) -> u64 {
    let place = checksum::seeded(stamp, &offset.to_le_bytes());
    checksum::seeded(place.get(), bytes).get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_in_holes_cost_nothing() {
        let mut pages = Pages::default();
        let zeros = vec![0; 1 << 20];
        for gib in 1..=5 {
            assert_eq!(pages.write(&zeros, (gib << 30) - (1 << 20), 0), 1 << 20);
        }
        assert_eq!((pages.length(), pages.allocated()), (5 << 30, 0));
        assert_eq!(pages.write(&[7], (5 << 30) - 1, 1), 1);
        let mut end = [1; 3];
        assert_eq!(pages.read(&mut end, (5 << 30) - 2), 2);
        assert_eq!(end, [0, 7, 1]);
    }

    #[test]
    fn zeros_over_bytes_are_written() {
        let mut pages = Pages::default();
        pages.write(&[1; 100], 0, 1);
        pages.write(&[0; 50], 25, 0);
        let mut back = [9; 100];
        pages.read(&mut back, 0);
        assert_eq!((back[24], back[25], back[74], back[75]), (1, 0, 0, 1));
    }

    #[test]
    fn a_write_is_short_where_room_ends() {
        let mut pages = Pages::default();
        assert_eq!(pages.write(&[1; 10_000], 100, 2), 2 * PAGE_BYTES - 100);
        assert_eq!(pages.length(), 2 * PAGE_BYTES as u64);
        assert_eq!(pages.write(&[1], 2 * PAGE_BYTES as u64, 0), 0);
    }

    #[test]
    fn copies_do_not_see_later_writes_and_know_what_changed() {
        let mut pages = Pages::default();
        pages.write(&[1; 3 * PAGE_BYTES], 0, 9);
        let older = pages.clone();
        pages.write(&[2], PAGE_BYTES as u64, 0);
        assert_eq!(pages.changed_since(&older), [1]);
        let mut byte = [0];
        older.read(&mut byte, PAGE_BYTES as u64);
        assert_eq!(byte, [1]);
    }

    #[test]
    fn what_is_cut_off_comes_back_as_zeros() {
        let mut pages = Pages::default();
        pages.write(&[1; 3 * PAGE_BYTES], 0, 9);
        pages.set_length(PAGE_BYTES as u64 + 1);
        pages.set_length(3 * PAGE_BYTES as u64);
        let mut back = vec![9; 3 * PAGE_BYTES];
        pages.read(&mut back, 0);
        assert_eq!(back.iter().filter(|byte| **byte == 1).count(), PAGE_BYTES + 1);
        pages.set_length(PAGE_BYTES as u64);
        assert_eq!(pages.allocated(), 1);
    }
}
