//! How a record gets into the log: staged whole, given its version name by one exclusive call, judged by
//! identity.
//!
//! - [`staged`]: a finished file in stage/, which nobody sees.
//! - [`publish`]: one version name for it, and what an error means (R2).
//! - [`boundary`]: what has to be durable before a segment's first version (R4).
//! - [`bounds`], [`ballast`]: whether there is room for it.
//! - [`pacing`], [`dac`], [`census`]: when to attempt it, among how many; [`rivals`]: what that is measured
//!   against.
//! - [`retention`]: which checkpoints of a group are dropped.
//! - [`writer`]: catch up, link head+1, lost? read the winner, again; sync; marks; acknowledge (R3, R5, R6).

pub mod ballast;
pub mod boundary;
pub mod bounds;
pub mod census;
pub mod dac;
pub mod failure;
pub mod pacer;
pub mod pacing;
pub mod publish;
pub mod retention;
pub mod rivals;
pub mod staged;
pub mod writer;
