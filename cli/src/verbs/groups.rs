//! `groups`, `checkpoints`, `checkpoint`, `drop-checkpoint` and `retire-group`: who needs which steps.
//!
//! An operator speaks on behalf of whoever runs a group, and fences nobody.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use batchweave::{
    Checkpoint as Kept, CheckpointOptions, GroupInfo, GroupProgress, Incarnation, Name, Position, Step,
    Store, Version,
};
use serde::Serialize;

use super::{Confirm, Unconfirmed, is};
use crate::failure::{Answer, Failure};
use crate::output::{self, Bytes, Format, Output, count};

/// List the groups that a store knows: how far each has come, and from where on it needs the steps
///
/// How far it has come is what its first rank says, about once a second; or else its newest checkpoint, or
/// where it started.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave groups /lustre/run7/train")]
pub(crate) struct Groups {
    /// The store's directory
    root: PathBuf,
    #[command(flatten)]
    format: Format,
}

/// List the checkpoints that are retained, the newest of each group last
///
/// In JSON the metadata is `metadata` where it is UTF-8, else `metadata_base64`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave checkpoints /lustre/run7/train --group pretrain
  batchweave checkpoints /lustre/run7/train --json | jq -r 'select(.pinned) | .name'")]
pub(crate) struct Checkpoints {
    /// The store's directory
    root: PathBuf,
    /// Only those of this group
    #[arg(long, value_name = "G")]
    group: Option<Name>,
    #[command(flatten)]
    format: Format,
}

/// Mark a step as needed by a saved model: it and all after it are kept until the checkpoint is dropped
///
/// A group that isn't there yet is opened, from the first retained step on. Whoever runs the group isn't
/// fenced. The same name at the same step is there already when it is said again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave checkpoint /lustre/run7/train 4000 --group pretrain --name step-4000 --pin")]
pub(crate) struct Checkpoint {
    /// The store's directory
    root: PathBuf,
    /// The next step that is trained on from there
    step: Step,
    /// The group
    #[arg(long, value_name = "G")]
    group: Name,
    /// The checkpoint's name within the group
    #[arg(long, value_name = "NAME")]
    name: Name,
    /// Keep it until it is dropped by its name
    #[arg(long)]
    pin: bool,
    /// Something to be kept with it, such as where the model is; at most 64 KiB
    #[arg(long, value_name = "TEXT")]
    metadata: Option<OsString>,
    #[command(flatten)]
    format: Format,
}

/// Drop a checkpoint: then its model may be deleted, and `reclaim` may free its steps
///
/// Without --confirm nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave drop-checkpoint /lustre/run7/train step-4000 --group pretrain --confirm")]
pub(crate) struct DropCheckpoint {
    /// The store's directory
    root: PathBuf,
    /// The checkpoint's name
    name: Name,
    /// Its group
    #[arg(long, value_name = "G")]
    group: Name,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    format: Format,
}

/// Retire a group: it needs nothing any more, and its checkpoints are gone
///
/// A process that still runs under the name can't checkpoint any more.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave retire-group /lustre/run7/train ablation-3")]
pub(crate) struct RetireGroup {
    /// The store's directory
    root: PathBuf,
    /// The group's name
    group: Name,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Known {
    name: Name,
    incarnation: Option<Incarnation>,
    start: Step,
    /// The next step that it delivers, as far as is known; none once retired.
    reached: Option<Step>,
    needs: Option<Step>,
    checkpoints: usize,
    newest_checkpoint: Option<Step>,
    progress: Option<GroupProgress>,
    /// The width of the longest name.
    #[serde(skip)]
    width: usize,
}

impl Known {
    fn new(info: GroupInfo, width: usize) -> Self {
        let reached = info.reached();
        let newest_checkpoint = info.checkpoints.last().map(|kept| kept.position.step);
        let GroupInfo { name, incarnation, start, needs, checkpoints, progress, .. } = info;
        let checkpoints = checkpoints.len();
        Self { name, incarnation, start, reached, needs, checkpoints, newest_checkpoint, progress, width }
    }
}

fn or_dash(step: Option<Step>) -> String {
    step.map_or_else(|| "-".to_owned(), |step| step.to_string())
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = if self.incarnation.is_some() { "live" } else { "retired" };
        let waits = if self.progress.is_some_and(|said| said.hungry) { "  waits" } else { "" };
        let [reached, needs, newest] = [self.reached, self.needs, self.newest_checkpoint].map(or_dash);
        let (name, width, checkpoints) = (&self.name, self.width, self.checkpoints);
        write!(
            f,
            "{name:<width$}  {status:<7}  {reached:>10}  {needs:>10}  {newest:>10}  {checkpoints:>11}{waits}"
        )
    }
}

impl Groups {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let groups = Store::open(&self.root)?.groups()?;
        let width = groups.iter().map(|info| info.name.as_str().len()).max().unwrap_or(0).max("NAME".len());
        let heading = format!(
            "{:<width$}  {:<7}  {:>10}  {:>10}  {:>10}  CHECKPOINTS",
            "NAME", "STATUS", "REACHED", "NEEDS", "NEWEST"
        );
        let rows = groups.into_iter().map(|info| Known::new(info, width));
        output::table(heading, rows, self.format)?;
        Ok(Answer::Yes)
    }
}

#[derive(Debug, Serialize)]
enum Metadata {
    #[serde(rename = "metadata")]
    Text(String),
    #[serde(rename = "metadata_base64")]
    Base64(String),
}

#[derive(Debug, Serialize)]
struct Shown {
    group: Name,
    name: Name,
    step: Step,
    pinned: bool,
    version: Version,
    position: Position,
    #[serde(flatten)]
    metadata: Metadata,
    metadata_bytes: usize,
}

impl Shown {
    fn new(group: Name, kept: Kept) -> Self {
        let Kept { name, position, pinned, metadata, version, .. } = kept;
        let metadata_bytes = metadata.len();
        let metadata = match String::from_utf8(metadata) {
            Ok(text) => Metadata::Text(text),
            Err(bytes) => Metadata::Base64(STANDARD.encode(bytes.as_bytes())),
        };
        Self { group, name, step: position.step, pinned, version, position, metadata, metadata_bytes }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 60;
        let Self { group, name, step, version, .. } = self;
        let pinned = if self.pinned { ", pinned" } else { "" };
        write!(f, "{name} of {group} at step {step}{pinned} (version {version})")?;
        match &self.metadata {
            _ if self.metadata_bytes == 0 => Ok(()),
            Metadata::Text(text) => {
                let shown: String = text.chars().take(SHOWN_MAX).collect();
                let rest = if shown.len() < text.len() { "..." } else { "" };
                write!(f, ": {}{rest}", shown.escape_default())
            }
            Metadata::Base64(_) => {
                write!(f, ": {} that aren't text", Bytes(self.metadata_bytes as u64))
            }
        }
    }
}

impl Checkpoints {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let mut output = Output::new();
        let listed = match &self.group {
            Some(group) => vec![(group.clone(), store.group(group.as_str())?.checkpoints()?)],
            None => store.groups()?.into_iter().map(|info| (info.name, info.checkpoints)).collect(),
        };
        for (group, checkpoints) in listed {
            for kept in checkpoints {
                output.fact(&Shown::new(group.clone(), kept), self.format)?;
            }
        }
        output.flush()?;
        Ok(Answer::Yes)
    }
}

impl Checkpoint {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let position = store.position(self.step)?;
        let metadata = self.metadata.as_ref().map_or(&[][..], |text| text.as_bytes());
        let options = CheckpointOptions::new().pinned(self.pin).metadata(metadata);
        let kept = store.group(self.group.as_str())?.checkpoint(position, self.name.as_str(), &options)?;
        output::print(&Shown::new(self.group.clone(), kept), self.format)?;
        Ok(Answer::Yes)
    }
}

#[derive(Debug, Serialize)]
struct Dropped<'a> {
    group: &'a Name,
    name: &'a Name,
    /// The step that it protects; none if there is no such checkpoint.
    step: Option<Step>,
    /// How many others the group has.
    others: usize,
    dry_run: bool,
    /// Whether it was dropped.
    changed: bool,
}

impl fmt::Display for Dropped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, name, others, dry_run, .. } = self;
        let Some(step) = self.step else { return write!(f, "group {group} has no checkpoint {name}") };
        write!(f, "checkpoint {name} of group {group} at step {step} {} dropped; ", is(*dry_run))?;
        match others {
            0 => write!(f, "it has no other, and keeps what is retained now")?,
            others => write!(f, "it has {}", count(*others as u64, "other"))?,
        }
        write!(f, "{}", Unconfirmed(*dry_run))
    }
}

impl DropCheckpoint {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let (group, name, dry_run) = (&self.group, &self.name, self.confirm.dry_run());
        let of_group = Store::open(&self.root)?.group(group.as_str())?;
        let step = of_group.preview_drop(name.as_str())?.map(|kept| kept.position.step);
        let changed = !dry_run && of_group.drop_checkpoint(name.as_str())?;
        let others = of_group.checkpoints()?.iter().filter(|kept| kept.name != *name).count();
        output::print(&Dropped { group, name, step, others, dry_run, changed }, self.format)?;
        Ok(Answer::Yes)
    }
}

#[derive(Debug, Serialize)]
struct Retired<'a> {
    group: &'a Name,
    /// False if it was so already.
    changed: bool,
}

impl fmt::Display for Retired<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.changed { "is retired" } else { "was retired already" };
        write!(f, "group {} {how}", self.group)
    }
}

impl RetireGroup {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let changed = Store::open(&self.root)?.group(self.group.as_str())?.retire()?;
        output::print(&Retired { group: &self.group, changed }, self.format)?;
        Ok(Answer::Yes)
    }
}
