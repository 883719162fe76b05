//! Bytes <-> values: everything that lies on disk, and nothing that touches a disk.
//!
//! - Decoders take any bytes: they never panic, never allocate beyond a bound of [`crate::limits`], and
//!   accept only what an encoder could have written, so that encode(decode(bytes)) == bytes.
//! - Integers are little-endian; sizes and offsets are 64-bit; only relative names are stored.
//! - An error is `Corrupt` (not what was written) or `Unsupported` (written by a newer library); the caller
//!   adds the path and the version.
//!
//! `docs/format.md` is the byte-exact description.

pub mod checksum;
pub mod codec;
pub mod commit;
pub mod cursor;
pub mod index;
pub mod names;
pub mod part;
pub mod record;
pub mod stopper;
pub mod store;

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod commit_tests;
#[cfg(test)]
mod index_tests;
#[cfg(test)]
mod record_tests;

use crate::error::{Error, ErrorKind};

/// The format version that this library writes, and the only one it reads.
pub const FORMAT_VERSION: u16 = 1;
/// The feature bits that this library knows. A store that needs another one is `Unsupported`.
pub const FEATURES: u64 = 0;

/// Which side of a misfit this is.
const THIS: &str = concat!("this library, batchweave ", env!("CARGO_PKG_VERSION"), ",");

/// `Corrupt`, saying what is wrong.
fn corrupt(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}

/// Refuses what a newer library wrote, naming both sides.
pub(crate) fn check_supported(what: &str, format_version: u16, features: u64) -> Result<(), Error> {
    if format_version != FORMAT_VERSION {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("{what} has format version {format_version}, {THIS} reads {FORMAT_VERSION}"),
        ));
    }
    check_features(what, features)
}

/// Refuses feature bits that this library doesn't know.
pub(crate) fn check_features(what: &str, features: u64) -> Result<(), Error> {
    if features & !FEATURES == 0 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "{what} of format version {FORMAT_VERSION} needs the feature bits {features:#x}, \
             {THIS} knows {FEATURES:#x}"
        ),
    ))
}
