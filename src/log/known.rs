//! What is known of the commits of the newest segments, without reading them again.

use super::tail::Tail;
use super::void::Void;
use crate::error::Result;
use crate::format::commit::Seen;
use crate::format::index::VersionEntry;
use crate::id::{Checksum, Nonce, Part, Version};

/// A replayed commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its nonce.
    pub nonce: Nonce,
    /// Its record checksum.
    pub checksum: Checksum,
    /// The number of its record's kind.
    pub kind: u16,
    /// Why it has no effect; none if it has.
    pub void: Option<Void>,
    /// The part after those before it.
    pub first_part: Part,
    /// How many parts it adds.
    pub parts: u32,
}

impl Entry {
    /// Its entry in an index.
    pub fn indexed(&self) -> VersionEntry {
        let void = self.void.map_or(0, Void::number);
        VersionEntry { nonce: self.nonce, checksum: self.checksum, kind: self.kind, void }
    }
}

/// Takes the parts from `end` on from what is known of the commits before a rewind: they aren't in any more.
pub fn rewind<'e>(entries: impl Iterator<Item = &'e mut Entry>, end: Part) {
    for entry in entries {
        let kept = end.get().saturating_sub(entry.first_part.get());
        entry.first_part = entry.first_part.min(end);
        entry.parts = u32::try_from(kept).map_or(entry.parts, |kept| kept.min(entry.parts));
    }
}

impl Tail {
    /// The newest replayed version; none in an empty log.
    pub fn newest(&self) -> Option<Version> {
        self.state.next_version.get().checked_sub(1).map(Version::new)
    }

    /// What a commit's writer has to say it has seen: the newest replayed commit.
    ///
    /// # Errors
    /// `Corrupt` or `Io` when the index that has it can't be read.
    pub fn seen(&self) -> Result<Option<Seen>> {
        let Some(version) = self.newest() else { return Ok(None) };
        Ok(self.checksum_of(version)?.map(|checksum| Seen { version, checksum }))
    }

    /// The record checksum of a commit of the newest segments; none for an older one.
    pub(super) fn checksum_of(&self, version: Version) -> Result<Option<Checksum>> {
        if let Some(entry) = self.entry(version) {
            return Ok(Some(entry.checksum));
        }
        match &self.before {
            Some(index) if index.header.segment == version.segment(index.header.versions) => {
                index.version(version).map(|entry| Some(entry.checksum))
            }
            _ => Ok(None),
        }
    }

    /// A replayed commit of the newest segments; none for an older or a later one.
    pub fn entry(&self, version: Version) -> Option<&Entry> {
        let place = version.get().checked_sub(self.base.get())?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    /// The entries of the newest segments, with their versions.
    pub fn entries(&self) -> impl Iterator<Item = (Version, &Entry)> {
        self.entries.iter().zip(self.base.get()..).map(|(entry, version)| (Version::new(version), entry))
    }

    /// The commit of the newest segments that holds a part.
    pub fn holder(&self, part: Part) -> Option<(Version, &Entry)> {
        let after = self.entries.partition_point(|entry| entry.first_part <= part);
        let place = after.checked_sub(1)?;
        // Commits without parts share their first part with the one after them: the last of those has it,
        // if any.
        let entry = self.entries.get(place)?;
        let inside = part.get().checked_sub(entry.first_part.get())? < u64::from(entry.parts);
        inside.then(|| (Version::new(self.base.get().saturating_add(place as u64)), entry))
    }

    /// The first version whose entry is kept here.
    pub fn base(&self) -> Version {
        self.base
    }
}
