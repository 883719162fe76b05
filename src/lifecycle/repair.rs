//! Mending what can be mended while everybody goes on: indexes, which say nothing that the log doesn't.
//!
//! - An index is rebuilt from the one before it and its segment's commits, and renamed over what is there:
//!   the same bytes, so it harms nobody who has the old one open, and any number may do it at once.
//! - A readable header that differs from the rebuilt one says that the *log* isn't what it was: then nothing
//!   is replaced.
//! - A commit that is lost takes steps along, and needs everybody to be away ([`super::lost`]): without a
//!   word that they are, it is only told.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use super::lost::{self, LostReport};
use crate::commit::staged::{discard, open_stage, stage_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::format::index::Header;
use crate::format::names;
use crate::id::Segment;
use crate::log::tail::Tail;
use crate::log::{Log, index, marks, rebuild};

/// How a store is repaired; see [`Store::repair`](crate::Store::repair).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairOptions {
    /// Say what would be done, and do nothing (default: do it). Of several broken indexes in a row it can
    /// tell of the first only: the others follow from that one.
    pub dry_run: bool,
    /// All processes have closed the store, on every host, and what a lost commit takes along may be dropped
    /// (default: it is only told).
    pub confirm: bool,
}

impl RepairOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`RepairOptions::dry_run`].
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sets [`RepairOptions::confirm`].
    #[must_use]
    pub fn confirm(mut self, confirm: bool) -> Self {
        self.confirm = confirm;
        self
    }
}

/// What a repair has done, or would do; see [`Store::repair`](crate::Store::repair).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RepairReport {
    /// The indexes that were rebuilt.
    pub rebuilt: Vec<Repaired>,
    /// Those that can't be, and why.
    pub left: Vec<Repaired>,
    /// What a lost commit takes along, or would.
    pub lost: Option<LostReport>,
    /// Whether that was dropped.
    pub dropped: bool,
}

/// Something that a repair has looked at; see [`RepairReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Repaired {
    /// Where, relative to the store's directory.
    pub path: PathBuf,
    /// What is, or was, wrong: a sentence without its full stop.
    pub what: String,
}

/// Rebuilds every index that can't be read; then sees to a lost commit.
///
/// # Errors
/// As the documentation of the facade says.
pub(crate) fn repair(log: &Log, options: RepairOptions) -> Result<RepairReport> {
    // What this handle has open may be what is broken.
    log.indexes.clear();
    let mut report = RepairReport::default();
    let newest = marks::highest(log)?;
    let first = first_index(log, newest)?;
    // Nor may what that has looked at stay open: it may be about to be replaced.
    log.indexes.clear();
    for segment in (first.get()..newest.get()).map(Segment::new) {
        let Some(fault) = rebuild::fault(log, segment)? else { continue };
        let path = PathBuf::from(names::INDEX).join(names::segment(segment));
        match mend(log, segment, options) {
            Ok(()) => {
                tracing::warn!(path = %path.display(), %fault, dry_run = options.dry_run, "rebuilt an index");
                report.rebuilt.push(Repaired { path, what: fault.sentence() });
            }
            Err(Mending::Log(why)) => {
                let what = format!("{}; it can't be rebuilt: {why}", fault.sentence());
                report.left.push(Repaired { path, what });
            }
            Err(Mending::Failed(error)) => return Err(error),
        }
    }
    log.indexes.clear();
    log.tail.take().forget_handles();
    // Without the index that it follows nobody can tell what the newest segment was.
    let follows = newest.previous().map(|before| rebuild::fault(log, before)).transpose()?.flatten();
    match follows {
        Some(error) if error.kind() == ErrorKind::Io => return Err(error),
        Some(_) => return Ok(report),
        None => {}
    }
    if let Some(lost) = lost::find(log)? {
        report.dropped = options.confirm && !options.dry_run;
        report.lost = Some(if report.dropped { lost.drop_it(log)? } else { lost.report });
    }
    if report.dropped {
        *log.tail.take() = Tail::unloaded(log.parts_per_step());
        log.indexes.clear();
    }
    Ok(report)
}

/// Why an index isn't mended.
enum Mending {
    /// The log doesn't give it.
    Log(Error),
    /// It can't be read or written now.
    Failed(Error),
}

/// The first segment whose index is looked at. They are reclaimed from the first one on, up to the last one
/// before what lives; so it is the first of those that go on without a gap to that one. What has an earlier
/// name, a sleeper has put again after it was removed.
fn first_index(log: &Log, newest: Segment) -> Result<Segment> {
    let unlisted = |error| Error::io("can't list the indexes", error).at(log.path_of([names::INDEX]));
    let mut named = index::list(log).map_err(unlisted)?;
    // Read after the listing, so that it knows of whatever is missing there.
    let tail = Tail::load(log).or_else(|_| rebuild::begin(log, newest));
    let live = tail.and_then(|tail| log.first_live_segment(&tail, tail.state.floor));
    let live = match live {
        Ok(live) => live.min(newest),
        // What lives can't be told without what is to be rebuilt: then all are needed whose log is there.
        Err(error) => {
            tracing::debug!(%error, "what is reclaimed is told by names");
            named.extend(segments_in_log(log)?);
            newest
        }
    };
    let mut first = live.previous().unwrap_or_default();
    while let Some(before) = first.previous().filter(|before| named.contains(before)) {
        first = before;
    }
    Ok(first)
}

/// The segments that log/ has names for.
fn segments_in_log(log: &Log) -> Result<BTreeSet<Segment>> {
    let failed = |error| Error::io("can't list the segments", error).at(log.path_of([names::LOG]));
    let dir = log.directory(names::LOG).map_err(failed)?;
    let listed = log.storage.list(&dir).map_err(failed)?;
    Ok(listed.iter().filter_map(names::parse_segment).collect())
}

fn mend(log: &Log, segment: Segment, options: RepairOptions) -> Result<(), Mending> {
    let (bytes, header) = rebuild::index(log, segment).map_err(|error| match error.kind() {
        ErrorKind::Io => Mending::Failed(error),
        _ => Mending::Log(error),
    })?;
    if let Some(found) = readable_header(log, segment).filter(|found| *found != header) {
        let what = format!(
            "what the log says now isn't what it said when the index was built (first part {}, {} parts; \
             then {}, {})",
            header.first_part, header.parts, found.first_part, found.parts
        );
        return Err(Mending::Log(Error::new(ErrorKind::Corrupt, what)));
    }
    if options.dry_run {
        return Ok(());
    }
    replace(log, segment, &bytes).map_err(Mending::Failed)
}

fn readable_header(log: &Log, segment: Segment) -> Option<Header> {
    let opened = index::open_file(log, segment, &names::segment(segment));
    opened.ok().flatten().map(|(_, header)| header)
}

/// A staged file, whole and durable, takes the name: whoever looks finds the old bytes or all of the new
/// ones.
fn replace(log: &Log, segment: Segment, bytes: &[u8]) -> Result<()> {
    let (stage, name) = (open_stage(log)?, names::segment(segment));
    let at = || log.path_of([names::INDEX, &name]);
    let staged = names::staged_control("index", log.nonce()?);
    let failed = |error| Error::io("can't replace an index", error).at(at());
    stage_bytes(log, &stage, &staged, bytes)?;
    let indexes = log.directory(names::INDEX).map_err(failed)?;
    let renamed = log.storage.rename(&stage, &staged, &indexes, &name);
    // An error isn't a failure: the reply may be what was lost (R2).
    if let Some(fault) = rebuild::fault(log, segment)? {
        discard(log, &stage, &staged);
        return Err(renamed.map_or_else(failed, |()| fault));
    }
    if log.is_synced() {
        let unsynced = |error| Error::io("can't sync the directory of an index", error).at(at());
        log.storage.sync_dir(&indexes).map_err(unsynced)?;
    }
    Ok(())
}
