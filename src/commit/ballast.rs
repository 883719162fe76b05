//! The ballast: a megabyte that is given up when a control record meets a full disk, so that a checkpoint can
//! be dropped and space reclaimed where nothing else can be written.
//!
//! - It is for control records only; parts have the disk's margin kept from them before.
//! - Losing it harms nothing: it is made anew after the next control record of the same handle that finds
//!   room, and at the end of a reclaim.

use std::io;
use std::sync::atomic::Ordering;

use crate::format::names;
use crate::limits::BALLAST_BYTES;
use crate::log::Log;
use crate::storage::{Dir, Storage, write_all_at};

/// Makes it, unless it is there. What fails leaves nothing.
///
/// # Errors
/// The system's.
pub fn make(storage: &dyn Storage, root: &Dir) -> io::Result<()> {
    let file = match storage.create_exclusive(root, names::BALLAST) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(error),
    };
    // Not zeros: a filesystem may store those in no room at all.
    let written = write_all_at(storage, &file, &vec![0xb5; BALLAST_BYTES], 0);
    let closed = storage.close(file);
    let made = written.and(closed);
    if made.is_err() {
        let _ = storage.remove(root, names::BALLAST);
    }
    made
}

/// Gives it up. False if there is none.
pub fn give_up(log: &Log) -> bool {
    let given = log.storage.remove(&log.root(), names::BALLAST).is_ok();
    if given {
        log.ballast_given.store(true, Ordering::Release);
        tracing::warn!(path = %log.path.display(), "the disk is full: the ballast is given up");
    }
    given
}

/// Makes it anew, once a record that needed its room is in, if there is room again.
pub fn renew(log: &Log) {
    if !log.ballast_given.load(Ordering::Acquire) {
        return;
    }
    restore(log);
}

/// Makes it, whoever gave it up, if there is room.
pub fn restore(log: &Log) {
    if let Err(error) = make(&*log.storage, &log.root()) {
        tracing::debug!(%error, "there is no room for the ballast yet");
        return;
    }
    log.ballast_given.store(false, Ordering::Release);
}
