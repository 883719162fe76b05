//! STORE: identity and fixed choices of a store. Written once, put last at creation, immutable.

use super::checksum;
use super::corrupt;
use super::cursor::{Reader, Writer};
use crate::error::Result;
use crate::id::StoreUuid;
use crate::options::{Durability, Options, Primitive};

const MAGIC: &[u8; 8] = b"BWstore\0";
const CHECKSUM_AT: usize = 504;

/// The size of STORE in bytes.
pub const STORE_BYTES: usize = 512;

/// What STORE says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Drawn at creation.
    pub uuid: StoreUuid,
    /// The store that this one was copied from; all zero without one.
    pub origin: StoreUuid,
    /// The fixed choices.
    pub options: Options,
    /// How a commit gets its name.
    pub primitive: Primitive,
}

impl Identity {
    /// The origin of a store that isn't a copy.
    pub const NO_ORIGIN: StoreUuid = StoreUuid::new([0; 16]);

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::new();
        let options = &self.options;
        to.raw(MAGIC).u16(super::FORMAT_VERSION).zeros(6).u64(0);
        to.raw(self.uuid.bytes()).raw(self.origin.bytes());
        to.u32(options.divisor).u32(options.parts_per_step).u32(options.segment_size);
        to.u8(match options.durability {
            Durability::Synced => 0,
            Durability::Unsynced => 1,
        });
        to.u8(match self.primitive {
            Primitive::Link => 1,
            Primitive::RenameNoreplace => 2,
            Primitive::RenameDirectory => 3,
        });
        to.pad_to(CHECKSUM_AT);
        let bytes = to.into_bytes();
        let checksum = checksum::of(&bytes);
        let mut to = Writer::new();
        to.raw(&bytes).checksum(checksum);
        to.into_bytes()
    }

    /// Reads STORE.
    ///
    /// # Errors
    /// `Corrupt` when it isn't whole, `Unsupported` when a newer library made it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Reader::new(bytes);
        if from.take(MAGIC.len())? != MAGIC {
            return Err(corrupt("STORE doesn't begin as one does"));
        }
        let format_version = from.u16()?;
        let sealed = Reader::new(bytes).take(CHECKSUM_AT)?;
        let right =
            Reader::new(bytes.get(CHECKSUM_AT..).unwrap_or_default()).checksum()? == checksum::of(sealed);
        if !right || bytes.len() != STORE_BYTES {
            return Err(corrupt("STORE's checksum differs"));
        }
        // What is reserved here may mean something to who wrote a newer version: that is asked first.
        let reserved = from.take(6)?;
        super::check_supported("the store", format_version, from.u64()?)?;
        Reader::new(reserved).zeros(6)?;
        let (uuid, origin) = (StoreUuid::new(from.array()?), StoreUuid::new(from.array()?));
        let options = Options::new()
            .divisor(from.u32()?)
            .parts_per_step(from.u32()?)
            .segment_size(from.u32()?)
            .durability(match from.u8()? {
                0 => Durability::Synced,
                1 => Durability::Unsynced,
                other => return Err(corrupt(format!("STORE's durability is {other}"))),
            });
        let primitive = match from.u8()? {
            1 => Primitive::Link,
            2 => Primitive::RenameNoreplace,
            3 => Primitive::RenameDirectory,
            other => return Err(corrupt(format!("STORE's publish primitive is {other}"))),
        };
        from.zeros(CHECKSUM_AT - 70)?;
        options.check().map_err(|error| corrupt(format!("STORE contradicts itself: {error}")))?;
        Ok(Self { uuid, origin, options, primitive })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::error::ErrorKind;
    use crate::format::arbitrary::change;

    proptest! {
        #[test]
        fn a_changed_and_resealed_store_is_refused_or_canonical(changes in vec(change(), 1..4)) {
            let bytes = resealed(|bytes| changes.iter().for_each(|change| change.apply(&mut bytes[8..80])));
            if let Ok(identity) = Identity::decode(&bytes) {
                prop_assert_eq!(identity.encode(), bytes);
            }
        }
    }

    fn identity() -> Identity {
        Identity {
            uuid: StoreUuid::new([7; 16]),
            origin: StoreUuid::new([0; 16]),
            options: Options::new().divisor(32).segment_size(16).durability(Durability::Unsynced),
            primitive: Primitive::Link,
        }
    }

    #[test]
    fn it_is_read_back() {
        let bytes = identity().encode();
        assert_eq!(bytes.len(), STORE_BYTES);
        assert_eq!(Identity::decode(&bytes).unwrap(), identity());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let bytes = identity().encode();
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(Identity::decode(&broken).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Identity::decode(&bytes[..length]).is_err(), "length {length}");
        }
    }

    fn resealed(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = identity().encode();
        change(&mut bytes);
        let checksum = checksum::of(&bytes[..CHECKSUM_AT]).get();
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_newer_store_is_unsupported_naming_both_sides() {
        let newer = Identity::decode(&resealed(|bytes| bytes[8] = 2)).unwrap_err();
        assert_eq!(newer.kind(), ErrorKind::Unsupported);
        let this = env!("CARGO_PKG_VERSION");
        let sentence = format!("the store has format version 2, this library, batchweave {this}, reads 1");
        assert_eq!(newer.to_string(), sentence);
        let feature = Identity::decode(&resealed(|bytes| bytes[16] = 4)).unwrap_err();
        assert_eq!(feature.kind(), ErrorKind::Unsupported);
        assert!(feature.to_string().contains("0x4"), "{feature}");
    }

    #[test]
    fn a_sealed_lie_is_corrupt() {
        for (at, value) in [(56, 0), (60, 0), (64, 3), (68, 9), (69, 0), (70, 1)] {
            let lie = resealed(|bytes| {
                bytes[at..at + 4].fill(0);
                bytes[at] = value;
            });
            assert_eq!(Identity::decode(&lie).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
        }
    }
}
