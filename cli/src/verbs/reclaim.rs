//! `reclaim`: frees what no live group needs.

use std::fmt;
use std::path::PathBuf;

use batchweave::{ReclaimOptions, Reclaimed, Step, Store};
use serde::Serialize;

use super::{Confirm, Unconfirmed};
use crate::failure::{Answer, Failure};
use crate::output::{self, Format};

/// Free what no live group needs: raise the floor, and remove the commits, indexes and litter below it
///
/// Whole segments are freed. It may run beside producers and trainers, and be stopped at any moment. Without
/// --confirm nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave reclaim /lustre/run7/train --keep 3
  batchweave reclaim /lustre/run7/train --keep 3 --confirm")]
pub(crate) struct Reclaim {
    /// The store's directory
    root: PathBuf,
    /// Drop all checkpoints of each group but its newest K and the pinned ones; without it none is dropped
    #[arg(long, value_name = "K")]
    keep: Option<usize>,
    /// Free no step from this one on; where no group lives, free all before it
    #[arg(long, value_name = "STEP")]
    up_to: Option<Step>,
    /// A group may be left without any checkpoint
    #[arg(long)]
    allow_no_checkpoint: bool,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Shown(Reclaimed);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0, Unconfirmed(self.0.dry_run))
    }
}

impl Reclaim {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let mut options = ReclaimOptions::new()
            .allow_no_checkpoint(self.allow_no_checkpoint)
            .dry_run(self.confirm.dry_run());
        options.keep = self.keep;
        options.up_to = self.up_to;
        let report = Store::open(&self.root)?.reclaim(&options)?;
        output::print(&Shown(report), self.format)?;
        Ok(Answer::Yes)
    }
}
