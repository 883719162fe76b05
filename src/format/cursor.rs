//! One reader and one writer for all of the format, so that bounds are checked in one place.
//!
//! - Reading past the end is `Corrupt`, never a panic.
//! - A decoder ends with [`Reader::finish`]: bytes left over are `Corrupt` too.

use super::corrupt;
use crate::error::Result;
use crate::id::{Checksum, Version};
use crate::name::Name;

/// How "none" is written where a version is optional: no log reaches it.
const NONE: u64 = u64::MAX;

/// Reads values from bytes in order.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// From the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// `Corrupt` when there are fewer; so for every method here.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) =
            self.bytes.split_at_checked(count).ok_or_else(|| corrupt("a record is cut short"))?;
        self.bytes = rest;
        Ok(taken)
    }

    /// The next `N` bytes by value.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or_else(|| corrupt("a record is cut short"))?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// One byte.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Two bytes.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// One byte that is 0 or 1.
    ///
    /// # Errors
    /// `Corrupt` for another one too.
    pub fn bool(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(corrupt(format!("a flag is {other}, neither 0 nor 1"))),
        }
    }

    /// A checksum.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn checksum(&mut self) -> Result<Checksum> {
        self.u64().map(Checksum::new)
    }

    /// A version, or none.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn optional_version(&mut self) -> Result<Option<Version>> {
        let number = self.u64()?;
        Ok((number != NONE).then(|| Version::new(number)))
    }

    /// A name, with its length before it.
    ///
    /// # Errors
    /// `Corrupt` also when it isn't a valid name.
    pub fn name(&mut self) -> Result<Name> {
        let length = self.u8()?;
        let bytes = self.take(length.into())?;
        let text = std::str::from_utf8(bytes).map_err(|_| corrupt("a name isn't text"))?;
        Name::new(text).map_err(|error| corrupt(error.to_string()))
    }

    /// Bytes with their 32-bit length before them, at most `max`.
    ///
    /// # Errors
    /// `Corrupt` also when there are more than `max`.
    pub fn bytes(&mut self, max: usize) -> Result<&'a [u8]> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if length > max {
            return Err(corrupt(format!("a field of {length} bytes is longer than the {max} allowed")));
        }
        self.take(length)
    }

    /// A 32-bit count of things that take at least `bytes_each`, at most `max`: one that can't fit is refused
    /// before anything is allocated for it.
    ///
    /// # Errors
    /// `Corrupt` also for such a count.
    pub fn count(&mut self, bytes_each: usize, max: usize) -> Result<usize> {
        let count = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if count > max || count.saturating_mul(bytes_each) > self.bytes.len() {
            return Err(corrupt(format!("a count of {count} doesn't fit")));
        }
        Ok(count)
    }

    /// `count` bytes that have to be zero.
    ///
    /// # Errors
    /// `Corrupt` also when one isn't.
    pub fn zeros(&mut self, count: usize) -> Result<()> {
        // All of them, without a branch for each: a header is mostly padding, and this is vector code.
        if self.take(count)?.iter().fold(0, |seen, byte| seen | byte) != 0 {
            return Err(corrupt("reserved bytes aren't zero"));
        }
        Ok(())
    }

    /// Whether all is read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Ends the reading of an area of fixed size: what is left of it has to be zero.
    ///
    /// # Errors
    /// `Corrupt` when it isn't.
    pub fn finish_padded(mut self) -> Result<()> {
        self.zeros(self.bytes.len())
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// `Corrupt` when bytes are left over.
    pub fn finish(self) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        Err(corrupt(format!("{} bytes are left over", self.bytes.len())))
    }
}

/// Appends values to bytes.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empty, with room for `bytes`.
    pub fn with_room(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// A flag.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(value.into())
    }

    /// A checksum.
    pub fn checksum(&mut self, value: Checksum) -> &mut Self {
        self.u64(value.get())
    }

    /// A version, or none.
    pub fn optional_version(&mut self, value: Option<Version>) -> &mut Self {
        self.u64(value.map_or(NONE, Version::get))
    }

    /// A name; at most 100 bytes, so that its length is one.
    pub fn name(&mut self, name: &Name) -> &mut Self {
        self.u8(u8::try_from(name.as_str().len()).unwrap_or(u8::MAX)).raw(name.as_str().as_bytes())
    }

    /// Bytes with their 32-bit length before them; the bounds of [`crate::limits`] keep them below 4 GiB.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len()).raw(bytes)
    }

    /// A 32-bit count; the bounds of [`crate::limits`] keep it in range.
    pub fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// `count` zero bytes.
    pub fn zeros(&mut self, count: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len().saturating_add(count), 0);
        self
    }

    /// Zero bytes up to `length` in all.
    pub fn pad_to(&mut self, length: usize) -> &mut Self {
        self.zeros(length.saturating_sub(self.bytes.len()))
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let name = Name::new("tok-017").unwrap();
        let mut writer = Writer::new();
        writer.u8(1).u16(2).u32(3).u64(4).bool(true).checksum(Checksum::new(5)).name(&name);
        writer.optional_version(None).optional_version(Some(Version::new(6))).bytes(b"seven").pad_to(80);
        let bytes = writer.into_bytes();
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u8().unwrap(), reader.u16().unwrap(), reader.u32().unwrap()), (1, 2, 3));
        assert_eq!((reader.u64().unwrap(), reader.bool().unwrap()), (4, true));
        assert_eq!((reader.checksum().unwrap(), reader.name().unwrap()), (Checksum::new(5), name));
        assert_eq!(reader.optional_version().unwrap(), None);
        assert_eq!(reader.optional_version().unwrap(), Some(Version::new(6)));
        assert_eq!(reader.bytes(5).unwrap(), b"seven");
        reader.zeros(80 - 57).unwrap();
        reader.finish().unwrap();
    }

    #[test]
    fn what_does_not_fit_is_corrupt() {
        assert!(Reader::new(&[1]).u16().is_err());
        assert!(Reader::new(&[2]).bool().is_err());
        assert!(Reader::new(&[255, 255, 255, 255, 0]).count(1, usize::MAX).is_err());
        assert!(Reader::new(&[4, 0, 0, 0, 0, 0, 0, 0]).bytes(3).is_err());
        assert!(Reader::new(&[1, b'/']).name().is_err());
        assert!(Reader::new(&[0, 1]).zeros(2).is_err());
        assert!(Reader::new(&[0]).finish().is_err());
    }
}
