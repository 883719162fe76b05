//! `producers`: who writes, and how far each has come.

use std::fmt;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use batchweave::{Incarnation, Name, ProducerInfo, Sequence, Step, Store, Version};
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::output::{self, Bytes, Format};

/// List the producers that a store knows, with the state that each would go on from
///
/// In JSON the state is `state` where it is UTF-8, else `state_base64`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave producers /lustre/run7/train
  batchweave producers /lustre/run7/train --json | jq -r 'select(.finished | not) | .name'")]
pub(crate) struct Producers {
    /// The store's directory
    root: PathBuf,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Known {
    name: Name,
    incarnation: Option<Incarnation>,
    /// How many parts it has published.
    sequence: Sequence,
    last_step: Option<Step>,
    last_version: Version,
    finished: bool,
    #[serde(flatten)]
    state: State,
    state_bytes: usize,
    /// The width of the longest name.
    #[serde(skip)]
    width: usize,
}

#[derive(Debug, Serialize)]
enum State {
    #[serde(rename = "state")]
    Text(String),
    #[serde(rename = "state_base64")]
    Base64(String),
}

impl Known {
    fn new(info: ProducerInfo, width: usize) -> Self {
        let state_bytes = info.state.len();
        let state = match String::from_utf8(info.state) {
            Ok(text) => State::Text(text),
            Err(bytes) => State::Base64(STANDARD.encode(bytes.as_bytes())),
        };
        let ProducerInfo { name, incarnation, sequence, last_step, last_version, finished, .. } = info;
        Self { name, incarnation, sequence, last_step, last_version, finished, state, state_bytes, width }
    }

    fn status(&self) -> &'static str {
        match (self.finished, self.incarnation) {
            (true, _) => "finished",
            (false, Some(_)) => "open",
            // A rewind takes every incarnation away.
            (false, None) => "not open",
        }
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 40;
        let last_step = self.last_step.map_or_else(|| "-".to_owned(), |step| step.to_string());
        let width = self.width;
        write!(
            f,
            "{:<width$}  {:<8}  {:>10}  {last_step:>10}  {:>10}  ",
            self.name,
            self.status(),
            self.sequence,
            self.last_version
        )?;
        match &self.state {
            _ if self.state_bytes == 0 => f.write_str("-"),
            State::Text(text) => {
                let shown: String = text.chars().take(SHOWN_MAX).collect();
                let rest = if shown.len() < text.len() { "..." } else { "" };
                write!(f, "{}{rest}", shown.escape_default())
            }
            State::Base64(_) => write!(f, "{} that aren't text", Bytes(self.state_bytes as u64)),
        }
    }
}

impl Producers {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let producers = Store::open(&self.root)?.producers()?;
        let width =
            producers.iter().map(|info| info.name.as_str().len()).max().unwrap_or(0).max("NAME".len());
        let heading = format!(
            "{:<width$}  {:<8}  {:>10}  {:>10}  {:>10}  STATE",
            "NAME", "STATUS", "PARTS", "LAST STEP", "VERSION"
        );
        let rows = producers.into_iter().map(|info| Known::new(info, width));
        output::table(heading, rows, self.format)?;
        Ok(Answer::Yes)
    }
}
