//! The state as it was right before a part came in: what a rewind goes back to, and what a floor leaves
//! behind.
//!
//! - Only what is never freed with the part itself is read: the index of the segment before the one that
//!   holds it, and commits of that segment (docs/design.md, section 9). The commit of the part before it may
//!   be gone.
//! - A commit counts only if it is the one that the log has at its version (R7).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::build;
use super::index::Index;
use super::state::State;
use super::tail::Tail;
use super::{Log, read};
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::Record;
use crate::id::{Checksum, Nonce, Part, Version};
use crate::name::Name;

/// A state of the past.
#[derive(Debug)]
pub struct Past {
    /// The state.
    pub state: State,
    /// The first version of the segment that it was in the middle of.
    base: Version,
    /// The index before that.
    before: Option<Arc<Index>>,
}

impl Past {
    /// The state before `part` came in, or now if it hasn't.
    ///
    /// # Errors
    /// `Reclaimed` when its step is below the floor; `Corrupt`, `Unsupported`, `Io`.
    pub fn before(log: &Log, tail: &Tail, part: Part) -> Result<Self> {
        if part >= tail.state.next_part {
            let before = tail.index_before(log)?;
            return Ok(Self { state: tail.state.clone(), base: tail.base(), before });
        }
        let located = log.locate(tail, part)?;
        let segment = located.version.segment(log.segment_size());
        let before = match segment.previous() {
            None => None,
            Some(previous) => Some(log.indexes.get(log, previous)?.ok_or_else(|| {
                let name = crate::format::names::segment(previous);
                Error::new(ErrorKind::Corrupt, "an index is missing, likely purged")
                    .at(log.path_of([crate::format::names::INDEX, &name]))
            })?),
        };
        let base = segment.first_version(log.segment_size());
        let mut state = match &before {
            Some(index) => index.state(log.parts_per_step())?,
            None => State::new(log.parts_per_step()),
        };
        while state.next_version <= located.version {
            let version = state.next_version;
            let mut commit = known_commit(log, tail, version)?.to_commit();
            if version == located.version {
                // Of the commit that holds it, what comes before it.
                let Some(Record::Parts(parts)) = &mut commit.record else { break };
                parts.parts.truncate(usize::try_from(located.ordinal).unwrap_or(usize::MAX));
                if parts.parts.is_empty() {
                    break;
                }
            }
            let replayed = state.apply(version, &commit);
            replayed.map_err(|error| error.version(version).at(log.commit_path(version)))?;
        }
        Ok(Self { state, base, before })
    }

    /// The bytes of every producer's last state then.
    ///
    /// # Errors
    /// `Corrupt` or `Io` when one can't be read.
    pub fn producer_states(&self, log: &Log) -> Result<BTreeMap<Name, Vec<u8>>> {
        build::states_of(log, &self.state, self.base, || Ok(self.before.clone()))
    }
}

/// The commit of a version, known to be the one that the log has there.
fn known_commit(log: &Log, tail: &Tail, version: Version) -> Result<read::Read> {
    let known = identity(log, tail, version)?;
    let path = || log.commit_path(version);
    let file = log
        .open_behind(version)
        .map_err(|error| Error::io("can't open a commit", error).version(version).at(path()))?;
    let read = read::commit(log, &file, version)?;
    if (read.header.nonce, read.checksum) == known {
        return Ok(read);
    }
    let what = "the file isn't the commit that the log has there: another one has its name";
    Err(Error::new(ErrorKind::Corrupt, what).version(version).at(path()))
}

fn identity(log: &Log, tail: &Tail, version: Version) -> Result<(Nonce, Checksum)> {
    if let Some(entry) = tail.entry(version) {
        return Ok((entry.nonce, entry.checksum));
    }
    let segment = version.segment(log.segment_size());
    let missing = || Error::new(ErrorKind::Corrupt, format!("no index has version {version}")).at(&log.path);
    let entry = log.indexes.get(log, segment)?.ok_or_else(missing)?.version(version)?;
    Ok((entry.nonce, entry.checksum))
}
