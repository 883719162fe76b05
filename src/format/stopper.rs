//! What takes the name of a commit that is lost, as long as what came after it is being dropped: a file that
//! is no commit, so that whoever looks says that the log is damaged there, and never takes the hole for its
//! end.

use super::checksum;
use super::cursor::{Reader, Writer};
use crate::id::Generation;

const MAGIC: &[u8; 8] = b"BWstop\0\0";

/// The size of a stopper in bytes.
pub const STOPPER_BYTES: usize = 24;

/// A stopper's bytes: it keeps the generation that the repair has drawn.
pub fn encode(generation: Generation) -> Vec<u8> {
    let mut to = Writer::new();
    to.raw(MAGIC).u64(generation.get());
    let bytes = to.into_bytes();
    let checksum = checksum::of(&bytes);
    let mut to = Writer::new();
    to.raw(&bytes).checksum(checksum);
    to.into_bytes()
}

/// The generation that a stopper keeps; none if it is none.
pub fn decode(bytes: &[u8; STOPPER_BYTES]) -> Option<Generation> {
    let mut from = Reader::new(bytes);
    let (magic, generation) = (from.take(MAGIC.len()).ok()?, from.u64().ok()?);
    let sealed = bytes.get(..STOPPER_BYTES - 8)?;
    let whole = magic == MAGIC && from.checksum().ok()? == checksum::of(sealed);
    whole.then(|| Generation::new(generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopper_keeps_its_generation_and_nothing_else_is_one() {
        let bytes = encode(Generation::new(9));
        let bytes: [u8; STOPPER_BYTES] = bytes.try_into().unwrap();
        assert_eq!(decode(&bytes), Some(Generation::new(9)));
        for place in 0..STOPPER_BYTES {
            let mut broken = bytes;
            broken[place] ^= 1;
            assert_eq!(decode(&broken), None, "byte {place}");
        }
    }
}
