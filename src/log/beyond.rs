//! R8: an absent version is the head only if nothing lies beyond it.

use super::tail::{Care, Tail};
use super::{Log, marks};
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::id::{Segment, Version};
use crate::planted::{Bug, is_planted};
use crate::storage::Names;

impl Tail {
    /// Whether the first absent version is the head. False when the log moved on meanwhile.
    pub(super) fn nothing_beyond(&mut self, log: &Log) -> Result<bool> {
        let segment = self.state.next_version.segment(log.segment_size());
        let beyond = match newest_name(log, segment) {
            Ok(beyond) => beyond,
            Err(error) => return marks::excuse(log, segment, error).map(|()| false),
        };
        let Some(beyond) = beyond else { return Ok(true) };
        if self.state.next_version > beyond || is_planted(Bug::HoleIsHead) {
            return Ok(true);
        }
        // The listing may be newer than the look: look afresh before anything is said to be missing.
        self.dir = None;
        if self.replay(log, Care::Answering)?.is_none() || marks::moved_on(log, segment)? {
            return Ok(false);
        }
        let version = self.state.next_version;
        if version > beyond {
            return Ok(true);
        }
        let what =
            format!("version {version} is missing, likely purged: the log reaches version {beyond} at least");
        Err(Error::new(ErrorKind::Corrupt, what).version(version).at(log.commit_path(version)))
    }
}

/// The newest version that the names in a segment speak of, or the existence of the segment after it (R4:
/// that one is made when all of this one is there).
fn newest_name(log: &Log, segment: Segment) -> Result<Option<Version>> {
    let listed = match log.open_segment(segment)? {
        None => Names::new(),
        Some(dir) => log.storage.list(&dir).map_err(|error| {
            Error::io("can't list a segment", error).at(log.path_of([names::LOG, &names::segment(segment)]))
        })?,
    };
    let after = segment.next();
    let newest = listed.iter().filter_map(names::parse_version).max();
    let proven = match log.open_segment(after)? {
        Some(_) => after.first_version(log.segment_size()).get().checked_sub(1).map(Version::new),
        None => None,
    };
    Ok(newest.max(proven))
}
