//! What the processes have to agree on: the shape of a batch, who is who, and what a child says to the
//! driver.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use batchweave::{ErrorKind, Store};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::corpus::STORED;

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T, E = Error> = std::result::Result<T, E>;

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
/// The trainer saves its model after this many steps.
pub const SAVE_EVERY: u64 = 32;
/// So many models are kept, the newest ones.
pub const KEPT: usize = 2;
/// The name under which the trainer is known to the store, whoever runs it.
pub const GROUP: &str = "pretrain";
/// Producers wait while so many bytes are retained. The models that are kept and the next one need three
/// saves' worth of steps; the rest is how far producers may be ahead.
pub const RETAINED_BYTES_MAX: u64 = 6 * SAVE_EVERY * (WINDOWS_PER_BATCH * STORED) as u64;
/// A run has at least this many steps: room for a kill, a rewind, and what comes after.
pub const STEPS_MIN: u64 = 6 * SAVE_EVERY;
/// How long anybody waits for anything before that is an error.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The first argument of a child.
pub const CHILD: &str = "--child";
/// A child exits with this when the store was rewound under it: it is to be started again.
pub const REWOUND: u8 = 4;

/// What a child that couldn't go on exits with. It says why, unless that is to be expected.
pub fn exit_code(role: Role, error: &Error) -> u8 {
    let kind = error.downcast_ref::<batchweave::Error>().map(batchweave::Error::kind);
    match (role, kind) {
        // A rewind fences all producers. A trainer that is fenced has a successor, and has to stop.
        (Role::Producer(_), Some(ErrorKind::Fenced)) | (Role::Trainer, Some(ErrorKind::Rewound)) => REWOUND,
        _ => {
            eprintln!("{role}: {error}");
            1
        }
    }
}

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
    /// The run's own directory: the list of the corpus, models, logs.
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
