//! What of a log is dead: segments and indexes that no live step, opener or builder needs any more.
//!
//! - Segment k goes only if mark k+2 is there (R6), and every commit in it is dead: its parts lie below the
//!   floor, or were rewound.
//! - Dead stays dead: the floor never falls, a rewound part never comes back, and marks only grow. So what is
//!   found here is right however much later it is acted upon.
//! - Nothing of a segment is opened for it: live parts ascend with versions, so that the commit of the
//!   floor's first part, and those at the ends of rewound runs, tell of all the others.

use crate::error::{Error, Result};
use crate::format::names;
use crate::id::{Part, Segment, Version};
use crate::log::state::State;
use crate::log::tail::Tail;
use crate::log::{Log, marks};
use crate::planted::{Bug, is_planted};
use crate::storage::Names;

/// The names in a store before its log was read: whatever there is a name for then, replay knows of.
#[derive(Debug)]
pub(super) struct Listed {
    /// Segments that have a directory, from the lowest on.
    log: Vec<Segment>,
    /// Segments that have an index, from the lowest on.
    indexes: Vec<Segment>,
    /// What is in stage/.
    pub(super) stage: Names,
    /// The highest mark.
    highest: Segment,
}

impl Listed {
    /// Lists them.
    ///
    /// # Errors
    /// `Corrupt` without any mark; `Io`.
    pub(super) fn now(log: &Log) -> Result<Self> {
        let segments = |name| {
            let mut found: Vec<_> = list(log, name)?.iter().filter_map(names::parse_segment).collect();
            found.sort_unstable();
            Ok::<_, Error>(found)
        };
        Ok(Self {
            log: segments(names::LOG)?,
            indexes: segments(names::INDEX)?,
            stage: list(log, names::STAGE)?,
            highest: marks::highest(log)?,
        })
    }

    /// Whether mark k + `ahead` is there, or was once.
    fn is_marked(&self, segment: Segment, ahead: u64) -> bool {
        segment.get().saturating_add(ahead) <= self.highest.get()
    }
}

fn list(log: &Log, name: &str) -> Result<Names> {
    let listed = log.directory(name).and_then(|dir| log.storage.list(&dir));
    listed.map_err(|error| Error::io("can't list a directory of the store", error).at(log.path_of([name])))
}

/// What may be removed.
#[derive(Debug, Default)]
pub(super) struct Dead {
    /// Segments of the log, from the lowest on.
    pub(super) segments: Vec<Segment>,
    /// Directories of segments that were removed before: what sleepers have made anew, or a stop has left.
    pub(super) strays: Vec<Segment>,
    /// Indexes, from the lowest on.
    pub(super) indexes: Vec<Segment>,
}

impl Dead {
    /// Nothing at all.
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.strays.is_empty() && self.indexes.is_empty()
    }
}

/// What of the listed is dead as of a state; `tail` is of the same history, and finds places.
///
/// # Errors
/// As [`Log::locate`].
pub(super) fn find(log: &Log, tail: &Tail, state: &State, listed: &Listed) -> Result<Dead> {
    let ahead = if is_planted(Bug::RemovedEarly) { 1 } else { 2 };
    let may_go: Vec<Segment> =
        listed.log.iter().copied().filter(|segment| listed.is_marked(*segment, ahead)).collect();
    let marked = |segment: &Segment| listed.is_marked(*segment, 3);
    if may_go.is_empty() && !listed.indexes.iter().any(marked) {
        return Ok(Dead::default());
    }
    let live = log.first_live_segment(tail, state.floor)?;
    let rewound = rewound(log, tail, state, &may_go)?;
    let is_dead = |segment: &Segment| {
        *segment < live || rewound.iter().any(|(after, before)| after < segment && segment < before)
    };
    let first_index = listed.indexes.first().copied().unwrap_or_default();
    let (strays, segments) = may_go.into_iter().filter(is_dead).partition(|segment| *segment < first_index);
    // As a prefix only, and never the one right before a live segment: a rewind to the floor finds its
    // states there, and the newest index can be built again from the one before it.
    let indexes = listed.indexes.iter().copied().filter(|segment| segment.next() < live && marked(segment));
    Ok(Dead { segments, strays, indexes: indexes.collect() })
}

/// The runs of segments that hold nothing but what was rewound: each between the segment of the last live
/// part of one piece of history and that of the Rewind which ended it.
fn rewound(log: &Log, tail: &Tail, state: &State, may_go: &[Segment]) -> Result<Vec<(Segment, Segment)>> {
    let size = log.segment_size();
    let pieces = &state.history.pieces;
    let mut runs = Vec::new();
    for (older, newer) in pieces.iter().zip(pieces.iter().skip(1)) {
        let before = Version::new(newer.version.get().saturating_sub(1)).segment(size);
        let earliest = older.version.segment(size);
        // All of the older piece is below the floor, which the store was rewound to.
        if newer.step <= state.floor {
            continue;
        }
        // No part of the older piece lies before `earliest`, so without a name between there is no run.
        if !may_go.iter().any(|segment| earliest < *segment && *segment < before) {
            continue;
        }
        let last = newer.step.first_part(state.parts_per_step).get().saturating_sub(1);
        let after = log.locate(tail, Part::new(last))?.version.segment(size);
        runs.push((after, before));
    }
    Ok(runs)
}
