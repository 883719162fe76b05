//! Consumers: global batches in order, for one share, verified, ahead of need.
//!
//! - Every rank that starts from the same view delivers the same steps (P2); a change of history is noticed
//!   before the next hand-out, never straddled.
//! - Reading takes no lock on disk and makes no write call (P7).
//! - [`reader`] is what the consumers of one handle share; [`delivery`] is one consumer, [`window`] what it
//!   shares with the thread that reads ahead.

mod batch;
mod commits;
mod delivery;
mod load;
mod options;
mod reader;
mod slice;
mod together;
mod waiting;
mod window;

pub use batch::Batch;
pub(crate) use batch::WholePart;
pub use delivery::{Batches, Consumer, Next};
pub use options::ConsumerOptions;
pub(crate) use reader::{Reader, View, Want};
pub use slice::{Location, Slice};
