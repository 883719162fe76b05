//! `log`: the commits of a store, one a line.

use std::fmt;
use std::path::PathBuf;

use batchweave::{CommitInfo, Store, Version};
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::output::{self, Bytes, Format, Output, count, one_line};

/// List the commits of a store: what each did, by whom, when, where
///
/// Times and hosts are what the writer's machine said; no promise rests on them. A commit that is void had
/// no effect, and the line says why. A commit that can't be read is said on stderr, and those after it
/// still come.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave log /lustre/run7/train --from 4000
  batchweave log /lustre/run7/train --json | jq -r 'select(.void) | .version'")]
pub(crate) struct Log {
    /// The store's directory
    root: PathBuf,
    /// The first version to list; without it, the first that is retained
    #[arg(long, value_name = "VERSION")]
    from: Option<Version>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    commit: CommitInfo,
    time: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commit, time } = self;
        let who = commit.who.as_ref().map_or("-", |name| name.as_str());
        write!(f, "{:>8}  {time}  {:<10}  {who:<12}", commit.version, commit.kind)?;
        match (commit.first_step, commit.last_step) {
            (Some(first), Some(last)) if first != last => write!(f, "  steps {first}..={last}")?,
            (Some(step), _) => write!(f, "  step {step}")?,
            (None, _) => {}
        }
        if commit.parts > 0 {
            write!(f, "  {}  {}", count(commit.slices, "slice"), Bytes(commit.bytes))?;
        }
        if let Some(detail) = &commit.detail {
            write!(f, "  {}", one_line(detail))?;
        }
        if let Some(why) = &commit.void {
            write!(f, "  VOID: {}", one_line(why))?;
        }
        write!(f, "  {}:{}", one_line(&commit.host), commit.pid)?;
        if !commit.job.is_empty() {
            write!(f, "  job {}", one_line(&commit.job))?;
        }
        Ok(())
    }
}

impl Log {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let mut output = Output::new();
        let mut answer = Answer::Yes;
        for commit in store.commits(self.from.unwrap_or(Version::ZERO))? {
            match commit {
                Ok(commit) => {
                    let time = output::time(commit.wall_us);
                    output.fact(&Line { commit, time }, self.format)?;
                }
                // The commits after a bad one still come; what was said last is how it ends.
                Err(error) => {
                    output.flush()?;
                    answer = Answer::Said(Failure::from(error).say());
                }
            }
        }
        output.flush()?;
        Ok(answer)
    }
}
