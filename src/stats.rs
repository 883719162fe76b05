//! What a handle has asked of the filesystem, by kind of call.

use serde::Serialize;

use crate::storage::{Calls, Counting, Pool};

/// Counters of one handle, since it was opened; see [`Store::stats`](crate::Store::stats).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Calls by kind, failed ones included.
    pub calls: Calls,
    /// What a metadata server sees of them: all but those that move or map bytes, close, wait and wake.
    pub metadata_calls: u64,
    /// How often a buffer was there for what is read and not mapped: in map mode a small commit that was
    /// waited for.
    pub pool_hits: u64,
    /// How often one had to be made.
    pub pool_misses: u64,
}

impl Stats {
    pub(crate) fn of(counting: &Counting, pool: &Pool) -> Self {
        let calls = counting.calls();
        let (pool_hits, pool_misses) = pool.hits_and_misses();
        Self { metadata_calls: calls.metadata(), calls, pool_hits, pool_misses }
    }
}
