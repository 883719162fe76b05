//! Reading one commit: its header and its record, checked.
//!
//! Nothing is believed of a file but what its checksums cover; a file of another store is `Corrupt`.

use std::io;
use std::sync::Arc;

use super::apply::Commit;
use super::{Log, may_be_stale};
use crate::error::{Error, ErrorKind, Result};
use crate::format::commit::{Block, Header, Place};
use crate::format::names;
use crate::format::record::Record;
use crate::id::{Checksum, Nonce, Version};
use crate::limits::{
    COMMIT_HEADER_BYTES, LOOK_AGAIN_MAX, LOOK_AGAIN_PAUSE, READ_WHOLE_BYTES, RECORD_BYTES_MAX,
};
use crate::name::Name;
use crate::storage::{Access, Dir, File, Mapping, read_exact_at};

const HEADER: usize = COMMIT_HEADER_BYTES as usize;

/// A commit's header and record.
#[derive(Clone, Debug)]
pub struct Read {
    /// The header.
    pub header: Header,
    /// Its record checksum.
    pub checksum: Checksum,
    /// The record; none if it is of an unknown kind that is optional.
    pub record: Option<Record>,
    /// All bytes of it, if they were read too.
    pub whole: Option<Arc<Mapping>>,
}

/// How much of a commit is read in the first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What replay needs.
    Header,
    /// All of it, if it is small: for who reads its slices next.
    Whole,
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
    reach(log, file, version, Reach::Header)
}

fn reach(log: &Log, file: &File, version: Version, reach: Reach) -> Result<Read> {
    let read = match reach {
        Reach::Header => read_header(log, file),
        Reach::Whole => read_whole(log, file),
    };
    read.map_err(|error| error.version(version).at(log.commit_path(version)))
}

fn read_header(log: &Log, file: &File) -> Result<Read> {
    let mut block: Box<Block> = Box::new([0; HEADER]);
    read_exact_at(&*log.storage, file, block.as_mut_slice(), 0).map_err(short)?;
    decode(log, file, &block)
}

fn read_whole(log: &Log, file: &File) -> Result<Read> {
    let mut bytes = log.pool.take(READ_WHOLE_BYTES)?;
    let mut length = match log.storage.read_at(file, &mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
        read => read.map_err(short)?,
    };
    if length < HEADER {
        let rest = bytes.get_mut(length..HEADER).unwrap_or_default();
        read_exact_at(&*log.storage, file, rest, length as u64).map_err(short)?;
        length = HEADER;
    }
    let block = bytes.first_chunk::<HEADER>().ok_or_else(|| short(io::ErrorKind::UnexpectedEof.into()))?;
    let mut read = decode(log, file, block)?;
    // A file of another length, or one that takes another call, is for who opens it.
    if read.header.length == length as u64 && length < READ_WHOLE_BYTES {
        bytes.truncate(length);
        read.whole = Some(Arc::new(Mapping::of_memory(bytes)));
    }
    Ok(read)
}

/// What a header block says, and its record, which may lie elsewhere in the file.
fn decode(log: &Log, file: &File, block: &Block) -> Result<Read> {
    let (header, checksum) = Header::decode(block)?;
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
    let record = header.record(block, &elsewhere)?;
    Ok(Read { header, checksum, record, whole: None })
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

/// When a producer committed last, for people.
pub fn last_commit_in_words(log: &Log, producer: &Name, version: Version) -> String {
    let file = log.open_behind(version).ok();
    let wall_us =
        file.and_then(|file| commit(log, &file, version).ok()).map(|read| read.header.people.wall_us);
    match wall_us {
        // A clock that differs between hosts makes this a hint, which is all it is for (P8).
        Some(then) => {
            let seconds = log.env.wall_us().saturating_sub(then) / 1_000_000;
            format!("{producer} last committed {seconds} s ago (version {version})")
        }
        None => format!("{producer} last committed version {version}"),
    }
}

/// Reads a commit; one that can't be read is looked at again, bounded, and then `Corrupt` or `Io`, never
/// void (R8): a passing error must not make two replayers differ.
///
/// # Errors
/// As [`commit`], once looking again hasn't helped.
pub fn patiently(log: &Log, file: &File, version: Version, how_far: Reach) -> Result<Read> {
    let mut pause = LOOK_AGAIN_PAUSE;
    let mut left = LOOK_AGAIN_MAX;
    let mut result = reach(log, file, version, how_far);
    while let Err(error) = &result {
        left = left.saturating_sub(1);
        if left == 0 || error.kind() == ErrorKind::Unsupported || log.class == crate::MountClass::Local {
            break;
        }
        log.env.sleep(pause);
        pause = pause.saturating_mul(2);
        let again =
            log.open_segment(version.segment(log.segment_size()))?.map(|dir| open(log, &dir, version));
        result = match again {
            Some(Ok(file)) => reach(log, &file, version, how_far),
            Some(Err(error)) if may_be_stale(&error) => continue,
            Some(Err(error)) => Err(Error::io("can't open a commit", error).version(version)),
            None => continue,
        };
    }
    result
}
