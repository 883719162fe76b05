//! Reading one commit: its header and its record, checked.
//!
//! Nothing is believed of a file but what its checksums cover; a file of another store is `Corrupt`.

use std::io;

use super::Log;
use super::apply::Commit;
use crate::error::{Error, ErrorKind, Result};
use crate::format::commit::{Block, Header, Place};
use crate::format::names;
use crate::format::record::Record;
use crate::id::{Checksum, Nonce, Version};
use crate::limits::{COMMIT_HEADER_BYTES, RECORD_BYTES_MAX};
use crate::storage::{Access, Dir, File, read_exact_at};

/// A commit's header and record.
#[derive(Clone, Debug)]
pub struct Read {
    /// The header.
    pub header: Header,
    /// Its record checksum.
    pub checksum: Checksum,
    /// The record; none if it is of an unknown kind that is optional.
    pub record: Option<Record>,
}

impl Read {
    /// What replay takes of it.
    pub fn to_commit(&self) -> Commit {
        Commit::new(&self.header, self.checksum, self.record.clone())
    }
}

/// Opens a commit by its name in its segment's directory.
///
/// # Errors
/// The system's.
pub fn open(log: &Log, segment: &Dir, version: Version) -> io::Result<File> {
    log.storage.open(segment, &names::version(version), Access::Read)
}

/// Reads a commit's header and record.
///
/// # Errors
/// `Corrupt`, `Unsupported` or `Io`, naming version and path.
pub fn commit(log: &Log, file: &File, version: Version) -> Result<Read> {
    read(log, file).map_err(|error| error.version(version).at(log.commit_path(version)))
}

fn read(log: &Log, file: &File) -> Result<Read> {
    let mut block: Box<Block> = Box::new([0; COMMIT_HEADER_BYTES as usize]);
    read_exact_at(&*log.storage, file, block.as_mut_slice(), 0).map_err(short)?;
    let (header, checksum) = Header::decode(&block)?;
    if header.store != log.identity.uuid {
        let what = format!("the commit belongs to store {}, not to {}", header.store, log.identity.uuid);
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    let elsewhere = match header.place {
        Place::Inline => Vec::new(),
        Place::At { offset, .. } => {
            // The header's own checks hold the length against its bound before anything is allocated.
            let length = usize::try_from(header.record_length.min(RECORD_BYTES_MAX)).unwrap_or(0);
            let mut bytes = vec![0; length];
            read_exact_at(&*log.storage, file, &mut bytes, offset).map_err(short)?;
            bytes
        }
    };
    let record = header.record(&block, &elsewhere)?;
    Ok(Read { header, checksum, record })
}

/// What an error at reading means: a file that ends too soon is `Corrupt`.
pub fn short(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Error::new(ErrorKind::Corrupt, "the file is cut short");
    }
    Error::io("can't read the file", error)
}

/// Whether faulting a mapping in has met what can't be read.
pub fn is_fault(error: &io::Error) -> bool {
    const EFAULT: i32 = 14;
    error.raw_os_error() == Some(EFAULT)
}

/// What an error at faulting a mapping in means.
pub fn unreadable(error: io::Error) -> Error {
    if is_fault(&error) {
        let what = "the file is cut short, or its disk can't read it";
        return Error::new(ErrorKind::Corrupt, what).caused_by(error);
    }
    Error::io("can't fault a mapping in", error)
}

/// Nonce and record checksum of the commit that has a version's name now, opened afresh; none if it is
/// absent (R2, R10).
///
/// # Errors
/// `Corrupt`, `Unsupported` or `Io`.
pub fn identity_afresh(log: &Log, version: Version) -> Result<Option<(Nonce, Checksum)>> {
    let Some(dir) = log.open_segment(version.segment(log.segment_size()))? else { return Ok(None) };
    match open(log, &dir, version) {
        Ok(file) => commit(log, &file, version).map(|read| Some((read.header.nonce, read.checksum))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(Error::io("can't open a commit", error).version(version).at(log.commit_path(version)))
        }
    }
}
