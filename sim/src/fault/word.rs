//! A word whose loads are heard of.

use std::fmt;
use std::sync::Arc;

use batchweave::storage::Word;

use super::Judge;

/// A word whose judge hears what it said.
pub(super) struct Watched {
    pub(super) word: Arc<dyn Word>,
    pub(super) judge: Arc<dyn Judge>,
}

impl Word for Watched {
    fn load(&self) -> u32 {
        self.judge.looks();
        let said = self.word.load();
        self.judge.saw(said.into());
        said
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self.word.as_any()
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.word.fmt(f)
    }
}
