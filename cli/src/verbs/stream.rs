//! `retire`, `close` and `reopen`: what an operator says of the stream and its producers.
//!
//! Each can be repeated: what is so already is left so, and said.

use std::fmt;
use std::path::PathBuf;

use batchweave::{Step, Store};
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::output::{self, Format};

/// Finish a producer on behalf of whoever ran it
///
/// Nobody waits for it any more, and a process that still runs under the name can publish nothing more. The
/// name can be opened again, and then goes on where it was.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave retire /lustre/run7/train tok-017")]
pub(crate) struct Retire {
    /// The store's directory
    root: PathBuf,
    /// The producer's name
    producer: String,
    #[command(flatten)]
    format: Format,
}

/// End the stream at the next step: every rank's consumer ends there
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave close /lustre/run7/train")]
pub(crate) struct Close {
    /// The store's directory
    root: PathBuf,
    /// Close although a step is incomplete; its parts count again after a reopen
    #[arg(long)]
    open_step: bool,
    #[command(flatten)]
    format: Format,
}

/// Go on after a close; runs that began before end there all the same
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave reopen /lustre/run7/train")]
pub(crate) struct Reopen {
    /// The store's directory
    root: PathBuf,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Retired<'a> {
    producer: &'a str,
    /// False if it was so already.
    changed: bool,
}

impl fmt::Display for Retired<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.changed { "is retired" } else { "was finished already" };
        write!(f, "producer {} {how}", self.producer)
    }
}

impl Retire {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let changed = Store::open(&self.root)?.retire(&self.producer)?;
        output::print(&Retired { producer: &self.producer, changed }, self.format)?;
        Ok(Answer::Yes)
    }
}

/// The stream after a `close` or a `reopen`.
#[derive(Debug, Serialize)]
struct Stream {
    /// Where it ends, if it does.
    closed: Option<Step>,
    next_step: Step,
    /// False if it was so already.
    changed: bool,
}

impl Stream {
    fn of(store: &Store, changed: bool) -> Result<Self, Failure> {
        let info = store.info()?;
        Ok(Self { closed: info.closed, next_step: info.next_step, changed })
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.changed { "is" } else { "was already" };
        match self.closed {
            Some(step) => write!(f, "the stream {how} closed at step {step}"),
            None => write!(f, "the stream {how} open; the next step is {}", self.next_step),
        }
    }
}

impl Close {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let changed = store.close(self.open_step)?;
        output::print(&Stream::of(&store, changed)?, self.format)?;
        Ok(Answer::Yes)
    }
}

impl Reopen {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let changed = store.reopen()?;
        output::print(&Stream::of(&store, changed)?, self.format)?;
        Ok(Answer::Yes)
    }
}
