//! `copy`: steps of a store as another one.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use batchweave::{Copied, CopyOptions, Step, Store};
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::output::{self, Bytes, Format, count, one_line, path_text};

/// Copy steps into a new store, where they are numbered from 0
///
/// Every byte is verified on the way. Slices, counts, attachments, metadata and producers' states are the
/// same; steps that `skip` passes over are left out. Until it is whole, the copy is in DEST.partial: what an
/// interrupted one has left there is removed by `destroy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave copy /lustre/run7/train /lustre/run8/train
  batchweave copy /lustre/run7/train /dev/shm/some --steps 100..200   # steps 100 to 199")]
pub(crate) struct Copy {
    /// The store's directory
    root: PathBuf,
    /// The new store's directory: empty, or not there yet; its parent exists
    dest: PathBuf,
    /// The first step, and the first one that isn't copied; without it all that are retained
    #[arg(long, value_name = "A..B")]
    steps: Option<Steps>,
    /// Let the copy be on a FUSE filesystem that isn't known to keep creation exclusive, or on sshfs (with
    /// -o dir_cache=no)
    #[arg(long)]
    allow_unknown_fuse: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Clone, Debug)]
struct Steps(Range<Step>);

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "has to be two steps, such as 100..200 for steps 100 to 199".to_owned();
        let (first, end) = text.split_once("..").ok_or_else(wrong)?;
        let step = |text: &str| text.parse::<Step>().map_err(|_| wrong());
        Ok(Self(step(first)?..step(end)?))
    }
}

#[derive(Debug, Serialize)]
struct Made {
    root: String,
    #[serde(flatten)]
    copied: Copied,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Copied { uuid, origin, first, steps, bytes, .. } = self.copied;
        write!(f, "store {uuid} at {}: {} ", one_line(&self.root), count(steps, "step"))?;
        write!(f, "({}) of store {origin}, from its step {first} on", Bytes(bytes))?;
        for steps in &self.copied.left_out {
            write!(f, "\nsteps {} to {} are left out: they were skipped", steps.start(), steps.end())?;
        }
        if self.copied.closed {
            write!(f, "\nits stream is closed, as that of the source is")?;
        }
        Ok(())
    }
}

impl Copy {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let mut options = CopyOptions::new().allow_unknown_fuse(self.allow_unknown_fuse);
        options.steps = self.steps.clone().map(|Steps(range)| range);
        let copied = Store::open(&self.root)?.copy_to(&self.dest, options)?;
        output::print(&Made { root: path_text(&self.dest), copied }, self.format)?;
        Ok(Answer::Yes)
    }
}
