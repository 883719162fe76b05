//! The one repair that takes something away, and for which everybody has to be away: a commit that is lost,
//! or can't be read, where the log's end is replayed. A rewind to before it takes its place.
//!
//! - Only in the newest segment does a lost commit close a store: what is behind the newest index is read
//!   through that. So no mark moves, and marks only ever grow (R6).
//! - At every moment until the rewind stands, the version can't be read: a stopper has its name. Without one,
//!   moving away what lies beyond would turn the hole into the log's end, and who publishes next would go on
//!   there in the old generation.
//! - The generation is above all that positions may be of; the stopper keeps it, since a later attempt no
//!   longer finds what was moved away.
//! - What lies beyond isn't deleted: it moves to stage/. So does the lost one, where there are links.
//! - An `Io` error is no loss: only what is missing, or not what was written, is given up; and only when it
//!   is so each time that it is looked at afresh.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;

use serde::Serialize;

use super::rewind::{RewindOptions, describe};
use crate::commit::staged::{discard, open_stage, stage_bytes, stage_control};
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::format::record::Record;
use crate::format::stopper::{self, STOPPER_BYTES};
use crate::id::{Generation, Segment, Sequence, Step, Version};
use crate::limits::{LOOK_AGAIN_MAX, LOOK_AGAIN_PAUSE};
use crate::log::tail::Tail;
use crate::log::{Log, index, marks, read, rebuild};
use crate::name::Name;
use crate::storage::{Access, Dir, put, read_exact_at};

/// What a lost commit takes along; see [`Store::repair`](crate::Store::repair).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostReport {
    /// The first version that is dropped: the one that is missing or can't be read.
    pub version: Version,
    /// What is wrong with it.
    pub what: String,
    /// The last version that is dropped with it.
    pub last: Version,
    /// The next step after the repair: it and all later ones are dropped.
    pub step: Step,
    /// How many parts are dropped that could still be read.
    pub parts: u64,
    /// Where each producer goes on.
    pub producers: BTreeMap<Name, Sequence>,
    /// Checkpoints that are dropped, as far as they can be read: group and name.
    pub checkpoints: Vec<(Name, Name)>,
    /// The generation that the repair begins.
    pub generation: Generation,
}

/// A log that can't be replayed to its end.
pub(super) struct Lost {
    /// Replayed up to the lost version.
    tail: Tail,
    segment: Segment,
    /// The versions after it that have names, the highest first.
    beyond: Vec<Version>,
    pub(super) report: LostReport,
}

/// Looks for a lost commit in the newest segment; none if the log can be replayed to its end.
///
/// # Errors
/// `Corrupt` when what it follows can't be read either, `Contended` when the log has moved on; `Unsupported`,
/// `Io`.
pub(super) fn find(log: &Log) -> Result<Option<Lost>> {
    let segment = marks::highest(log)?;
    let names = versions(log, segment)?;
    let end = segment.next().first_version(log.segment_size());
    // The directory after it is made when all of this one is there (R4).
    let complete = log.open_segment(segment.next())?.is_some();
    let proven = complete.then(|| Version::new(end.get().saturating_sub(1)));
    let mut tail = rebuild::begin(log, segment)?;
    let last = names.first().copied().max(proven);
    while let Some(last) = last.filter(|last| *last >= tail.state.next_version) {
        let version = tail.state.next_version;
        match replay_patiently(log, &mut tail) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                if marks::moved_on(log, segment)? {
                    let what = "the log has moved on while it was looked at";
                    return Err(Error::new(ErrorKind::Contended, what).at(&log.path));
                }
                let beyond: Vec<_> = names.into_iter().filter(|name| *name > version).collect();
                let report = report(log, &tail, version, last, &beyond, &error);
                return Ok(Some(Lost { tail, segment, beyond, report }));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// A look-up may be old, and a file's bytes on their way: what is lost is lost each time.
fn replay_patiently(log: &Log, tail: &mut Tail) -> Result<()> {
    let mut pause = LOOK_AGAIN_PAUSE;
    for _ in 1..LOOK_AGAIN_MAX {
        match rebuild::replay_next(log, tail) {
            Err(error) if error.kind() == ErrorKind::Corrupt => log.env.sleep(pause),
            other => return other,
        }
        pause = pause.saturating_mul(2);
    }
    rebuild::replay_next(log, tail)
}

/// The versions that have names in a segment, the highest first.
fn versions(log: &Log, segment: Segment) -> Result<Vec<Version>> {
    let at = || log.path_of([names::LOG, &names::segment(segment)]);
    let Some(dir) = log.open_segment(segment)? else {
        return Err(Error::new(ErrorKind::Corrupt, "the newest segment's directory is missing").at(at()));
    };
    let failed = |error| Error::io("can't list a segment", error).at(at());
    let mut found: Vec<_> =
        log.storage.list(&dir).map_err(failed)?.iter().filter_map(names::parse_version).collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    Ok(found)
}

fn report(
    log: &Log,
    tail: &Tail,
    version: Version,
    last: Version,
    beyond: &[Version],
    why: &Error,
) -> LostReport {
    let state = &tail.state;
    let step = state.next_step();
    let open = state.next_part.get().saturating_sub(step.first_part(state.parts_per_step).get());
    let (mut parts, mut checkpoints, mut highest) = (open, Vec::new(), state.generation);
    for lost in beyond.iter().chain([&version]) {
        let Ok(file) = log.open_behind(*lost) else { continue };
        let mut bytes = [0; STOPPER_BYTES];
        if read_exact_at(&*log.storage, &file, &mut bytes, 0).is_ok()
            && let Some(kept) = stopper::decode(&bytes)
        {
            highest = highest.max(kept);
        }
        let Ok(read) = read::commit(log, &file, *lost) else { continue };
        highest = highest.max(read.header.generation);
        match read.record {
            Some(Record::Parts(record)) => parts = parts.saturating_add(record.parts.len() as u64),
            Some(Record::Checkpoint(kept)) => checkpoints.push((kept.group, kept.name)),
            Some(Record::Rewind(rewind)) => highest = highest.max(rewind.generation),
            _ => {}
        }
    }
    if let Ok(Some(index)) = index::Index::open(log, version.segment(log.segment_size()))
        && let Ok(state) = index.state(log.parts_per_step())
    {
        highest = highest.max(state.generation);
    }
    // Each of those that can't be read may have begun one more.
    let versions = last.get().saturating_sub(version.get()).saturating_add(2);
    LostReport {
        version,
        what: why.sentence(),
        last,
        step,
        parts,
        producers: state.producers.iter().map(|(name, known)| (name.clone(), known.next)).collect(),
        checkpoints,
        generation: Generation::new(highest.get().saturating_add(versions)),
    }
}

impl Lost {
    /// Drops what can't be replayed. A stop at any call leaves a log that says `Corrupt` at this version, or
    /// the rewind; doing it again goes on.
    ///
    /// # Errors
    /// `Full`, `Io`.
    pub(super) fn drop_it(mut self, log: &Log) -> Result<LostReport> {
        let record = self.rewind(log)?;
        let stage = open_stage(log)?;
        let dir = log.open_segment(self.segment)?.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "the newest segment's directory is missing").at(&log.path)
        })?;
        self.put_stopper(log, &stage, &dir)?;
        self.move_index(log, &stage)?;
        self.move_next_segment(log, &stage)?;
        for version in std::mem::take(&mut self.beyond) {
            move_away(log, &stage, &dir, &names::version(version))?;
        }
        sync(log, &stage, names::STAGE)?;
        sync(log, &dir, names::LOG)?;
        let staged = stage_control(log, &self.tail, &stage, record)?;
        self.take_place(log, &stage, &dir, &staged.name)?;
        Ok(self.report)
    }

    /// The rewind that takes its place: to the last step that is whole before it.
    fn rewind(&mut self, log: &Log) -> Result<crate::commit::staged::Control> {
        let options = RewindOptions::new().even_with_groups(true);
        let mut control = describe(log, &self.tail, self.report.step, options)?;
        if let Record::Rewind(rewind) = &mut control.record {
            rewind.generation = self.report.generation;
            self.report.producers =
                rewind.producers.iter().map(|one| (one.producer.clone(), one.next)).collect();
        }
        Ok(control)
    }

    fn put_stopper(&self, log: &Log, stage: &Dir, dir: &Dir) -> Result<()> {
        let name = names::version(self.report.version);
        let staged = names::staged_control("stopper", log.nonce()?);
        stage_bytes(log, stage, &staged, &stopper::encode(self.report.generation))?;
        match log.storage.open(dir, &name, Access::Read) {
            Ok(_) => {
                // For whoever wants to look at it; where there are no links, it isn't kept.
                let kept = names::staged_control("lost", log.nonce()?);
                if let Err(error) = log.storage.link(dir, &name, stage, &kept) {
                    tracing::debug!(%error, name, "what can't be read isn't kept");
                }
                self.take_place(log, stage, dir, &staged)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let primitive = log.identity.primitive;
                let put = match put::put(&*log.storage, primitive, stage, &staged, dir, &name) {
                    Err(error) if put::is_refused(&error) => {
                        let (from, to) = ((stage, staged.as_str()), (dir, name.as_str()));
                        put::put_beside(&*log.storage, primitive, from, to, &names::beside(&staged))
                    }
                    put => put,
                };
                put.map_err(|error| self.failed(log, "can't stop the log at a lost commit", error))?;
                let _ = put::unstage(&*log.storage, primitive, stage, &staged);
                sync(log, dir, names::LOG)
            }
            Err(error) => Err(self.failed(log, "can't look at a lost commit", error)),
        }
    }

    /// A staged file takes the lost version's name.
    fn take_place(&self, log: &Log, stage: &Dir, dir: &Dir, staged: &str) -> Result<()> {
        let name = names::version(self.report.version);
        if let Err(error) = log.storage.rename(stage, staged, dir, &name) {
            discard(log, stage, staged);
            return Err(self.failed(log, "can't take the place of a lost commit", error));
        }
        sync(log, dir, names::LOG)
    }

    /// The segment's own index, if whoever completed it died before the next mark: it tells of what is
    /// dropped.
    fn move_index(&self, log: &Log, stage: &Dir) -> Result<()> {
        let failed = |error| self.failed(log, "can't open the indexes", error);
        let indexes = log.directory(names::INDEX).map_err(failed)?;
        move_away(log, stage, &indexes, &names::segment(self.segment))?;
        sync(log, &indexes, names::INDEX)
    }

    /// The next segment's directory, which nobody can have published in without a mark.
    fn move_next_segment(&self, log: &Log, stage: &Dir) -> Result<()> {
        let failed = |error| self.failed(log, "can't take a segment away", error);
        let Some(after) = log.open_segment(self.segment.next())? else { return Ok(()) };
        for name in log.storage.list(&after).map_err(failed)?.iter().filter_map(OsStr::to_str) {
            move_away(log, stage, &after, name)?;
        }
        let segments = log.directory(names::LOG).map_err(failed)?;
        log.storage.remove_dir(&segments, &names::segment(self.segment.next())).map_err(failed)?;
        sync(log, &segments, names::LOG)
    }

    fn failed(&self, log: &Log, what: &str, error: io::Error) -> Error {
        let version = self.report.version;
        Error::io(what, error).version(version).at(log.commit_path(version))
    }
}

/// Moves a file to stage/, under a name of its own, if it is there.
fn move_away(log: &Log, stage: &Dir, from: &Dir, name: &str) -> Result<()> {
    let kept = names::staged_control("lost", log.nonce()?);
    match log.storage.rename(from, name, stage, &kept) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("can't move {name} to stage/"), error).at(&log.path))
        }
        _ => Ok(()),
    }
}

fn sync(log: &Log, dir: &Dir, name: &str) -> Result<()> {
    if !log.is_synced() {
        return Ok(());
    }
    let failed = |error| Error::io("can't sync a directory", error).at(log.path_of([name]));
    log.storage.sync_dir(dir).map_err(failed)?;
    // A dead disk may say that it has synced a directory, but it opens none (XFS, once it has shut down).
    log.directory(name).map(drop).map_err(failed)
}
