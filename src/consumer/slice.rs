//! A verified slice: bytes that stay as long as anyone holds them.

use std::fmt;
use std::ops::{Bound, Deref, RangeBounds};
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum;
use crate::format::part::Counts;
use crate::id::Checksum;
use crate::storage::{Buffer, Mapping};

/// Where a slice's bytes lie on disk, for reading them by other means, such as GPUDirect Storage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// The commit's file.
    pub path: PathBuf,
    /// The first byte in it.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// One microbatch's bytes, verified; or a range of them.
///
/// It derefs to `&[u8]`, clones without a copy, may cross threads, and keeps its memory alive: the page
/// cache's own pages in map mode, a pooled buffer in copy mode, memory of its own if it was compressed.
#[derive(Clone)]
pub struct Slice {
    backing: Backing,
    start: usize,
    length: usize,
    counts: Counts,
}

#[derive(Clone)]
enum Backing {
    Empty,
    Mapped(Arc<Mapping>),
    Pooled(Arc<Buffer>),
    Owned(Arc<[u8]>),
}

impl Slice {
    pub(super) fn empty(counts: Counts) -> Self {
        Self { backing: Backing::Empty, start: 0, length: 0, counts }
    }

    pub(super) fn mapped(mapping: &Arc<Mapping>, start: usize, length: usize, counts: Counts) -> Self {
        Self { backing: Backing::Mapped(Arc::clone(mapping)), start, length, counts }
    }

    pub(super) fn pooled(buffer: &Arc<Buffer>, start: usize, length: usize, counts: Counts) -> Self {
        Self { backing: Backing::Pooled(Arc::clone(buffer)), start, length, counts }
    }

    pub(super) fn owned(bytes: Vec<u8>, counts: Counts) -> Self {
        Self { start: 0, length: bytes.len(), backing: Backing::Owned(bytes.into()), counts }
    }

    /// Samples and tokens of the whole slice, as its producer counted them.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// XXH3-64 of its bytes: what two ranks, or a copy, can be compared by.
    pub fn checksum(&self) -> Checksum {
        checksum::of(self)
    }

    /// A range of its bytes, without a copy.
    ///
    /// # Errors
    /// `Invalid` when the range reaches beyond the slice.
    pub fn range(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.length,
        };
        if start > end || end > self.length {
            let what = format!("the range {start}..{end} reaches beyond the slice's {} bytes", self.length);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(Self {
            start: self.start.saturating_add(start),
            length: end.saturating_sub(start),
            ..self.clone()
        })
    }

    /// Copies its bytes into `buffer`, which has to be of the same length.
    ///
    /// # Errors
    /// `Invalid` when it isn't.
    pub fn read_into(&self, buffer: &mut [u8]) -> Result<()> {
        if buffer.len() != self.length {
            let what = format!("a buffer of {} bytes for a slice of {}", buffer.len(), self.length);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        buffer.copy_from_slice(self);
        Ok(())
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes: &[u8] = match &self.backing {
            Backing::Empty => &[],
            Backing::Mapped(mapping) => mapping,
            Backing::Pooled(buffer) => buffer,
            Backing::Owned(bytes) => bytes,
        };
        // The range was checked when the slice was made.
        bytes.get(self.start..).and_then(|bytes| bytes.get(..self.length)).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backing = match &self.backing {
            Backing::Empty => "empty",
            Backing::Mapped(_) => "mapped",
            Backing::Pooled(_) => "pooled",
            Backing::Owned(_) => "owned",
        };
        write!(f, "Slice({} bytes, {backing})", self.length)
    }
}
