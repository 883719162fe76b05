//! A part: slices, their table, attachment, metadata, state, in this order; the descriptor that a record
//! holds of it, and the table's entries.
//!
//! - Offsets in a table are relative to the part, so that a part can be copied into another commit as it is.
//! - The layout has no freedom: every place follows from the lengths before it, and padding is zero.
//! - A checksum is of the bytes that are there, also when there are none: an empty item has the checksum of
//!   nothing.
//! - A slice of several blocks of 1 MiB has their checksums right after its bytes (at a multiple of 8).
//! - An entry is sealed by a checksum seeded with its index, so one entry can be trusted without its table.

use super::checksum;
use super::codec::Codec;
use super::corrupt;
use super::cursor::{Reader, Writer};
use crate::error::Result;
use crate::id::Checksum;
use crate::limits::{
    CHECKSUM_BLOCK_BYTES, COMMIT_BYTES_MAX, METADATA_BYTES_MAX, SLICE_ALIGN_BYTES, SLICE_ENTRY_BYTES,
    SLICES_PER_PART_MAX, STATE_BYTES_MAX,
};

const ITEM_ALIGN_BYTES: u64 = 8;
const ENTRY_SEALED_BYTES: usize = 56;

/// `offset` rounded up to a multiple of `align`, a power of two; none beyond a commit's size.
pub fn align(offset: u64, align: u64) -> Option<u64> {
    let mask = align.checked_sub(1)?;
    offset.checked_add(mask).map(|end| end & !mask).filter(|end| *end <= COMMIT_BYTES_MAX)
}

/// Length and checksum of a part's metadata or state; the default is an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its length in bytes.
    pub length: u32,
    /// Of its bytes.
    pub checksum: Checksum,
}

impl Default for Item {
    fn default() -> Self {
        Self { length: 0, checksum: checksum::of(&[]) }
    }
}

impl Item {
    /// Whether it can be: not too long, and an empty one has the checksum of nothing.
    pub(super) fn is_sound(&self, max: usize) -> bool {
        self.length as usize <= max && (self.length > 0 || *self == Self::default())
    }
}

/// What is stored of an attachment; the default is an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Bytes in the file.
    pub stored: u64,
    /// Bytes as they were given.
    pub length: u64,
    /// How the stored bytes are packed.
    pub codec: Codec,
    /// Of the stored bytes.
    pub checksum: Checksum,
}

impl Default for Attachment {
    fn default() -> Self {
        Self { stored: 0, length: 0, codec: Codec::Raw, checksum: checksum::of(&[]) }
    }
}

/// What a record holds of one part; the default has no slices and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartDescriptor {
    /// Where the part begins in its commit; a multiple of 4096.
    pub place: u64,
    /// Number of slices.
    pub slices: u64,
    /// Where the slice table begins in the part; a multiple of 64.
    pub table: u64,
    /// Of the whole table.
    pub table_checksum: Checksum,
    /// The attachment; of length 0 where there is none.
    pub attachment: Attachment,
    /// The metadata.
    pub metadata: Item,
    /// The producer's state.
    pub state: Item,
    /// Bytes of all slices as they were given.
    pub bytes: u64,
    /// Samples in all slices, as the producer counted them.
    pub samples: u64,
    /// Tokens in all slices, as the producer counted them.
    pub tokens: u64,
}

impl Default for PartDescriptor {
    fn default() -> Self {
        Self {
            place: 0,
            slices: 0,
            table: 0,
            table_checksum: checksum::of(&[]),
            attachment: Attachment::default(),
            metadata: Item::default(),
            state: Item::default(),
            bytes: 0,
            samples: 0,
            tokens: 0,
        }
    }
}

impl PartDescriptor {
    /// Its size in a record.
    pub const BYTES: usize = 112;

    /// Appends it.
    pub fn encode(&self, writer: &mut Writer) {
        writer.u64(self.place);
        self.encode_rest(writer);
    }

    fn encode_rest(&self, writer: &mut Writer) {
        writer.u64(self.slices).u64(self.table).checksum(self.table_checksum);
        writer.u64(self.attachment.stored).u64(self.attachment.length).checksum(self.attachment.checksum);
        writer.checksum(self.metadata.checksum).checksum(self.state.checksum);
        writer.u64(self.bytes).u64(self.samples).u64(self.tokens);
        writer.u32(self.metadata.length).u32(self.state.length);
        writer.u8(self.attachment.codec.number()).zeros(7);
    }

    /// Reads one and holds it against the bounds.
    ///
    /// # Errors
    /// `Corrupt` when a field lies, `Unsupported` for an unknown codec.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut part = Self {
            place: reader.u64()?,
            slices: reader.u64()?,
            table: reader.u64()?,
            table_checksum: reader.checksum()?,
            ..Self::default()
        };
        part.attachment.stored = reader.u64()?;
        part.attachment.length = reader.u64()?;
        part.attachment.checksum = reader.checksum()?;
        part.metadata.checksum = reader.checksum()?;
        part.state.checksum = reader.checksum()?;
        part.bytes = reader.u64()?;
        part.samples = reader.u64()?;
        part.tokens = reader.u64()?;
        part.metadata.length = reader.u32()?;
        part.state.length = reader.u32()?;
        part.attachment.codec = Codec::from_number(reader.u8()?)?;
        reader.zeros(7)?;
        part.check()?;
        Ok(part)
    }

    fn check(&self) -> Result<()> {
        let (attachment, none) = (&self.attachment, Attachment::default());
        let lies = (attachment.codec == Codec::Raw && attachment.stored != attachment.length)
            || (attachment.stored == 0 && *attachment != none)
            || (self.slices == 0 && (self.table, self.table_checksum) != (0, none.checksum));
        if self.slices > SLICES_PER_PART_MAX {
            return Err(corrupt(format!("a part has {} slices", self.slices)));
        }
        if !self.place.is_multiple_of(SLICE_ALIGN_BYTES) || !self.table.is_multiple_of(SLICE_ENTRY_BYTES) {
            return Err(corrupt("a part or its table isn't aligned"));
        }
        if !self.metadata.is_sound(METADATA_BYTES_MAX) || !self.state.is_sound(STATE_BYTES_MAX) {
            return Err(corrupt(
                "a part's metadata or state is too long, or empty with the checksum of something",
            ));
        }
        if lies || self.layout().is_none() {
            return Err(corrupt("a part's lengths contradict each other"));
        }
        Ok(())
    }

    /// The part checksum: of the descriptor without its place (R6).
    pub fn checksum(&self) -> Checksum {
        let mut writer = Writer::with_room(Self::BYTES);
        self.encode_rest(&mut writer);
        checksum::of(&writer.into_bytes())
    }

    /// Where its pieces are in the commit; none when that is beyond any file.
    pub fn layout(&self) -> Option<Layout> {
        let table = self.place.checked_add(self.table)?;
        let attachment = table.checked_add(self.slices.checked_mul(SLICE_ENTRY_BYTES)?)?;
        let metadata = align(attachment.checked_add(self.attachment.stored)?, ITEM_ALIGN_BYTES)?;
        let state = align(metadata.checked_add(self.metadata.length.into())?, ITEM_ALIGN_BYTES)?;
        let end = state.checked_add(self.state.length.into()).filter(|end| *end <= COMMIT_BYTES_MAX)?;
        Some(Layout { table, attachment, metadata, state, end })
    }
}

/// Where the pieces of a part are in its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The slice table.
    pub table: u64,
    /// The attachment, right after the table.
    pub attachment: u64,
    /// The metadata.
    pub metadata: u64,
    /// The state.
    pub state: u64,
    /// The first byte after it.
    pub end: u64,
}

/// How many samples and tokens a slice holds, as its producer counts them; the engine only carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Samples.
    pub samples: u64,
    /// Tokens.
    pub tokens: u64,
}

/// One slice in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceEntry {
    /// Where its bytes begin in the part; a multiple of 4096.
    pub offset: u64,
    /// Bytes in the file.
    pub stored: u64,
    /// Bytes as they were given.
    pub length: u64,
    /// Of its one block of stored bytes, or of the list of its blocks' checksums.
    pub checksum: Checksum,
    /// As the producer counted.
    pub counts: Counts,
    /// How the stored bytes are packed.
    pub codec: Codec,
}

impl SliceEntry {
    /// Appends it as entry `index` of its table.
    pub fn encode(&self, index: u64, writer: &mut Writer) {
        let mut sealed = Writer::with_room(SLICE_ENTRY_BYTES as usize);
        sealed.u64(self.offset).u64(self.stored).u64(self.length).checksum(self.checksum);
        sealed.u64(self.counts.samples).u64(self.counts.tokens).u8(self.codec.number()).zeros(7);
        let sealed = sealed.into_bytes();
        writer.raw(&sealed).checksum(checksum::seeded(index, &sealed));
    }

    /// Reads entry `index` of a table that begins at `table` in its part.
    ///
    /// # Errors
    /// `Corrupt` when it isn't sealed as that entry or reaches beyond the slices, `Unsupported` for an
    /// unknown codec.
    pub fn decode(index: u64, bytes: &[u8; SLICE_ENTRY_BYTES as usize], table: u64) -> Result<Self> {
        let (sealed, seal) = bytes.split_at_checked(ENTRY_SEALED_BYTES).unwrap_or((bytes, &[]));
        if Reader::new(seal).checksum()? != checksum::seeded(index, sealed) {
            return Err(corrupt(format!("the checksum of the entry of slice {index} differs")));
        }
        let mut reader = Reader::new(sealed);
        let entry = Self {
            offset: reader.u64()?,
            stored: reader.u64()?,
            length: reader.u64()?,
            checksum: reader.checksum()?,
            counts: Counts { samples: reader.u64()?, tokens: reader.u64()? },
            codec: Codec::from_number(reader.u8()?)?,
        };
        reader.zeros(7)?;
        reader.finish()?;
        let raw_lies = entry.codec == Codec::Raw && entry.stored != entry.length;
        if raw_lies
            || !entry.offset.is_multiple_of(SLICE_ALIGN_BYTES)
            || entry.end().is_none_or(|end| end > table)
        {
            return Err(corrupt(format!("the entry of slice {index} contradicts itself")));
        }
        Ok(entry)
    }

    /// How many blocks of 1 MiB its stored bytes have; at least one.
    pub fn blocks(&self) -> u64 {
        self.stored.div_ceil(CHECKSUM_BLOCK_BYTES).max(1)
    }

    /// Where the list of its blocks' checksums begins in the part; none for a slice of one block.
    pub fn block_list(&self) -> Option<u64> {
        let end = self.offset.checked_add(self.stored)?;
        align(end, ITEM_ALIGN_BYTES).filter(|_| self.blocks() > 1)
    }

    /// The first byte after its bytes and its list; none beyond any file.
    pub fn end(&self) -> Option<u64> {
        match self.blocks() {
            1 => self.offset.checked_add(self.stored),
            blocks => self.block_list()?.checked_add(blocks.checked_mul(8)?),
        }
    }

    /// Where a slice after this one begins in the part; none beyond any file.
    pub fn next_offset(&self) -> Option<u64> {
        align(self.end()?, SLICE_ALIGN_BYTES)
    }
}

/// The checksum of block `index` of a slice, as its list has it; `list` is all of the list's bytes.
///
/// # Errors
/// `Corrupt` when the list has no such block.
pub fn listed_checksum(list: &[u8], index: u64) -> Result<Checksum> {
    let start = usize::try_from(index).ok().and_then(|index| index.checked_mul(8));
    let bytes = start.and_then(|start| list.get(start..)?.first_chunk());
    bytes
        .map(|bytes| Checksum::new(u64::from_le_bytes(*bytes)))
        .ok_or_else(|| corrupt("a block has no checksum"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = SliceEntry> {
        (0..1u64 << 40, 0..1u64 << 40, any::<[u64; 3]>(), any::<bool>(), any::<u32>()).prop_map(
            |(offset, stored, [checksum, samples, tokens], packed, more)| SliceEntry {
                offset: offset * 4096 % (1 << 50),
                stored,
                length: if packed { stored + u64::from(more) } else { stored },
                checksum: Checksum::new(checksum),
                counts: Counts { samples, tokens },
                codec: if packed { Codec::Zstd } else { Codec::Raw },
            },
        )
    }

    fn encoded(entry: &SliceEntry, index: u64) -> [u8; 64] {
        let mut writer = Writer::new();
        entry.encode(index, &mut writer);
        writer.into_bytes().try_into().unwrap()
    }

    proptest! {
        #[test]
        fn entries_are_read_back_at_their_index_only(
            entry in entry(), index in any::<u64>(), other in any::<u64>(),
        ) {
            let bytes = encoded(&entry, index);
            prop_assert_eq!(SliceEntry::decode(index, &bytes, u64::MAX).unwrap(), entry);
            prop_assert_eq!(SliceEntry::decode(other, &bytes, u64::MAX).is_ok(), other == index);
            prop_assert!(SliceEntry::decode(index, &bytes, entry.end().unwrap().saturating_sub(1)).is_err());
        }

        #[test]
        fn a_flipped_bit_of_an_entry_is_found(entry in entry(), index in any::<u64>(), bit in 0usize..512) {
            let mut bytes = encoded(&entry, index);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(SliceEntry::decode(index, &bytes, u64::MAX).is_err());
        }

        #[test]
        fn any_descriptor_bytes_are_refused_or_read_back(bytes in any::<[u8; PartDescriptor::BYTES]>()) {
            if let Ok(part) = PartDescriptor::decode(&mut Reader::new(&bytes)) {
                let mut writer = Writer::new();
                part.encode(&mut writer);
                prop_assert_eq!(writer.into_bytes(), bytes);
            }
        }
    }

    #[test]
    fn the_place_is_not_in_the_part_checksum() {
        let part = PartDescriptor { place: 4096, slices: 3, table: 64, ..Default::default() };
        assert_eq!(part.checksum(), PartDescriptor { place: 8192, ..part }.checksum());
        assert_ne!(part.checksum(), PartDescriptor { slices: 4, ..part }.checksum());
    }

    #[test]
    fn lengths_beyond_any_file_are_no_layout() {
        for part in [
            PartDescriptor { place: u64::MAX - 4095, ..Default::default() },
            PartDescriptor { table: u64::MAX - 63, ..Default::default() },
            PartDescriptor { slices: u64::MAX / 2, ..Default::default() },
        ] {
            assert_eq!(part.layout(), None);
        }
    }

    /// The cost in metadata doesn't depend on how many slices there are, nor on which one it is.
    #[test]
    fn a_slice_of_8_costs_what_one_of_65536_does() {
        let entry = SliceEntry { stored: 5 << 20, length: 5 << 20, ..Default::default() };
        for (slices, index) in [(8u64, 0u64), (8, 7), (65_536, 0), (65_536, 65_535)] {
            let mut writer = Writer::new();
            entry.encode(index, &mut writer);
            assert_eq!(writer.len() as u64, SLICE_ENTRY_BYTES);
            let part = PartDescriptor { place: 4096, slices, table: 64, ..Default::default() };
            let layout = part.layout().unwrap();
            assert_eq!(layout.attachment - layout.table, slices * SLICE_ENTRY_BYTES);
            assert_eq!(layout.end, layout.attachment);
            part.encode(&mut writer);
            assert_eq!(writer.len(), SLICE_ENTRY_BYTES as usize + PartDescriptor::BYTES);
        }
    }

    #[test]
    fn a_slice_of_one_block_has_no_list() {
        let one = SliceEntry { stored: CHECKSUM_BLOCK_BYTES, ..Default::default() };
        assert_eq!((one.blocks(), one.block_list(), one.end()), (1, None, Some(CHECKSUM_BLOCK_BYTES)));
        let two = SliceEntry { stored: CHECKSUM_BLOCK_BYTES + 1, ..Default::default() };
        assert_eq!((two.blocks(), two.block_list()), (2, Some(CHECKSUM_BLOCK_BYTES + 8)));
        assert_eq!(two.end(), Some(CHECKSUM_BLOCK_BYTES + 24));
    }
}
