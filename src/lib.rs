//! BatchWeave.
#![deny(missing_docs)]

mod consumer;
mod error;
mod id;
mod inspect;
mod lifecycle;
mod options;
mod position;
mod producer;
mod run;
mod share;
mod stats;
mod store;

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
pub mod storage;
#[cfg(not(feature = "internals"))]
mod storage;

pub use consumer::{Batch, Consumer, ConsumerOptions, Location, Next, Slice};
pub use error::{Error, ErrorKind, Result};
pub use format::part::Counts;
pub use id::{
    Checksum, Generation, Incarnation, Name, Nonce, Part, Segment, Sequence, Step, StoreUuid, Version,
};
pub use inspect::{CommitInfo, Litter, Progress, VerifyFinding, VerifyReport};
pub use options::{Durability, MountClass, Options, Primitive, ReadMode, Settings};
pub use position::Position;
pub use producer::{Compression, Draft, Producer, PublishError, Published, SliceWriter, Ticket};
pub use run::{Run, Start};
pub use share::Share;
pub use stats::Stats;
pub use storage::{Attempt, Calls, Finding, Mount, Report};
pub use store::{Info, ProducerInfo, Store, doctor};
