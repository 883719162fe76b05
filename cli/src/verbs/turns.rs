//! `turns`: which producers take turns, and whose it is.

use std::fmt;
use std::path::PathBuf;

use batchweave::{Name, Store, TurnsInfo, Version};
use serde::Serialize;

use super::{Confirm, Unconfirmed, is};
use crate::failure::{Answer, Failure};
use crate::output::{self, Format, count, time};

/// Show which producers take turns and whose it is; or set that, or end it
///
/// Producers that take turns give one order, the same in every run. A member that has finished is passed
/// over; one that isn't there is waited for: retire it, or set a ring without it, which begins with its first
/// member. A change without --confirm is only told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave turns /lustre/run7/train
  batchweave turns /lustre/run7/train --set tok-0,tok-1,tok-2 --parts 8 --confirm
  batchweave turns /lustre/run7/train --end --confirm")]
pub(crate) struct Turns {
    /// The store's directory
    root: PathBuf,
    /// Let these producers take turns, in this order
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', requires = "parts", conflicts_with = "end")]
    set: Vec<String>,
    /// How many parts each publishes in its turn
    #[arg(long, value_name = "N", requires = "set")]
    parts: Option<u32>,
    /// End it: every producer publishes when it likes
    #[arg(long)]
    end: bool,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Shown {
    /// Whether there is a ring at all.
    ring: bool,
    #[serde(flatten)]
    known: Option<TurnsInfo>,
    /// When the commit that moved it was written, by its writer's clock: microseconds since 1970.
    moved_us: Option<u64>,
    /// ... that member's newest.
    last_seen_us: Option<u64>,
}

/// When a commit was written; none if it is gone.
fn wall_us(store: &Store, version: Version) -> Option<u64> {
    let commit = store.commits(version).ok()?.next()?.ok()?;
    (commit.version == version).then_some(commit.wall_us)
}

impl Shown {
    fn of(store: &Store) -> Result<Self, Failure> {
        let known = store.turns()?;
        let moved_us = known.as_ref().and_then(|known| wall_us(store, known.moved_at));
        let last_seen_us = known.as_ref().and_then(|known| wall_us(store, known.last_seen?));
        Ok(Self { ring: known.is_some(), known, moved_us, last_seen_us })
    }
}

fn at(version: Version, us: Option<u64>) -> String {
    let when = us.map_or_else(String::new, |us| format!(", {}", time(us)));
    format!("version {version}{when}")
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(known) = &self.known else {
            return f.write_str("no turns: every producer publishes freely");
        };
        let parts = count(known.parts_per_turn.into(), "part");
        let line = |name: &Name| format!("\n  {name}");
        let members: String = known.members.iter().map(line).collect();
        writeln!(f, "{parts} each, in this order:{members}")?;
        let Some(turn) = &known.turn else {
            return f.write_str("all have finished, so every producer publishes freely");
        };
        let left = count(known.parts_left.into(), "part");
        write!(f, "it is the turn of {turn}, for {left} more, since {}", at(known.moved_at, self.moved_us))?;
        match (known.last_seen, known.opened) {
            (None, _) => write!(f, "\n{turn} was never opened: all others wait for it"),
            (Some(version), true) => {
                write!(f, "\n{turn} is open; its newest commit: {}", at(version, self.last_seen_us))
            }
            (Some(_), false) => write!(f, "\nnobody has {turn} open: all others wait for it"),
        }
    }
}

#[derive(Debug, Serialize)]
struct Set<'a> {
    members: &'a [String],
    parts_per_turn: u32,
    dry_run: bool,
    /// Whether it changes anything: false if it is so already.
    changes: bool,
}

impl fmt::Display for Set<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { members, parts_per_turn, dry_run, changes } = self;
        if !changes {
            return f.write_str("it is so already");
        }
        match members {
            [] => write!(f, "the ring of turns {} ended", is(*dry_run))?,
            members => {
                let (producers, parts) = (members.join(", "), count(u64::from(*parts_per_turn), "part"));
                write!(f, "the ring of turns {} set: {producers}, {parts} each", is(*dry_run))?;
            }
        }
        write!(f, "{}", Unconfirmed(*dry_run))
    }
}

impl Turns {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let (members, parts_per_turn) = (&self.set[..], self.parts.unwrap_or(0));
        let dry_run = self.confirm.dry_run();
        let changes = match (self.end, dry_run) {
            (false, _) if members.is_empty() => {
                output::print(&Shown::of(&store)?, self.format)?;
                return Ok(Answer::Yes);
            }
            (true, true) => store.turns()?.is_some(),
            (true, false) => store.end_turns()?,
            (false, true) => store.preview_turns(members, parts_per_turn)?,
            (false, false) => store.set_turns(members, parts_per_turn)?,
        };
        output::print(&Set { members, parts_per_turn, dry_run, changes }, self.format)?;
        Ok(Answer::Yes)
    }
}
