//! Buffers for what is read and not mapped, shared by all threads of a handle and used again.
//!
//! - A buffer goes back when the last slice in it is dropped.
//! - What is kept is bounded by a number of bytes, never taken from the node's memory.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::limits::{POOL_BYTES_MAX, SLICE_ALIGN_BYTES};

const ALIGN: usize = SLICE_ALIGN_BYTES as usize;
const GRAIN: usize = 64 << 10;
/// Of small buffers: a small slice mustn't take 64 KiB.
const GRAIN_SMALL: usize = 16 << 10;

/// The buffers that are free, and how often one was there when asked for.
#[derive(Debug, Default)]
pub struct Pool {
    free: Mutex<Free>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// A buffer of `length` bytes, begun at a multiple of 4096; its content is undefined.
    ///
    /// # Errors
    /// `Full` when there is no memory for it.
    pub fn take(self: &Arc<Self>, length: usize) -> Result<Buffer> {
        let grain = |bytes: usize| if bytes <= GRAIN { GRAIN_SMALL } else { GRAIN };
        let aligned = length.checked_add(ALIGN);
        let needed = aligned.and_then(|bytes| bytes.checked_next_multiple_of(grain(bytes)));
        let too_long = || Error::new(ErrorKind::Full, format!("no memory for a buffer of {length} bytes"));
        let needed = needed.ok_or_else(too_long)?;
        let bytes = match self.reuse(needed) {
            Some(bytes) => bytes,
            None => {
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(needed).map_err(|_| too_long())?;
                bytes.resize(needed, 0);
                bytes
            }
        };
        let start = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        Ok(Buffer { bytes, start, length, home: Arc::downgrade(self) })
    }

    /// The smallest free buffer that is large enough and not more than twice as large as needed; of several
    /// the one given back last, which is the likeliest to be in the cache.
    fn reuse(&self, needed: usize) -> Option<Vec<u8>> {
        let mut free = self.free.lock();
        let fitting = free
            .buffers
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, buffer)| (needed..=needed * 2).contains(&buffer.len()));
        let place = fitting.min_by_key(|(_, buffer)| buffer.len()).map(|(place, _)| place);
        let counter = if place.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        let buffer = free.buffers.remove(place?);
        free.bytes = free.bytes.saturating_sub(buffer.len());
        Some(buffer)
    }

    fn give_back(&self, buffer: Vec<u8>) {
        let mut free = self.free.lock();
        if free.bytes.saturating_add(buffer.len()) <= POOL_BYTES_MAX {
            free.bytes = free.bytes.saturating_add(buffer.len());
            free.buffers.push(buffer);
        }
    }

    /// How often a free buffer was there, and how often it wasn't.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}

/// A buffer out of the pool.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
    home: Weak<Pool>,
}

impl Buffer {
    /// Leaves the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.start..).and_then(|bytes| bytes.get(..self.length)).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..).and_then(|bytes| bytes.get_mut(..self.length)).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.give_back(std::mem::take(&mut self.bytes));
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_used_again() {
        let pool = Arc::new(Pool::default());
        for _ in 0..3 {
            let buffer = pool.take(200_000).unwrap();
            assert_eq!(buffer.len(), 200_000);
            assert_eq!(buffer.as_ptr() as usize % ALIGN, 0);
        }
        assert_eq!(pool.hits_and_misses(), (2, 1));
        let small = pool.take(10_000).unwrap();
        assert_eq!(pool.hits_and_misses(), (2, 2), "a buffer far too large isn't given for little");
        assert_eq!(small.bytes.len(), GRAIN_SMALL, "a small commit that is open holds little");
    }

    #[test]
    fn the_buffer_given_back_last_is_given_next() {
        let pool = Arc::new(Pool::default());
        let buffers: Vec<_> = (0..3).map(|_| pool.take(100_000).unwrap()).collect();
        let places: Vec<_> = buffers.iter().map(|buffer| buffer.as_ptr()).collect();
        drop(buffers);
        let again: Vec<_> = (0..3).map(|_| pool.take(100_000).unwrap()).collect();
        let found: Vec<_> = again.iter().rev().map(|buffer| buffer.as_ptr()).collect();
        assert_eq!(found, places);
    }

    #[test]
    fn a_buffer_outlives_its_pool() {
        let pool = Arc::new(Pool::default());
        let mut buffer = pool.take(10).unwrap();
        drop(pool);
        buffer.fill(7);
        assert_eq!(&*buffer, [7; 10]);
    }
}
