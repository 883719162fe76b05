//! Indexes of complete segments, opened: mapped or copied, each section verified when it is first used.
//!
//! - An index is immutable; a handle keeps a few open.
//! - Who finds parts reads the versions and parts; only an opening producer and the builder of the next
//!   index read producers' states.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::Log;
use super::read::{short, unreadable};
use super::state::State;
use crate::error::{Error, ErrorKind, Result};
use crate::format::index::{
    self as format, Header, INDEX_HEADER_BYTES, PartEntry, Section, VersionEntry, check_section,
};
use crate::format::names;
use crate::id::{Part, Segment, Version};
use crate::limits::INDEX_CACHE;
use crate::name::Name;
use crate::options::{Primitive, ReadMode};
use crate::storage::{Access, File, Mapping, Storage, read_exact_at};

/// The segments that have an index now. A directory that has lost its file (primitive 3) is none: a removal
/// stopped there.
///
/// # Errors
/// The system's.
pub fn list(log: &Log) -> io::Result<BTreeSet<Segment>> {
    let dir = log.directory(names::INDEX)?;
    let listed = log.storage.list(&dir)?;
    let mut found: BTreeSet<Segment> = listed.iter().filter_map(names::parse_segment).collect();
    if log.identity.primitive == Primitive::RenameDirectory {
        // One that can't be looked at now may be there.
        let kind = |segment: &Segment| log.storage.kind(&dir, &names::segment(*segment));
        found.retain(|segment| !kind(segment).is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
    }
    Ok(found)
}

/// An open index.
#[derive(Debug)]
pub struct Index {
    /// Its header, verified.
    pub header: Header,
    path: PathBuf,
    body: Body,
    sections: [OnceLock<Verified>; 4],
    storage: Arc<dyn Storage>,
}

#[derive(Debug)]
enum Body {
    Mapped(Mapping),
    File(File),
}

#[derive(Debug)]
enum Verified {
    InMap,
    Copied(Box<[u8]>),
}

fn map_if_populates(log: &Log, file: &File, size: u64) -> io::Result<Mapping> {
    let mapping = log.storage.map(file, size)?;
    match log.storage.populate(&mapping, 0..1) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
        _ => Ok(mapping),
    }
}

impl Index {
    /// Opens the index of a segment; none if it is absent.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` or `Io`, naming the path.
    pub fn open(log: &Log, segment: Segment) -> Result<Option<Arc<Self>>> {
        let name = names::segment(segment);
        let path = log.path_of([names::INDEX, &name]);
        let opened = open_file(log, segment, &name).map_err(|error| error.at(&path))?;
        let Some((file, header)) = opened else { return Ok(None) };
        let size = header.file_length();
        let body = match log.mode {
            ReadMode::Copy => Body::File(file),
            // Before Linux 5.14 there is no populating, and then no telling what can't be read from a map.
            ReadMode::Map => match map_if_populates(log, &file, size) {
                Ok(mapping) => Body::Mapped(mapping),
                Err(error) => {
                    tracing::debug!(%error, "an index can't be mapped, so it is read");
                    Body::File(file)
                }
            },
        };
        let storage = Arc::clone(&log.storage);
        Ok(Some(Arc::new(Self { header, path, body, sections: Default::default(), storage })))
    }

    fn section(&self, section: Section) -> Result<&[u8]> {
        let slot = match (section, &self.sections) {
            (Section::Versions, [slot, ..]) | (Section::Parts, [_, slot, ..]) => slot,
            (Section::State, [_, _, slot, _]) | (Section::ProducerStates, [.., slot]) => slot,
        };
        if slot.get().is_none() {
            let verified = self.verify(section).map_err(|error| error.at(&self.path))?;
            // A second thread may have verified it meanwhile; both have the same bytes.
            let _ = slot.set(verified);
        }
        match slot.get() {
            Some(Verified::Copied(bytes)) => Ok(bytes),
            Some(Verified::InMap) => self.mapped(section),
            None => Err(corrupt("a section went missing")),
        }
    }

    fn verify(&self, section: Section) -> Result<Verified> {
        let placed = self.header.placed(section);
        match &self.body {
            Body::Mapped(mapping) => {
                let range = placed.offset..placed.offset.saturating_add(placed.length);
                self.storage.populate(mapping, range).map_err(unreadable)?;
                check_section(section, placed, self.mapped(section)?)?;
                Ok(Verified::InMap)
            }
            Body::File(file) => {
                let length = usize::try_from(placed.length).unwrap_or(usize::MAX);
                let mut bytes = vec![0; length].into_boxed_slice();
                read_exact_at(&*self.storage, file, &mut bytes, placed.offset).map_err(short)?;
                check_section(section, placed, &bytes)?;
                Ok(Verified::Copied(bytes))
            }
        }
    }

    fn mapped(&self, section: Section) -> Result<&[u8]> {
        let placed = self.header.placed(section);
        let Body::Mapped(mapping) = &self.body else { return Err(corrupt("it isn't mapped")) };
        let start = usize::try_from(placed.offset).unwrap_or(usize::MAX);
        let length = usize::try_from(placed.length).unwrap_or(usize::MAX);
        let found = mapping.get(start..).and_then(|rest| rest.get(..length));
        found.ok_or_else(|| corrupt("a section reaches beyond its end"))
    }

    /// Reads the entries of its versions, so that later nothing of them can fail.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn read_versions(&self) -> Result<()> {
        self.section(Section::Versions).map(drop)
    }

    /// The entry of a version of this segment.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn version(&self, version: Version) -> Result<VersionEntry> {
        let entry =
            format::version_entry(self.section(Section::Versions)?, version.slot(self.header.versions));
        entry.map_err(|error| error.at(&self.path))
    }

    /// Where a part of this segment is; none if it isn't in this segment.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn part(&self, part: Part) -> Result<Option<PartEntry>> {
        if !self.header.part_range().contains(&part.get()) {
            return Ok(None);
        }
        let place = part.get().saturating_sub(self.header.first_part.get());
        let entry = format::part_entry(self.section(Section::Parts)?, place);
        entry.map(Some).map_err(|error| error.at(&self.path))
    }

    /// The state at the segment's end.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` or `Io`.
    pub fn state(&self, parts_per_step: u32) -> Result<State> {
        let state = State::decode(self.section(Section::State)?, parts_per_step);
        let state = state.map_err(|error| error.at(&self.path))?;
        let end = self.header.segment.next().first_version(self.header.versions);
        if state.next_version != end {
            return Err(corrupt("its state isn't that of its segment's end").at(&self.path));
        }
        Ok(state)
    }

    /// Reads and verifies all of it.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` or `Io`.
    pub fn check(&self, parts_per_step: u32) -> Result<()> {
        for section in Section::ALL {
            self.section(section)?;
        }
        self.state(parts_per_step)?;
        self.producer_states().map(drop)
    }

    /// Every producer's last state by name.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn producer_states(&self) -> Result<Vec<(Name, &[u8])>> {
        let states = format::producer_states(self.section(Section::ProducerStates)?);
        states.map_err(|error| error.at(&self.path))
    }
}

/// Opens an index's file and reads its header: of this store and segment, and as long as it says; none if
/// it is absent.
///
/// # Errors
/// `Corrupt`, `Unsupported` or `Io`, without the path.
pub fn open_file(log: &Log, segment: Segment, name: &str) -> Result<Option<(File, Header)>> {
    let opened = log.directory(names::INDEX).and_then(|dir| log.storage.open(&dir, name, Access::Read));
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("can't open an index", error)),
    };
    let mut bytes = [0; INDEX_HEADER_BYTES];
    read_exact_at(&*log.storage, &file, &mut bytes, 0).map_err(short)?;
    let header = Header::decode(&bytes)?;
    let right = header.segment == segment
        && header.store == log.identity.uuid
        && header.versions == log.segment_size();
    if !right {
        return Err(corrupt("it belongs to another store or segment"));
    }
    let size = log.storage.size(&file).map_err(|error| Error::io("can't read an index", error))?;
    if size != header.file_length() {
        return Err(corrupt(&format!("it has {size} bytes, not {}", header.file_length())));
    }
    Ok(Some((file, header)))
}

fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the index is broken: {what}"))
}

/// The indexes that a handle has open, the newest used last.
#[derive(Debug, Default)]
pub struct Indexes(Mutex<Vec<Arc<Index>>>);

impl Indexes {
    /// The index of a segment, opened unless it is; none if it is absent.
    ///
    /// # Errors
    /// As [`Index::open`].
    pub fn get(&self, log: &Log, segment: Segment) -> Result<Option<Arc<Index>>> {
        if let Some(found) = self.find(|index| index.header.segment == segment) {
            return Ok(Some(found));
        }
        let Some(index) = Index::open(log, segment)? else { return Ok(None) };
        let mut open = self.0.lock();
        if open.len() >= INDEX_CACHE {
            open.remove(0);
        }
        open.push(Arc::clone(&index));
        Ok(Some(index))
    }

    /// An open index that `wanted` accepts.
    pub fn find(&self, wanted: impl Fn(&Index) -> bool) -> Option<Arc<Index>> {
        let mut open = self.0.lock();
        let place = open.iter().position(|index| wanted(index))?;
        let found = open.remove(place);
        open.push(Arc::clone(&found));
        Some(found)
    }

    /// Closes all: what they say may no longer be so.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}
