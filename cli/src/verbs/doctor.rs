//! `doctor`: whether a store may live on a mount.

use std::fmt;
use std::path::PathBuf;

use batchweave::{Mount, Options, Report};
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::output::{Format, Output, one_line, path_text};

/// Try out whether a store may live in a directory
///
/// Tries every way to publish, in a private directory inside that is removed again. Exits with 0 when a
/// store may live there, with 1 when not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave doctor /lustre/run7")]
pub(crate) struct Doctor {
    /// The directory, or the one in which the store is to be made
    directory: PathBuf,
    /// Accept a FUSE filesystem that isn't known to keep creation exclusive
    #[arg(long)]
    allow_unknown_fuse: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Diagnosis {
    fit: bool,
    #[serde(flatten)]
    report: Report,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.report;
        writeln!(f, "directory  {}", one_line(&path_text(&report.path)))?;
        writeln!(f, "mount      {}", one_line(&mount(&report.mount)))?;
        writeln!(f, "class      {}", report.class)?;
        for attempt in &report.attempts {
            let mark =
                if report.chosen == Some(attempt.primitive) { "  <- a store publishes by this" } else { "" };
            writeln!(f, "publish    {attempt}{mark}")?;
        }
        writeln!(f, "listing    {}", report.listing)?;
        match &report.refusal {
            None => write!(f, "verdict    a store may live here"),
            Some(refusal) => write!(f, "verdict    no store may live here: {}", one_line(refusal)),
        }
    }
}

fn mount(mount: &Mount) -> String {
    let kind = match mount.kind.as_str() {
        "" => format!("a filesystem of magic {:#x}", mount.magic),
        kind => kind.to_owned(),
    };
    let point = mount.point.display().to_string();
    let point = if point.is_empty() { "an unknown place".to_owned() } else { point };
    format!("{kind} at {point} ({})", mount.options)
}

impl Doctor {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let options = Options::new().allow_unknown_fuse(self.allow_unknown_fuse);
        let report = batchweave::doctor(&self.directory, &options)?;
        let fit = report.refusal.is_none() && report.chosen.is_some();
        Output::verdict(&Diagnosis { fit, report }, self.format)?;
        Ok(if fit { Answer::Yes } else { Answer::No })
    }
}
