//! `destroy`: removes a store.

use std::fmt;
use std::path::PathBuf;

use batchweave::{DestroyOptions, Destroyed};
use serde::Serialize;

use super::{Confirm, Unconfirmed, is};
use crate::failure::{Answer, Failure};
use crate::output::{self, Bytes, Format, count, one_line, path_text};

/// Remove a store, once all processes have closed it: STORE first, then all else that is its own
///
/// The directory stays, and whatever in it isn't the store's own; that is named. Run again, it goes on where
/// it was stopped. It can't be undone. Without --confirm nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave destroy /lustre/run7/train
  batchweave destroy /lustre/run7/train --confirm")]
pub(crate) struct Destroy {
    /// The store's directory
    root: PathBuf,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Gone {
    root: String,
    #[serde(flatten)]
    report: Destroyed,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Destroyed { dry_run, resumed, commits, others, left, .. } = &self.report;
        let what = if *resumed { "the rest of a store" } else { "the store" };
        write!(f, "{what} at {} {} removed: ", one_line(&self.root), is(*dry_run))?;
        write!(f, "{} ({}), ", count(commits.count, "commit"), Bytes(commits.bytes))?;
        write!(f, "{} ({})", count(others.count, "other file"), Bytes(others.bytes))?;
        for path in left {
            write!(f, "\nleft, since it isn't a store's own: {}", one_line(&path_text(path)))?;
        }
        write!(f, "{}", Unconfirmed(*dry_run))
    }
}

impl Destroy {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let options = DestroyOptions::new().dry_run(self.confirm.dry_run());
        let report = batchweave::destroy(&self.root, options)?;
        output::print(&Gone { root: path_text(&self.root), report }, self.format)?;
        Ok(Answer::Yes)
    }
}
