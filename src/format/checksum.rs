//! XXH3-64: the one checksum of the format, and the only file that names its implementation.

use std::hash::Hasher as _;

use twox_hash::XxHash3_64;

use crate::id::Checksum;

/// The checksum of `bytes`.
pub fn of(bytes: &[u8]) -> Checksum {
    Checksum::new(XxHash3_64::oneshot(bytes))
}

/// The checksum of `bytes`, seeded: equal bytes in another place have another checksum.
pub fn seeded(seed: u64, bytes: &[u8]) -> Checksum {
    Checksum::new(XxHash3_64::oneshot_with_seed(seed, bytes))
}

/// A checksum over bytes that come in pieces.
#[derive(Clone, Default)]
pub struct Running(XxHash3_64);

impl Running {
    /// Over nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on over `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The checksum so far.
    pub fn finish(&self) -> Checksum {
        Checksum::new(self.0.finish())
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({})", self.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of the reference implementation, one for each of its ways by length: the format must not move
    /// with the crate.
    #[test]
    fn it_is_xxh3_64() {
        assert_eq!(of(b"").get(), 0x2d06_8005_38d3_94c2);
        assert_eq!(of(b"a").get(), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(of(b"abc").get(), 0x78af_5f94_892f_3950);
        let bytes: Vec<u8> = (0..5000u32).map(|number| (number % 251) as u8).collect();
        for (length, sum) in [
            (8, 0x3a1c_2d7c_85af_88f8),
            (16, 0x8355_e3a6_f617_70db),
            (100, 0x004e_4f92_1a64_bd1c),
            (200, 0xf42a_8864_feaf_0703),
            (5000, 0xb418_500f_c423_20ee),
        ] {
            assert_eq!(of(&bytes[..length]).get(), sum, "{length} bytes");
        }
        assert_eq!(seeded(7, &bytes[..56]).get(), 0x7f3a_0587_178f_3617);
    }

    #[test]
    fn pieces_add_up() {
        let bytes: Vec<u8> = (0..5000u32).map(|number| number as u8).collect();
        let mut running = Running::new();
        for piece in bytes.chunks(77) {
            running.update(piece);
        }
        assert_eq!(running.finish(), of(&bytes));
        assert_ne!(seeded(1, &bytes), of(&bytes));
    }
}
