//! zstd of slices and attachments; the only file that names it.
//!
//! - A declared size is a promise that is checked: more or fewer bytes are `Corrupt`, and never more than the
//!   declared size is kept, so a bomb costs what it declared at most.
//! - Without the feature `zstd`, compressed items are `Unsupported`, and writers store raw.

use std::io::{self, Write};

use crate::error::{Error, ErrorKind, Result};

/// How stored bytes are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Codec {
    /// As they are.
    #[default]
    Raw,
    /// One zstd frame.
    Zstd,
}

impl Codec {
    /// Its number on disk.
    pub fn number(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Zstd => 1,
        }
    }

    /// The codec of a number on disk.
    ///
    /// # Errors
    /// `Unsupported` for one that this library doesn't know.
    pub fn from_number(number: u8) -> Result<Self> {
        match number {
            0 => Ok(Self::Raw),
            1 => Ok(Self::Zstd),
            other => Err(Error::new(
                ErrorKind::Unsupported,
                format!("codec {other} is unknown: a newer library wrote it, this one reads 0 and 1"),
            )),
        }
    }
}

/// Whether this build can compress.
pub const AVAILABLE: bool = cfg!(feature = "zstd");

/// Compresses what is written into `sink`.
#[cfg(feature = "zstd")]
pub struct Encoder<W: Write>(zstd::stream::write::Encoder<'static, W>);

#[cfg(feature = "zstd")]
impl<W: Write> Encoder<W> {
    /// Into `sink`, at a zstd level (1..=22, negative ones faster still).
    ///
    /// # Errors
    /// What zstd says of the level.
    pub fn new(sink: W, level: i32) -> io::Result<Self> {
        zstd::stream::write::Encoder::new(sink, level).map(Self)
    }

    /// Where it writes to.
    pub fn sink(&self) -> &W {
        self.0.get_ref()
    }

    /// Ends the frame and gives the sink back.
    ///
    /// # Errors
    /// What the sink says.
    pub fn finish(self) -> io::Result<W> {
        self.0.finish()
    }
}

#[cfg(not(feature = "zstd"))]
/// Passes bytes through: this build doesn't compress, and never says it did.
pub struct Encoder<W: Write>(W);

#[cfg(not(feature = "zstd"))]
impl<W: Write> Encoder<W> {
    /// Into `sink`.
    ///
    /// # Errors
    /// Always `Unsupported`; writers ask [`AVAILABLE`] first.
    pub fn new(_sink: W, _level: i32) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Where it writes to.
    pub fn sink(&self) -> &W {
        &self.0
    }

    /// Gives the sink back.
    ///
    /// # Errors
    /// None.
    pub fn finish(self) -> io::Result<W> {
        Ok(self.0)
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Unpacks a frame that declares `length` bytes.
///
/// # Errors
/// `Corrupt` when it isn't a frame of just that many bytes or the declared size is beyond
/// [`crate::limits::DECOMPRESSED_BYTES_MAX`], `Full` when there is no memory for it.
#[cfg(feature = "zstd")]
pub fn decompress(stored: &[u8], length: u64) -> Result<Vec<u8>> {
    use std::io::Read as _;

    use super::corrupt;

    if length > crate::limits::DECOMPRESSED_BYTES_MAX {
        return Err(corrupt(format!("a compressed item declares {length} bytes")));
    }
    let broken = |error: io::Error| corrupt("a zstd frame is broken").caused_by(error);
    let mut decoder = zstd::stream::read::Decoder::with_buffer(stored).map_err(broken)?.single_frame();
    let mut bytes = Vec::new();
    // Memory grows with what really comes out, so that a small frame that declares a terabyte takes none.
    let expected = usize::try_from(length.min((stored.len() as u64).saturating_mul(64))).unwrap_or(0);
    bytes.try_reserve(expected).map_err(|_| {
        Error::new(ErrorKind::Full, format!("no memory for a compressed item of {length} bytes"))
    })?;
    decoder.by_ref().take(length).read_to_end(&mut bytes).map_err(broken)?;
    let more = decoder.by_ref().take(1).read(&mut [0]).map_err(broken)?;
    if bytes.len() as u64 != length || more != 0 || !decoder.finish().is_empty() {
        return Err(corrupt(format!("a compressed item doesn't unpack to the {length} bytes it declares")));
    }
    Ok(bytes)
}

/// A frame that comes in pieces, unpacked to nowhere: for who only asks whether it is what it declares.
#[cfg(feature = "zstd")]
pub struct Trial {
    decoder: zstd::stream::raw::Decoder<'static>,
    /// Where it is unpacked to, again and again.
    scratch: Vec<u8>,
    declared: u64,
    found: u64,
    ended: bool,
    broken: bool,
}

#[cfg(feature = "zstd")]
impl Trial {
    /// Of a frame that declares `length` bytes.
    ///
    /// # Errors
    /// `Full` when there is no memory for it.
    pub fn new(length: u64) -> Result<Self> {
        let failed = |error| Error::new(ErrorKind::Full, "no memory to unpack an item").caused_by(error);
        Ok(Self {
            decoder: zstd::stream::raw::Decoder::new().map_err(failed)?,
            scratch: vec![0; 128 << 10],
            declared: length,
            found: 0,
            ended: false,
            broken: length > crate::limits::DECOMPRESSED_BYTES_MAX,
        })
    }

    /// The next of its bytes.
    pub fn feed(&mut self, mut piece: &[u8]) {
        use zstd::stream::raw::Operation as _;

        self.broken |= self.ended && !piece.is_empty();
        while !self.broken && !self.ended {
            let Ok(status) = self.decoder.run_on_buffers(piece, &mut self.scratch) else {
                self.broken = true;
                return;
            };
            piece = piece.get(status.bytes_read..).unwrap_or_default();
            self.found = self.found.saturating_add(status.bytes_written as u64);
            self.ended = status.remaining == 0;
            self.broken |= self.found > self.declared || (self.ended && !piece.is_empty());
            // What is unpacked already and had no room comes with the next round.
            if piece.is_empty() && status.bytes_written < self.scratch.len() {
                return;
            }
        }
    }

    /// After its last byte: whether it was one frame of just the bytes that it declares.
    pub fn is_sound(&self) -> bool {
        self.ended && !self.broken && self.found == self.declared
    }
}

/// Without zstd nothing can be said against a frame.
#[cfg(not(feature = "zstd"))]
pub struct Trial;

#[cfg(not(feature = "zstd"))]
impl Trial {
    /// Of a frame that declares `length` bytes.
    ///
    /// # Errors
    /// None.
    pub fn new(_length: u64) -> Result<Self> {
        Ok(Self)
    }

    /// The next of its bytes.
    pub fn feed(&mut self, _piece: &[u8]) {}

    /// Always.
    pub fn is_sound(&self) -> bool {
        true
    }
}

#[cfg(not(feature = "zstd"))]
/// Refuses.
///
/// # Errors
/// Always `Unsupported`: this build has no zstd.
pub fn decompress(_stored: &[u8], length: u64) -> Result<Vec<u8>> {
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("an item of {length} bytes is compressed, and this build lacks the feature \"zstd\""),
    ))
}

#[cfg(all(test, feature = "zstd"))]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = Encoder::new(Vec::new(), 3).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_is_packed_unpacks() {
        for length in [0, 1, 4096, 3 << 20] {
            let bytes: Vec<u8> = (0..length).map(|at: u32| (at / 7) as u8).collect();
            assert_eq!(decompress(&packed(&bytes), bytes.len() as u64).unwrap(), bytes);
        }
    }

    #[test]
    fn lies_are_corrupt() {
        let frame = packed(&[7; 1000]);
        for declared in [0, 999, 1001, u64::MAX] {
            assert_eq!(decompress(&frame, declared).unwrap_err().kind(), ErrorKind::Corrupt, "{declared}");
        }
        let twice = [frame.clone(), frame.clone()].concat();
        assert!(decompress(&twice, 1000).is_err(), "bytes after the frame");
        assert!(decompress(&frame[..frame.len() - 1], 1000).is_err(), "cut short");
        assert!(decompress(b"not a frame", 11).is_err());
    }

    proptest! {
        #[test]
        fn any_frame_unpacks_to_what_it_declares_or_is_refused(
            noise in vec(any::<u8>(), 0..200), length in 0..300u64, at in any::<u32>(), new in any::<u8>(),
        ) {
            let mut frame = packed(&noise);
            let at = at as usize % frame.len();
            frame[at] = new;
            for stored in [&noise, &frame] {
                let unpacked = decompress(stored, length);
                prop_assert_eq!(unpacked.is_ok(), tried(stored, length, 50));
                if let Ok(bytes) = unpacked {
                    prop_assert_eq!(bytes.len() as u64, length);
                }
            }
        }
    }

    /// In pieces of so many bytes.
    fn tried(stored: &[u8], length: u64, piece_bytes: usize) -> bool {
        let mut trial = Trial::new(length).unwrap();
        stored.chunks(piece_bytes).for_each(|piece| trial.feed(piece));
        trial.is_sound()
    }

    #[test]
    fn what_unpacks_is_sound_in_pieces_and_what_lies_is_not() {
        for length in [0, 1, 4096, 128 << 10, (128 << 10) + 1, 3 << 20] {
            let bytes: Vec<u8> = (0..length).map(|at: u32| (at / 7) as u8).collect();
            let (frame, length) = (packed(&bytes), bytes.len() as u64);
            for piece_bytes in [1, 7, 1 << 20] {
                assert!(tried(&frame, length, piece_bytes), "{length} bytes by {piece_bytes}");
                assert!(!tried(&frame, length + 1, piece_bytes));
                assert!(!tried(&frame, length.wrapping_sub(1), piece_bytes));
                assert!(!tried(&frame[..frame.len() - 1], length, piece_bytes), "cut short");
                assert!(!tried(&[frame.clone(), frame.clone()].concat(), length, piece_bytes), "twice");
                assert!(!tried(&[&frame[..], b"x"].concat(), length, piece_bytes), "a byte more");
            }
        }
        assert!(!tried(b"not a frame", 11, 4));
    }

    #[test]
    fn a_bomb_costs_what_it_declares() {
        let bomb = packed(&vec![0; 64 << 20]);
        assert!(bomb.len() < 16 << 10);
        assert_eq!(decompress(&bomb, 10).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
