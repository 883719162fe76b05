//! The life of a store around its data: creation, repair, and what an operator says of the stream, its
//! history and its producers.

pub(crate) mod create;
pub(crate) mod lost;
pub(crate) mod repair;
pub(crate) mod rewind;
pub(crate) mod skip;
pub(crate) mod stream;
