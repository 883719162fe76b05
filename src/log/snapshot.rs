//! The log's end as bytes, by which another process knows it without replaying it.
//!
//! - It holds what a tail holds of the newest segments, and of producers' states where they are, never their
//!   bytes.
//! - It is believed only after its newest commit is found on disk, by nonce and record checksum (R10).

use super::known::Entry;
use super::state::State;
use super::tail::Tail;
use super::void::Void;
use super::{Log, marks, read};
use crate::error::{Error, ErrorKind, Result};
use crate::format::cursor::{Reader, Writer};
use crate::id::Nonce;
use crate::limits::{
    INDEX_BYTES_MAX, LOOK_AGAIN_MAX, LOOK_AGAIN_PAUSE, PROBE_INTERVAL_MAX, SEGMENT_SIZE_MAX,
};

const ENTRY_BYTES: usize = 39;

impl Tail {
    /// What it knows, as bytes.
    pub fn encode(&self, to: &mut Writer) {
        to.u64(self.marked.get()).bytes(&self.state.encode());
        to.u64(self.base.get()).count(self.entries.len());
        for entry in &self.entries {
            to.raw(entry.nonce.bytes()).checksum(entry.checksum).u16(entry.kind);
            to.u8(entry.void.map_or(0, Void::number)).u64(entry.first_part.get()).u32(entry.parts);
        }
    }

    /// Reads what [`Tail::encode`] wrote.
    ///
    /// # Errors
    /// `Corrupt` when it isn't that, `Unsupported` when a newer library wrote it.
    pub fn decode(from: &mut Reader<'_>, parts_per_step: u32) -> Result<Self> {
        let mut tail = Self::unloaded(parts_per_step);
        tail.marked = from.u64()?.into();
        let most = usize::try_from(INDEX_BYTES_MAX).unwrap_or(usize::MAX);
        tail.state = State::decode(from.bytes(most)?, parts_per_step)?;
        tail.base = from.u64()?.into();
        for _ in 0..from.count(ENTRY_BYTES, SEGMENT_SIZE_MAX as usize * 2)? {
            let (nonce, checksum, kind) = (Nonce::new(from.array()?), from.checksum()?, from.u16()?);
            let void = match from.u8()? {
                0 => None,
                number => Some(Void::from_number(number).ok_or_else(|| broken("an unknown void"))?),
            };
            let (first_part, parts) = (from.u64()?.into(), from.u32()?);
            tail.entries.push_back(Entry { nonce, checksum, kind, void, first_part, parts });
        }
        let end = tail.base.get().checked_add(tail.entries.len() as u64);
        if end != Some(tail.state.next_version.get()) {
            return Err(broken("its commits don't reach its end"));
        }
        tail.loaded = true;
        Ok(tail)
    }

    /// Whether its newest commit is the one that is on disk.
    fn is_on_disk(&self, log: &Log) -> Result<bool> {
        let (Some(version), Some(entry)) = (self.newest(), self.entries.back()) else { return Ok(false) };
        Ok(read::identity_afresh(log, version)? == Some((entry.nonce, entry.checksum)))
    }
}

impl Log {
    /// Begins from the log's end as another process knew it, if that is still there; else from the newest
    /// index.
    ///
    /// A host that sees less of the log than that process did is waited for, as long as its mount's patience
    /// lasts.
    ///
    /// # Errors
    /// `Rewound` when the log here doesn't reach as far; as [`Tail::load`].
    pub fn adopt(&self, mut told: Tail) -> Result<()> {
        let until = self.patient_until();
        let wanted = told.state.next_version;
        let found = self.outlast("looking for a snapshot's commit", until, |_| {
            told.is_on_disk(self)?.then(|| told.index_before(self)).transpose()
        });
        match found {
            Ok(Some(before)) => {
                let mut tail = self.tail.take();
                // A handle that knows more already isn't set back: others read by it.
                if !tail.loaded || tail.state.next_version < wanted {
                    told.before = before;
                    *tail = told;
                }
                return Ok(());
            }
            Ok(None) => {}
            // What it was told of may be removed while it is read (R7): the index before it goes first.
            Err(error) => {
                let first = told.base.segment(self.segment_size());
                marks::excuse(self, first.previous().unwrap_or_default(), error)?;
            }
        }
        let (mut pause, mut looks) = (LOOK_AGAIN_PAUSE, 0u32);
        loop {
            let is = self.current()?.state.next_version;
            if is >= wanted {
                return Ok(());
            }
            looks = looks.saturating_add(1);
            if looks >= LOOK_AGAIN_MAX && self.env.now() >= until {
                let what = format!(
                    "the log has {is} versions here, the snapshot has seen {wanted}: this host sees an older \
                     state of the mount, or the store lost its end"
                );
                return Err(Error::new(ErrorKind::Rewound, what).at(&self.path));
            }
            self.env.sleep(pause);
            pause = pause.saturating_mul(2).min(PROBE_INTERVAL_MAX);
        }
    }
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the snapshot is broken: {what}"))
}
