//! What a store takes on disk, and what was freed of it.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use batchweave::{Step, Store};

use crate::job::Result;

pub struct Space {
    /// The first step that is still there.
    pub floor: Step,
    /// Of all batches from the floor on.
    pub retained_bytes: u64,
    /// What the store's files take, whatever they are.
    pub disk_bytes: u64,
    pub segments: Freed,
    pub indexes: Freed,
}

/// How many there were, and how many of them are gone.
pub struct Freed {
    pub freed: u64,
    pub of: u64,
}

impl Space {
    pub fn of(store: &Store) -> Result<Self> {
        let info = store.info()?;
        Ok(Self {
            floor: info.floor,
            retained_bytes: info.retained_bytes,
            disk_bytes: disk_bytes(store.path())?,
            segments: Freed::of(&store.path().join("log"))?,
            indexes: Freed::of(&store.path().join("index"))?,
        })
    }
}

impl Freed {
    /// Names are numbers from 0 on.
    fn of(directory: &Path) -> Result<Self> {
        let (mut left, mut of) = (0, 0);
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name().into_string().map_err(|_| "a name in the store isn't text")?;
            of = of.max(name.parse::<u64>()? + 1);
            left += 1;
        }
        Ok(Self { freed: of - left, of })
    }
}

impl fmt::Display for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.freed, self.of)
    }
}

fn disk_bytes(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += metadata.blocks() * 512;
        if metadata.is_dir() {
            bytes += disk_bytes(&entry.path())?;
        }
    }
    Ok(bytes)
}
