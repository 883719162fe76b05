//! An index as it lies on disk now: read, never mapped, and nothing of it kept but the versions.
//!
//! Each section is verified whenever it is read; the parts in pieces, however many they are.

use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::Running;
use crate::format::index::PartEntry;
use crate::format::index::{
    Header, PART_ENTRY_BYTES, Section, VersionEntry, check_section, part_entry, version_entry,
};
use crate::format::names;
use crate::id::{Segment, Version};
use crate::limits::CHECKSUM_BLOCK_BYTES;
use crate::log::state::State;
use crate::log::{Log, index, read};
use crate::storage::{File, read_exact_at};

/// An index, its versions read and verified.
#[derive(Debug)]
pub(super) struct Known<'l> {
    log: &'l Log,
    pub(super) segment: Segment,
    pub(super) header: Header,
    file: File,
    versions: Vec<u8>,
}

impl<'l> Known<'l> {
    /// Reads the index of a segment; none if it is absent.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` or `Io`, naming the path.
    pub(super) fn load(log: &'l Log, segment: Segment) -> Result<Option<Self>> {
        let name = names::segment(segment);
        let load = || {
            let Some((file, header)) = index::open_file(log, segment, &name)? else { return Ok(None) };
            let mut known = Self { log, segment, header, file, versions: Vec::new() };
            known.versions = known.section(Section::Versions)?;
            Ok(Some(known))
        };
        load().map_err(|error: Error| error.at(log.path_of([names::INDEX, &name])))
    }

    /// A section's bytes, verified.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub(super) fn section(&self, section: Section) -> Result<Vec<u8>> {
        let placed = self.header.placed(section);
        // The file was found to be as long as the header says, so this takes no more memory than it has
        // bytes.
        let mut bytes = vec![0; usize::try_from(placed.length).unwrap_or(usize::MAX)];
        read_exact_at(&*self.log.storage, &self.file, &mut bytes, placed.offset).map_err(read::short)?;
        check_section(section, placed, &bytes)?;
        Ok(bytes)
    }

    /// The entry of a version of this segment.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn version(&self, version: Version) -> Result<VersionEntry> {
        version_entry(&self.versions, version.slot(self.header.versions))
    }

    /// Every part entry in order; the section's checksum is judged after the last.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub(super) fn parts(&self, mut each: impl FnMut(u64, Result<PartEntry>)) -> Result<()> {
        let placed = self.header.placed(Section::Parts);
        let mut running = Running::new();
        let (mut offset, mut left, mut place) = (placed.offset, placed.length, 0u64);
        while left > 0 {
            let length = left.min(CHECKSUM_BLOCK_BYTES);
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            read_exact_at(&*self.log.storage, &self.file, &mut bytes, offset).map_err(read::short)?;
            running.update(&bytes);
            for entry in bytes.chunks(PART_ENTRY_BYTES) {
                each(place, part_entry(entry, 0));
                place = place.saturating_add(1);
            }
            offset = offset.saturating_add(length);
            left = left.saturating_sub(length);
        }
        if running.finish() == placed.checksum {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, "the checksum of the index's section \"parts\" differs"))
    }

    /// The state at the segment's end.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` or `Io`.
    pub(super) fn state(&self) -> Result<State> {
        let state = State::decode(&self.section(Section::State)?, self.log.parts_per_step())?;
        let end = self.segment.next().first_version(self.header.versions);
        if state.next_version == end {
            return Ok(state);
        }
        Err(Error::new(ErrorKind::Corrupt, "the index's state isn't that of its segment's end"))
    }

    /// Whether, as of a later state, none of its parts can be read any more: its commits may be gone then.
    ///
    /// # Errors
    /// As [`Known::parts`].
    pub(super) fn is_dead(&self, later: &State) -> Result<bool> {
        let first = self.header.part_range().start;
        let mut dead = true;
        self.parts(|place, entry| {
            let step = crate::Part::new(first.saturating_add(place)).step(later.parts_per_step);
            let rewound = |entry: PartEntry| {
                later.history.piece_of(step).is_some_and(|piece| piece.version > entry.version)
            };
            dead &= step < later.floor || entry.is_ok_and(rewound);
        })?;
        Ok(dead)
    }
}
