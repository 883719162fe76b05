//! `info`: what a store is and holds.

use std::fmt;
use std::path::PathBuf;

use batchweave::{Durability, Info as Known, ReadMode, Step, Store};
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::output::{self, Bytes, Format, one_line, path_text};

/// Show what a store is and holds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave info /lustre/run7/train
  batchweave info /lustre/run7/train --json | jq .next_step")]
pub(crate) struct Info {
    /// The store's directory
    root: PathBuf,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Shown {
    root: String,
    #[serde(flatten)]
    known: Known,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Known { options, .. } = &self.known;
        let known = &self.known;
        let mut line = |name: &str, value: String| writeln!(f, "{name:<12}{value}");
        line("store", one_line(&self.root))?;
        line("uuid", known.uuid.to_string())?;
        if let Some(origin) = known.origin {
            line("copy of", origin.to_string())?;
        }
        line("format", known.format.to_string())?;
        line("steps", steps(known.floor, known.next_step))?;
        line("next step", known.next_step.to_string())?;
        line(
            "stream",
            match known.closed {
                Some(step) => format!("closed at step {step}"),
                None => "open".to_owned(),
            },
        )?;
        line(
            "head",
            match known.head_version {
                Some(version) => format!("version {version}"),
                None => "no commit yet".to_owned(),
            },
        )?;
        line("generation", known.generation.to_string())?;
        line("retained", Bytes(known.retained_bytes).to_string())?;
        line("producers", known.producers.to_string())?;
        line("groups", known.groups.to_string())?;
        if let Some(turn) = &known.turn {
            line("turn", format!("{turn} publishes next"))?;
        }
        line("divisor", options.divisor.to_string())?;
        line("parts", format!("{} a step", options.parts_per_step))?;
        line("segment", format!("{} versions", options.segment_size))?;
        line(
            "durability",
            match options.durability {
                Durability::Synced => "synced".to_owned(),
                _ => "unsynced: a power cut may lose what was acknowledged".to_owned(),
            },
        )?;
        line("publish by", known.primitive.to_string())?;
        let read = if known.read_mode == ReadMode::Map { "mapped" } else { "copied" };
        write!(f, "{:<12}{}, {read} when read", "mount", known.mount_class)
    }
}

fn steps(floor: Step, next: Step) -> String {
    match next.get().checked_sub(1) {
        Some(last) if last >= floor.get() => {
            format!("{floor} to {last} ({} retained)", next.get() - floor.get())
        }
        _ => "none retained".to_owned(),
    }
}

impl Info {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let shown = Shown { root: path_text(&self.root), known: store.info()? };
        output::print(&shown, self.format)?;
        Ok(Answer::Yes)
    }
}
