//! Files in stage/: created exclusively, written, synced and closed before they get any other name.
//!
//! - A staged name is made by O_CREAT | O_EXCL only; a final name never is (R1).
//! - A file whose write, sync or close failed is thrown away, never tried again as if it were durable (R3).
//! - Nothing here removes a file whose outcome is unknown (R2).

use std::io;

use super::ballast;
use crate::error::{Error, ErrorKind, Result};
use crate::format::commit::{Draft, Sealed, seal};
use crate::format::names;
use crate::format::record::Record;
use crate::id::{Checksum, Nonce};
use crate::limits::LOOK_AGAIN_MAX;
use crate::log::Log;
use crate::log::apply::Commit;
use crate::log::tail::Tail;
use crate::planted::{Bug, is_planted};
use crate::storage::{Dir, File, write_all_at};

/// A finished commit in stage/: whole, synced if the store is, closed.
#[derive(Clone, Debug)]
pub struct Staged {
    /// Its name in stage/.
    pub name: String,
    /// What replay will take of it.
    pub commit: Commit,
}

impl Staged {
    /// What tells it from every other commit (R2).
    pub fn identity(&self) -> (Nonce, Checksum) {
        (self.commit.nonce, self.commit.checksum)
    }
}

/// stage/, as it is held from one part to the next.
#[derive(Clone, Debug)]
pub struct Stage {
    dir: Dir,
    /// See [`Log::mounts`].
    mounts: u64,
}

impl Stage {
    /// Opens it.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(log: &Log) -> Result<Self> {
        let mounts = log.mounts();
        Ok(Self { dir: open_stage(log)?, mounts })
    }

    /// The directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Opens it anew if the store was found on another mount since: a link or rename between two mounts is
    /// refused (EXDEV), which isn't the mount's own refusal (R9).
    ///
    /// # Errors
    /// `Io`.
    pub fn renew(&mut self, log: &Log) -> Result<()> {
        log.once(|| {
            if self.mounts != log.mounts() {
                *self = Self::open(log)?;
            }
            Ok(())
        })
    }
}

/// Opens stage/, for a handle that is going to write.
///
/// # Errors
/// `Io`.
pub fn open_stage(log: &Log) -> Result<Dir> {
    log.secure()?;
    log.directory(names::STAGE).map_err(|error| {
        Error::io("can't open the directory of staged files", error).at(log.path_of([names::STAGE]))
    })
}

/// Seals a record for the log as it was replayed.
///
/// # Errors
/// `Invalid` when it is too long, or what reading the newest index says.
pub fn seal_after(
    log: &Log,
    tail: &Tail,
    nonce: Nonce,
    attempt_us: u32,
    record: Record,
) -> Result<(Sealed, Commit)> {
    let draft = Draft {
        store: log.identity.uuid,
        nonce,
        generation: tail.state.generation,
        seen: tail.seen()?,
        attempt_us,
        people: log.people(),
    };
    let sealed = seal(draft, &record)?;
    let commit = Commit {
        nonce,
        checksum: sealed.checksum,
        kind: record.kind().number(),
        generation: tail.state.generation,
        attempt_us,
        record: Some(record),
    };
    Ok((sealed, commit))
}

/// A control record, and the bytes that it describes.
#[derive(Debug)]
pub struct Control {
    /// What the commit says.
    pub record: Record,
    /// What lies between the header block and a record that isn't in it, from byte 4096 on.
    pub payload: Vec<u8>,
}

impl From<Record> for Control {
    /// Most describe nothing.
    fn from(record: Record) -> Self {
        Self { record, payload: Vec::new() }
    }
}

/// Stages a control record.
///
/// # Errors
/// `Invalid` when record and payload don't fit each other; `Full` or `Io`. Nothing is left then.
pub fn stage_control(log: &Log, tail: &Tail, stage: &Dir, control: Control) -> Result<Staged> {
    let nonce = log.nonce()?;
    let name = names::staged_control(control.record.kind().word(), nonce);
    let (sealed, commit) = seal_after(log, tail, nonce, 0, control.record)?;
    let mut bytes = sealed.block.to_vec();
    bytes.extend(control.payload);
    if let Some((offset, record)) = &sealed.elsewhere {
        let padding = offset.saturating_sub(bytes.len() as u64).min(size_of::<u64>() as u64);
        bytes.resize(bytes.len().saturating_add(usize::try_from(padding).unwrap_or(0)), 0);
        bytes.extend_from_slice(record);
    }
    if bytes.len() as u64 != sealed.length {
        let what = format!("a commit has {} bytes, its header would say {}", bytes.len(), sealed.length);
        return Err(Error::new(ErrorKind::Invalid, what).at(&log.path));
    }
    match stage_bytes(log, stage, &name, &bytes) {
        // Its room is for this: without a control record nobody could make any.
        Err(error) if error.kind() == ErrorKind::Full && ballast::give_up(log) => {
            stage_bytes(log, stage, &name, &bytes)?;
        }
        staged => staged?,
    }
    Ok(Staged { name, commit })
}

/// Writes a whole file into stage/; again, if it is gone from its server: a reclaim that has seen a control
/// file twice takes it for litter, also while it is written.
///
/// # Errors
/// `Full` or `Io`; nothing is left then.
pub fn stage_bytes(log: &Log, stage: &Dir, name: &str, bytes: &[u8]) -> Result<()> {
    let failed = |error| Error::io("can't stage a file", error).at(log.path_of([names::STAGE, name]));
    let mut attempts_left = LOOK_AGAIN_MAX;
    loop {
        attempts_left = attempts_left.saturating_sub(1);
        let file = log.storage.create_exclusive(stage, name).map_err(failed)?;
        let finished = match write_all_at(&*log.storage, &file, bytes, 0) {
            Ok(()) => finish(log, file),
            Err(error) => Err(error),
        };
        let Err(error) = finished else { return Ok(()) };
        discard(log, stage, name);
        if attempts_left == 0 || error.kind() != io::ErrorKind::StaleNetworkFileHandle {
            return Err(failed(error));
        }
    }
}

/// Makes a written file durable, if the store is synced, and closes it; each may be the first to report a
/// full disk (R3).
///
/// # Errors
/// The system's: the bytes are then to be thought lost.
pub fn finish(log: &Log, file: File) -> io::Result<()> {
    let mut synced = if log.is_synced() { log.storage.sync_file(&file) } else { Ok(()) };
    if synced.is_err() && is_planted(Bug::FileSyncRepeated) {
        synced = log.storage.sync_file(&file);
    }
    let closed = log.storage.close(file);
    synced.and(closed)
}

/// Removes a staged file that was never, and will never be, given another name. What fails is litter, which a
/// clean-up finds later.
pub fn discard(log: &Log, stage: &Dir, name: &str) {
    if let Err(error) = log.storage.remove(stage, name) {
        tracing::debug!(%error, name, "a staged file stays behind");
    }
}
