//! The doorbell's word: the first 4 bytes of a file, as they are now.
//!
//! - A word holds its file open, and dies with it at a power cut.

use std::any::Any;
use std::fmt;

use batchweave::storage::Word;

use super::Handle;
use super::tree::{Id, State};

pub(super) fn word_of(state: &mut State, id: Id) -> u32 {
    let mut bytes = [0; 4];
    if let Ok(content) = state.file(id) {
        content.live.read(&mut bytes, 0);
    }
    u32::from_le_bytes(bytes)
}

/// The first 4 bytes of a file, as they are now.
pub(super) struct LiveWord(pub(super) Handle);

impl Word for LiveWord {
    /// 0 after a power cut: whoever mapped it is dead.
    fn load(&self) -> u32 {
        let mut state = self.0.shared.state.lock();
        if state.epoch == self.0.epoch { word_of(&mut state, self.0.id) } else { 0 }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for LiveWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LiveWord")
    }
}
