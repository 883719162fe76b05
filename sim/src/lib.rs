//! The engine under a hostile filesystem: storages that forget, fail and stop where they are told, nodes that
//! see what is old, processes one call at a time, and an oracle that knows what was promised.
//!
//! - [`simulation`] makes runs of the real engine from seeds: its [`actors`] on mounts of a [`World`], held
//!   to the [`oracle`]. [`cases`] are small ones, of which [`explore`] makes every schedule.
//! - [`Memory`] is a filesystem that tells what is durable from what is only seen, and can lose the
//!   difference.
//! - [`Fault`] stands between the engine and any storage: it counts, traces, stops, fails and delays calls by
//!   a plan.
//! - [`Mount`] is one node's client of that: its caches, and what its class of filesystem lets it miss.
//! - [`World`] schedules simulated processes, one of their threads at a time; [`Faults`] are what goes wrong
//!   meanwhile.
//! - [`SkipZeros`] makes large slices of zeros cost nothing on a real disk.
//! - [`Choices`] are the decisions that a run leaves open, from one seed, replayed at will.
//! - [`Seeded`] is a clock, entropy and threads that a seed replays.
//! - [`contract::check`] holds a storage to what the engine leans on.
//!
//! This crate is for tests: it panics where a test is wrong, and is never a dependency of the library.
#![deny(missing_docs, unsafe_code)]

pub mod actors;
pub mod cases;
mod choice;
pub mod contract;
mod coverage;
mod damage;
mod env;
pub mod errno;
mod explore;
mod fault;
mod faults;
mod memory;
mod mount;
pub mod oracle;
mod random;
mod schedule;
pub mod simulation;
mod skip_zeros;

pub use choice::{Choices, Taken};
pub use coverage::{Coverage, Met};
pub use damage::Damage;
pub use env::Seeded;
pub use explore::{Explored, Fingerprint, Notices, Search, Step, explore};
pub use fault::{Call, Failure, Fate, Fault, Judge, Match, Method, Outcome, Plan, Stopped};
pub use faults::{Faults, Wrong};
pub use memory::{Memory, Unsynced};
pub use mount::{Alone, Class, Links, Mount, Pause, Traits};
pub use schedule::{Absent, Calm, End, Event, Fates, Node, On, Process, Story, Style, World};
pub use skip_zeros::SkipZeros;

/// Says that a test, or a part of one, couldn't run here: on standard error, past the harness that swallows
/// what passing tests print, so that whoever runs them can refuse it.
pub fn skipped(name: &str, why: &dyn std::fmt::Display) {
    use std::io::Write as _;
    // A standard error that is closed has nobody to tell.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {why}");
}
