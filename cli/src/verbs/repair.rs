//! `repair`: mends what can be mended.

use std::fmt;
use std::path::PathBuf;

use batchweave::{LostReport, RepairOptions, RepairReport, Store};
use serde::Serialize;

use super::{Confirm, Unconfirmed};
use crate::failure::{Answer, Failure};
use crate::output::{Format, Output, count, one_line, path_text};

/// Rebuild indexes that are lost or damaged, and drop what a lost commit at the log's end takes along
///
/// --confirm says that ALL PROCESSES HAVE CLOSED THE STORE, on every host. Without it nothing is changed.
/// Exits with 1 where something is, or stays, broken. What `verify` finds in older commits isn't mended:
/// `skip` passes over their steps.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave repair /lustre/run7/train
  batchweave repair /lustre/run7/train --confirm")]
pub(crate) struct Repair {
    /// The store's directory
    root: PathBuf,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Mended {
    dry_run: bool,
    /// Whether nothing is broken any more.
    sound: bool,
    #[serde(flatten)]
    report: RepairReport,
}

impl fmt::Display for Mended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dry_run, report, .. } = self;
        let is = super::is(*dry_run);
        for index in &report.rebuilt {
            writeln!(f, "{} {is} rebuilt: {}", path_text(&index.path), one_line(&index.what))?;
        }
        for index in &report.left {
            writeln!(f, "{} stays as it is: {}", path_text(&index.path), one_line(&index.what))?;
        }
        if let Some(lost) = &report.lost {
            write_lost(f, lost, is)?;
        }
        match (self.sound, report.rebuilt.is_empty() && report.lost.is_none()) {
            (true, true) => write!(f, "nothing is broken that a repair mends"),
            (true, false) => write!(f, "mended"),
            (false, _) => write!(f, "BROKEN{}", Unconfirmed(*dry_run)),
        }
    }
}

fn write_lost(f: &mut fmt::Formatter<'_>, lost: &LostReport, is: &str) -> fmt::Result {
    let LostReport { version, last, step, generation, .. } = lost;
    writeln!(f, "version {version} is lost: {}", one_line(&lost.what))?;
    write!(f, "versions {version} to {last} {is} dropped with it, ")?;
    writeln!(f, "{} among them that can be read", count(lost.parts, "part"))?;
    writeln!(f, "the next step {is} {step}, in generation {generation}")?;
    for (producer, sequence) in &lost.producers {
        writeln!(f, "producer {producer} goes on at sequence {sequence}")?;
    }
    for (group, name) in &lost.checkpoints {
        writeln!(f, "checkpoint {name} of group {group} {is} dropped")?;
    }
    Ok(())
}

impl Repair {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let dry_run = self.confirm.dry_run();
        let options = RepairOptions::new().dry_run(dry_run).confirm(!dry_run);
        let report = Store::open(&self.root)?.repair(options)?;
        let stays = !report.left.is_empty() || (report.lost.is_some() && !report.dropped);
        let sound = !stays && (!dry_run || report.rebuilt.is_empty());
        Output::verdict(&Mended { dry_run, sound, report }, self.format)?;
        Ok(if sound { Answer::Yes } else { Answer::No })
    }
}
