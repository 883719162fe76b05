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
/// The call's own; `Unsupported` for a primitive that this version can't publish by.
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
        Primitive::RenameNoreplace => storage.rename_noreplace(from, from_name, to, to_name),
        Primitive::RenameDirectory => Err(io::ErrorKind::Unsupported.into()),
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
