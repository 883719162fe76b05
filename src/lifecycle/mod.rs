//! The life of a store around its data: creation and repair, groups and checkpoints, what an operator says of
//! the stream, its history, its producers and their turns, and the freeing of what nobody needs.

pub(crate) mod create;
mod dead;
pub(crate) mod destroy;
mod floor;
pub(crate) mod group;
mod litter;
pub(crate) mod lost;
pub(crate) mod reclaim;
pub(crate) mod reclaimed;
mod remove;
pub(crate) mod repair;
pub(crate) mod rewind;
pub(crate) mod skip;
pub(crate) mod stream;
pub(crate) mod turns;
