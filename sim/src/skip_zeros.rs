//! A storage that doesn't write zeros: slices beyond 4 GiB become sparse files.
//!
//! - Only for files that are written once, each range: a write of zeros over other bytes would be lost.
//! - A file's size stays right: of a write of zeros, the last byte is written.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::storage::{Access, Dir, File, Kind, Mapping, Mount, Names, Space, Storage, Word};

/// A storage that passes everything through but writes of zeros.
#[derive(Debug)]
pub struct SkipZeros {
    inner: Arc<dyn Storage>,
}

impl SkipZeros {
    /// Wraps a storage.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner }
    }
}

/// By comparing pages, which is fast in a build without optimisation too: tests write many GiB.
fn all_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|piece| piece == &ZEROS[..piece.len()])
}

#[deny(clippy::missing_trait_methods)]
impl Storage for SkipZeros {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match bytes.split_last() {
            Some((0, rest)) if all_zero(rest) => {
                let written = self.inner.write_at(file, &[0], offset + rest.len() as u64)?;
                Ok(if written == 1 { bytes.len() } else { 0 })
            }
            _ => self.inner.write_at(file, bytes, offset),
        }
    }

    fn open_root(&self, path: &Path) -> io::Result<Dir> {
        self.inner.open_root(path)
    }

    fn make_root(&self, path: &Path) -> io::Result<()> {
        self.inner.make_root(path)
    }

    fn rename_root(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename_root(from, to)
    }

    fn open_dir(&self, parent: &Dir, name: &str) -> io::Result<Dir> {
        self.inner.open_dir(parent, name)
    }

    fn create_exclusive(&self, dir: &Dir, name: &str) -> io::Result<File> {
        self.inner.create_exclusive(dir, name)
    }

    fn open(&self, dir: &Dir, name: &str, access: Access) -> io::Result<File> {
        self.inner.open(dir, name, access)
    }

    fn close(&self, file: File) -> io::Result<()> {
        self.inner.close(file)
    }

    fn size(&self, file: &File) -> io::Result<u64> {
        self.inner.size(file)
    }

    fn kind(&self, dir: &Dir, name: &str) -> io::Result<Kind> {
        self.inner.kind(dir, name)
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(file, buffer, offset)
    }

    fn copy_range(
        &self,
        from: &File,
        from_offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        self.inner.copy_range(from, from_offset, to, to_offset, length)
    }

    fn map(&self, file: &File, length: u64) -> io::Result<Mapping> {
        self.inner.map(file, length)
    }

    fn populate(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        self.inner.populate(mapping, range)
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        self.inner.sync_file(file)
    }

    fn link(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        self.inner.link(from, from_name, to, to_name)
    }

    fn rename(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        self.inner.rename(from, from_name, to, to_name)
    }

    fn rename_noreplace(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        self.inner.rename_noreplace(from, from_name, to, to_name)
    }

    fn list(&self, dir: &Dir) -> io::Result<Names> {
        self.inner.list(dir)
    }

    fn make_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        self.inner.make_dir(parent, name)
    }

    fn remove_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        self.inner.remove_dir(parent, name)
    }

    fn sync_dir(&self, dir: &Dir) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn remove(&self, dir: &Dir, name: &str) -> io::Result<()> {
        self.inner.remove(dir, name)
    }

    fn space(&self, dir: &Dir) -> io::Result<Space> {
        self.inner.space(dir)
    }

    fn mount(&self, dir: &Dir) -> io::Result<Mount> {
        self.inner.mount(dir)
    }

    fn map_word(&self, file: &File) -> io::Result<Arc<dyn Word>> {
        self.inner.map_word(file)
    }

    fn wait(&self, word: &dyn Word, seen: u32, timeout: Duration) -> io::Result<()> {
        self.inner.wait(word, seen, timeout)
    }

    fn wake(&self, word: &dyn Word) -> io::Result<()> {
        self.inner.wake(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Memory, Method, Plan};

    #[test]
    fn zeros_are_skipped_and_sizes_are_right() {
        let below = Arc::new(Fault::new(Arc::new(Memory::new()), Plan::new()));
        let storage = SkipZeros::new(below.clone());
        let root = storage.open_root("/".as_ref()).unwrap();
        let file = storage.create_exclusive(&root, "slice").unwrap();
        let zeros = vec![0; 1 << 20];
        for at in (0..5 << 10).rev().step_by(1 << 10) {
            assert_eq!(storage.write_at(&file, &zeros, at << 20).unwrap(), zeros.len());
        }
        assert_eq!(storage.size(&file).unwrap(), 5 << 30);
        assert_eq!(storage.write_at(&file, &[0, 1, 0], 5 << 30).unwrap(), 3);
        assert_eq!(storage.write_at(&file, &[], 9 << 30).unwrap(), 0);
        let mut back = [9; 5];
        assert_eq!(storage.read_at(&file, &mut back, (5 << 30) - 2).unwrap(), 5);
        assert_eq!(back, [0, 0, 0, 1, 0]);
        assert_eq!(below.count(Method::WriteAt), 5 + 2);
    }
}
