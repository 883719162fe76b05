//! `follow`: reads a share as a rank would, and says what it got.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use batchweave::{Batch, Checksum, ConsumerOptions, Position, Share, Start, Step, Store};
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::output::{self, Bytes, Format, Output, count};

/// Read a share step by step as it is published, and print a line for each
///
/// A line has the step, how many slices the share has, their bytes, samples and tokens, then each slice's
/// bytes and checksum (XXH3-64). Every slice is read and verified. Two ranks of the same share print the
/// same. Ends with 0 where the stream is closed, at --until, or when nobody reads the output any more.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave follow /lustre/run7/train --share 0/8
  batchweave follow /lustre/run7/train --share 0/1 --from 100 --until 200 --timeout 0   # steps 100 \
  to 199, now")]
pub(crate) struct Follow {
    /// The store's directory
    root: PathBuf,
    /// Which share of how many, such as 0/8
    #[arg(long, value_name = "I/N")]
    share: Share,
    /// The first step to print; without it, the first that is retained
    #[arg(long, value_name = "STEP")]
    from: Option<Step>,
    /// The first step not to print: `--from 3 --until 5` prints 3 and 4
    #[arg(long, value_name = "STEP")]
    until: Option<Step>,
    /// How long to wait for a step before giving up with exit code 19; 0 takes only what is there
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "1800")]
    timeout: Duration,
    #[command(flatten)]
    format: Format,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "has to be a number of seconds, such as 2.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[derive(Debug, Serialize)]
struct Line {
    step: Step,
    share: Share,
    bytes: u64,
    samples: u64,
    tokens: u64,
    slices: Vec<SliceLine>,
    /// What a trainer would save after this step.
    position: Position,
}

#[derive(Debug, Serialize)]
struct SliceLine {
    bytes: u64,
    samples: u64,
    tokens: u64,
    checksum: Checksum,
}

impl Line {
    fn of(batch: &Batch) -> Result<Self, Failure> {
        let mut slices = Vec::with_capacity(batch.len());
        for slice in batch.slices() {
            let slice = slice?;
            let (counts, checksum) = (slice.counts(), slice.checksum());
            let (samples, tokens) = (counts.samples, counts.tokens);
            slices.push(SliceLine { bytes: slice.len() as u64, samples, tokens, checksum });
        }
        // The counts are a producer's word, and may be anything.
        let sum = |of: fn(&SliceLine) -> u64| slices.iter().map(of).fold(0, u64::saturating_add);
        Ok(Self {
            step: batch.step(),
            share: batch.share(),
            bytes: sum(|slice| slice.bytes),
            samples: sum(|slice| slice.samples),
            tokens: sum(|slice| slice.tokens),
            position: batch.position(),
            slices,
        })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slices = count(self.slices.len() as u64, "slice");
        write!(f, "step {}  {slices}  {}", self.step, Bytes(self.bytes))?;
        write!(f, "  {}  {} ", count(self.samples, "sample"), count(self.tokens, "token"))?;
        self.slices.iter().try_for_each(|slice| write!(f, " {}:{}", slice.bytes, slice.checksum))
    }
}

impl Follow {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let start = self.from.map_or(Start::Beginning, Start::Step);
        let options = ConsumerOptions::new().timeout(self.timeout);
        let mut consumer = store.run(start)?.consumer_with(self.share, options)?;
        output::end_when_closed().map_err(|source| Failure::Own {
            what: "can't start a thread to watch the output".to_owned(),
            source,
        })?;
        let mut output = Output::new();
        while self.until.is_none_or(|until| consumer.position().step < until) {
            let Some(batch) = consumer.next_batch()? else { break };
            output.fact(&Line::of(&batch)?, self.format)?;
            output.flush()?;
        }
        Ok(Answer::Yes)
    }
}
