//! A draft: one part on its way into a staged file, slice by slice.
//!
//! - In file order: slices, table, attachment, metadata, state; so slices end where the attachment begins.
//! - A slice that isn't finished makes the draft unusable, rather than a part with a piece missing.
//! - Dropping a draft removes its file and frees its turn.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use super::order::Place;
use super::sink::Sink;
use crate::commit::staged::{Staged, discard};
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::{self, Running};
use crate::format::codec::{self, Codec};
use crate::format::commit::Sealed;
use crate::format::cursor::Writer;
use crate::format::part::{Attachment, Counts, Item, PartDescriptor, SliceEntry, align};
use crate::id::{Nonce, Sequence};
use crate::limits::{
    CHECKSUM_BLOCK_BYTES, COMMIT_HEADER_BYTES, METADATA_BYTES_MAX, SLICE_ALIGN_BYTES, SLICE_ENTRY_BYTES,
    SLICES_PER_PART_MAX,
};
use crate::log::Log;
use crate::storage::{Dir, File};

/// How slices and attachments are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// As they are: readers get them without a copy.
    #[default]
    None,
    /// By zstd at a level (1..=22, negative ones faster still): readers get them unpacked into memory of
    /// their own. In a build without the feature `zstd`, the same as [`Compression::None`].
    Zstd(i32),
}

/// Why a draft can't be published while a slice of it is being written.
const UNFINISHED: &str = "a slice of the draft wasn't finished";

/// One part that is being written; see [`Producer::draft`](crate::Producer::draft).
#[derive(Debug)]
pub struct Draft {
    log: Arc<Log>,
    stage: Dir,
    /// None once the file is finished.
    sink: Option<Sink>,
    pub(super) name: String,
    pub(super) nonce: Nonce,
    pub(super) place: Place,
    compression: Compression,
    part: PartDescriptor,
    table: Writer,
    attached: bool,
    metadata: Vec<u8>,
    /// Why it can't be published; none while it can.
    broken: Option<&'static str>,
    /// What is behind the slices is written too.
    completed: bool,
    /// Its finished file, once it is whole, synced and closed.
    pub(super) finished: Option<Finished>,
    /// Whether its file is to be removed when this is dropped.
    pub(super) owned: bool,
}

/// A draft's finished file.
#[derive(Clone, Debug)]
pub(super) struct Finished {
    pub(super) staged: Arc<Staged>,
    pub(super) sequence: Sequence,
}

/// What a new draft is made from.
pub(super) struct New {
    pub(super) log: Arc<Log>,
    pub(super) stage: Dir,
    pub(super) name: String,
    pub(super) nonce: Nonce,
    pub(super) place: Place,
    pub(super) compression: Compression,
    pub(super) buffer: Vec<u8>,
}

impl Draft {
    pub(super) fn new(new: New) -> Result<Self> {
        let file = new.log.storage.create_exclusive(&new.stage, &new.name).map_err(|error| {
            Error::io("can't stage a draft", error)
                .at(new.log.path_of([crate::format::names::STAGE, &new.name]))
        })?;
        Ok(Self {
            log: new.log,
            stage: new.stage,
            sink: Some(Sink::new(file, new.buffer)),
            name: new.name,
            nonce: new.nonce,
            place: new.place,
            compression: new.compression,
            part: PartDescriptor { place: COMMIT_HEADER_BYTES, ..PartDescriptor::default() },
            table: Writer::with_room(SLICE_ENTRY_BYTES as usize),
            attached: false,
            metadata: Vec::new(),
            broken: None,
            completed: false,
            finished: None,
            owned: true,
        })
    }

    /// How many bytes the part takes, with this metadata and so much state.
    pub(super) fn bytes(&self, state: &[u8]) -> u64 {
        let mut part = self.part;
        if !self.completed {
            let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            part.metadata.length = length(&self.metadata);
            part.state.length = length(state);
            if !self.attached {
                part.table = self.relative_end().next_multiple_of(SLICE_ENTRY_BYTES);
            }
        }
        part.layout().map_or(0, |layout| layout.end.saturating_sub(part.place))
    }

    /// How many slices are finished.
    pub fn slices(&self) -> u64 {
        self.part.slices
    }

    /// Begins the next slice: write its bytes, then [`SliceWriter::finish`] it.
    ///
    /// # Errors
    /// `Invalid` after an attachment or an unfinished slice, or beyond 2^32 slices.
    pub fn slice(&mut self) -> Result<SliceWriter<'_>> {
        self.log.check_forked()?;
        if self.attached {
            return Err(self.invalid("a slice comes before the attachment"));
        }
        if let Some(broken) = self.broken {
            return Err(self.invalid(broken));
        }
        if self.part.slices >= SLICES_PER_PART_MAX {
            return Err(self.invalid("a part has at most 2^32 slices"));
        }
        self.skip_to_multiple_of(SLICE_ALIGN_BYTES)?;
        let compression = self.compression;
        self.broken = Some(UNFINISHED);
        let offset = self.relative_end();
        let blocks = Blocks {
            draft: self,
            offset,
            stored: 0,
            block: Running::new(),
            in_block: 0,
            list: Writer::new(),
        };
        let stream = match compression {
            Compression::Zstd(level) if codec::AVAILABLE => {
                let encoder = codec::Encoder::new(blocks, level).map_err(|error| {
                    Error::new(ErrorKind::Invalid, "zstd refuses the level").caused_by(error)
                })?;
                Stream::Packed(Box::new(encoder))
            }
            _ => Stream::Raw(blocks),
        };
        Ok(SliceWriter { stream, length: 0 })
    }

    /// Adds a whole slice.
    ///
    /// # Errors
    /// As [`Draft::slice`]; `Full`, `Io`.
    pub fn add_slice(&mut self, bytes: &[u8], counts: Counts) -> Result<()> {
        let mut slice = self.slice()?;
        if let Err(error) = slice.write_all(bytes) {
            drop(slice);
            return Err(self.write_failed(error));
        }
        slice.finish(counts)
    }

    /// Sets the attachment, bytes of any length that are never read unless asked for, such as sample ids.
    /// It comes after the last slice, once.
    ///
    /// # Errors
    /// `Invalid` the second time or after an unfinished slice; `Full`, `Io`.
    pub fn attach(&mut self, bytes: &[u8]) -> Result<()> {
        self.log.check_forked()?;
        if self.attached {
            return Err(self.invalid("a draft has one attachment"));
        }
        self.end_slices()?;
        let packed = match self.compression {
            Compression::Zstd(level) if codec::AVAILABLE && !bytes.is_empty() => {
                let mut encoder =
                    codec::Encoder::new(Vec::new(), level).map_err(|error| self.write_failed(error))?;
                encoder.write_all(bytes).map_err(|error| self.write_failed(error))?;
                Some(encoder.finish().map_err(|error| self.write_failed(error))?)
            }
            _ => None,
        };
        let stored = packed.as_deref().unwrap_or(bytes);
        self.part.attachment = Attachment {
            stored: stored.len() as u64,
            length: bytes.len() as u64,
            codec: if packed.is_some() { Codec::Zstd } else { Codec::Raw },
            checksum: checksum::of(stored),
        };
        self.append(stored).map_err(|error| self.write_failed(error))
    }

    /// Sets the metadata: at most 64 KiB that readers get with the batch.
    ///
    /// # Errors
    /// `Invalid` when it is longer.
    pub fn metadata(&mut self, bytes: &[u8]) -> Result<()> {
        self.log.check_forked()?;
        if self.completed {
            return Err(self.invalid("the draft was published already: it stays as it is"));
        }
        if bytes.len() > METADATA_BYTES_MAX {
            return Err(self
                .invalid(&format!("metadata of {} bytes is longer than {METADATA_BYTES_MAX}", bytes.len())));
        }
        self.metadata = bytes.to_vec();
        Ok(())
    }

    /// Ends the slices: the table follows them.
    fn end_slices(&mut self) -> Result<()> {
        if let Some(broken) = self.broken {
            return Err(self.invalid(broken));
        }
        if self.attached {
            return Ok(());
        }
        self.skip_to_multiple_of(SLICE_ENTRY_BYTES)?;
        self.part.table = self.relative_end();
        let table = std::mem::take(&mut self.table).into_bytes();
        self.part.table_checksum = checksum::of(&table);
        self.append(&table).map_err(|error| self.write_failed(error))?;
        self.attached = true;
        Ok(())
    }

    /// Writes what comes after the slices; the descriptor is then whole. Once that is done, it is the same
    /// part for ever.
    pub(super) fn complete(&mut self, state: &[u8]) -> Result<PartDescriptor> {
        if self.completed {
            let known = self.part.state;
            if known.checksum == checksum::of(state) && u64::from(known.length) == state.len() as u64 {
                return Ok(self.part);
            }
            return Err(self.invalid("the draft is finished with another state; write it anew"));
        }
        let divisor = u64::from(self.log.identity.options.divisor);
        if self.part.slices.checked_rem(divisor) != Some(0) {
            let slices = self.part.slices;
            return Err(
                self.invalid(&format!("{slices} slices aren't a multiple of the store's divisor, {divisor}"))
            );
        }
        self.end_slices()?;
        // Whatever fails from here on, a second try would write these behind what the first has left.
        self.broken = Some("an earlier try has ended the draft's file; write it anew");
        let metadata = std::mem::take(&mut self.metadata);
        self.part.metadata = self.append_item(&metadata)?;
        self.part.state = self.append_item(state)?;
        self.completed = true;
        self.broken = None;
        Ok(self.part)
    }

    fn append_item(&mut self, bytes: &[u8]) -> Result<Item> {
        self.skip_to_multiple_of(8)?;
        self.append(bytes).map_err(|error| self.write_failed(error))?;
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Ok(Item { length, checksum: checksum::of(bytes) })
    }

    /// Writes the header and everything that is left; gives the file to be synced and closed, and the buffer.
    pub(super) fn seal(&mut self, sealed: &Sealed) -> Result<(File, Vec<u8>)> {
        let sink = self.sink.take().ok_or_else(|| self.invalid("the draft is finished already"))?;
        if sink.end() != sealed.length || sealed.elsewhere.is_some() {
            return Err(self.invalid("the draft's file isn't as long as its header says"));
        }
        sink.finish(&self.log, sealed.block.as_slice()).map_err(|error| self.write_failed(error))
    }

    /// Appends its part to another file.
    pub(super) fn copy_into(&mut self, to: &mut Sink) -> Result<()> {
        self.check_whole()?;
        let Some(sink) = &mut self.sink else { return Err(self.invalid("the draft is finished already")) };
        to.append(&self.log, sink).map_err(|error| self.write_failed(error))
    }

    /// Whether it can be published.
    pub(super) fn check_whole(&self) -> Result<()> {
        self.broken.map_or(Ok(()), |broken| Err(self.invalid(broken)))
    }

    /// Makes it unusable: its file may not be what was written.
    pub(super) fn break_off(&mut self, why: &'static str) {
        self.broken = Some(why);
    }

    /// Its finished file is gone: all that can be done with it is to write it anew.
    pub(super) fn lose_file(&mut self) {
        self.finished = None;
        self.broken = Some("its file was removed; write it anew");
    }

    fn relative_end(&self) -> u64 {
        let end = self.sink.as_ref().map_or(0, Sink::end);
        end.saturating_sub(self.part.place)
    }

    fn skip_to_multiple_of(&mut self, bytes: u64) -> Result<()> {
        let end = self.sink.as_ref().and_then(|sink| align(sink.end(), bytes));
        let (Some(sink), Some(offset)) = (&mut self.sink, end) else {
            return Err(self.invalid("a commit is at most i64::MAX bytes"));
        };
        sink.skip_to(&self.log, offset).map_err(|error| self.write_failed(error))
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.append_seen(bytes, |_| ())
    }

    fn append_seen(&mut self, bytes: &[u8], seen: impl FnMut(&[u8])) -> io::Result<()> {
        let Some(sink) = &mut self.sink else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let written = sink.write(&self.log, bytes, seen);
        if written.is_err() {
            self.broken = Some("a write of the draft failed");
        }
        written
    }

    fn add_entry(&mut self, entry: SliceEntry) {
        entry.encode(self.part.slices, &mut self.table);
        self.part.slices = self.part.slices.saturating_add(1);
        self.part.bytes = self.part.bytes.saturating_add(entry.length);
        self.part.samples = self.part.samples.saturating_add(entry.counts.samples);
        self.part.tokens = self.part.tokens.saturating_add(entry.counts.tokens);
        self.broken = None;
    }

    fn invalid(&self, what: &str) -> Error {
        Error::new(ErrorKind::Invalid, what).at(self.path())
    }

    fn write_failed(&self, error: io::Error) -> Error {
        Error::io("can't write the draft", error).at(self.path())
    }

    fn path(&self) -> PathBuf {
        self.log.path_of([crate::format::names::STAGE, &self.name])
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.log.is_forked() {
            self.place.forget();
        } else if self.owned {
            discard(&self.log, &self.stage, &self.name);
        }
    }
}

/// Writes one slice; see [`Draft::slice`].
///
/// What is written goes straight into the staged file. Without [`SliceWriter::finish`] the draft can't be
/// published.
#[derive(Debug)]
pub struct SliceWriter<'d> {
    stream: Stream<'d>,
    length: u64,
}

#[expect(
    clippy::large_enum_variant,
    reason = "one lives at a time, on the stack; a box per slice costs more"
)]
enum Stream<'d> {
    Raw(Blocks<'d>),
    Packed(Box<codec::Encoder<Blocks<'d>>>),
}

impl std::fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Raw(_) => "Raw",
            Self::Packed(_) => "Packed",
        })
    }
}

impl SliceWriter<'_> {
    /// Ends the slice, saying how many samples and tokens it holds.
    ///
    /// # Errors
    /// `Full`, `Io`; the draft can't be published then.
    pub fn finish(self, counts: Counts) -> Result<()> {
        let (blocks, codec) = match self.stream {
            Stream::Raw(blocks) => (blocks, Codec::Raw),
            Stream::Packed(encoder) => {
                let path = encoder.sink().draft.path();
                let failed = |error| Error::io("can't write the draft", error).at(path);
                (encoder.finish().map_err(failed)?, Codec::Zstd)
            }
        };
        blocks.finish(self.length, counts, codec)
    }
}

impl Write for SliceWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.stream {
            Stream::Raw(blocks) => blocks.write(bytes),
            Stream::Packed(encoder) => encoder.write(bytes),
        }?;
        self.length = self.length.saturating_add(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The stored bytes of one slice, checksummed in blocks of 1 MiB as they pass.
struct Blocks<'d> {
    draft: &'d mut Draft,
    offset: u64,
    stored: u64,
    block: Running,
    in_block: u64,
    list: Writer,
}

impl Blocks<'_> {
    fn finish(mut self, length: u64, counts: Counts, codec: Codec) -> Result<()> {
        // After a write that failed the checksum has seen more than the file has.
        if let Some(broken) = self.draft.broken.filter(|why| *why != UNFINISHED) {
            return Err(self.draft.invalid(broken));
        }
        let mut entry = SliceEntry {
            offset: self.offset,
            stored: self.stored,
            length,
            counts,
            codec,
            ..Default::default()
        };
        if entry.blocks() == 1 {
            // A slice of just one block has its checksum in the list already, when the block was filled.
            entry.checksum = if self.in_block == 0 && !self.list.is_empty() {
                crate::format::part::listed_checksum(&self.list.into_bytes(), 0)?
            } else {
                self.block.finish()
            };
        } else {
            if self.in_block > 0 {
                self.list.checksum(self.block.finish());
            }
            let list = self.list.into_bytes();
            entry.checksum = checksum::of(&list);
            self.draft.skip_to_multiple_of(8)?;
            self.draft.append(&list).map_err(|error| self.draft.write_failed(error))?;
        }
        self.draft.add_entry(entry);
        Ok(())
    }
}

impl Write for Blocks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHECKSUM_BLOCK_BYTES.saturating_sub(self.in_block);
        let taken = bytes.get(..usize::try_from(room).unwrap_or(usize::MAX)).unwrap_or(bytes);
        let block = &mut self.block;
        self.draft.append_seen(taken, |piece| block.update(piece))?;
        self.in_block = self.in_block.saturating_add(taken.len() as u64);
        self.stored = self.stored.saturating_add(taken.len() as u64);
        if self.in_block == CHECKSUM_BLOCK_BYTES {
            self.list.checksum(std::mem::take(&mut self.block).finish());
            self.in_block = 0;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
