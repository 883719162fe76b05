//! One attempt to give a finished file its final name, if that is free.
//!
//! - Unjudged: an error may be one's own success, and what it means is for the caller to find out (R2).
//! - Never replaces a name, and never makes one in any other way (R1).

use std::io;

use super::{Dir, Storage};
use crate::options::Primitive;

/// Tries the primitive once.
///
/// # Errors
/// The call's own.
pub(crate) fn put(
    storage: &dyn Storage,
    primitive: Primitive,
    from: &Dir,
    from_name: &str,
    to: &Dir,
    to_name: &str,
) -> io::Result<()> {
    match primitive {
        Primitive::Link => storage.link(from, from_name, to, to_name),
        // Of files, or of the directories in which a storage encloses them.
        Primitive::RenameNoreplace | Primitive::RenameDirectory => {
            storage.rename_noreplace(from, from_name, to, to_name)
        }
    }
}

/// The same from a name beside the target (R9): some mounts refuse a link, though not a rename, between two
/// directories. Whatever comes of it, the staged name is the file's again afterwards, as far as it can be;
/// whoever dies in between leaves `beside`.
///
/// # Errors
/// The primitive's, or that of the rename to `beside`.
pub(crate) fn put_beside(
    storage: &dyn Storage,
    primitive: Primitive,
    (from, from_name): (&Dir, &str),
    (to, to_name): (&Dir, &str),
    beside: &str,
) -> io::Result<()> {
    storage.rename(from, from_name, to, beside)?;
    let put = put(storage, primitive, to, beside, to, to_name);
    if let Err(error) = storage.rename(to, beside, from, from_name) {
        // After a rename that won there is nothing to move back.
        if put.is_err() || primitive == Primitive::Link {
            tracing::debug!(%error, beside, "a staged file stays beside its place");
        }
    }
    put
}

/// Whether an error of a primitive says that the mount refuses it between two directories.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    const EPERM: i32 = 1;
    const EXDEV: i32 = 18;
    matches!(error.raw_os_error(), Some(EPERM | EXDEV))
}

/// Whether an error of a primitive says that the mount doesn't do it, wherever the file lies. A filesystem
/// without RENAME_NOREPLACE answers EINVAL, as renameat2(2) has it.
pub(crate) fn is_unsupported(primitive: Primitive, error: &io::Error) -> bool {
    const EINVAL: i32 = 22;
    const EMLINK: i32 = 31;
    const ENOSYS: i32 = 38;
    const EOPNOTSUPP: i32 = 95;
    match error.raw_os_error() {
        Some(EMLINK | ENOSYS | EOPNOTSUPP) => true,
        Some(EINVAL) => primitive == Primitive::RenameNoreplace,
        _ => false,
    }
}

/// Drops the staged name of a file that is known to have won: a link leaves it behind, a rename took it away.
///
/// # Errors
/// As unlinkat(2). The file has its final name all the same; what stays is litter.
pub(crate) fn unstage(
    storage: &dyn Storage,
    primitive: Primitive,
    from: &Dir,
    from_name: &str,
) -> io::Result<()> {
    match primitive {
        Primitive::Link => storage.remove(from, from_name),
        Primitive::RenameNoreplace | Primitive::RenameDirectory => Ok(()),
    }
}
