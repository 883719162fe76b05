//! `rewind`, `skip` and `forget`: what an operator changes of a store's history.

use std::fmt;
use std::path::PathBuf;

use batchweave::{Name, RewindOptions, RewindReport, Step, Store};
use serde::Serialize;

use super::{Confirm, Unconfirmed, is};
use crate::failure::{Answer, Failure};
use crate::output::{self, Bytes, Format, count, one_line};

/// Drop the newest steps: STEP becomes the next one, and every producer goes on where it was before it
///
/// Runs that are under way stop with the error `rewound`, and producers have to be opened anew. Checkpoints
/// beyond the step are dropped. It can't be undone. Without --confirm nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave rewind /lustre/run7/train 4000
  batchweave rewind /lustre/run7/train 4000 --confirm")]
pub(crate) struct Rewind {
    /// The store's directory
    root: PathBuf,
    /// The first step that is dropped
    step: Step,
    /// Also when two or more groups read the store: all of them lose what lies beyond
    #[arg(long)]
    even_with_groups: bool,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    format: Format,
}

/// Pass over published steps: every run that begins from now on goes on after them, the same on every rank
///
/// Nothing is freed or renumbered, and no position becomes invalid. Runs that are under way stop with the
/// error `rewound`. Without --confirm nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave skip /lustre/run7/train 4711 4713 --reason 'the loss explodes' --confirm")]
pub(crate) struct Skip {
    /// The store's directory
    root: PathBuf,
    /// The first step that is passed over
    first: Step,
    /// The last step that is passed over
    last: Step,
    /// Why; it stays in the log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    format: Format,
}

/// Drop the name of a finished producer of which nothing is retained
///
/// Opened again, it begins anew, at its first part and without a state.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave forget /lustre/run7/train tok-017")]
pub(crate) struct Forget {
    /// The store's directory
    root: PathBuf,
    /// The producer's name
    producer: Name,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Rewound {
    dry_run: bool,
    #[serde(flatten)]
    report: RewindReport,
}

impl fmt::Display for Rewound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dry_run, report } = self;
        let is = is(*dry_run);
        let steps = report.next_step.get().saturating_sub(report.step.get());
        let (parts, bytes) = (count(report.parts, "part"), Bytes(report.bytes));
        write!(f, "the next step {is} {}, not {}: ", report.step, report.next_step)?;
        write!(f, "{} ({parts}, {bytes}) dropped", count(steps, "step"))?;
        for set_back in &report.producers {
            let (producer, sequence) = (&set_back.producer, set_back.sequence);
            write!(f, "\nproducer {producer} {is} set back to sequence {sequence}, by ")?;
            write!(f, "{}", count(set_back.parts, "part"))?;
            if set_back.unfinished {
                write!(f, ", and not finished any more")?;
            }
        }
        for (group, names) in &report.checkpoints {
            for name in names {
                write!(f, "\ncheckpoint {name} of group {group} {is} dropped")?;
            }
        }
        if report.reopens {
            write!(f, "\nthe stream {is} open again")?;
        }
        write!(f, "{}", Unconfirmed(*dry_run))
    }
}

impl Rewind {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let options = RewindOptions::new().even_with_groups(self.even_with_groups);
        let dry_run = self.confirm.dry_run();
        let report = if dry_run {
            store.preview_rewind(self.step, options)?
        } else {
            store.rewind(self.step, options)?
        };
        output::print(&Rewound { dry_run, report }, self.format)?;
        Ok(Answer::Yes)
    }
}

#[derive(Debug, Serialize)]
struct Skipped<'a> {
    first: Step,
    last: Step,
    reason: &'a str,
    dry_run: bool,
    /// False if all of them were skipped already; of a dry run, whether it would change anything.
    changed: bool,
}

impl fmt::Display for Skipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, dry_run, .. } = self;
        if !self.changed {
            return write!(f, "steps {first} to {last} were passed over already");
        }
        let is = if *dry_run { "would be" } else { "are" };
        let reason = one_line(self.reason);
        write!(f, "steps {first} to {last} {is} passed over: {reason}{}", Unconfirmed(*dry_run))
    }
}

impl Skip {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let Self { first, last, reason, .. } = self;
        let dry_run = self.confirm.dry_run();
        let changed = if dry_run {
            store.preview_skip(*first, *last, reason)?
        } else {
            store.skip(*first, *last, reason)?
        };
        let fact = Skipped { first: *first, last: *last, reason, dry_run, changed };
        output::print(&fact, self.format)?;
        Ok(Answer::Yes)
    }
}

#[derive(Debug, Serialize)]
struct Forgotten<'a> {
    producer: &'a Name,
    /// False if there is no such name.
    changed: bool,
}

impl fmt::Display for Forgotten<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.changed { "is forgotten" } else { "isn't known" };
        write!(f, "producer {} {how}", self.producer)
    }
}

impl Forget {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let changed = Store::open(&self.root)?.forget(self.producer.as_str())?;
        output::print(&Forgotten { producer: &self.producer, changed }, self.format)?;
        Ok(Answer::Yes)
    }
}
