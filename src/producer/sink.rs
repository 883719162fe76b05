//! Bytes on their way into a staged file: small ones gathered, large ones passed straight on.
//!
//! - Memory is one buffer of bounded size, however large the batch (nothing of it is held).
//! - The first 4096 bytes are kept free for the header: a small commit is one write, header and all.
//! - What is skipped to reach an alignment is zero: in the buffer, or a hole in the file.

use std::io;

use crate::limits::{COMMIT_HEADER_BYTES, DRAFT_BUFFER_BYTES, DRAFT_PIECE_BYTES};
use crate::log::Log;
use crate::storage::{File, copy_all, write_all_at};

/// The write end of a staged file.
#[derive(Debug)]
pub(super) struct Sink {
    file: File,
    /// Bytes that belong at `start..end` and aren't written yet.
    buffer: Vec<u8>,
    start: u64,
    end: u64,
    /// How far the file reaches.
    written: u64,
}

impl Sink {
    /// At the beginning of a new file, behind the header; `buffer` is an old one to be used again.
    pub(super) fn new(file: File, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(COMMIT_HEADER_BYTES as usize, 0);
        Self { file, buffer, start: 0, end: COMMIT_HEADER_BYTES, written: 0 }
    }

    /// Where the next byte goes.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Leaves zeros up to `offset`.
    pub(super) fn skip_to(&mut self, log: &Log, offset: u64) -> io::Result<()> {
        let gap = offset.saturating_sub(self.end);
        let fits = (self.buffer.len() as u64).saturating_add(gap) <= DRAFT_BUFFER_BYTES as u64;
        if self.buffer.is_empty() || !fits {
            self.flush(log)?;
            self.start = offset;
        } else {
            self.buffer.resize(self.buffer.len().saturating_add(usize::try_from(gap).unwrap_or(0)), 0);
        }
        self.end = offset;
        Ok(())
    }

    /// Takes bytes; `seen` is shown each piece right before it is written or copied, while it is in the
    /// cache.
    pub(super) fn write(&mut self, log: &Log, bytes: &[u8], mut seen: impl FnMut(&[u8])) -> io::Result<()> {
        for piece in bytes.chunks(DRAFT_PIECE_BYTES) {
            seen(piece);
            if self.buffer.len().saturating_add(piece.len()) <= DRAFT_BUFFER_BYTES {
                self.buffer.extend_from_slice(piece);
            } else if piece.len() < DRAFT_PIECE_BYTES / 2 {
                self.flush(log)?;
                self.buffer.extend_from_slice(piece);
            } else {
                self.flush(log)?;
                write_all_at(&*log.storage, &self.file, piece, self.end)?;
                self.written = self.end.saturating_add(piece.len() as u64);
                self.start = self.end.saturating_add(piece.len() as u64);
            }
            self.end = self.end.saturating_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Appends what another file has behind its header: out of its buffer, or copied from file to file.
    pub(super) fn append(&mut self, log: &Log, other: &mut Self) -> io::Result<()> {
        if other.start == 0 {
            let (_, gathered) = other.buffer.split_at(other.buffer.len().min(COMMIT_HEADER_BYTES as usize));
            return self.write(log, gathered, |_| ());
        }
        other.flush(log)?;
        self.flush(log)?;
        let end = self.end.saturating_add(other.end.saturating_sub(COMMIT_HEADER_BYTES));
        let there = other.written.saturating_sub(COMMIT_HEADER_BYTES);
        copy_all(&*log.storage, (&other.file, COMMIT_HEADER_BYTES), (&self.file, self.end), there)?;
        if there > 0 {
            self.written = self.end.saturating_add(there);
        }
        (self.start, self.end) = (end, end);
        Ok(())
    }

    /// Writes out what is gathered.
    fn flush(&mut self, log: &Log) -> io::Result<()> {
        // In a forked child the file is still the parent's.
        log.check_forked().map_err(io::Error::other)?;
        // A header area that is still empty stays a hole; `finish` writes the header there.
        let only_header = self.start == 0
            && self.buffer.len() as u64 == COMMIT_HEADER_BYTES
            && self.buffer.iter().all(|byte| *byte == 0);
        if !self.buffer.is_empty() && !only_header {
            write_all_at(&*log.storage, &self.file, &self.buffer, self.start)?;
            self.written = self.start.saturating_add(self.buffer.len() as u64);
        }
        self.buffer.clear();
        self.start = self.end;
        Ok(())
    }

    /// Puts the header in its place and writes out everything; gives the file and the buffer back.
    pub(super) fn finish(mut self, log: &Log, header: &[u8]) -> io::Result<(File, Vec<u8>)> {
        match self.buffer.get_mut(..header.len()) {
            Some(place) if self.start == 0 => place.copy_from_slice(header),
            _ => {
                self.flush(log)?;
                write_all_at(&*log.storage, &self.file, header, 0)?;
                self.written = self.written.max(header.len() as u64);
            }
        }
        self.flush(log)?;
        if let Some(last) = self.end.checked_sub(1)
            && self.end > self.written
        {
            // What was skipped last is part of the file too.
            write_all_at(&*log.storage, &self.file, &[0], last)?;
        }
        Ok((self.file, self.buffer))
    }
}
