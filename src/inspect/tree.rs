//! The names in a store's directory: each is one that the store gives, and of the kind that it gives.
//!
//! - Listed in the order index, log, marks, against the order in which a writer makes them (R4): so what a
//!   running writer adds meanwhile can't look like a hole; nor can what a running reclaim removes, since the
//!   indexes are listed again after it.
//! - What vanishes between a listing and the look at it was reclaimed or published, and isn't told of.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::sink::Sink;
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::format::store::{Identity, STORE_BYTES};
use crate::id::Segment;
use crate::limits::LOOK_AGAIN_MAX;
use crate::log::{Log, index, marks, may_be_stale, read};
use crate::name::Name;
use crate::storage::{Access, Dir, Kind, Names, read_exact_at};

/// The segments that there are names for.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) log: BTreeSet<Segment>,
    pub(super) indexes: BTreeSet<Segment>,
    marks: BTreeSet<Segment>,
}

impl Tree {
    /// Looks at every name but those in the segments and in stage/.
    ///
    /// # Errors
    /// `Io` when the store's directory can't be listed.
    pub(super) fn look(log: &Log, sink: &mut Sink<'_>) -> Result<Self> {
        look_at_root(log, sink)?;
        if let Err(error) = look_at_store(log, sink) {
            sink.find(PathBuf::from(names::STORE), error.sentence());
        }
        look_at_groups(log, sink);
        let mut indexes = segments(log, sink, names::INDEX, Kind::File);
        let segments_in_log = segments(log, sink, names::LOG, Kind::Directory);
        // What a running reclaim has removed since from log/ has an index that may be newer than that look,
        // also where a sleeper has made a lower segment anew.
        let newest = segments_in_log.last().copied().unwrap_or_default();
        let again = index::list(log).unwrap_or_default();
        indexes.extend(again.into_iter().filter(|segment| *segment < newest));
        let marks = segments(log, sink, names::MARKS, Kind::File);
        Ok(Self { log: segments_in_log, indexes, marks })
    }

    /// The newest segment that has a directory.
    pub(super) fn newest(&self) -> Option<Segment> {
        self.log.last().copied()
    }

    /// Holds the highest mark against the log: `begun` says whether the newest segment has commits.
    pub(super) fn look_at_marks(&self, log: &Log, sink: &mut Sink<'_>, begun: bool) {
        let (Some(highest), Some(newest)) = (self.marks.last().copied(), self.newest()) else {
            let what = "there is no segment at all, or no mark at all";
            return sink.find(PathBuf::from(names::MARKS), what);
        };
        // Marks were listed after the log, so a higher one may be a running writer's: then its segment is
        // there by now, or the log has moved on since, and it may be removed (R6).
        if highest > newest
            && !matches!(log.open_segment(highest), Ok(Some(_)))
            && !matches!(marks::moved_on(log, highest), Ok(true))
        {
            let path = Path::new(names::LOG).join(names::segment(highest));
            sink.find(path, "the segment's directory is missing, though it has a mark");
        }
        let needed = if begun { Some(newest) } else { newest.previous() };
        let Some(needed) = needed.filter(|needed| highest < *needed) else { return };
        // A mark comes before the first commit of its segment, but may have come after the listing.
        let again = marks::list(log).ok().and_then(|(_, marks)| marks.into_iter().max());
        if again.is_none_or(|again| again < needed) {
            let path = Path::new(names::MARKS).join(names::segment(needed));
            sink.find(path, format!("the mark is missing, the highest one is {highest}"));
        }
    }
}

/// The segment up to which even the indexes may be gone: they are reclaimed from the first on, and only when
/// no live part lies before or in the segment of the first index that is left. What has an earlier name isn't
/// the log's any more: an index among it is one that a sleeper has put again after it was removed. So only
/// those count that go on without a gap to the last one before what lives.
pub(super) fn reclaimed(live: Option<Segment>, indexes: &BTreeSet<Segment>) -> Segment {
    let last = live.and_then(|live| indexes.range(..live).next_back());
    let Some(mut first) = last.copied() else { return Segment::ZERO };
    while let Some(before) = first.previous().filter(|before| indexes.contains(before)) {
        first = before;
    }
    first
}

fn look_at_root(log: &Log, sink: &mut Sink<'_>) -> Result<()> {
    let listed = log
        .storage
        .list(&log.root())
        .map_err(|error| Error::io("can't list the store's directory", error).at(&log.path))?;
    for name in listed {
        let path = PathBuf::from(&name);
        match name.to_str() {
            Some(text @ (names::STORE | names::HEAD | names::BALLAST)) => {
                is_of_kind(log, sink, &log.root(), text, Kind::File, path);
            }
            Some(text) if names::DIRECTORIES.contains(&text) => {
                is_of_kind(log, sink, &log.root(), text, Kind::Directory, path);
            }
            _ if names::parse_beside(&name).is_some() => sink.litter(path, ON_ITS_WAY),
            _ => sink.find(path, STRANGER),
        }
    }
    Ok(())
}

/// R9.
const ON_ITS_WAY: &str = "a staged file beside its place; may be in use";
const STRANGER: &str = "the store gives no such name: a stranger's";

/// STORE is read anew: a handle may have been opened long ago.
fn look_at_store(log: &Log, sink: &mut Sink<'_>) -> Result<()> {
    let file = log
        .storage
        .open(&log.root(), names::STORE, Access::Read)
        .map_err(|error| Error::io("can't open STORE", error))?;
    let size = log.storage.size(&file).map_err(|error| Error::io("can't ask for STORE's size", error))?;
    let mut bytes = [0; STORE_BYTES];
    read_exact_at(&*log.storage, &file, &mut bytes, 0).map_err(read::short)?;
    sink.read(STORE_BYTES as u64);
    let what = if size != STORE_BYTES as u64 {
        format!("STORE has {size} bytes, not {STORE_BYTES}")
    } else if Identity::decode(&bytes)? != log.identity {
        "STORE isn't the one that this store was opened by".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Corrupt, what))
}

/// Progress hints: their names are groups', what is in them matters to nobody.
fn look_at_groups(log: &Log, sink: &mut Sink<'_>) {
    let Ok(dir) = log.directory(names::GROUPS) else { return };
    for name in list(log, sink, &dir, Path::new(names::GROUPS)) {
        let path = Path::new(names::GROUPS).join(&name);
        match name.to_str().filter(|text| Name::new(text).is_ok()) {
            Some(text) => {
                is_of_kind(log, sink, &dir, text, Kind::File, path);
            }
            None => sink.find(path, STRANGER),
        }
    }
}

/// The segments that one of the store's directories has names for: listed again if some of it vanishes while
/// it is looked at, since what has replaced it may be missing then.
fn segments(log: &Log, sink: &mut Sink<'_>, parent: &str, kind: Kind) -> BTreeSet<Segment> {
    let told = sink.told();
    let mut looks = 1;
    loop {
        let (found, is_whole) = segments_at_once(log, sink, parent, kind);
        if is_whole || looks == LOOK_AGAIN_MAX {
            return found;
        }
        looks += 1;
        sink.forget_since(told);
    }
}

/// The same by one listing, and whether all of it was still there when it was looked at.
fn segments_at_once(log: &Log, sink: &mut Sink<'_>, parent: &str, kind: Kind) -> (BTreeSet<Segment>, bool) {
    let mut found = BTreeSet::new();
    let mut is_whole = true;
    let dir = match log.directory(parent) {
        Ok(dir) => dir,
        Err(error) => {
            sink.find(PathBuf::from(parent), Error::io("can't open the directory", error).sentence());
            return (found, is_whole);
        }
    };
    for name in list(log, sink, &dir, Path::new(parent)) {
        let path = Path::new(parent).join(&name);
        match (names::parse_segment(&name), name.to_str()) {
            (Some(segment), Some(text)) => {
                let told = sink.told();
                if is_of_kind(log, sink, &dir, text, kind, path) {
                    found.insert(segment);
                } else {
                    is_whole &= sink.told() != told;
                }
            }
            _ if parent == names::INDEX && names::parse_beside(&name).is_some() => {
                sink.litter(path, ON_ITS_WAY);
            }
            _ => sink.find(path, STRANGER),
        }
    }
    (found, is_whole)
}

/// The names in a directory; one that can't be listed is a finding.
///
/// An NFS or FUSE client keeps what it has open under a name of its own when it is removed or replaced: that
/// isn't a stranger's, and is in nobody's way.
pub(super) fn list(log: &Log, sink: &mut Sink<'_>, dir: &Dir, path: &Path) -> Names {
    let listed = log.storage.list(dir).unwrap_or_else(|error| {
        sink.find(path.to_path_buf(), Error::io("can't list the directory", error).sentence());
        Names::new()
    });
    let is_kept = |name: &OsStr| {
        let name = name.as_encoded_bytes();
        name.starts_with(b".nfs") || name.starts_with(b".fuse_hidden")
    };
    for name in listed.iter().filter(|name| is_kept(name)) {
        sink.litter(path.join(name), "removed, but a client of the mount had it open");
    }
    listed.into_iter().filter(|name| !is_kept(name)).collect()
}

/// Whether a name stands for what it has to; anything else is never opened. One that is gone is no fault
/// here.
pub(super) fn is_of_kind(
    log: &Log,
    sink: &mut Sink<'_>,
    dir: &Dir,
    name: &str,
    kind: Kind,
    path: PathBuf,
) -> bool {
    match log.storage.kind(dir, name) {
        Ok(found) if found == kind => return true,
        Ok(_) => {
            let what = if kind == Kind::File { "a regular file" } else { "a directory" };
            sink.find(path, format!("it isn't {what}"));
        }
        Err(error) if may_be_stale(&error) => {}
        Err(error) => sink.find(path, Error::io("can't look at the name", error).sentence()),
    }
    false
}

/// Looks at the names of a segment's directory; gives the version after its newest.
pub(super) fn versions(log: &Log, sink: &mut Sink<'_>, dir: &Dir, segment: Segment) -> crate::Version {
    let path = Path::new(names::LOG).join(names::segment(segment));
    let mut end = segment.first_version(log.segment_size());
    for name in list(log, sink, dir, &path) {
        let version = names::parse_version(&name);
        match version.filter(|version| version.segment(log.segment_size()) == segment) {
            Some(version) => end = end.max(version.next()),
            None if names::parse_beside(&name).is_some() => sink.litter(path.join(&name), ON_ITS_WAY),
            None => sink.find(path.join(&name), STRANGER),
        }
    }
    end
}
