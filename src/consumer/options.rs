//! How a consumer reads ahead and waits: its user's choices.

use std::time::Duration;

use crate::limits::{NEXT_BATCH_TIMEOUT, WINDOW_BYTES_DEFAULT, WINDOW_STEPS_DEFAULT};

/// How a consumer reads ahead and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerOptions {
    /// At most this many steps are held ready (default 8); 0 reads nothing ahead.
    pub window_steps: usize,
    /// At most this many bytes are held ready (default 256 MiB), or one step, however large.
    pub window_bytes: u64,
    /// How long `next_batch` waits for a step that isn't published (default 30 min). A mount that is away has
    /// its own patience, [`Settings::io_patience`](crate::Settings::io_patience).
    pub timeout: Duration,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            window_steps: WINDOW_STEPS_DEFAULT,
            window_bytes: WINDOW_BYTES_DEFAULT,
            timeout: NEXT_BATCH_TIMEOUT,
        }
    }
}

impl ConsumerOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`ConsumerOptions::window_steps`].
    #[must_use]
    pub fn window_steps(mut self, steps: usize) -> Self {
        self.window_steps = steps;
        self
    }

    /// Sets [`ConsumerOptions::window_bytes`].
    #[must_use]
    pub fn window_bytes(mut self, bytes: u64) -> Self {
        self.window_bytes = bytes;
        self
    }

    /// Sets [`ConsumerOptions::timeout`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}
