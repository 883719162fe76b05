//! The life of a store around its data: creation, what an operator says of the stream and its producers, and
//! the freeing of what nobody needs.

pub(crate) mod create;
mod dead;
mod floor;
pub(crate) mod group;
mod litter;
pub(crate) mod reclaim;
pub(crate) mod reclaimed;
mod remove;
pub(crate) mod stream;
