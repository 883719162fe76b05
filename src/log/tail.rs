//! The log's end as one handle knows it: the replayed state, and what the commits of the newest segments are.
//!
//! - It starts from the newest index and replays at most 2S commits; from then on it reads each commit once
//!   (P9).
//! - What was read in a segment counts only after a look at the marks (R7); a log that has moved on by two
//!   segments is begun again from the newest index.
//! - An absent version is the head only if nothing lies beyond it (R8), which is looked at once, on loading.
//! - Each commit's `seen` has to agree with what was replayed here (R10); a mismatch is `Corrupt`, never
//!   replayed.
//! - After an error that may hide a change of history, the newest replayed commit is compared with the disk
//!   first (R10).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::apply::Commit;
use super::index::Index;
pub use super::known::Entry;
use super::patience::{may_pass, unexplained};
use super::state::State;
use super::void::Void;
use super::{Log, doorbell, known, marks, read};
use crate::error::{Error, ErrorKind, Result};
use crate::format::commit::Seen;
use crate::format::names;
use crate::format::record::Record;
use crate::id::{Segment, Step, Version};
use crate::limits::{LOADS_MAX, LOOK_AGAIN_PAUSE, POLLS_PER_MARK_CHECK};
use crate::planted::{Bug, is_planted};
use crate::storage::{Dir, File};

/// How carefully the log is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// By who waits and looks again soon: a doorbell that says just this spares a look, and that nothing is
    /// there is trusted up to 8 times before the marks are asked (R7).
    Waiting,
    /// By who has slept until this step is there: as `Waiting`, and no further than to it. What has come
    /// with it is found by the next look.
    Until(Step),
    /// By who replays in order to write: looks to the end; the marks are asked again after the link (R6).
    Writing,
    /// By who gives an answer: looks to the end, and asks the marks also when nothing is there.
    Answering,
}

/// The end of the log.
#[derive(Debug)]
pub struct Tail {
    /// Whether the log was ever replayed.
    pub(super) loaded: bool,
    /// The newest mark when it was loaded: that segment's directory was made before it (R4).
    pub(super) marked: Segment,
    /// The replayed state.
    pub state: State,
    /// What the commits from `base` on are.
    pub(super) entries: VecDeque<Entry>,
    pub(super) base: Version,
    /// The index before `base`, for R10 and for finding parts; none at the log's beginning.
    pub(super) before: Option<Arc<Index>>,
    /// The index may have been opened on a mount that has been away since: it is opened anew before the next
    /// look.
    before_is_old: bool,
    /// The directory of the segment that the next version belongs to, once it was there.
    pub(super) dir: Option<(Segment, Dir)>,
    /// The commit that was read last, still open: whoever waited for it reads it next.
    opened: Option<(Version, File, read::Read)>,
    /// Look-ups in `dir` may be old: it is opened anew before the next.
    dir_is_old: bool,
    /// Looks that found nothing since the last look at the marks.
    polls: u32,
    /// An error came up that may hide a change of history (R10).
    suspicious: bool,
}

/// What one look at a version gave.
enum Look {
    Found(Box<read::Read>, File),
    Absent,
}

impl Tail {
    /// Nothing replayed yet: the first [`Tail::advance`] loads it.
    pub fn unloaded(parts_per_step: u32) -> Self {
        Self {
            loaded: false,
            marked: Segment::ZERO,
            state: State::new(parts_per_step),
            entries: VecDeque::new(),
            base: Version::ZERO,
            before: None,
            before_is_old: false,
            dir: None,
            dir_is_old: false,
            opened: None,
            polls: 0,
            suspicious: false,
        }
    }

    /// Replays the whole log anew: the newest index, then the commits after it (R7, R8).
    ///
    /// # Errors
    /// `Corrupt` when something is missing or damaged, `Unsupported`, `Io`.
    pub fn load(log: &Log) -> Result<Self> {
        for _ in 0..LOADS_MAX {
            if let Some(tail) = Self::load_once(log)? {
                return Ok(tail);
            }
            // The log moved on by two segments while it was read: from the newest index again.
            log.env.sleep(LOOK_AGAIN_PAUSE);
        }
        Err(Error::new(ErrorKind::Contended, "the log moves on faster than it can be read").at(&log.path))
    }

    fn load_once(log: &Log) -> Result<Option<Self>> {
        let highest = marks::highest(log)?;
        let mut tail = Self::unloaded(log.parts_per_step());
        tail.marked = highest;
        if let Some(complete) = highest.previous() {
            let found = log.indexes.get(log, complete).and_then(|found| {
                let read = |index: Arc<Index>| {
                    // Needed by who writes next (R10): read now, while a failure can be explained.
                    index.read_versions()?;
                    Ok((index.state(log.parts_per_step())?, index))
                };
                found.map(read).transpose()
            });
            let found = match found {
                Ok(found) => found,
                // Removed while it was read: that, too, says nothing once the log has moved on.
                Err(error) => return marks::excuse(log, complete, error).map(|()| None),
            };
            let Some((state, index)) = found else {
                // Gone because reclaimed behind a newer one, which an old listing may lack; or gone for good.
                if marks::moved_on(log, complete)? {
                    return Ok(None);
                }
                let name = names::segment(complete);
                let what = "an index is missing though a newer mark exists";
                return Err(Error::new(ErrorKind::Corrupt, what).at(log.path_of([names::INDEX, &name])));
            };
            tail.state = state;
            tail.base = tail.state.next_version;
            tail.before = Some(index);
        }
        if tail.replay(log, Care::Answering)?.is_none() {
            return Ok(None);
        }
        if !tail.nothing_beyond(log)? {
            return Ok(None);
        }
        tail.loaded = true;
        Ok(Some(tail))
    }

    /// Replays what is new; gives the number of commits that were.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Io`; `Rewound` when history was changed under this handle.
    pub fn advance(&mut self, log: &Log, care: Care) -> Result<u64> {
        let before = self.state.next_version;
        let advanced = self.advance_or_reload(log, care);
        if let Err(error) = &advanced {
            self.suspicious |= may_pass(error);
        }
        advanced?;
        Ok(self.state.next_version.get().saturating_sub(before.get()))
    }

    fn advance_or_reload(&mut self, log: &Log, care: Care) -> Result<()> {
        if !self.loaded {
            *self = Self::load(log)?;
            return Ok(());
        }
        if self.suspicious {
            self.compare_newest(log)?;
        }
        if self.before_is_old && self.reopen_index(log)?.is_none() {
            return self.reload(log);
        }
        if self.replay(log, care)?.is_none() {
            self.reload(log)?;
        }
        Ok(())
    }

    /// Begins again from the newest index; what was replayed has to be in it.
    ///
    /// # Errors
    /// As [`Tail::load`]; `Rewound` when the log no longer reaches what this handle has replayed.
    pub fn reload(&mut self, log: &Log) -> Result<()> {
        log.indexes.clear();
        let tail = Self::load(log)?;
        let was = self.state.next_version;
        let is = tail.state.next_version;
        *self = tail;
        if is < was {
            let what = format!("the log has {is} versions, this handle had replayed {was}");
            return Err(Error::new(ErrorKind::Rewound, what).at(&log.path));
        }
        Ok(())
    }

    /// R10: another commit, or none, under the newest replayed version means that all is to be read again.
    fn compare_newest(&mut self, log: &Log) -> Result<()> {
        if let (Some(newest), Some(version)) = (self.entries.back(), self.newest()) {
            let on_disk = read::identity_afresh(log, version)?;
            if on_disk != Some((newest.nonce, newest.checksum)) {
                self.reload(log)?;
            }
        }
        self.suspicious = false;
        Ok(())
    }

    /// The index before `base`, if it can be had, by a handle that isn't old. None when it can't be read and
    /// the log has moved on (R7).
    fn reopen_index(&mut self, log: &Log) -> Result<Option<()>> {
        if let Some(before) = &self.before {
            let segment = before.header.segment;
            let opened = log.indexes.get(log, segment).and_then(|index| {
                index.as_ref().map_or(Ok(()), |index| index.read_versions())?;
                Ok(index)
            });
            match opened {
                Ok(Some(index)) if index.header == before.header => self.before = Some(index),
                Ok(_) => {}
                Err(error) => return marks::excuse(log, segment, error).map(|()| None),
            }
        }
        self.before_is_old = false;
        Ok(Some(()))
    }

    /// Whether the newest replayed commit has to be compared with the disk before anything is linked after
    /// it (R10).
    pub fn is_suspicious(&self) -> bool {
        self.suspicious
    }

    /// Remembers that an error came up outside that may hide a change of history (R10).
    pub fn suspect(&mut self, error: &Error) {
        self.suspicious |= may_pass(error);
    }

    /// Replays on to the first absent version. None when what was read can't be trusted (R7).
    pub(super) fn replay(&mut self, log: &Log, care: Care) -> Result<Option<()>> {
        let mut run = 0u32;
        let size = log.segment_size();
        loop {
            let version = self.state.next_version;
            let segment = version.segment(size);
            if run > 0 && version.slot(size) == 0 {
                // Leaving a segment: what was read in it has to be trusted before the next one is.
                if self.moved_on(log, version)? {
                    return Ok(None);
                }
                run = 0;
            }
            let looked = match self.look(log, version, segment, care) {
                Ok(looked) => looked,
                // R7: neither what is read in a log that has moved on nor that it can't be read says
                // anything.
                Err(error) => return self.excuse(log, version, error),
            };
            match looked {
                Look::Found(found, file) => {
                    let seen = found.header.seen;
                    let replayed =
                        self.check_seen(seen, version).and_then(|()| self.push(log, &found.to_commit()));
                    // R7 again: what sleepers have linked into a segment made anew needn't agree.
                    if let Err(error) = replayed {
                        let error = error.version(version).at(log.commit_path(version));
                        return self.excuse(log, version, error);
                    }
                    self.opened = Some((version, file, *found));
                    run = run.saturating_add(1);
                    if self.is_enough(log, care) {
                        break;
                    }
                }
                Look::Absent => break,
            }
        }
        self.polls = self.polls.saturating_add(1);
        let next = self.state.next_version;
        // A segment's directory comes before its mark and its first version (R4): without it, it was removed.
        let begun = next.slot(size) != 0 || next.segment(size) <= self.marked;
        let vanished = self.dir.is_none() && begun;
        let due = self.polls >= POLLS_PER_MARK_CHECK || vanished || care == Care::Answering;
        let due = due && !is_planted(Bug::AbsenceUnmarked);
        if (run > 0 || due) && self.moved_on(log, self.state.next_version)? {
            return Ok(None);
        }
        if vanished {
            let what = "the newest segment's directory is missing, likely purged";
            return Err(Error::new(ErrorKind::Corrupt, what).version(next).at(log.commit_path(next)));
        }
        Ok(Some(()))
    }

    /// Whether a look that has just replayed a commit needn't try for another one.
    fn is_enough(&self, log: &Log, care: Care) -> bool {
        match care {
            Care::Until(step) if self.state.next_step() > step => true,
            Care::Waiting | Care::Until(_) => {
                log.doorbell.load() == Some(doorbell::saying(self.state.next_version))
            }
            Care::Writing | Care::Answering => false,
        }
    }

    /// R7: whether what was read before `end`, or found absent there, can't be trusted.
    fn moved_on(&mut self, log: &Log, end: Version) -> Result<bool> {
        self.polls = 0;
        marks::moved_on(log, marks::read_before(log, end))
    }

    /// The same of what has failed there: that it did says nothing then.
    fn excuse(&mut self, log: &Log, end: Version, error: Error) -> Result<Option<()>> {
        self.polls = 0;
        marks::excuse(log, marks::read_before(log, end), error).map(|()| None)
    }

    fn look(&mut self, log: &Log, version: Version, segment: Segment, care: Care) -> Result<Look> {
        let Some(dir) = self.segment_dir(log, segment)? else { return Ok(Look::Absent) };
        let mut opened = read::open(log, &dir, version);
        if opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StaleNetworkFileHandle) {
            // The handle has outlived its directory: once more by its name.
            self.dir = None;
            let Some(dir) = self.segment_dir(log, segment)? else { return Ok(Look::Absent) };
            opened = read::open(log, &dir, version);
        }
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::Absent),
            Err(error) => {
                self.dir = None;
                let what = "can't open a commit";
                return Err(Error::io(what, error).version(version).at(log.commit_path(version)));
            }
        };
        let how_far = if matches!(care, Care::Until(_)) { read::Reach::Whole } else { read::Reach::Header };
        let read = read::patiently(log, &file, version, how_far)?;
        Ok(Look::Found(Box::new(read), file))
    }

    /// The directory of the segment that is read next.
    ///
    /// # Errors
    /// `Io`.
    pub fn segment_dir(&mut self, log: &Log, segment: Segment) -> Result<Option<Dir>> {
        let known = self.dir.as_ref().is_some_and(|known| known.0 == segment);
        let opened = match &self.dir {
            Some((_, dir)) if known && !self.dir_is_old => return Ok(Some(dir.clone())),
            Some(_) if known => log.reopen_segment(segment)?,
            _ => log.open_segment(segment)?,
        };
        self.dir_is_old = false;
        self.dir = opened.clone().map(|dir| (segment, dir));
        Ok(opened)
    }

    /// Before a probe: on remote mounts, what isn't there is cached until the directory is opened anew.
    pub fn refresh(&mut self, log: &Log) {
        self.dir_is_old |= log.class.is_remote() && !is_planted(Bug::LookupsStale);
    }

    /// The index before the first entry that is kept; none at the log's beginning.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` or `Io` when it can't be opened.
    pub fn index_before(&self, log: &Log) -> Result<Option<Arc<Index>>> {
        match self.base.segment(log.segment_size()).previous() {
            Some(segment) => log.indexes.get(log, segment),
            None => Ok(None),
        }
    }

    /// The directory that is held may be one that was removed: the next look opens it by its name.
    pub fn forget_directory(&mut self) {
        self.dir = None;
    }

    /// What is open may have outlived what it stands for: all is opened by its name again.
    pub fn forget_handles(&mut self) {
        self.dir = None;
        self.opened = None;
        self.before_is_old = true;
    }

    /// R10: what a commit has seen is what was replayed here.
    pub(super) fn check_seen(&self, seen: Option<Seen>, version: Version) -> Result<()> {
        let Some(seen) = seen else { return Ok(()) };
        let wrong = |what: String| Error::new(ErrorKind::Corrupt, what).version(version);
        if seen.version >= version {
            return Err(wrong(format!(
                "the commit says it has seen version {}, which comes after it",
                seen.version
            )));
        }
        let known = self.checksum_of(seen.version)?;
        match known {
            Some(known) if known != seen.checksum => Err(wrong(format!(
                "the commit has seen version {} with checksum {}, replay has it with {known}",
                seen.version, seen.checksum
            ))),
            _ => Ok(()),
        }
    }

    /// Replays one commit as the next version; also the writer's own, once it stands.
    ///
    /// # Errors
    /// `Unsupported` for a record that this library can't replay.
    pub fn push(&mut self, log: &Log, commit: &Commit) -> Result<Option<Void>> {
        let version = self.state.next_version;
        let first_part = self.state.next_part;
        let void = self.state.apply(version, commit)?;
        let parts = self.state.next_part.get().saturating_sub(first_part.get());
        if self.state.next_part < first_part {
            known::rewind(self.entries.iter_mut(), self.state.next_part);
        }
        let first_part = first_part.min(self.state.next_part);
        self.entries.push_back(Entry {
            nonce: commit.nonce,
            checksum: commit.checksum,
            kind: commit.kind,
            void,
            first_part,
            parts: u32::try_from(parts).unwrap_or(u32::MAX),
        });
        if let Some(Record::Parts(record)) = &commit.record
            && void.is_none()
        {
            tracing::trace!(%version, producer = %record.producer, parts, "replayed parts");
        }
        self.forget_old(log);
        Ok(void)
    }

    /// Keeps this segment and the one before: what building an index and R10 need.
    fn forget_old(&mut self, log: &Log) {
        let size = log.segment_size();
        let newest = self.newest().unwrap_or_default().segment(size);
        let keep = newest.previous().unwrap_or_default().first_version(size);
        while self.base < keep && self.entries.pop_front().is_some() {
            self.base = self.base.next();
        }
    }

    /// Reads what the tail tells of the newest segments; again after replaying anew, if they have been
    /// removed meanwhile (R7).
    ///
    /// # Errors
    /// Those of `read`, if that doesn't explain them; as [`Tail::load`].
    pub fn read<T>(&mut self, log: &Log, read: impl Fn(&Self) -> Result<T>) -> Result<T> {
        for _ in 0..LOADS_MAX {
            let failed = match read(self) {
                Ok(found) => return Ok(found),
                Err(failed) => failed,
            };
            // Whoever looks anew himself is told what has become of a step, of which this tail doesn't know.
            let kinds = [ErrorKind::Corrupt, ErrorKind::Io, ErrorKind::Reclaimed, ErrorKind::Rewound];
            if !kinds.contains(&failed.kind()) {
                return Err(failed);
            }
            // What it tells of begins a segment before the newest, and that goes first.
            match marks::moved_on(log, self.base.segment(log.segment_size())) {
                Ok(true) => self.reload(log)?,
                Err(look) => return Err(unexplained(failed, look)),
                // What it needs of older segments may be freed by a Floor, or a change of history and a
                // Floor, that it hasn't come to.
                Ok(false) => {
                    let known = (self.state.floor, self.state.generation);
                    match self.advance(log, Care::Answering) {
                        Err(look) => return Err(unexplained(failed, look)),
                        Ok(_) if (self.state.floor, self.state.generation) == known => return Err(failed),
                        Ok(_) => {}
                    }
                }
            }
        }
        read(self)
    }

    /// The commit that was read last, if it is this one; it is handed out once.
    pub fn take_opened(&mut self, version: Version) -> Option<(File, read::Read)> {
        self.opened.take_if(|opened| opened.0 == version).map(|(_, file, read)| (file, read))
    }
}
