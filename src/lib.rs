//! BatchWeave carries training data from producers to the ranks of a trainer, through a directory that the
//! cluster already has: Lustre, GPFS, NFS, a local disk, `/dev/shm`. No broker, no daemon, no locks.
//!
//! Its unit is the *global batch*: what one training step consumes, over all ranks; visible whole or not at
//! all, in one order, exactly once over any crash.
//!
//! ```
//! use batchweave::{Counts, Options, Share, Start, Store};
//! # fn main() -> batchweave::Result<()> {
//! # let directory = tempfile::tempdir()?;
//! # let root = directory.path().join("train");
//! let store = Store::open_or_create(&root, Options::new().divisor(4))?;
//!
//! // A producer: a named writer. Opening the name takes over from any older process that had it.
//! let mut producer = store.producer("tok-017")?;
//! let mut cursor = String::from_utf8_lossy(&producer.state()).parse().unwrap_or(0u64); // where it left off
//! while cursor < 3 {
//!     let mut draft = producer.draft()?; // a staged file that nobody sees
//!     for microbatch in 0..8u8 {
//!         draft.add_slice(&[microbatch; 1000], Counts { samples: 1, tokens: 1000 })?;
//!     }
//!     cursor += 1;
//!     producer.publish(draft, cursor.to_string())?; // the step and the cursor, both or neither
//! }
//! producer.finish()?;
//! store.close(false)?;
//!
//! // A rank: share 1 of 4 of every global batch.
//! let run = store.run(Start::Beginning)?;
//! let mut batches = run.consumer(Share::new(1, 4)?)?;
//! let mut steps = 0;
//! while let Some(batch) = batches.next_batch()? { // None: closed, at the same step on every rank
//!     for slice in batch.slices() {
//!         let slice = slice?; // verified; in map mode the page cache itself
//!         assert_eq!(slice.len(), 1000);
//!     }
//!     let saved = batch.position(); // what a trainer saves beside its model
//!     assert_eq!(saved.step, batch.step().next());
//!     steps += 1;
//! }
//! assert_eq!(steps, 3);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start
//! - [`Store`] creates and opens; [`Store::producer`] writes; [`Store::run`] and [`Run::consumer`] read.
//! - [`Error`] and [`ErrorKind`] say what a caller can do.
//! - `docs/design.md` is how it works, with its promises and rules by number; `docs/format.md` is every
//!   byte on disk.
//!
//! # Features
//! - `zstd` (default): slices and attachments compressed by option. Without it writers store raw and a
//!   compressed item is [`ErrorKind::Unsupported`].
//! - `internals`: opens the layers below to the simulator, the fuzzers and the contract suite. Exempt from
//!   semver.

#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "internals"), expect(dead_code, reason = "what only simulators and tests call"))]
#![deny(unsafe_code, missing_docs, rustdoc::broken_intra_doc_links)]
#![cfg_attr(feature = "internals", deny(unreachable_pub))]
#![cfg_attr(
    not(test),
    deny(
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::print_stderr,
        clippy::print_stdout,
        clippy::todo,
        clippy::undocumented_unsafe_blocks,
        clippy::unimplemented,
        clippy::unwrap_used,
        clippy::disallowed_methods,
        clippy::disallowed_types,
    )
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("batchweave runs on 64-bit little-endian Linux: its format is mapped as it lies on disk");

mod consumer;
mod copy;
mod doctor;
mod error;
mod group;
mod id;
mod inspect;
mod lifecycle;
mod name;
mod operate;
mod options;
mod position;
mod producer;
mod reclaim;
mod run;
mod share;
mod snapshot;
mod stats;
mod store;
mod turns;

// What the feature `internals` opens to the simulator, the fuzzers and the contract suite.
#[cfg(feature = "internals")]
pub mod commit;
#[cfg(not(feature = "internals"))]
mod commit;
#[cfg(feature = "internals")]
pub mod env;
#[cfg(not(feature = "internals"))]
mod env;
#[cfg(feature = "internals")]
pub mod format;
#[cfg(not(feature = "internals"))]
mod format;
#[cfg(feature = "internals")]
pub mod limits;
#[cfg(not(feature = "internals"))]
mod limits;
#[cfg(feature = "internals")]
pub mod log;
#[cfg(not(feature = "internals"))]
mod log;
#[cfg(feature = "internals")]
pub mod planted;
#[cfg(not(feature = "internals"))]
mod planted;
#[cfg(feature = "internals")]
pub mod storage;
#[cfg(not(feature = "internals"))]
mod storage;

pub use consumer::{Batch, Batches, Consumer, ConsumerOptions, Location, Next, Slice};
pub use copy::{Copied, CopyOptions};
pub use doctor::{
    Advice, Costs, Diagnosis, Freshness, PeerReport, Peers, Race, Weight, doctor, doctor_with_peers,
};
pub use error::{Error, ErrorKind, Result};
pub use format::part::Counts;
pub use group::{Group, GroupInfo, GroupProgress};
pub use id::{
    Checksum, Generation, Incarnation, Nonce, ParseIdError, Part, Segment, Sequence, Step, StoreUuid, Version,
};
pub use inspect::{CommitInfo, Litter, Progress, VerifyFinding, VerifyReport};
pub use lifecycle::destroy::{DestroyOptions, Destroyed};
pub use lifecycle::lost::LostReport;
pub use lifecycle::reclaimed::{DroppedCheckpoint, Freed, Holder, ReclaimOptions, Reclaimed};
pub use lifecycle::repair::{RepairOptions, RepairReport, Repaired};
pub use lifecycle::rewind::{RewindOptions, RewindReport, SetBack};
pub use name::Name;
pub use operate::destroy;
#[cfg(feature = "internals")]
pub use operate::destroy_on;
pub use options::{
    Bounds, CheckpointOptions, Durability, MountClass, Options, Primitive, ReadMode, Settings,
};
pub use position::Position;
pub use producer::{Compression, Draft, Producer, PublishError, Published, SliceWriter, Ticket};
pub use reclaim::Reclaimer;
pub use run::{Checkpoint, Run, Start};
pub use share::Share;
pub use stats::Stats;
pub use storage::{Attempt, Calls, Finding, Mount, Report};
pub use store::{Info, ProducerInfo, Store};
pub use turns::TurnsInfo;
