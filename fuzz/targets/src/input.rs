//! The bytes of one case as decisions: whoever draws past their end gets zeros, so every input is a case.

/// What is left of an input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// From the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next bytes, at most `count`.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// One byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Below `end`, of which there may be 256; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.u8()).checked_rem(end).unwrap_or(0)
    }

    /// One of these.
    pub fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len())]
    }

    /// True once in `times`, and never once nothing is left.
    pub fn rarely(&mut self, times: u8) -> bool {
        self.u8().checked_rem(times) == Some(1)
    }

    /// A number that something hangs on: near `near`, near a border, or any.
    pub fn number(&mut self, near: u64) -> u64 {
        const BORDERS: [u64; 8] = [0, 1, 4096, 1 << 20, u32::MAX as u64, 1 << 32, i64::MAX as u64, u64::MAX];
        match self.u8() {
            shift @ 0..=127 => near.wrapping_add(u64::from(shift % 8)).wrapping_sub(u64::from(shift / 8 % 4)),
            border @ 128..=223 => BORDERS[usize::from(border) % BORDERS.len()].wrapping_sub(self.u8().into()),
            _ => self.u64(),
        }
    }
}
