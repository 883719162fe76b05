//! Building an index once more, long after its segment was completed: from the index before it and the
//! segment's own commits, and so with the same bytes as the first time.
//!
//! - Nothing of what it stands for is taken from the index that is to be replaced.
//! - What isn't a whole segment gives no index: a commit that is missing, or contradicts what others have
//!   seen (R10), is an error.

use std::io;
use std::sync::Arc;

use super::index::Index;
use super::tail::Tail;
use super::{Log, build, read};
use crate::error::{Error, ErrorKind, Result};
use crate::format::index::Header;
use crate::format::names;
use crate::id::{Segment, Version};

/// What is wrong with the index of a complete segment; none if every byte of it can be read.
///
/// # Errors
/// `Unsupported`: a newer library's isn't broken.
pub fn fault(log: &Log, segment: Segment) -> Result<Option<Error>> {
    let checked = Index::open(log, segment).and_then(|index| match index {
        Some(index) => index.check(log.parts_per_step()),
        None => Err(Error::new(ErrorKind::Corrupt, "the index is missing though a later segment exists")),
    });
    match checked {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == ErrorKind::Unsupported => Err(error),
        Err(error) => Ok(Some(error.at(log.path_of([names::INDEX, &names::segment(segment)])))),
    }
}

/// The index of a complete segment as the log says it.
///
/// # Errors
/// `Corrupt` or `Io` when the index before it, or a commit, can't be read.
pub fn index(log: &Log, segment: Segment) -> Result<(Vec<u8>, Header)> {
    let mut tail = begin(log, segment)?;
    let end = segment.next().first_version(log.segment_size());
    while tail.state.next_version < end {
        replay_next(log, &mut tail)?;
    }
    build::index(log, &tail, segment)
}

/// The log as it was before the first version of a segment.
///
/// # Errors
/// `Corrupt` or `Io` when the index before it can't be read.
pub fn begin(log: &Log, segment: Segment) -> Result<Tail> {
    let mut tail = Tail::unloaded(log.parts_per_step());
    if let Some(previous) = segment.previous() {
        let before = before(log, previous)?;
        tail.state = before.state(log.parts_per_step())?;
        tail.base = tail.state.next_version;
        tail.before = Some(before);
    }
    Ok(tail)
}

/// Replays one more version, which has to be there.
///
/// # Errors
/// `Corrupt` when it is missing, isn't whole or contradicts what is known; `Unsupported`, `Io`.
pub fn replay_next(log: &Log, tail: &mut Tail) -> Result<()> {
    let version = tail.state.next_version;
    replay(log, tail, version).map_err(|error| {
        // Whoever looks again looks in a directory opened anew.
        *log.segment_dir.lock() = None;
        error.version(version).at(log.commit_path(version))
    })
}

fn before(log: &Log, segment: Segment) -> Result<Arc<Index>> {
    log.indexes.get(log, segment)?.ok_or_else(|| {
        let what = "the index that it follows is missing";
        Error::new(ErrorKind::Corrupt, what).at(log.path_of([names::INDEX, &names::segment(segment)]))
    })
}

fn replay(log: &Log, tail: &mut Tail, version: Version) -> Result<()> {
    let file = match log.open_behind(version) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::new(ErrorKind::Corrupt, "the commit is missing, likely purged"));
        }
        Err(error) => return Err(Error::io("can't open a commit", error)),
    };
    let read = read::commit(log, &file, version)?;
    tail.check_seen(read.header.seen, version)?;
    tail.push(log, &read.to_commit()).map(drop)
}
