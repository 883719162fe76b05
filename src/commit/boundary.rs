//! Before a segment's first version: everything of the segment before it is made complete, durable and
//! indexed (R4).
//!
//! - In this order: log/k-1 synced; index k-1 staged, put and index/ synced; log/k made and log/ synced;
//!   mark k made and marks/ synced; then the writer links. So a commit in segment k proves all that.
//! - Whoever is about to link does it, even if another has: what exists isn't built again, only synced again.
//! - An index is put only if, after its last read, the log hasn't moved on (R7).

use std::io;

use super::failure::Failure;
use super::publish;
use super::staged::{discard, stage_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::format::index::{Header, INDEX_HEADER_BYTES};
use crate::format::names;
use crate::id::{Segment, Version};
use crate::limits::{MARKS_KEPT, PUT_ATTEMPTS_MAX};
use crate::log::tail::Tail;
use crate::log::{Log, build, marks, may_be_stale, read};
use crate::planted::{Bug, is_planted};
use crate::storage::{Access, Dir, read_exact_at};

/// Prepares for linking `version`. False when the log has moved on by two segments: all is to be read again.
///
/// # Errors
/// [`Failure::Poisoned`] when a directory's sync failed: another sync of it proves nothing (R3). Else
/// [`Failure::Not`]: `Corrupt` when the index that is there isn't the one the log says, `Full`, `Io`.
pub fn cross(log: &Log, tail: &Tail, stage: &Dir, version: Version) -> Result<bool, Failure> {
    let size = log.segment_size();
    let segment = version.segment(size);
    if version.slot(size) != 0 {
        return Ok(true);
    }
    let Some(complete) = segment.previous() else { return Ok(true) };
    if is_planted(Bug::MarkBeforeIndex) {
        begin(log, segment)?;
    }
    let Some(dir) = log.open_segment(complete).map_err(Failure::Not)? else {
        return Ok(false);
    };
    if log.is_synced() {
        match log.storage.sync_dir(&dir) {
            Err(error) if marks::explain(log, complete, &error) => return Ok(false),
            synced => synced.map_err(|error| sync_failed(log, names::LOG, error))?,
        }
    }
    match put_index(log, tail, stage, complete) {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        // What can't be read there may be removed by now: then the marks say so (R7).
        Err(Failure::Not(error)) if error.kind() == ErrorKind::Io => {
            marks::excuse(log, complete, error)?;
            return Ok(false);
        }
        Err(failure) => return Err(failure),
    }
    begin(log, segment)?;
    prune_marks(log, segment).map_err(Failure::Not)?;
    Ok(true)
}

/// A segment's directory, and then its mark.
fn begin(log: &Log, segment: Segment) -> Result<(), Failure> {
    let name = names::segment(segment);
    make(log, names::LOG, &name, |dir| log.storage.make_dir(dir, &name))?;
    make(log, names::MARKS, &name, |dir| {
        // A mark is empty: the file that an exclusive create publishes is the whole of it.
        let file = log.storage.create_exclusive(dir, &name)?;
        log.storage.close(file)
    })
}

/// Makes a name in one of the store's directories, unless it is there, and syncs the directory.
fn make(
    log: &Log,
    parent: &str,
    name: &str,
    make: impl FnOnce(&Dir) -> io::Result<()>,
) -> Result<(), Failure> {
    let failed = |error| Failure::Not(Error::io("can't begin a segment", error).at(log.path_of([parent])));
    let dir = log.directory(parent).map_err(failed)?;
    match make(&dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // Some clients answer who comes second with EPERM: that it is there is what counts (R2).
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied && log.storage.kind(&dir, name).is_ok() => {}
        made => made.map_err(failed)?,
    }
    sync(log, &dir, parent)
}

fn sync(log: &Log, dir: &Dir, name: &str) -> Result<(), Failure> {
    if !log.is_synced() || is_planted(Bug::BoundaryUnsynced) {
        return Ok(());
    }
    log.storage.sync_dir(dir).map_err(|error| sync_failed(log, name, error))
}

fn sync_failed(log: &Log, name: &str, error: io::Error) -> Failure {
    Failure::Poisoned(Error::io("can't sync a directory", error).at(log.path_of([name])))
}

fn put_index(log: &Log, tail: &Tail, stage: &Dir, complete: Segment) -> Result<bool, Failure> {
    let name = names::segment(complete);
    let failed = |error| Error::io("can't put an index", error).at(log.path_of([names::INDEX, &name]));
    let indexes = log.directory(names::INDEX).map_err(failed)?;
    if header_of(log, &indexes, &name)?.is_none() {
        let built = build::index(log, tail, complete);
        if marks::moved_on(log, complete)? {
            return Ok(false);
        }
        match built {
            Ok((bytes, header)) => stage_and_put(log, stage, &bytes, &indexes, &name, &header)?,
            // Another has put it meanwhile, and then begun the next segment: the one before this one may be
            // gone since, and with it a producer's state that was to be read there.
            Err(error) if header_of(log, &indexes, &name)?.is_some() => {
                tracing::debug!(%error, "an index that is there can't be built any more");
            }
            Err(error) => return Err(Failure::Not(error)),
        }
    }
    sync(log, &indexes, names::INDEX)?;
    Ok(true)
}

/// Stages an index and puts it; again if its staged file was taken for litter, since it is a control file
/// that nothing tells from one that was left behind.
fn stage_and_put(
    log: &Log,
    stage: &Dir,
    bytes: &[u8],
    indexes: &Dir,
    name: &str,
    header: &Header,
) -> Result<()> {
    let mut attempts_left = PUT_ATTEMPTS_MAX;
    loop {
        attempts_left = attempts_left.saturating_sub(1);
        let staged = names::staged_control("index", log.nonce()?);
        stage_bytes(log, stage, &staged, bytes)?;
        let put = put_staged(log, stage, &staged, indexes, name, header);
        let found = put.is_err().then(|| log.storage.open(stage, &staged, Access::Read));
        discard_unless_moved(log, stage, &staged);
        match (put, found) {
            (Err(error), Some(Err(gone))) if attempts_left > 0 && may_be_stale(&gone) => {
                tracing::debug!(%error, "an index is staged anew");
            }
            (put, _) => return put,
        }
    }
}

/// After a link the staged name is a second one; after a rename there is none left to remove.
fn discard_unless_moved(log: &Log, stage: &Dir, staged: &str) {
    match log.identity.primitive {
        crate::Primitive::Link => discard(log, stage, staged),
        _ => {
            // Lost: it is still there. Won: it isn't, which is no fault.
            let _ = log.storage.remove(stage, staged);
        }
    }
}

/// Racing builders write the same bytes, so whoever comes second compares headers and is done. The same
/// index may be linked twice over any error: it is a function of the log.
fn put_staged(
    log: &Log,
    stage: &Dir,
    staged: &str,
    indexes: &Dir,
    name: &str,
    header: &Header,
) -> Result<()> {
    let at = || log.path_of([names::INDEX, name]);
    let mut failure = None;
    for _ in 0..PUT_ATTEMPTS_MAX {
        let Err(error) = publish::put_file(log, stage, staged, indexes, name) else { return Ok(()) };
        let afresh = log.directory(names::INDEX).map_err(|error| Error::io("can't look for an index", error));
        match afresh.and_then(|indexes| header_of(log, &indexes, name)) {
            Ok(Some(found)) if found == *header => return Ok(()),
            Ok(Some(_)) => {
                let what = "the index on disk isn't the one that the log says: two builders differ";
                tracing::error!(path = %at().display(), "{what}");
                return Err(Error::new(ErrorKind::Corrupt, what).at(at()));
            }
            Ok(None) => {
                publish::refused(log, &error);
                failure = Some(publish::refused_or(log.identity.primitive, "can't put an index", error));
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| Error::new(ErrorKind::Io, "can't put an index")).at(at()))
}

/// The header of an index; none if it is absent.
fn header_of(log: &Log, indexes: &Dir, name: &str) -> Result<Option<Header>> {
    let file = match log.storage.open(indexes, name, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Error::io("can't open an index", error).at(log.path_of([names::INDEX, name])));
        }
    };
    let mut bytes = [0; INDEX_HEADER_BYTES];
    read_exact_at(&*log.storage, &file, &mut bytes, 0)
        .map_err(read::short)
        .and_then(|()| Header::decode(&bytes))
        .map(Some)
        .map_err(|error| error.at(log.path_of([names::INDEX, name])))
}

/// Keeps the newest marks only; the highest is never removed (R6).
fn prune_marks(log: &Log, newest: Segment) -> Result<()> {
    if newest.get() < MARKS_KEPT {
        return Ok(());
    }
    let (dir, segments) = marks::list(log)?;
    for old in segments.into_iter().filter(|segment| segment.get().saturating_add(MARKS_KEPT) <= newest.get())
    {
        match log.storage.remove(&dir, &names::segment(old)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(%error, segment = %old, "an old mark stays");
            }
            _ => {}
        }
    }
    Ok(())
}
