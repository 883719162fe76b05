//! The life of a store around its data: creation, and what an operator says of the stream and its producers.

pub(crate) mod create;
pub(crate) mod group;
pub(crate) mod stream;
