//! The commits of the log one by one, in words.

use super::CommitInfo;
use super::replayer::{Found, Replayed, Replayer};
use super::tree;
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::format::record::Record;
use crate::id::{Incarnation, Part, Segment, Step, Version};
use crate::log::Log;
use crate::log::state::State;
use crate::log::tail::Tail;
use crate::name::Name;

/// Commits in order.
pub(super) struct Listing<'l> {
    log: &'l Log,
    replayer: Replayer<'l>,
    /// As of the call: tells which segments may be gone.
    life: State,
    next: Version,
    from: Version,
}

impl<'l> Listing<'l> {
    pub(super) fn new(log: &'l Log, tail: &Tail, from: Version) -> Result<Self> {
        let life = tail.state.clone();
        let live = log.first_live_segment(tail, life.floor).ok();
        let reclaimed = tree::reclaimed(live, &segments(log, names::INDEX)?.into_iter().collect());
        let listed = segments(log, names::LOG)?.into_iter().filter(|segment| *segment >= reclaimed);
        let first = listed.min().unwrap_or_default();
        // What a commit does follows from its segment's beginning on.
        let segment = from.segment(log.segment_size()).max(first);
        let next = segment.first_version(log.segment_size());
        Ok(Self { log, replayer: Replayer::new(log), life, next, from })
    }

    fn missing(&self, version: Version) -> Error {
        let what = "the commit is missing, likely purged";
        Error::new(ErrorKind::Corrupt, what).version(version).at(self.log.commit_path(version))
    }

    /// Whether the segment that is read may be gone.
    fn is_dead(&self) -> bool {
        let index = self.replayer.index.as_ref().ok().and_then(Option::as_ref);
        index.is_some_and(|index| index.is_dead(&self.life).unwrap_or(false))
    }

    /// Enters a segment. False when all of it is gone.
    fn enter(&mut self, segment: Segment) -> Result<bool> {
        self.replayer.enter(segment);
        Ok(self.log.open_segment(segment)?.is_some())
    }

    fn step(&mut self, version: Version) -> Option<Result<CommitInfo>> {
        let segment = version.segment(self.log.segment_size());
        if version.slot(self.log.segment_size()) == 0 {
            let there = self.enter(segment);
            if !matches!(there, Ok(true)) {
                self.next = segment.next().first_version(self.log.segment_size());
                self.replayer.lose(version);
                return match there {
                    Ok(_) if self.is_dead() => None,
                    Ok(_) => Some(Err(self.missing(version))),
                    Err(error) => Some(Err(error)),
                };
            }
        }
        match self.replayer.replay(version) {
            Ok(Found::Commit(replayed)) => Some(Ok(info(self.log, version, &replayed, &self.replayer.state))),
            Ok(Found::Absent) if self.is_dead() => None,
            Ok(Found::Absent) => Some(Err(self.missing(version))),
            Ok(Found::Another) => {
                let what = "the file isn't the commit that the index has";
                Some(Err(Error::new(ErrorKind::Corrupt, what)
                    .version(version)
                    .at(self.log.commit_path(version))))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl Iterator for Listing<'_> {
    type Item = Result<CommitInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.next < self.life.next_version {
            let version = self.next;
            self.next = version.next();
            if let Some(item) = self.step(version)
                && version >= self.from
            {
                return Some(item);
            }
        }
        None
    }
}

/// The segments that a directory of the store has names for.
fn segments(log: &Log, parent: &str) -> Result<Vec<Segment>> {
    let listed = log.directory(parent).and_then(|dir| log.storage.list(&dir));
    let listed =
        listed.map_err(|error| Error::io("can't list the store", error).at(log.path_of([parent])))?;
    Ok(listed.iter().filter_map(names::parse_segment).collect())
}

fn info(log: &Log, version: Version, replayed: &Replayed, state: &Result<State, String>) -> CommitInfo {
    let (header, record) = (&replayed.read.header, &replayed.read.record);
    let void = match (&replayed.effect, state) {
        (Some(effect), _) => effect.void.map(|void| void.word().to_owned()),
        (None, Err(why)) => Some(format!("what it does isn't known: {why}")),
        (None, Ok(_)) => None,
    };
    let (who, incarnation) = about(version, record.as_ref());
    let step = |ordinal: u32| {
        let effect = replayed.effect.filter(|effect| ordinal < effect.parts)?;
        let part = effect.first_part.get().saturating_add(ordinal.into());
        Some(Part::new(part).step(log.parts_per_step()))
    };
    let parts = match record {
        Some(Record::Parts(parts)) => parts.parts.as_slice(),
        _ => &[],
    };
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let sum = |of: fn(&crate::format::part::PartDescriptor) -> u64| {
        parts.iter().map(of).fold(0u64, u64::saturating_add)
    };
    let kind = header.known_kind().map(|kind| kind.word().to_owned());
    CommitInfo {
        version,
        kind: kind.unwrap_or_else(|| format!("unknown kind {}", header.kind)),
        who,
        incarnation,
        first_step: step(0),
        last_step: count.checked_sub(1).and_then(step),
        parts: count,
        slices: sum(|part| part.slices),
        bytes: header.length,
        samples: sum(|part| part.samples),
        tokens: sum(|part| part.tokens),
        void,
        generation: header.generation,
        nonce: header.nonce,
        checksum: replayed.read.checksum,
        detail: record.as_ref().and_then(detail),
        wall_us: header.people.wall_us,
        host: header.people.host.clone(),
        pid: header.people.pid,
        job: header.people.job.clone(),
        library: header.people.library.clone(),
    }
}

/// Whom a record is about, and the incarnation that wrote it or that it begins.
fn about(version: Version, record: Option<&Record>) -> (Option<Name>, Option<Incarnation>) {
    let (who, incarnation) = match record {
        Some(Record::Open { producer: who, .. } | Record::Group { group: who, .. }) => {
            (who, version.incarnation())
        }
        Some(Record::Parts(parts)) => (&parts.producer, parts.incarnation),
        Some(Record::Checkpoint(checkpoint)) => (&checkpoint.group, checkpoint.incarnation),
        Some(
            Record::Retire { producer: who, incarnation }
            | Record::Forget { producer: who, incarnation }
            | Record::RetireGroup { group: who, incarnation }
            | Record::Drop { group: who, incarnation, .. },
        ) => (who, *incarnation),
        _ => return (None, None),
    };
    (Some(who.clone()), Some(incarnation))
}

/// What else a record says.
fn detail(record: &Record) -> Option<String> {
    let steps = |first: Step, last: Step| format!("steps {first} to {last}");
    Some(match record {
        Record::Open { last, .. } => format!("opened before at version {}", (*last)?),
        Record::Parts(parts) => match parts.parts.len() as u64 {
            1 => format!("sequence {}", parts.first),
            more => {
                let last = parts.first.get().saturating_add(more.saturating_sub(1));
                format!("sequences {} to {last}", parts.first)
            }
        },
        Record::Turns { names, .. } if names.is_empty() => "no more turns".to_owned(),
        Record::Turns { names, parts_per_turn, .. } => {
            let names: Vec<_> = names.iter().map(Name::as_str).collect();
            let parts = if *parts_per_turn == 1 { "part" } else { "parts" };
            format!("{parts_per_turn} {parts} each: {}", names.join(", "))
        }
        Record::Group { start, .. } => format!("from step {start}"),
        Record::Checkpoint(checkpoint) => {
            let pinned = if checkpoint.pinned { ", pinned" } else { "" };
            format!("{} at step {}{pinned}", checkpoint.name, checkpoint.step)
        }
        Record::Drop { checkpoint, .. } => format!("the checkpoint of version {checkpoint}"),
        Record::Floor { step, .. } => format!("to step {step}"),
        Record::Rewind(rewind) => format!("to step {}, begins generation {}", rewind.step, rewind.generation),
        Record::Skip { first, last, reason } => format!("{}: {reason}", steps(*first, *last)),
        Record::Close { step, open_step: true, .. } => format!("at step {step}, which may be begun"),
        Record::Close { step, .. } => format!("at step {step}"),
        Record::Reopen { closes } => format!("after {closes} closes"),
        Record::Require { features } => format!("bits {features:#x}"),
        Record::Retire { .. } | Record::Forget { .. } | Record::RetireGroup { .. } => return None,
    })
}
