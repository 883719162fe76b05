//! The doorbell as the processes of one node share it.
//!
//! - A futex is one host's: a wake reaches the waiters of this node only.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use batchweave::storage::{Access, File, Storage, Word};

use super::{OpenFile, Shared};
use crate::errno::{self, error};

/// Node numbers are above the inode numbers.
const INODE_BITS: u32 = 40;

/// The first 4 bytes of a file, as this node sees them. It holds the file open.
pub(super) struct NodeWord {
    shared: Arc<Shared>,
    file: File,
}

impl Shared {
    pub(super) fn map_word(self: &Arc<Self>, file: &OpenFile) -> io::Result<Arc<dyn Word>> {
        drop(self.memory.map_word(&file.inner)?);
        let inner = self.memory.open_inode(file.id, Access::Read)?;
        let file = self.opened_file(inner, Access::Read)?;
        Ok(Arc::new(NodeWord { shared: Arc::clone(self), file }))
    }

    pub(super) fn wait(self: &Arc<Self>, word: &dyn Word, seen: u32, timeout: Duration) -> io::Result<()> {
        let key = self.key(word)?;
        if word.load() == seen {
            self.pause.wait_on(key, timeout);
        }
        Ok(())
    }

    pub(super) fn wake(self: &Arc<Self>, word: &dyn Word) -> io::Result<()> {
        self.pause.wake(self.key(word)?);
        Ok(())
    }

    fn key(self: &Arc<Self>, word: &dyn Word) -> io::Result<u64> {
        let word = word.as_any().downcast_ref::<NodeWord>();
        let file = self.file(&word.ok_or_else(|| error(errno::EBADF))?.file)?;
        let id = self.memory.inode_of_file(&file.inner)?;
        Ok(self.node << INODE_BITS | id)
    }
}

impl Word for NodeWord {
    /// 0 where its node is dead.
    fn load(&self) -> u32 {
        let mut word = [0; 4];
        match self.shared.file(&self.file).and_then(|file| self.shared.look(file, &mut word, 0)) {
            Ok(()) => u32::from_le_bytes(word),
            Err(_) => 0,
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for NodeWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeWord")
    }
}
