//! `check`: whether a store does well, for cron and alerts.
//!
//! What it says rests on hints and on clocks of other hosts: it is for people, and no promise rests on it.

use std::fmt;
use std::path::PathBuf;

use batchweave::{Info, Name, Step, Store};
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::output::{Bytes, Format, Output, count, one_line, path_text};

/// Check a store's lead, idleness and size against bounds: an exit code and one sentence
///
/// Exits with 0 when all bounds that are given are kept, with 1 when one isn't. A closed stream isn't behind
/// and isn't idle.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("bound").required(true).multiple(true))]
#[command(after_help = "\
Example:
  batchweave check /lustre/run7/train --min-lead 8 --max-idle 600 || mail -s starving me@site
  batchweave check /lustre/run7/train --max-bytes 10000000000000 --json | jq .retained_bytes")]
pub(crate) struct Check {
    /// The store's directory
    root: PathBuf,
    /// At least so many published steps lie ahead of the slowest live group, or, without one, of the floor
    #[arg(long, value_name = "N", group = "bound")]
    min_lead: Option<u64>,
    /// The newest commit is at most so many seconds old, by the clock of whoever wrote it
    #[arg(long, value_name = "S", group = "bound")]
    max_idle: Option<u64>,
    /// At most so many bytes are retained
    #[arg(long, value_name = "B", group = "bound")]
    max_bytes: Option<u64>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Seen {
    root: String,
    ok: bool,
    /// Published steps beyond the slowest live group, or beyond the floor.
    lead: u64,
    slowest_group: Option<Name>,
    /// Where that group is, or the floor.
    reached: Step,
    /// None without a commit.
    idle_seconds: Option<u64>,
    retained_bytes: u64,
    closed: Option<Step>,
    /// What is wrong, each a part of the sentence.
    wrong: Vec<String>,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.ok {
            return write!(f, "WRONG at {}: {}", one_line(&self.root), self.wrong.join("; "));
        }
        let closed = if self.closed.is_some() { ", closed" } else { "" };
        let (lead, bytes) = (count(self.lead, "step"), Bytes(self.retained_bytes));
        write!(f, "{} is fine{closed}: {lead} ahead of {}, ", one_line(&self.root), self.who())?;
        write!(f, "{}, {bytes} retained", self.idle())
    }
}

impl Seen {
    fn of(root: String, store: &Store) -> Result<Self, Failure> {
        let info = store.info()?;
        let (slowest_group, reached) = slowest(store, &info)?;
        let lead = info.next_step.get().saturating_sub(reached.get());
        let (retained_bytes, closed) = (info.retained_bytes, info.closed);
        let idle_seconds = idle_seconds(store, &info)?;
        let (ok, wrong) = (true, Vec::new());
        Ok(Self { root, ok, lead, slowest_group, reached, idle_seconds, retained_bytes, closed, wrong })
    }

    fn who(&self) -> String {
        match &self.slowest_group {
            Some(group) => format!("group {group}, which is at step {}", self.reached),
            None => format!("step {}, the first that is retained: no group lives", self.reached),
        }
    }

    fn idle(&self) -> String {
        match self.idle_seconds {
            Some(seconds) => format!("the newest commit {seconds} s old"),
            None => "no commit yet".to_owned(),
        }
    }

    fn judge(&mut self, check: &Check) {
        let goes_on = self.closed.is_none();
        if let Some(least) = check.min_lead.filter(|least| goes_on && self.lead < *least) {
            let lead = count(self.lead, "step");
            self.wrong.push(format!("only {lead} of {least} ahead of {}", self.who()));
        }
        let idle = |most: &u64| goes_on && self.idle_seconds.is_none_or(|seconds| seconds > *most);
        if let Some(most) = check.max_idle.filter(idle) {
            self.wrong.push(format!("{}, where {most} s are allowed", self.idle()));
        }
        if let Some(most) = check.max_bytes.filter(|most| self.retained_bytes > *most) {
            let (bytes, most) = (Bytes(self.retained_bytes), Bytes(most));
            self.wrong.push(format!("{bytes} retained, where {most} are allowed"));
        }
        self.ok = self.wrong.is_empty();
    }
}

/// The live group that has come least far, and where it is; without one, where one would start.
fn slowest(store: &Store, info: &Info) -> Result<(Option<Name>, Step), Failure> {
    let groups = store.groups()?;
    let reached = groups.into_iter().filter_map(|group| Some((group.reached()?, group.name)));
    Ok(reached.min().map_or((None, info.floor), |(step, name)| (Some(name), step)))
}

fn idle_seconds(store: &Store, info: &Info) -> Result<Option<u64>, Failure> {
    let Some(head) = info.head_version else { return Ok(None) };
    let now_us = u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or(0);
    let mut newest = None;
    for commit in store.commits(head)? {
        newest = newest.max(Some(commit?.wall_us));
    }
    // A clock that is ahead of this one's makes nothing idle.
    Ok(newest.map(|wall_us| now_us.saturating_sub(wall_us) / 1_000_000))
}

impl Check {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let mut seen = Seen::of(path_text(&self.root), &store)?;
        seen.judge(self);
        let ok = seen.ok;
        Output::verdict(&seen, self.format)?;
        Ok(if ok { Answer::Yes } else { Answer::No })
    }
}
