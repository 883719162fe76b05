//! One version name for a staged file, and what an error means.
//!
//! - An error isn't a loss (R2): after any, the name is opened afresh and compared by nonce and record
//!   checksum. The same is won, another is lost, an absent one is tried again, bounded; then only replay
//!   can tell.
//! - Inode and link count prove nothing; neither does the errno.

use std::io;
use std::sync::atomic::Ordering;

use super::staged::Staged;
use crate::error::{Error, ErrorKind};
use crate::format::names;
use crate::id::Version;
use crate::limits::PUT_ATTEMPTS_MAX;
use crate::log::{Log, read};
use crate::options::Primitive;
use crate::planted::{Bug, is_planted};
use crate::storage::{Dir, put};

/// How an attempt ended.
#[derive(Debug)]
pub enum Put {
    /// The name is ours.
    Won,
    /// The name is another commit's.
    Lost,
    /// It can't be told; the staged file stays.
    Unknown(Error),
}

/// Tries to give a staged commit the name of `version` in its segment's directory.
pub fn put(log: &Log, stage: &Dir, staged: &Staged, segment: &Dir, version: Version) -> Put {
    let name = names::version(version);
    let mut unknown = None;
    for _ in 0..PUT_ATTEMPTS_MAX {
        let Err(error) = put_file(log, stage, &staged.name, segment, &name) else { return Put::Won };
        if error.kind() == io::ErrorKind::AlreadyExists && is_planted(Bug::EexistTrusted) {
            return Put::Lost;
        }
        match read::identity_afresh(log, version) {
            Ok(Some(found)) if found == staged.identity() => return Put::Won,
            Ok(Some(_)) => return Put::Lost,
            Ok(None) => {
                refused(log, &error);
                unknown = Some(describe(log, error, version));
            }
            Err(error) => unknown = Some(error),
        }
    }
    Put::Unknown(unknown.unwrap_or_else(|| Error::new(ErrorKind::Io, "no attempt was made")))
}

/// One attempt by the store's primitive, from stage/ or from beside the target (R9).
pub(super) fn put_file(log: &Log, stage: &Dir, staged: &str, to: &Dir, name: &str) -> io::Result<()> {
    let (storage, primitive) = (&*log.storage, log.identity.primitive);
    if log.puts_beside.load(Ordering::Relaxed) {
        put::put_beside(storage, primitive, (stage, staged), (to, name), &names::beside(staged))
    } else {
        put::put(storage, primitive, stage, staged, to, name)
    }
}

/// R9: what a mount refuses between two directories is tried from beside the target from now on.
pub(super) fn refused(log: &Log, error: &io::Error) {
    if put::is_refused(error) && !log.puts_beside.swap(true, Ordering::Relaxed) {
        let (path, primitive) = (log.path.display(), log.identity.primitive);
        tracing::info!(%error, %path, %primitive, "refused between directories: from beside its place now");
    }
}

/// Gives a commit its staged name back, which a rename took away, if it has got the name of `version` in a
/// directory that nobody reads. Only for one of which replay says, after that, that it isn't in (R6).
///
/// If it can't be taken back its staged file is gone, which the next attempt finds.
pub fn take_back(log: &Log, stage: &Dir, staged: &Staged, segment: &Dir, version: Version) {
    if log.identity.primitive == Primitive::Link {
        return;
    }
    let is_it = read::open(log, segment, version).is_ok_and(|file| {
        let found = read::commit(log, &file, version);
        found.is_ok_and(|found| (found.header.nonce, found.checksum) == staged.identity())
    });
    if !is_it {
        return;
    }
    let name = names::version(version);
    let taken = put::put(&*log.storage, log.identity.primitive, segment, &name, stage, &staged.name);
    if let Err(error) = taken {
        tracing::warn!(%error, %version, "a commit can't be taken back from a segment that was removed");
    }
}

fn describe(log: &Log, error: io::Error, version: Version) -> Error {
    let primitive = log.identity.primitive;
    let what = format!("the {primitive} failed and the version is absent; whether it comes is unknown");
    refused_or(primitive, &what, error).version(version).at(log.commit_path(version))
}

/// The error of a primitive that failed, with these words: `Unsupported` where a mount refuses it, which did
/// it when the store was made; else `Io`.
pub(super) fn refused_or(primitive: Primitive, what: &str, error: io::Error) -> Error {
    if !is_refusal(primitive, &error) {
        return Error::io(what, error);
    }
    let what = format!(
        "{what}; the mount refuses the {primitive} by which this store publishes: mount it as it was when \
         the store was made, or copy the store to another filesystem"
    );
    Error::new(ErrorKind::Unsupported, what).caused_by(error)
}

/// Whether a mount refuses a primitive: between two directories, and the rename that is tried then too (R9),
/// or altogether.
pub fn is_refusal(primitive: Primitive, error: &io::Error) -> bool {
    put::is_refused(error) || put::is_unsupported(primitive, error)
}
