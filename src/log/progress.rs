//! Progress hints: how far the rank that opened a group has come, for people and for back-pressure only.
//!
//! - One small file for each group, rewritten in place, at most once a second. Nothing that is promised rests
//!   on it: absent, old, torn or wrong, it only changes who waits how long.
//! - A hint of another incarnation than the current one says nothing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Log;
use crate::format::checksum;
use crate::format::cursor::{Reader, Writer};
use crate::format::names;
use crate::id::{Incarnation, Step};
use crate::limits::PROGRESS_INTERVAL;
use crate::name::Name;
use crate::storage::{Access, read_exact_at, write_all_at};

const MAGIC: &[u8; 8] = b"BWprogr\0";
const PROGRESS_BYTES: usize = 64;

/// How far a group has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The incarnation that says so.
    pub incarnation: Incarnation,
    /// The next step to deliver.
    pub step: Step,
    /// How many shares read each step.
    pub shares: u32,
    /// It waits for that step.
    pub hungry: bool,
    /// By the clock of its host, in microseconds since 1970.
    pub wall_us: u64,
}

impl Progress {
    fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.raw(MAGIC).u64(self.incarnation.get()).u64(self.step.get()).u32(self.shares);
        to.bool(self.hungry).zeros(3).u64(self.wall_us);
        to.pad_to(PROGRESS_BYTES - 8);
        let bytes = to.into_bytes();
        let mut to = Writer::new();
        to.raw(&bytes).checksum(checksum::of(&bytes));
        to.into_bytes()
    }

    /// None when the bytes aren't a whole hint.
    fn decode(bytes: &[u8; PROGRESS_BYTES]) -> Option<Self> {
        let (sealed, seal) = bytes.split_at_checked(PROGRESS_BYTES - 8)?;
        if Reader::new(seal).checksum().ok()? != checksum::of(sealed) {
            return None;
        }
        let mut from = Reader::new(sealed);
        if from.take(MAGIC.len()).ok()? != MAGIC {
            return None;
        }
        let (incarnation, step) = (from.u64().ok()?.into(), from.u64().ok()?.into());
        let (shares, hungry) = (from.u32().ok()?, from.bool().ok()?);
        from.zeros(3).ok()?;
        Some(Self { incarnation, step, shares, hungry, wall_us: from.u64().ok()? })
    }
}

/// What a group's hint says, if there is one.
pub fn read(log: &Log, group: &Name) -> Option<Progress> {
    let storage = &*log.storage;
    let dir = log.directory(names::GROUPS).ok()?;
    let file = storage.open(&dir, group.as_str(), Access::Read).ok()?;
    let mut bytes = [0; PROGRESS_BYTES];
    read_exact_at(storage, &file, &mut bytes, 0).ok()?;
    Progress::decode(&bytes)
}

/// Who tells of a group's progress: the rank that opened it.
#[derive(Debug)]
pub struct Teller {
    log: Arc<Log>,
    group: Name,
    incarnation: Incarnation,
    told: Mutex<Option<Duration>>,
    shares_before: Option<u32>,
}

impl Teller {
    /// For an incarnation of a group.
    pub fn new(log: Arc<Log>, group: Name, incarnation: Incarnation) -> Self {
        let shares_before = read(&log, &group).map(|said| said.shares);
        Self { log, group, incarnation, told: Mutex::new(None), shares_before }
    }

    /// How many shares read each step when the group was read last, if that is known.
    pub fn shares_before(&self) -> Option<u32> {
        self.shares_before
    }

    /// Tells where the next batch comes from, if it wasn't told lately.
    pub fn tell(&self, step: Step, shares: u32, hungry: bool) {
        let now = self.log.env.now();
        {
            let mut told = self.told.lock();
            if told.is_some_and(|then| now.saturating_sub(then) < PROGRESS_INTERVAL) {
                return;
            }
            *told = Some(now);
        }
        let wall_us = self.log.env.wall_us();
        let said = Progress { incarnation: self.incarnation, step, shares, hungry, wall_us };
        if let Err(error) = self.write(&said.encode()) {
            tracing::debug!(%error, group = %self.group, "a group's progress isn't told");
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let (storage, name) = (&*self.log.storage, self.group.as_str());
        let dir = self.log.directory(names::GROUPS)?;
        let file = match storage.open(&dir, name, Access::Update) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => storage.create_exclusive(&dir, name)?,
            opened => opened?,
        };
        write_all_at(storage, &file, bytes, 0)?;
        storage.close(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_read_back_and_anything_else_is_none() {
        let said = Progress {
            incarnation: Incarnation::new(7),
            step: Step::new(9),
            shares: 4,
            hungry: true,
            wall_us: 11,
        };
        let bytes: [u8; PROGRESS_BYTES] = said.encode().try_into().unwrap();
        assert_eq!(Progress::decode(&bytes), Some(said));
        for at in 0..PROGRESS_BYTES {
            let mut torn = bytes;
            torn[at] ^= 1;
            assert_eq!(Progress::decode(&torn), None, "changed at {at}");
        }
        assert_eq!(Progress::decode(&[0; PROGRESS_BYTES]), None);
    }
}
