//! The writer's loop: catch up, link head+1, lost? read the winner, again; sync; look at the marks;
//! acknowledge.
//!
//! - Only head+1 of a replayed log is linked, and never what replay would make void (R5).
//! - A link that succeeded stands only if the log hasn't moved on by two segments (R6); else replay decides.
//! - Acknowledged is what a directory sync has made durable, also when replay finds it in already (R3).
//! - A failed directory sync leaves the outcome open for good: the caller is poisoned.

use std::time::Duration;

use super::failure::Failure;
use super::pacer::Pacer;
use super::pacing::Attempt;
use super::publish::{self, Put};
use super::staged::{self, Control, Staged};
use super::{ballast, boundary, staged::discard};
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::format::record::Record;
use crate::id::{Segment, Version};
use crate::limits::{COMMIT_ATTEMPTS_MAX, LOOK_AGAIN_MAX};
use crate::log::state::State;
use crate::log::tail::{Care, Tail};
use crate::log::void::Void;
use crate::log::{Log, marks, read};
use crate::planted::{Bug, is_planted};
use crate::storage::{Access, Dir, put};

/// Where a commit came to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its version.
    pub version: Version,
    /// How many attempts lost.
    pub lost: u32,
}

/// What replay says of something that may be in already.
#[derive(Debug)]
pub enum Settled {
    /// In, by the commit at this version.
    In(Version),
    /// It can never be in.
    Never(Error),
    /// Not in.
    Open,
}

/// Appends a staged commit: to be called again with the same one after [`Failure::Unknown`].
///
/// # Errors
/// See [`Failure`].
pub fn append(
    log: &Log,
    tail: &mut Tail,
    stage: &Dir,
    staged: &Staged,
    settled: impl Fn(&State) -> Settled,
    pacer: Option<&mut Pacer>,
) -> Result<Appended, Failure> {
    let appended = append_or_fail(log, tail, stage, staged, settled, pacer);
    if let Err(failure) = &appended {
        after_failure(tail, failure);
    }
    appended
}

/// What a failed attempt means for what is known of the log.
pub fn after_failure(tail: &mut Tail, failure: &Failure) {
    match failure {
        Failure::Unknown(error) | Failure::Not(error) => tail.suspect(error),
        // A directory that was open when its sync failed may sync well from now on, and prove nothing (R3).
        Failure::Poisoned(_) => tail.forget_handles(),
        Failure::Never(_) | Failure::Gone(_) => {}
    }
}

fn append_or_fail(
    log: &Log,
    tail: &mut Tail,
    stage: &Dir,
    staged: &Staged,
    settled: impl Fn(&State) -> Settled,
    mut pacer: Option<&mut Pacer>,
) -> Result<Appended, Failure> {
    let mut attempts = Attempts::default();
    let since = log.env.now();
    loop {
        if let Some(pacer) = &mut pacer {
            pacer.pause(log, tail, since)?;
        }
        let began = log.env.now();
        let tried = attempt(log, tail, stage, staged, &settled, &mut attempts);
        if let (Some(pacer), Some(ended)) = (&mut pacer, attempts.verdict) {
            let won = matches!(tried, Ok(Some(_)));
            pacer.note(&Attempt { ended, cost: ended.saturating_sub(began), won });
        }
        if let Some(appended) = tried? {
            return Ok(appended);
        }
    }
}

/// What the attempts at one staged commit have come to so far.
#[derive(Debug, Default)]
pub struct Attempts {
    /// How many lost.
    pub lost: u32,
    /// When the primitive of the last one had spoken: until then another's commit could come before.
    pub verdict: Option<Duration>,
    /// How many in a row found nothing new.
    stalled: u32,
    /// Where it may have got a name that nobody reads.
    astray: Option<(Dir, Version)>,
}

/// One attempt at the head of the log as it was replayed. None if it was lost: the log is replayed on then.
///
/// # Errors
/// See [`Failure`]; the caller tells the tail of it by [`after_failure`].
pub fn attempt(
    log: &Log,
    tail: &mut Tail,
    stage: &Dir,
    staged: &Staged,
    settled: impl Fn(&State) -> Settled,
    attempts: &mut Attempts,
) -> Result<Option<Appended>, Failure> {
    attempts.verdict = None;
    match settled(&tail.state) {
        Settled::In(_) if attempts.lost > 0 && is_planted(Bug::EexistTrusted) => {}
        Settled::In(version) => {
            sync_holder(log, version)?;
            unstage(log, stage, staged);
            return Ok(Some(Appended { version, lost: attempts.lost }));
        }
        Settled::Never(error) => return Err(Failure::Never(error)),
        Settled::Open => {}
    }
    if let Some((dir, version)) = attempts.astray.take() {
        publish::take_back(log, stage, staged, &dir, version);
    }
    if let Some(void) = tail.state.judge(&staged.commit).map_err(Failure::Not)? {
        return Err(refusal(log, &staged.commit.record, void));
    }
    if attempts.lost == COMMIT_ATTEMPTS_MAX {
        // What the last attempt has come to is settled above.
        let what = format!("others won all of {COMMIT_ATTEMPTS_MAX} attempts");
        return Err(Failure::Not(Error::new(ErrorKind::Contended, what).at(&log.path)));
    }
    if let Some(version) = link_next(log, tail, stage, staged, attempts)? {
        return Ok(Some(Appended { version, lost: attempts.lost }));
    }
    attempts.lost = attempts.lost.saturating_add(1);
    // A lost race makes progress; without any, someone's name can be seen by link and not by open.
    if tail.advance(log, Care::Writing).map_err(Failure::Unknown)? > 0 {
        attempts.stalled = 0;
        return Ok(None);
    }
    attempts.stalled = attempts.stalled.saturating_add(1);
    tail.refresh(log);
    if attempts.stalled > LOOK_AGAIN_MAX {
        let what = "a version is taken by a commit that can't be read";
        return Err(Failure::Unknown(Error::new(ErrorKind::Io, what).version(tail.state.next_version)));
    }
    Ok(None)
}

/// Links it as head+1. None when that was lost, or the log had moved on: replay decides what comes next.
fn link_next(
    log: &Log,
    tail: &mut Tail,
    stage: &Dir,
    staged: &Staged,
    attempts: &mut Attempts,
) -> Result<Option<Version>, Failure> {
    let version = tail.state.next_version;
    let segment = version.segment(log.segment_size());
    let mounts = log.mounts();
    if !boundary::cross(log, tail, stage, version)? {
        tail.reload(log).map_err(Failure::Unknown)?;
        return Ok(None);
    }
    let Some(dir) = tail.segment_dir(log, segment).map_err(Failure::Unknown)? else {
        // Removed since it was read: only a log that has moved on allows that.
        tail.reload(log).map_err(Failure::Unknown)?;
        return Ok(None);
    };
    let put = publish::put(log, stage, staged, &dir, version);
    attempts.verdict = Some(log.env.now());
    match put {
        Put::Lost => return Ok(None),
        Put::Unknown(error) => {
            attempts.astray = Some((dir, version));
            return ask_replay(log, tail, staged, segment, error);
        }
        Put::Won => {}
    }
    // Readers may look from now on; what they see is checked by their own look at the marks.
    log.doorbell.ring(&*log.storage, &log.root(), version.next());
    let unsynced = is_planted(Bug::DirectoryUnsynced)
        || (is_planted(Bug::FloorUnsynced) && matches!(staged.commit.record, Some(Record::Floor { .. })));
    if !unsynced && sync(log, &dir, version)? == Synced::Removed {
        attempts.astray = Some((dir, version));
        tail.reload(log).map_err(Failure::Unknown)?;
        return Ok(None);
    }
    // R6; and R3: that the directory is synced is believed only if the marks can be opened after it.
    let believed = is_planted(Bug::AckOnLink)
        || (is_planted(Bug::AckOnReread)
            && read::identity_afresh(log, version).is_ok_and(|found| found == Some(staged.identity())));
    if !believed && marks::moved_on(log, segment).map_err(Failure::Unknown)? {
        attempts.astray = Some((dir, version));
        tail.reload(log).map_err(Failure::Unknown)?;
        return Ok(None);
    }
    if log.mounts() != mounts {
        // The look was at another mount than the sync, and that may not have what was written to this one.
        let what = "the store was mounted anew meanwhile: whether the commit is in is unknown";
        return Err(Failure::Unknown(Error::new(ErrorKind::Io, what).version(version)));
    }
    tail.push(log, &staged.commit).map_err(Failure::Unknown)?;
    unstage(log, stage, staged);
    Ok(Some(version))
}

/// R2: what only replay can tell. Reading on may show that it is in, that the name went to another, or that
/// the log has moved on and its directory is gone; if nothing of that, the outcome is unknown.
fn ask_replay(
    log: &Log,
    tail: &mut Tail,
    staged: &Staged,
    segment: Segment,
    error: Error,
) -> Result<Option<Version>, Failure> {
    tail.suspect(&error);
    // Looked for before replay: a rename that is still under way may bring it in meanwhile.
    let gone_before = is_gone(log, staged);
    let replayed = match marks::moved_on(log, segment) {
        Ok(true) => tail.reload(log).map(|()| true),
        Ok(false) => {
            tail.forget_directory();
            tail.advance(log, Care::Writing).map(|found| found > 0)
        }
        Err(error) => Err(error),
    };
    match replayed {
        Ok(true) => Ok(None),
        Ok(false) if gone_before => Err(Failure::Gone(gone(log, staged))),
        Ok(false) => Err(Failure::Unknown(error)),
        Err(later) => {
            tracing::debug!(error = %later, "replay can't be asked now");
            Err(Failure::Unknown(error))
        }
    }
}

/// Whether a commit has no staged name any more. If replay says after that that it isn't in, no call can
/// bring it in: a rename had taken it to where nobody reads, and that was removed; or stage/ was purged.
fn is_gone(log: &Log, staged: &Staged) -> bool {
    let Ok(stage) = staged::open_stage(log) else { return false };
    let found = log.storage.open(&stage, &staged.name, Access::Read);
    found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

fn gone(log: &Log, staged: &Staged) -> Error {
    let what = "a commit's staged file was removed before it was published: write it anew";
    Error::new(ErrorKind::Io, what).at(log.path_of([names::STAGE, &staged.name]))
}

/// After a link the staged name is a second one, and goes; after a rename it is gone.
fn unstage(log: &Log, stage: &Dir, staged: &Staged) {
    if let Err(error) = put::unstage(&*log.storage, log.identity.primitive, stage, &staged.name) {
        tracing::debug!(%error, name = staged.name, "a staged name stays behind");
    }
}

/// R3: what replay found in already is acknowledged after a sync of its directory too. A directory that is
/// gone was complete and durable long ago (R4).
fn sync_holder(log: &Log, version: Version) -> Result<(), Failure> {
    if !log.is_synced() || is_planted(Bug::ReplayUnsynced) {
        return Ok(());
    }
    let segment = version.segment(log.segment_size());
    let Some(dir) = log.open_segment(segment).map_err(Failure::Unknown)? else { return Ok(()) };
    sync(log, &dir, version)?;
    marks::moved_on(log, segment).map(drop).map_err(Failure::Unknown)
}

/// What a sync of a commit's directory has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Synced {
    /// What is in it is durable.
    Durable,
    /// It is removed: what was in it had been durable before, and may be another's than was thought.
    Removed,
}

/// R3: makes a commit's name durable. A failed sync isn't tried again: the next one may succeed and prove
/// nothing.
///
/// A sync that succeeds proves nothing either if the disk is dead: XFS that has shut down finds nothing to be
/// written any more. But it opens nothing any more, so the callers look at the marks before they acknowledge.
fn sync(log: &Log, dir: &Dir, version: Version) -> Result<Synced, Failure> {
    if !log.is_synced() {
        return Ok(Synced::Durable);
    }
    let mut synced = log.storage.sync_dir(dir);
    if synced.is_err() && is_planted(Bug::DirectorySyncRepeated) {
        synced = log.storage.sync_dir(dir);
    }
    match synced {
        Ok(()) => Ok(Synced::Durable),
        Err(error) if marks::explain(log, version.segment(log.segment_size()), &error) => Ok(Synced::Removed),
        Err(error) => Err(Failure::Poisoned(sync_failed(log, version, error))),
    }
}

fn sync_failed(log: &Log, version: Version, error: std::io::Error) -> Error {
    let segment = names::segment(version.segment(log.segment_size()));
    Error::io("can't sync the directory of a commit that has its name: it may be lost by a power cut", error)
        .version(version)
        .at(log.path_of([names::LOG, &segment]))
}

/// R3: an effect that is there already, by another's commit, is acknowledged after a sync too.
fn acknowledge_present(log: &Log, tail: &Tail) -> Result<()> {
    let Some(newest) = tail.newest() else { return Ok(()) };
    sync_holder(log, newest).map_err(Failure::into_error)
}

/// R5: a record that replay would make void isn't written. An older incarnation, or a sequence that is
/// gone, never becomes right again; a closed stream may be reopened.
fn refusal(log: &Log, record: &Option<Record>, void: Void) -> Failure {
    let kind = match void {
        Void::Fenced | Void::OutOfSequence => ErrorKind::Fenced,
        // In the next turn, or in the ring that there is by now, it is right.
        Void::Overtaken | Void::BeyondTurn | Void::OtherRing => ErrorKind::Contended,
        Void::OtherGeneration => ErrorKind::Rewound,
        Void::BelowFloor => ErrorKind::Reclaimed,
        _ => ErrorKind::Invalid,
    };
    let who = match record {
        Some(Record::Parts(parts)) => format!("producer {} can't publish", parts.producer),
        Some(Record::Open { producer, .. }) => format!("producer {producer} can't be opened"),
        Some(Record::Retire { producer, .. }) => format!("producer {producer} can't be retired"),
        Some(record) => format!("the record \"{}\" can't be written", record.kind().word()),
        None => "the record can't be written".to_owned(),
    };
    let error = Error::new(kind, format!("{who}: {}", void.word())).at(&log.path);
    match kind {
        ErrorKind::Fenced => Failure::Never(error),
        _ => Failure::Not(error),
    }
}

/// Appends a control record to the log as [`Log::current`] gives it, made anew from the state after each lost
/// race.
///
/// `make` gives the record for a state, or none when its effect is there already.
///
/// # Errors
/// What `make` refuses; `Contended`, `Full`, `Io`, `Unsupported`.
pub fn append_control(
    log: &Log,
    tail: &mut Tail,
    make: impl Fn(&State) -> Result<Option<Record>>,
    settled: impl Fn(&State, &Staged) -> Settled,
) -> Result<Option<Appended>> {
    append_control_paced(log, tail, make, settled, None)
}

/// As [`append_control`], each attempt when the pacer says so.
///
/// # Errors
/// As [`append_control`].
pub fn append_control_paced(
    log: &Log,
    tail: &mut Tail,
    make: impl Fn(&State) -> Result<Option<Record>>,
    settled: impl Fn(&State, &Staged) -> Settled,
    pacer: Option<&mut Pacer>,
) -> Result<Option<Appended>> {
    let make_for = |tail: &mut Tail| Ok(make(&tail.state)?.map(Control::from));
    let settled = |state: &State, staged: &Staged| match settled(state, staged) {
        // Another state wants another record: this one is given up.
        Settled::Open if make(state).ok().flatten() != staged.commit.record => given_up(),
        other => other,
    };
    append_made_paced(log, tail, make_for, settled, pacer)
}

/// As [`append_control`], for a record that is too much to be made anew after every lost race: it is as long
/// as `settled` doesn't say that this one is [`given_up`].
///
/// # Errors
/// As [`append_control`].
pub fn append_made(
    log: &Log,
    tail: &mut Tail,
    make: impl Fn(&mut Tail) -> Result<Option<Control>>,
    settled: impl Fn(&State, &Staged) -> Settled,
) -> Result<Option<Appended>> {
    append_made_paced(log, tail, make, settled, None)
}

fn append_made_paced(
    log: &Log,
    tail: &mut Tail,
    make: impl Fn(&mut Tail) -> Result<Option<Control>>,
    settled: impl Fn(&State, &Staged) -> Settled,
    mut pacer: Option<&mut Pacer>,
) -> Result<Option<Appended>> {
    let stage = staged::open_stage(log)?;
    for _ in 0..COMMIT_ATTEMPTS_MAX {
        let Some(control) = make(tail)? else {
            return acknowledge_present(log, tail).map(|()| None);
        };
        let staged = staged::stage_control(log, tail, &stage, control)?;
        let settled = |state: &State| settled(state, &staged);
        match append_with_ballast(log, tail, &stage, &staged, settled, pacer.as_deref_mut()) {
            Ok(appended) => {
                ballast::renew(log);
                return Ok(Some(appended));
            }
            Err(Failure::Never(error) | Failure::Not(error)) => {
                discard(log, &stage, &staged.name);
                if error.kind() != ErrorKind::Contended {
                    return Err(error);
                }
            }
            Err(Failure::Gone(error)) => tracing::debug!(%error, "staged anew"),
            Err(Failure::Unknown(error) | Failure::Poisoned(error)) => return Err(error),
        }
    }
    let what = format!("others won all of {COMMIT_ATTEMPTS_MAX} attempts");
    Err(Error::new(ErrorKind::Contended, what).at(&log.path))
}

/// As [`append`]; the same staged file again if the disk is full and the ballast makes room: for an index at
/// a segment's end, or a directory that grows.
fn append_with_ballast(
    log: &Log,
    tail: &mut Tail,
    stage: &Dir,
    staged: &Staged,
    settled: impl Fn(&State) -> Settled,
    mut pacer: Option<&mut Pacer>,
) -> Result<Appended, Failure> {
    let first = match append(log, tail, stage, staged, &settled, pacer.as_deref_mut()) {
        Err(first @ (Failure::Not(_) | Failure::Unknown(_)))
            if first.error().kind() == ErrorKind::Full && ballast::give_up(log) =>
        {
            first
        }
        appended => return appended,
    };
    match append(log, tail, stage, staged, settled, pacer) {
        // R2: that this attempt has given it no name says nothing of what the first one may have.
        Err(Failure::Not(error)) if matches!(first, Failure::Unknown(_)) => Err(Failure::Unknown(error)),
        appended => appended,
    }
}

/// What is staged isn't in, and isn't right any more: it is made anew.
pub fn given_up() -> Settled {
    Settled::Never(Error::new(ErrorKind::Contended, "the log has changed"))
}
