//! The walk over a whole store: names, then segment by segment commits and index, then what lies about.
//!
//! - One fault is one finding where that can be: what only follows from it isn't told again.
//! - What is missing is a fault only if nothing allows it: the segment's parts are all below the floor or
//!   rewound, as of a state read after it was found missing.
//! - What is found in a commit, or in a segment, that is being removed says nothing: its name, or that of the
//!   segment's last commit, is gone when it is looked for again, and its parts are dead.

use std::path::{Path, PathBuf};

use super::Progress;
use super::VerifyReport;
use super::commit::Commit;
use super::index::Index;
use super::known::Known;
use super::litter::Stage;
use super::replayer::{Found, Replayer};
use super::sink::{Place, Sink};
use super::tree::{self, Tree};
use crate::error::Result;
use crate::format::names;
use crate::id::{Segment, Version};
use crate::log::state::State;
use crate::log::tail::Tail;
use crate::log::{Log, index, read};
use crate::storage::{Dir, Kind};

/// Verifies a store.
///
/// # Errors
/// `Io` when the store's directory can't be listed.
pub(super) fn verify(log: &Log, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
    let mut sink = Sink::new(progress);
    let stage = Stage::list(log, &mut sink);
    let tree = Tree::look(log, &mut sink)?;
    let tail = Tail::load(log).ok();
    let live = tail.as_ref().and_then(|tail| log.first_live_segment(tail, tail.state.floor).ok());
    let life = tail.map(|tail| tail.state);
    sink.total = total(log, &tree, life.as_ref());
    let replayer = Replayer::new(log);
    let mut walk = Walk { log, sink, tree, replayer, stage, life, live, begun: false };
    walk.segments();
    walk.tree.look_at_marks(log, &mut walk.sink, walk.begun);
    let end = walk.replayer.state.as_ref().ok().or(walk.life.as_ref());
    walk.stage.tell(log, &mut walk.sink, end);
    // A store that can't be opened is never called clean, whatever was overlooked above.
    if walk.sink.report.is_clean()
        && let Err(error) = Tail::load(log)
    {
        let path = error.path().and_then(|path| path.strip_prefix(&log.path).ok()).unwrap_or(Path::new(""));
        let place = Place { path: path.to_path_buf(), version: error.commit_version(), step: None };
        walk.sink.find(place, error.sentence());
    }
    Ok(walk.sink.report)
}

/// How many versions there are to be looked at.
fn total(log: &Log, tree: &Tree, life: Option<&State>) -> u64 {
    let complete = (tree.log.len() as u64).saturating_sub(1).saturating_mul(log.segment_size().into());
    let newest = tree.newest().unwrap_or_default().first_version(log.segment_size());
    let in_newest = life.map_or(0, |state| state.next_version.get().saturating_sub(newest.get()));
    complete.saturating_add(in_newest)
}

struct Walk<'l, 'p> {
    log: &'l Log,
    sink: Sink<'p>,
    tree: Tree,
    replayer: Replayer<'l>,
    stage: Stage,
    /// A state of the log's end, which tells what may be gone; none while it can't be read.
    life: Option<State>,
    /// The first segment that has a live part as of the call, if that can be told.
    live: Option<Segment>,
    /// Whether the newest segment has commits.
    begun: bool,
}

impl Walk<'_, '_> {
    fn segments(&mut self) {
        let all: Vec<_> = self.tree.log.union(&self.tree.indexes).copied().collect();
        let reclaimed = tree::reclaimed(self.live, &self.tree.indexes);
        let mut expected = reclaimed;
        for segment in all {
            if segment < reclaimed {
                let why = "made in a reclaimed segment by a writer that slept through that, or left of it";
                self.sink.litter(segment_path(names::LOG, segment), why);
                continue;
            }
            let gap = segment.previous().filter(|last| *last >= expected);
            // All before it went with it.
            if let Some(last) = gap.filter(|last| !self.is_reclaimed(*last)) {
                let what = format!("the segments {expected} to {last} are missing, their indexes too");
                self.sink.find(segment_path(names::LOG, expected), what);
            }
            expected = segment.next();
            self.segment(segment);
        }
    }

    fn segment(&mut self, segment: Segment) {
        self.replayer.enter(segment);
        let told = self.sink.told();
        // A listing that isn't made at once may lack what was begun meanwhile, and have what came later.
        let is_there =
            || self.tree.log.contains(&segment) || matches!(self.log.open_segment(segment), Ok(Some(_)));
        let was_missing = if is_there() {
            !self.commits(segment)
        } else {
            self.sink.find(segment_path(names::LOG, segment), "the segment is missing, likely purged");
            true
        };
        // One whose directory is there again a sleeper has made anew: its last commit isn't.
        let end = segment.next().first_version(self.log.segment_size()).get();
        let is_gone = || was_missing || self.is_removed(Version::new(end.saturating_sub(1)));
        if self.sink.told() > told && is_gone() && self.is_dead(segment) {
            // What is found in a directory that is removed meanwhile, and may be, says nothing.
            self.sink.forget_since(told);
            self.saw_indexed(segment);
        }
        let told = self.sink.told();
        self.index(segment);
        if self.sink.told() > told && (self.is_reclaimed(segment) || self.index_since(segment).is_some()) {
            self.sink.forget_since(told);
        }
    }

    fn index(&mut self, segment: Segment) {
        let path = segment_path(names::INDEX, segment);
        let complete = self.tree.newest().is_some_and(|newest| segment < newest);
        match &self.replayer.index {
            Err(error) => self.sink.find(path, error.sentence()),
            // Of the newest segment only if it was there before the segment was listed: then all of it is,
            // too.
            Ok(Some(known)) if complete || self.tree.indexes.contains(&segment) => {
                let place = Place::from(path);
                let segment_size = self.log.segment_size();
                Index { known, sink: &mut self.sink, place, segment_size }.verify(&self.replayer);
            }
            Ok(None) if complete => {
                self.sink.find(path, "the index is missing, though a later segment exists");
            }
            Ok(_) => {}
        }
    }

    /// Looks at a segment's commits. False if its directory isn't there any more, which is told.
    fn commits(&mut self, segment: Segment) -> bool {
        let path = segment_path(names::LOG, segment);
        let dir = match self.log.open_segment(segment) {
            Ok(Some(dir)) => dir,
            Ok(None) => {
                self.sink.find(path, "the segment went missing");
                return false;
            }
            Err(error) => {
                self.sink.find(path, error.sentence());
                return true;
            }
        };
        let first = segment.first_version(self.log.segment_size());
        let mut end = tree::versions(self.log, &mut self.sink, &dir, segment);
        let newest = self.tree.newest() == Some(segment);
        self.begun |= newest && end > first;
        if !newest || self.tree.indexes.contains(&segment) {
            end = segment.next().first_version(self.log.segment_size());
        }
        for version in (first.get()..end.get()).map(Version::new) {
            let told = self.sink.told();
            self.commit(&dir, version, path.join(names::version(version)));
            if self.sink.told() > told && self.is_removed(version) && self.is_dead(segment) {
                // Nor does what is found in a file that is.
                self.sink.forget_since(told);
                self.replayer.lose(version);
            }
            self.sink.version_done();
        }
        true
    }

    fn commit(&mut self, dir: &Dir, version: Version, path: PathBuf) {
        let place = Place { path: path.clone(), version: Some(version), step: None };
        let segment = version.segment(self.log.segment_size());
        let findings = self.sink.report.findings.len();
        let regular =
            tree::is_of_kind(self.log, &mut self.sink, dir, &names::version(version), Kind::File, path);
        if self.sink.report.findings.len() > findings {
            return self.replayer.lose(version);
        }
        let found = if regular { self.replayer.replay(version) } else { Ok(Found::Absent) };
        match found {
            Ok(Found::Commit(replayed)) => {
                self.sink.report.commits = self.sink.report.commits.saturating_add(1);
                self.stage.saw(replayed.read.header.nonce);
                let effect = replayed.effect.filter(|effect| effect.void.is_none());
                let (log, file, sink) = (self.log, &replayed.file, &mut self.sink);
                Commit { log, file, sink, place }
                    .verify(&replayed.read, effect.map(|effect| effect.first_part));
            }
            Ok(Found::Absent) => {
                self.replayer.lose(version);
                if !self.is_dead(segment) {
                    self.sink.find(place, "the commit is missing, likely purged");
                }
            }
            Ok(Found::Another) if self.is_dead(segment) => {
                self.sink
                    .litter(place.path, "made in a reclaimed segment by a writer that slept through that");
            }
            Ok(Found::Another) => self.sink.find(place, "it isn't the commit that the index has"),
            Err(error) => self.sink.find(place, error.sentence()),
        }
    }

    /// Whether a segment is freed, its index too, as of now: a reclaim may have run since the names were
    /// listed. The state is younger than the indexes, or the one before what lives may be gone by then.
    fn is_reclaimed(&self, segment: Segment) -> bool {
        let Ok(indexes) = index::list(self.log) else { return false };
        let Ok(tail) = Tail::load(self.log) else { return false };
        let live = self.log.first_live_segment(&tail, tail.state.floor).ok();
        segment < tree::reclaimed(live, &indexes)
    }

    /// The index of a segment that had none when it was begun with: it has become complete since, or a
    /// sleeper has put an index again that was removed.
    fn index_since(&self, segment: Segment) -> Option<Known<'_>> {
        if matches!(self.replayer.index, Ok(None)) { Known::load(self.log, segment).ok()? } else { None }
    }

    /// Whether a commit has no name any more.
    fn is_removed(&self, version: Version) -> bool {
        match self.log.open_segment(version.segment(self.log.segment_size())) {
            Ok(Some(dir)) => read::open(self.log, &dir, version)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound),
            opened => matches!(opened, Ok(None)),
        }
    }

    /// Whether the commits of a segment, which is the one that is read, may be gone: as of what is known, or
    /// of now.
    fn is_dead(&mut self, segment: Segment) -> bool {
        let known = self.replayer.index.as_ref().ok().and_then(Option::as_ref);
        let is_dead = |known: Option<&Known<'_>>, life: &Option<State>| {
            known.zip(life.as_ref()).is_some_and(|(known, life)| known.is_dead(life).unwrap_or(false))
        };
        if is_dead(known, &self.life) {
            return true;
        }
        self.life = Tail::load(self.log).ok().map(|tail| tail.state).or(self.life.take());
        if is_dead(known, &self.life) || self.is_reclaimed(segment) {
            return true;
        }
        let since = self.index_since(segment);
        // Its index may have been there at the last look, and be removed since.
        is_dead(since.as_ref(), &self.life) || since.is_none() && self.is_reclaimed(segment)
    }

    /// The nonces of a segment of which only the index is left.
    fn saw_indexed(&mut self, segment: Segment) {
        let Ok(Some(known)) = &self.replayer.index else { return };
        let first = segment.first_version(self.log.segment_size()).get();
        for version in (first..first.saturating_add(self.log.segment_size().into())).map(Version::new) {
            if let Ok(entry) = known.version(version) {
                self.stage.saw(entry.nonce);
            }
        }
    }
}

fn segment_path(parent: &str, segment: Segment) -> PathBuf {
    Path::new(parent).join(names::segment(segment))
}
