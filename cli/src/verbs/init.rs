//! `init`: makes a store.

use std::fmt;
use std::path::PathBuf;

use batchweave::{Durability, Info, Options, Store};
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::output::{self, Format, path_text};

/// Make a store in a directory that is empty or doesn't exist yet
///
/// The mount is probed first: one that can't keep a store's promises is refused (see `doctor`). The choices
/// made here are fixed for the life of the store.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave init /lustre/run7/train --divisor 32
  batchweave init /dev/shm/try --unsynced --if-absent")]
pub(crate) struct Init {
    /// The store's directory; its parent exists
    root: PathBuf,
    /// Slices of every part are a multiple of this: take the largest data-parallel size that will read the
    /// store
    #[arg(long, value_name = "N", default_value_t = 1)]
    divisor: u32,
    /// Parts that make a step; more mixes several producers into each step
    #[arg(long, value_name = "M", default_value_t = 1)]
    parts: u32,
    /// Commits in a segment, 16 to 4096: the unit in which space is freed; smaller when commits are large
    #[arg(long, value_name = "S", default_value_t = Options::new().segment_size)]
    segment: u32,
    /// Never sync: faster, but a power cut may lose what was acknowledged
    #[arg(long)]
    unsynced: bool,
    /// A store with the same choices that is there already will do; any number of processes may race
    #[arg(long)]
    if_absent: bool,
    /// Accept a FUSE filesystem that isn't known to keep creation exclusive, or sshfs (with -o dir_cache=no)
    #[arg(long)]
    allow_unknown_fuse: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Made {
    root: String,
    #[serde(flatten)]
    info: Info,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { root, info } = self;
        write!(
            f,
            "store {} at {root}: publishes by {} on a {} mount",
            info.uuid, info.primitive, info.mount_class
        )
    }
}

impl Init {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let durability = if self.unsynced { Durability::Unsynced } else { Durability::Synced };
        let options = Options::new()
            .divisor(self.divisor)
            .parts_per_step(self.parts)
            .segment_size(self.segment)
            .durability(durability)
            .allow_unknown_fuse(self.allow_unknown_fuse);
        let make = if self.if_absent { Store::open_or_create } else { Store::create };
        let store = make(&self.root, options)?;
        let made = Made { root: path_text(&self.root), info: store.info()? };
        output::print(&made, self.format)?;
        Ok(Answer::Yes)
    }
}
