//! Replays the log segment by segment from any place on, past what is damaged.
//!
//! - The state at a segment's beginning is the replayed one, or that of the index before it; after a commit
//!   that couldn't be replayed it isn't known until the next segment, and says why.
//! - A commit that isn't the one of its index entry (R7), or contradicts what was seen (R10), is never
//!   replayed. `seen` is held against all history that is still there, not only the newest two segments.

use std::io;

use super::known::Known;
use crate::error::{Error, ErrorKind, Result};
use crate::format::commit::Seen;
use crate::id::{Checksum, Part, Segment, Version};
use crate::log::read::Read;
use crate::log::state::State;
use crate::log::tail::Entry;
use crate::log::void::Void;
use crate::log::{Log, known, read};
use crate::storage::File;

/// A commit that was read.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) file: File,
    pub(super) read: Read,
    /// What it does; none where the state before it isn't known.
    pub(super) effect: Option<Effect>,
}

/// What a commit does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    pub(super) void: Option<Void>,
    /// The part after those before it.
    pub(super) first_part: Part,
    /// How many parts it adds.
    pub(super) parts: u32,
}

/// What has a version's name.
#[derive(Debug)]
pub(super) enum Found {
    /// The commit.
    Commit(Box<Replayed>),
    /// Another commit than the one that the index has.
    Another,
    /// Nothing.
    Absent,
}

/// Replays commits in order; see the module.
#[derive(Debug)]
pub(super) struct Replayer<'l> {
    log: &'l Log,
    /// The state after the commit that was read last, or why it isn't known.
    pub(super) state: Result<State, String>,
    /// The index of the segment that is read.
    pub(super) index: Result<Option<Known<'l>>>,
    /// What was replayed of this segment.
    pub(super) entries: Vec<(Version, Entry)>,
    /// The index in which an older commit was looked up last.
    older: Option<Known<'l>>,
}

impl<'l> Replayer<'l> {
    pub(super) fn new(log: &'l Log) -> Self {
        let state = Ok(State::new(log.parts_per_step()));
        Self { log, state, index: Ok(None), entries: Vec::new(), older: None }
    }

    /// Goes to the beginning of a segment.
    pub(super) fn enter(&mut self, segment: Segment) {
        self.entries.clear();
        let left = std::mem::replace(&mut self.index, Known::load(self.log, segment));
        if let Ok(Some(left)) = left {
            self.older = Some(left);
        }
        let first = segment.first_version(self.log.segment_size());
        if self.state.as_ref().is_ok_and(|state| state.next_version == first) {
            return;
        }
        self.state = match segment.previous() {
            None => Ok(State::new(self.log.parts_per_step())),
            Some(before) => match self.older(before) {
                Ok(Some(known)) => known.state().map_err(|error| error.sentence()),
                Ok(None) => Err(format!("the index of segment {before} is missing")),
                Err(error) => Err(error.sentence()),
            },
        };
    }

    /// Nothing is known of what the commits from `version` to the end of its segment do.
    pub(super) fn lose(&mut self, version: Version) {
        if self.state.is_ok() {
            self.state = Err(format!("version {version} can't be replayed"));
        }
    }

    /// Reads the commit of a version of this segment, and replays it.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` or `Io`, naming the version and the path.
    pub(super) fn replay(&mut self, version: Version) -> Result<Found> {
        let replayed = self.replay_or_fail(version);
        if !matches!(replayed, Ok(Found::Commit(_))) {
            self.lose(version);
        }
        replayed.map_err(|error| error.version(version).at(self.log.commit_path(version)))
    }

    fn replay_or_fail(&mut self, version: Version) -> Result<Found> {
        let file = match self.log.open_behind(version) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
            Err(error) => return Err(Error::io("can't open a commit", error)),
        };
        let read = read::commit(self.log, &file, version)?;
        if let Ok(Some(known)) = &self.index {
            let entry = known.version(version)?;
            if (entry.nonce, entry.checksum, entry.kind)
                != (read.header.nonce, read.checksum, read.header.kind)
            {
                return Ok(Found::Another);
            }
        }
        if let Some(seen) = read.header.seen {
            self.check_seen(seen, version)?;
        }
        let commit = read.to_commit();
        let effect = match &mut self.state {
            Err(_) => None,
            Ok(state) => {
                let first_part = state.next_part;
                let void = state.apply(version, &commit)?;
                let parts = state.next_part.get().saturating_sub(first_part.get());
                if state.next_part < first_part {
                    known::rewind(self.entries.iter_mut().map(|(_, entry)| entry), state.next_part);
                }
                let first_part = first_part.min(state.next_part);
                let parts = u32::try_from(parts).unwrap_or(u32::MAX);
                Some(Effect { void, first_part, parts })
            }
        };
        // What it does isn't in here where it isn't known; who asks for that asks the state first.
        let (void, first_part, parts) =
            effect.map_or((None, Part::ZERO, 0), |effect| (effect.void, effect.first_part, effect.parts));
        let (nonce, checksum, kind) = (commit.nonce, commit.checksum, commit.kind);
        self.entries.push((version, Entry { nonce, checksum, kind, void, first_part, parts }));
        Ok(Found::Commit(Box::new(Replayed { file, read, effect })))
    }

    /// R10, over all history that is still there.
    fn check_seen(&mut self, seen: Seen, version: Version) -> Result<()> {
        let wrong = |what: String| Err(Error::new(ErrorKind::Corrupt, what));
        if seen.version >= version {
            return wrong(format!("the commit has seen version {}, which comes after it", seen.version));
        }
        match self.checksum_of(seen.version, version) {
            Some(known) if known != seen.checksum => wrong(format!(
                "the commit has seen version {} with checksum {}, the log has it with {known}: one \
                of the two \
                 isn't the commit that was there",
                seen.version, seen.checksum
            )),
            _ => Ok(()),
        }
    }

    /// The record checksum of a commit before `version`; none where nothing tells. An index that can't be
    /// read is told of where it lies, not here.
    fn checksum_of(&mut self, wanted: Version, version: Version) -> Option<Checksum> {
        let segment = wanted.segment(self.log.segment_size());
        if segment == version.segment(self.log.segment_size()) {
            if let Ok(Some(known)) = &self.index {
                return known.version(wanted).ok().map(|entry| entry.checksum);
            }
            let place = self.entries.binary_search_by_key(&wanted, |(version, _)| *version).ok()?;
            return self.entries.get(place).map(|(_, entry)| entry.checksum);
        }
        let known = self.older(segment).ok()??;
        known.version(wanted).ok().map(|entry| entry.checksum)
    }

    fn older(&mut self, segment: Segment) -> Result<Option<&Known<'l>>> {
        if self.older.as_ref().is_none_or(|older| older.segment != segment) {
            self.older = Known::load(self.log, segment)?;
        }
        Ok(self.older.as_ref())
    }
}
