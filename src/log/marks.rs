//! Marks: a register of the newest segment that only grows.
//!
//! - A mark is an empty file whose name is a segment; the highest one counts. An empty listing is a lag,
//!   never 0 (R6).
//! - What was read in log/k, or not found there, is trusted only if afterwards no mark above k+1 is seen: a
//!   listing of the directory opened anew, and mark k+2 opened by name, since some mounts have stale
//!   listings and others stale look-ups (R6, R7).

use std::io;
use std::os::unix::ffi::OsStrExt;

use super::patience::unexplained;
use super::{Log, may_be_stale};
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::id::{Segment, Version};
use crate::limits::{LOOK_AGAIN_MAX, LOOK_AGAIN_PAUSE};
use crate::storage::{Access, Dir, Names};

/// The highest mark.
///
/// # Errors
/// `Corrupt` when there is none after looking again; `Io`.
pub fn highest(log: &Log) -> Result<Segment> {
    let mut pause = LOOK_AGAIN_PAUSE;
    for _ in 0..LOOK_AGAIN_MAX {
        let (_, segments) = list(log)?;
        if let Some(segment) = segments.into_iter().max() {
            return Ok(segment);
        }
        log.env.sleep(pause);
        pause = pause.saturating_mul(2);
    }
    Err(Error::new(ErrorKind::Corrupt, "the store has no mark at all").at(log.path_of([names::MARKS])))
}

/// Whether the log has moved on by two segments from `segment`, so that what was read there can't be trusted.
///
/// # Errors
/// As [`highest`].
pub fn moved_on(log: &Log, segment: Segment) -> Result<bool> {
    let (marks, listed) = open_and_list(log)?;
    let limit = names::segment(segment.next());
    let mut any = false;
    for name in listed.iter() {
        // Names of one width sort as their numbers: this is done after every commit, and few names are above.
        let below = name.len() == limit.len() && name.as_bytes() <= limit.as_bytes();
        let parsed = if below { None } else { names::parse_segment(name) };
        if parsed.is_some_and(|mark| mark > segment.next()) {
            return Ok(true);
        }
        any |= below || parsed.is_some();
    }
    if !any && highest(log)? > segment.next() {
        return Ok(true);
    }
    exists(log, &marks, segment.next().next())
}

/// Whether an error of what lies in `segment` comes from its removal: only a log that has moved on by two
/// segments allows that, so all of it was complete, durable and indexed before (R4), and replay can be
/// asked anew.
pub fn explain(log: &Log, segment: Segment, error: &io::Error) -> bool {
    may_be_stale(error) && moved_on(log, segment).unwrap_or(false)
}

/// R7: what has failed in `segment` says nothing, once the log has moved on by two segments.
///
/// # Errors
/// This one, if it hasn't; the look's, if that can't be told.
pub fn excuse(log: &Log, segment: Segment, error: Error) -> Result<()> {
    match moved_on(log, segment) {
        Ok(true) => Ok(()),
        Ok(false) => Err(error),
        Err(look) => Err(unexplained(error, look)),
    }
}

/// The segment in which what comes right before a version was read.
pub fn read_before(log: &Log, end: Version) -> Segment {
    let size = log.segment_size();
    match end.slot(size) {
        0 => end.segment(size).previous().unwrap_or_default(),
        _ => end.segment(size),
    }
}

/// All marks, by a directory opened anew.
///
/// # Errors
/// `Io`.
pub fn list(log: &Log) -> Result<(Dir, Vec<Segment>)> {
    let (marks, listed) = open_and_list(log)?;
    Ok((marks, listed.iter().filter_map(names::parse_segment).collect()))
}

fn open_and_list(log: &Log) -> Result<(Dir, Names)> {
    let failed = |error| Error::io("can't list the marks", error).at(log.path_of([names::MARKS]));
    let marks = log.directory(names::MARKS).map_err(failed)?;
    let listed = log.storage.list(&marks).map_err(failed)?;
    Ok((marks, listed))
}

fn exists(log: &Log, marks: &Dir, segment: Segment) -> Result<bool> {
    let name = names::segment(segment);
    match log.storage.open(marks, &name, Access::Read) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("can't look for a mark", error).at(log.path_of([names::MARKS, &name]))),
    }
}
