//! `cat`: the bytes of a step.

use std::path::PathBuf;

use batchweave::{Step, Store};

use crate::failure::{Answer, Failure};
use crate::output::Output;

/// Write the bytes of a step to stdout, verified, and nothing else
///
/// Without options: all slices, one after the other, each verified before it is written. Where a step has
/// several parts, theirs follow one another in order.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave cat /lustre/run7/train 4711 --slice 0 > microbatch
  batchweave cat /lustre/run7/train 4711 --attachment | head -c 100")]
pub(crate) struct Cat {
    /// The store's directory
    root: PathBuf,
    /// The step
    step: Step,
    /// Only this slice of the step, from 0
    #[arg(long, value_name = "I", group = "what")]
    slice: Option<usize>,
    /// The attachment instead of the slices
    #[arg(long, group = "what")]
    attachment: bool,
    /// The metadata instead of the slices
    #[arg(long, group = "what")]
    metadata: bool,
}

impl Cat {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let batch = Store::open(&self.root)?.batch(self.step)?;
        let mut output = Output::new();
        if self.attachment {
            batch.attachments()?.iter().try_for_each(|bytes| output.bytes(bytes))?;
        } else if self.metadata {
            batch.metadata()?.iter().try_for_each(|bytes| output.bytes(bytes))?;
        } else if let Some(index) = self.slice {
            output.bytes(&batch.slice(index)?)?;
        } else {
            for slice in batch.slices() {
                output.bytes(&slice?)?;
            }
        }
        output.flush()?;
        Ok(Answer::Yes)
    }
}
