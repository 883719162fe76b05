//! The calls, each to where it is decided what this node makes of it.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::storage::{self, Access, Dir, File, Kind, Mapping, Names, Space, Storage, Word};

use super::{Links, Mount, OpenFile};
use crate::errno::{self, error};

#[deny(clippy::missing_trait_methods)]
impl Storage for Mount {
    fn open_root(&self, path: &Path) -> io::Result<Dir> {
        self.shared.open_root(path)
    }

    fn make_root(&self, path: &Path) -> io::Result<()> {
        if self.shared.traits.read_only {
            let exists = self.shared.memory.open_root(path).is_ok();
            return Err(error(if exists { errno::EEXIST } else { errno::EROFS }));
        }
        self.shared.memory.make_root(path)
    }

    fn rename_root(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.shared.traits.read_only {
            return Err(error(errno::EROFS));
        }
        self.shared.memory.rename_root(from, to)
    }

    fn open_dir(&self, parent: &Dir, name: &str) -> io::Result<Dir> {
        self.shared.open_dir(self.shared.dir(parent)?, name)
    }

    fn create_exclusive(&self, dir: &Dir, name: &str) -> io::Result<File> {
        let dir = self.shared.dir(dir)?;
        self.shared.may_make(dir, name)?;
        let inner = self.shared.memory.create_exclusive(&dir.inner, name)?;
        self.shared.changed(dir, name);
        self.shared.opened_file(inner, Access::Update)
    }

    fn open(&self, dir: &Dir, name: &str, access: Access) -> io::Result<File> {
        self.shared.open(self.shared.dir(dir)?, name, access)
    }

    fn close(&self, file: File) -> io::Result<()> {
        self.shared.file(&file)?;
        match file.into_inner::<OpenFile>() {
            Some(file) => self.shared.close(file),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is shared, so this isn't its close",
            )),
        }
    }

    fn size(&self, file: &File) -> io::Result<u64> {
        self.shared.size(self.shared.file(file)?)
    }

    fn kind(&self, dir: &Dir, name: &str) -> io::Result<Kind> {
        self.shared.kind(self.shared.dir(dir)?, name)
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.shared.read_at(self.shared.file(file)?, buffer, offset)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.shared.write_at(self.shared.file(file)?, bytes, offset)
    }

    fn copy_range(
        &self,
        from: &File,
        from_offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        let (from, to) = (self.shared.file(from)?, self.shared.file(to)?);
        self.shared.copy_range((from, from_offset), (to, to_offset), length)
    }

    fn map(&self, file: &File, length: u64) -> io::Result<Mapping> {
        self.shared.map(self.shared.file(file)?, length)
    }

    fn populate(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        self.shared.memory.populate(mapping, range)
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        if let Some(errno) = self.shared.next_sync_fails() {
            self.fail_sync_file(file)?;
            return Err(error(errno));
        }
        self.shared.sync_file(self.shared.file(file)?)
    }

    fn link(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (from, to) = (self.shared.dir(from)?, self.shared.dir(to)?);
        self.shared.may_change()?;
        match self.shared.traits.links {
            Links::Nowhere => return Err(error(errno::EPERM)),
            Links::WithinDirectory if from.id != to.id => return Err(error(errno::EXDEV)),
            Links::WithinDirectory | Links::Everywhere => {}
        }
        self.shared.memory.link(&from.inner, from_name, &to.inner, to_name)?;
        self.shared.changed(to, to_name);
        Ok(())
    }

    fn rename(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (from, to) = (self.shared.dir(from)?, self.shared.dir(to)?);
        self.shared.rename((from, from_name), (to, to_name))
    }

    fn rename_noreplace(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (from, to) = (self.shared.dir(from)?, self.shared.dir(to)?);
        self.shared.rename_noreplace((from, from_name), (to, to_name))
    }

    fn list(&self, dir: &Dir) -> io::Result<Names> {
        Ok(self.shared.list(self.shared.dir(dir)?)?.into_iter().collect())
    }

    fn make_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        let parent = self.shared.dir(parent)?;
        self.shared.may_make(parent, name)?;
        self.shared.memory.make_dir(&parent.inner, name)?;
        self.shared.changed(parent, name);
        Ok(())
    }

    fn remove_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        let parent = self.shared.dir(parent)?;
        self.shared.may_change()?;
        self.shared.memory.remove_dir(&parent.inner, name)?;
        self.shared.changed(parent, name);
        Ok(())
    }

    fn sync_dir(&self, dir: &Dir) -> io::Result<()> {
        if let Some(errno) = self.shared.next_sync_fails() {
            self.fail_sync_dir(dir)?;
            return Err(error(errno));
        }
        self.shared.memory.sync_dir(&self.shared.dir(dir)?.inner)
    }

    fn remove(&self, dir: &Dir, name: &str) -> io::Result<()> {
        self.shared.remove(self.shared.dir(dir)?, name)
    }

    fn space(&self, dir: &Dir) -> io::Result<Space> {
        self.shared.memory.space(&self.shared.dir(dir)?.inner)
    }

    fn mount(&self, dir: &Dir) -> io::Result<storage::Mount> {
        self.shared.dir(dir)?;
        Ok(self.shared.class.facts(self.shared.traits))
    }

    fn map_word(&self, file: &File) -> io::Result<Arc<dyn Word>> {
        self.shared.map_word(self.shared.file(file)?)
    }

    fn wait(&self, word: &dyn Word, seen: u32, timeout: Duration) -> io::Result<()> {
        self.shared.wait(word, seen, timeout)
    }

    fn wake(&self, word: &dyn Word) -> io::Result<()> {
        self.shared.wake(word)
    }
}
