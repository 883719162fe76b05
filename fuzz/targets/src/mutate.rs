//! A seeded mutator: what cargo-fuzz does, without its eyes. The same seed makes the same inputs.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Mutator(u64);

/// Numbers that hurt decoders.
const BORDERS: [u64; 10] =
    [0, 1, 7, 4096, 1 << 16, 1 << 20, u32::MAX as u64, i64::MAX as u64, u64::MAX - 1, u64::MAX];

impl Mutator {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`; 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        self.next().checked_rem(end as u64).unwrap_or(0) as usize
    }

    /// An input out of these: one of them with a few changes, or noise.
    pub fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        if corpus.is_empty() || self.below(8) == 0 {
            let length = self.below(600);
            return self.noise(length);
        }
        let mut bytes = corpus[self.below(corpus.len())].clone();
        for _ in 0..1 + self.below(6) {
            self.change(&mut bytes, corpus);
        }
        bytes
    }

    /// Bytes that mean nothing.
    pub fn noise(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// Anywhere, but oftener where headers are.
    fn place(&mut self, length: usize) -> usize {
        let within = if self.below(2) == 0 { length.min(256) } else { length };
        self.below(within)
    }

    fn change(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.place(bytes.len());
        match self.below(8) {
            0 => bytes.truncate(at),
            1 => {
                let count = 1 + self.below(32);
                let noise = self.noise(count);
                bytes.splice(at..at, noise);
            }
            2 => {
                let end = (at + 1 + self.below(32)).min(bytes.len());
                bytes.drain(at..end);
            }
            3 => {
                let border = BORDERS[self.below(BORDERS.len())].to_le_bytes();
                let width = [1, 2, 4, 8][self.below(4)];
                for (byte, new) in bytes.iter_mut().skip(at).zip(&border[..width]) {
                    *byte = *new;
                }
            }
            4 => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.place(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let bit = 1 << self.below(8);
                let new = self.next() as u8;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = if self.below(2) == 0 { *byte ^ bit } else { new };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_inputs_and_another_others() {
        let corpus = [vec![1; 300], vec![2; 40], Vec::new()];
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..200).map(|_| mutator.input(&corpus)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(1).iter().any(|input| input.len() > 300), "nothing grows");
    }
}
