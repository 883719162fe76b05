//! A batch: one share of one global batch.
//!
//! - A prefetched batch has its slices read and verified; another reads and verifies a slice when it is
//!   asked for, and then only that slice's entry and bytes.
//! - Several parts make one row of slices, in the order of the parts.

use std::ops::Range;
use std::sync::Arc;

use super::Reader;
use super::commits::OpenCommit;
use super::load;
use super::slice::{Location, Slice};
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum;
use crate::format::codec::{self, Codec};
use crate::format::part::{PartDescriptor, SliceEntry};
use crate::id::{Checksum, Step};
use crate::log::Log;
use crate::log::locate::Located;
use crate::name::Name;
use crate::position::Position;
use crate::share::Share;

/// One part of a batch's step.
#[derive(Clone, Debug)]
pub(super) struct BatchPart {
    pub(super) located: Located,
    pub(super) descriptor: PartDescriptor,
    /// The number of its first slice in the whole step.
    pub(super) first_slice: u64,
}

/// One part of a step with all that its producer gave but the slices' bytes, which are in the batch.
#[derive(Debug)]
pub(crate) struct WholePart {
    pub(crate) producer: Name,
    /// Its slices among the step's.
    pub(crate) slices: Range<u64>,
    /// Whether it is stored compressed.
    pub(crate) packed: bool,
    pub(crate) attachment: Vec<u8>,
    pub(crate) metadata: Vec<u8>,
    pub(crate) state: Vec<u8>,
}

/// One share of the global batch of one step.
#[derive(Debug)]
pub struct Batch {
    pub(super) reader: Arc<Reader>,
    pub(super) position: Position,
    pub(super) step: Step,
    pub(super) share: Share,
    pub(super) parts: Vec<BatchPart>,
    /// This share's slices among the step's.
    pub(super) range: Range<u64>,
    /// Them, verified; none if they are read when asked for.
    pub(super) loaded: Option<Vec<Slice>>,
}

impl Batch {
    /// The step.
    pub fn step(&self) -> Step {
        self.step
    }

    /// The position *after* this batch: what a trainer saves once it has trained on it, the same on all
    /// ranks.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The share that it is.
    pub fn share(&self) -> Share {
        self.share
    }

    /// How many slices this share has.
    pub fn len(&self) -> usize {
        usize::try_from(self.range.end.saturating_sub(self.range.start)).unwrap_or(usize::MAX)
    }

    /// Whether this share has no slices.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slices in the whole global batch.
    pub fn slices_in_step(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.first_slice.saturating_add(part.descriptor.slices))
    }

    /// This share's slices, in order, each verified.
    ///
    /// An item is `Corrupt` or `Io` where a slice can't be had.
    pub fn slices(&self) -> impl Iterator<Item = Result<Slice>> + '_ {
        (0..self.len()).map(|index| self.slice(index))
    }

    /// Slice `index` of this share, from 0, verified.
    ///
    /// # Errors
    /// `Invalid` beyond the last one; `Corrupt`, `Io`.
    pub fn slice(&self, index: usize) -> Result<Slice> {
        if let Some(loaded) = &self.loaded {
            return loaded.get(index).cloned().ok_or_else(|| self.no_slice(index));
        }
        let (part, within) = self.find(index)?;
        self.with_commit(part, |commit| {
            let entry = load::entry(&self.reader.log, commit, &part.descriptor, within)?;
            load::slice(&self.reader, commit, &part.descriptor, &entry)
        })
    }

    /// Bytes `range` of slice `index`, of which only the blocks of 1 MiB that it touches are read and
    /// verified; a compressed slice is unpacked whole.
    ///
    /// # Errors
    /// `Invalid` beyond the slice; `Corrupt`, `Io`.
    pub fn range(&self, index: usize, range: Range<u64>) -> Result<Slice> {
        let (part, within) = self.find(index)?;
        self.with_commit(part, |commit| {
            let entry = load::entry(&self.reader.log, commit, &part.descriptor, within)?;
            if range.start > range.end || range.end > entry.length {
                let what = format!(
                    "the range {}..{} reaches beyond the slice's {} bytes",
                    range.start, range.end, entry.length
                );
                return Err(Error::new(ErrorKind::Invalid, what));
            }
            load::range(&self.reader, commit, &part.descriptor, &entry, range.clone())
        })
    }

    /// Where slice `index` lies on disk, as it is stored.
    ///
    /// # Errors
    /// `Invalid` beyond the last slice or for a compressed one; `Corrupt`, `Io`.
    pub fn location(&self, index: usize) -> Result<Location> {
        let (part, within) = self.find(index)?;
        let entry = self.entry_of(part, within)?;
        if entry.codec != Codec::Raw {
            let what = "the slice is compressed, so its bytes don't lie on disk as they are";
            return Err(Error::new(ErrorKind::Invalid, what).step(self.step));
        }
        Ok(Location {
            path: self.reader.log.commit_path(part.located.version),
            offset: part.descriptor.place.saturating_add(entry.offset),
            length: entry.length,
        })
    }

    fn entry_of(&self, part: &BatchPart, within: u64) -> Result<SliceEntry> {
        self.with_commit(part, |commit| load::entry(&self.reader.log, commit, &part.descriptor, within))
    }

    /// The attachments of the step's parts, in order, verified and unpacked.
    ///
    /// # Errors
    /// `Corrupt`, `Io`; `Unsupported` when one is compressed and this build lacks zstd.
    pub fn attachments(&self) -> Result<Vec<Vec<u8>>> {
        self.of_parts(attachment)
    }

    /// The metadata of the step's parts, in order, verified.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn metadata(&self) -> Result<Vec<Vec<u8>>> {
        self.of_parts(metadata)
    }

    /// Who published each of the step's parts, in order.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn producers(&self) -> Result<Vec<Name>> {
        self.of_parts(|_, commit, _| Ok(commit.producer.clone()))
    }

    /// The parts of the step, in order, each as its producer published it; for a batch of the whole step.
    ///
    /// # Errors
    /// `Corrupt`, `Io`; `Unsupported` when an attachment is compressed and this build lacks zstd.
    pub(crate) fn whole_parts(&self) -> Result<Vec<WholePart>> {
        let of = |part: &BatchPart| {
            let descriptor = &part.descriptor;
            self.with_commit(part, |commit| {
                let log = &self.reader.log;
                let first = match descriptor.slices {
                    0 => Codec::Raw,
                    _ => load::entry(log, commit, descriptor, 0)?.codec,
                };
                Ok(WholePart {
                    producer: commit.producer.clone(),
                    slices: part.first_slice..part.first_slice.saturating_add(descriptor.slices),
                    packed: first != Codec::Raw || descriptor.attachment.codec != Codec::Raw,
                    attachment: attachment(log, commit, descriptor)?,
                    metadata: metadata(log, commit, descriptor)?,
                    state: state(log, commit, descriptor)?,
                })
            })
        };
        self.parts.iter().map(of).collect()
    }

    fn of_parts<T>(&self, one: impl Fn(&Log, &OpenCommit, &PartDescriptor) -> Result<T>) -> Result<Vec<T>> {
        let of = |part| self.with_commit(part, |commit| one(&self.reader.log, commit, &part.descriptor));
        self.parts.iter().map(of).collect()
    }

    fn with_commit<T>(&self, part: &BatchPart, then: impl Fn(&OpenCommit) -> Result<T>) -> Result<T> {
        let log = &self.reader.log;
        // By nonce and record checksum it is this commit, whatever has become of the log meanwhile (R7).
        self.reader.outlast("reading a commit", log.patient_until(), |_| {
            let commit = self.reader.commits.get(log, &part.located, None);
            commit.and_then(|commit| then(&commit)).map_err(|error| {
                let error = self.reader.explain(error, self.step, self.position.generation);
                let version = part.located.version;
                error.step(self.step).version(version).at(log.commit_path(version))
            })
        })
    }

    /// The part that holds slice `index` of this share, and the slice's place in it.
    fn find(&self, index: usize) -> Result<(&BatchPart, u64)> {
        let number = self.range.start.saturating_add(index as u64);
        let part = self.parts.iter().rev().find(|part| part.first_slice <= number);
        let found = part.map(|part| (part, number.saturating_sub(part.first_slice)));
        found
            .filter(|(part, within)| *within < part.descriptor.slices && number < self.range.end)
            .ok_or_else(|| self.no_slice(index))
    }

    fn no_slice(&self, index: usize) -> Error {
        let what = format!("there is no slice {index}: share {} has {}", self.share, self.len());
        Error::new(ErrorKind::Invalid, what).step(self.step)
    }
}

fn attachment(log: &Log, commit: &OpenCommit, descriptor: &PartDescriptor) -> Result<Vec<u8>> {
    let attachment = descriptor.attachment;
    let offset = descriptor.layout().map_or(0, |layout| layout.attachment);
    let stored = read_item(log, commit, offset, attachment.stored, attachment.checksum, "attachment")?;
    match attachment.codec {
        Codec::Raw => Ok(stored),
        Codec::Zstd => codec::decompress(&stored, attachment.length),
    }
}

fn metadata(log: &Log, commit: &OpenCommit, descriptor: &PartDescriptor) -> Result<Vec<u8>> {
    let (item, offset) = (descriptor.metadata, descriptor.layout().map_or(0, |layout| layout.metadata));
    read_item(log, commit, offset, item.length.into(), item.checksum, "metadata")
}

fn state(log: &Log, commit: &OpenCommit, descriptor: &PartDescriptor) -> Result<Vec<u8>> {
    let (item, offset) = (descriptor.state, descriptor.layout().map_or(0, |layout| layout.state));
    read_item(log, commit, offset, item.length.into(), item.checksum, "state")
}

fn read_item(
    log: &Log,
    commit: &OpenCommit,
    offset: u64,
    length: u64,
    expected: Checksum,
    what: &str,
) -> Result<Vec<u8>> {
    commit.check_reach(log, offset, length)?;
    let no_memory = |_| Error::new(ErrorKind::Full, format!("no memory for the {what} of {length} bytes"));
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(length).unwrap_or(usize::MAX)).map_err(no_memory)?;
    bytes.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
    if length > 0 {
        commit.read(log, &mut bytes, offset)?;
    }
    if checksum::of(&bytes) != expected {
        return Err(Error::new(ErrorKind::Corrupt, format!("the checksum of the {what} differs")));
    }
    Ok(bytes)
}
