//! Bytes as this node sees them.
//!
//! - Close-to-open: what is written stays on this node until the file is synced or closed by who wrote it,
//!   and is lost with the node before.
//! - Growth by others may be seen only on opening the file again (seen 3 s late on NFS otherwise).
//! - A file that another node removed may be ESTALE, or still readable.

use std::io;
use std::sync::Arc;

use batchweave::storage::{Access, Dir, File, Mapping, Storage, write_all_at};

use super::{Cache, OpenDir, OpenFile, Shared};
use crate::errno::{self, error};
use crate::memory::{Id, Left};

/// A file that this node has open.
#[derive(Default)]
pub(super) struct Opened {
    pub(super) handles: usize,
    /// The size that this node knows of.
    pub(super) size: u64,
    /// What it wrote, in order, and nobody else sees.
    pub(super) dirty: Vec<Write>,
    /// Where its last name was moved to when that was removed.
    pub(super) kept: Option<(Dir, String)>,
}

pub(super) struct Write {
    /// A handle of the memory's that may write.
    to: File,
    pub(super) bytes: Vec<u8>,
    pub(super) offset: u64,
}

impl Write {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

impl Opened {
    fn dirty_end(&self) -> u64 {
        self.dirty.iter().map(Write::end).max().unwrap_or_default()
    }
}

impl Shared {
    /// A file that was just opened: its attributes are asked for again.
    pub(super) fn opened_file(self: &Arc<Self>, inner: File, access: Access) -> io::Result<File> {
        let id = self.memory.inode_of_file(&inner)?;
        let size = self.memory.size(&inner)?;
        let mut cache = self.cache();
        if self.is_close_to_open() {
            let opened = cache.open.entry(id).or_default();
            opened.handles += 1;
            opened.size = size.max(opened.dirty_end());
        }
        Ok(File::new(OpenFile {
            shared: Arc::clone(self),
            inner,
            id,
            boot: cache.boot,
            epoch: cache.epoch,
            writable: access == Access::Update,
        }))
    }

    pub(super) fn open(self: &Arc<Self>, dir: &OpenDir, name: &str, access: Access) -> io::Result<File> {
        if access == Access::Update {
            self.may_change()?;
        }
        let inner = match self.remembered(dir, name)? {
            Some(old) => self.memory.open_inode(old, access)?,
            None => {
                let inner = self.memory.open(&dir.inner, name, access);
                self.learn(dir, name);
                inner?
            }
        };
        self.opened_file(inner, access)
    }

    /// A file that another node removed: the server doesn't know it any more, though this node may.
    fn not_gone(&self, file: &OpenFile) -> io::Result<()> {
        if self.is_close_to_open() && self.memory.left_of(file.id) != Left::Named && self.wild() {
            return Err(error(errno::ESTALE));
        }
        Ok(())
    }

    pub(super) fn size(&self, file: &OpenFile) -> io::Result<u64> {
        self.not_gone(file)?;
        self.known_size(file, |_| true)
    }

    /// The size that this node goes by; it finds out about growth only when that `matters`.
    fn known_size(&self, file: &OpenFile, matters: impl Fn(u64) -> bool) -> io::Result<u64> {
        let truth = self.memory.size(&file.inner)?;
        let (known, now) = match self.cache().open.get(&file.id) {
            Some(opened) => (opened.size, truth.max(opened.dirty_end())),
            None => return Ok(truth),
        };
        if now == known || !matters(known) || self.wild() {
            return Ok(known);
        }
        self.set_size(file.id, |_| now);
        Ok(now)
    }

    fn set_size(&self, id: Id, size: impl FnOnce(u64) -> u64) {
        if let Some(opened) = self.cache().open.get_mut(&id) {
            opened.size = size(opened.size);
        }
    }

    pub(super) fn read_at(&self, file: &OpenFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if !self.is_close_to_open() {
            return self.memory.read_at(&file.inner, buffer, offset);
        }
        self.not_gone(file)?;
        let end = offset.saturating_add(buffer.len() as u64);
        let size = self.known_size(file, |known| end > known)?;
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        self.look(file, &mut buffer[..length], offset)?;
        Ok(length)
    }

    /// What this node holds of the bytes, zeros beyond the end.
    pub(super) fn look(&self, file: &OpenFile, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let read = self.memory.read_at(&file.inner, buffer, offset)?;
        buffer[read..].fill(0);
        let end = offset + buffer.len() as u64;
        let cache = self.cache();
        for write in cache.open.get(&file.id).iter().flat_map(|opened| &opened.dirty) {
            let (from, to) = (offset.max(write.offset), end.min(write.end()));
            if from < to {
                let bytes = &write.bytes[(from - write.offset) as usize..(to - write.offset) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    pub(super) fn write_at(&self, file: &OpenFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if !self.is_close_to_open() {
            return self.memory.write_at(&file.inner, bytes, offset);
        }
        self.not_gone(file)?;
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| error(errno::EFBIG))?;
        // Changes nothing, and says whether the handle may write and the offset is possible.
        self.memory.write_at(&file.inner, &[], end)?;
        if let Some(opened) = self.cache().open.get_mut(&file.id).filter(|_| !bytes.is_empty()) {
            opened.dirty.push(Write { to: file.inner.clone(), bytes: bytes.to_vec(), offset });
            opened.size = opened.size.max(end);
        }
        Ok(bytes.len())
    }

    pub(super) fn copy_range(
        &self,
        (from, from_offset): (&OpenFile, u64),
        (to, to_offset): (&OpenFile, u64),
        length: u64,
    ) -> io::Result<u64> {
        self.flush(from.id)?;
        self.flush(to.id)?;
        let copied = self.memory.copy_range(&from.inner, from_offset, &to.inner, to_offset, length)?;
        self.set_size(to.id, |size| size.max(to_offset + copied));
        Ok(copied)
    }

    pub(super) fn map(&self, file: &OpenFile, length: u64) -> io::Result<Mapping> {
        if !self.is_close_to_open() || length == 0 {
            return self.memory.map(&file.inner, length);
        }
        self.memory.map(&file.inner, 1)?;
        let size = self.known_size(file, |known| length > known)?;
        let length = usize::try_from(length.min(size)).map_err(|_| error(errno::ENOMEM))?;
        let mut bytes = vec![0; length];
        self.look(file, &mut bytes, 0)?;
        Ok(Mapping::of_memory(bytes))
    }

    pub(super) fn sync_file(&self, file: &OpenFile) -> io::Result<()> {
        self.not_gone(file)?;
        self.flush(file.id)?;
        self.memory.sync_file(&file.inner)
    }

    /// Closes a handle. NFS flushes then, so this may be the first word of a full disk.
    pub(super) fn close(&self, file: OpenFile) -> io::Result<()> {
        self.memory.inode_of_file(&file.inner)?;
        if file.writable { self.flush(file.id) } else { Ok(()) }
    }

    /// Shows all nodes what this one wrote. What can't be written is given up, and said once.
    pub(super) fn flush(&self, id: Id) -> io::Result<()> {
        self.flush_in(&mut self.cache(), id)
    }

    fn flush_in(&self, cache: &mut Cache, id: Id) -> io::Result<()> {
        let Some(opened) = cache.open.get_mut(&id).filter(|opened| !opened.dirty.is_empty()) else {
            return Ok(());
        };
        let mut flushed = Ok(());
        for Write { to, bytes, offset } in std::mem::take(&mut opened.dirty) {
            if flushed.is_ok() {
                flushed = write_all_at(&self.memory, &to, &bytes, offset);
                opened.size = self.memory.size(&to)?;
            }
        }
        flushed
    }

    /// A handle has ended: closed, dropped, or its process died, which closes it too.
    fn released(&self, file: &OpenFile) {
        let mut cache = self.cache();
        if (file.boot, file.epoch) != (cache.boot, cache.epoch) {
            return;
        }
        if file.writable {
            // Nobody is left to hear of it; whoever has to know closes by `close`.
            let _ = self.flush_in(&mut cache, file.id);
        }
        let Some(opened) = cache.open.get_mut(&file.id) else { return };
        opened.handles -= 1;
        if opened.handles == 0
            && let Some((dir, name)) = cache.open.remove(&file.id).and_then(|opened| opened.kept)
        {
            // It may have been removed by others: then there is nothing to do.
            let _ = self.memory.remove(&dir, &name);
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.shared.released(self);
    }
}
