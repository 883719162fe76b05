//! What the processes have to agree on: the shape of a batch, who is who, and what a child says to the
//! driver.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;

use batchweave::Store;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Partitions of the corpus, each with a producer of its own.
pub const PARTITIONS: usize = 2;
/// Data-parallel shares of the trainer.
pub const SHARES: usize = 4;
/// Microbatches in a global batch: a multiple of [`SHARES`], so that every share gets as many.
pub const SLICES: usize = 8;
/// Windows in a full microbatch.
pub const WINDOWS_PER_SLICE: usize = 8;
/// Windows in a full global batch.
pub const WINDOWS_PER_BATCH: usize = SLICES * WINDOWS_PER_SLICE;
/// The trainer saves after this many steps.
pub const SAVE_EVERY: u64 = 32;

/// The first argument of a child.
pub const CHILD: &str = "--child";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    Producer(usize),
    Trainer,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Producer(partition) => write!(f, "producer {partition}"),
            Self::Trainer => f.write_str("trainer"),
        }
    }
}

/// A child's orders, its second argument.
#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    pub role: Role,
    /// How often this role was started before.
    pub life: u32,
    pub store: PathBuf,
    /// The run's own directory: the list of the corpus, saved models, logs.
    pub run: PathBuf,
    /// The driver's process.
    pub parent: i32,
}

impl Job {
    pub fn new(role: Role, life: u32, store: &Store, run: PathBuf) -> Self {
        Self { role, life, store: store.path().to_path_buf(), run, parent: getpid().as_raw_pid() }
    }

    /// No orphans: however the driver ends, the kernel kills this process too.
    pub fn die_with_parent(&self) -> Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before the kernel was told.
        match getppid() {
            Some(parent) if parent.as_raw_pid() == self.parent => Ok(()),
            _ => Err("the driver is gone".into()),
        }
    }
}

/// The name under which a partition's producer is known to the store, whoever runs it.
pub fn producer_name(partition: usize) -> String {
    format!("text-{partition:03}")
}

/// What a child says on its standard output, a line of JSON each.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Said {
    /// A producer: it goes on after so many batches of its partition.
    Opened { batches: u64 },
    /// A producer: so many batches of its partition are in the store.
    Published { batches: u64 },
    /// The trainer: this step is done.
    Trained { step: u64, loss: f32 },
}

impl Said {
    pub fn say(&self) -> Result<()> {
        let mut out = io::stdout().lock();
        Ok(writeln!(out, "{}", serde_json::to_string(self)?)?)
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { batches } | Self::Published { batches } => write!(f, "after batch {batches}"),
            Self::Trained { step, .. } => write!(f, "after step {step}"),
        }
    }
}
