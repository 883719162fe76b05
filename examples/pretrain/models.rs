//! Saved models: what the trainer goes on from, after a crash and after a rewind.
//!
//! - Each is a file, named as the checkpoint by which the store keeps the steps from there on. The file comes
//!   before its checkpoint and goes after it, so whenever the trainer dies, each checkpoint has its model.
//! - Which of them count is the store's word. A file without a checkpoint was being saved when the trainer
//!   died, or is of a history that was rewound.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use batchweave::{Checkpoint, Position, Run, Store};
use serde::{Deserialize, Serialize};

use crate::job::{GROUP, KEPT, Result};
use crate::model::Model;

/// A model, and the position of the first step that it hasn't seen.
#[derive(Serialize, Deserialize)]
pub struct Saved {
    pub position: Position,
    /// As bits, so that what is loaded is what was saved to the last one.
    weights: Vec<u32>,
}

impl Saved {
    fn new(position: Position, model: &Model) -> Self {
        Self { position, weights: model.weights.iter().map(|weight| weight.to_bits()).collect() }
    }

    pub fn model(&self) -> Model {
        Model { weights: self.weights.iter().map(|bits| f32::from_bits(*bits)).collect() }
    }

    /// The model of the newest checkpoint; none before the first.
    pub fn newest(store: &Store, run: &Path) -> Result<Option<Self>> {
        let Some(checkpoint) = checkpoints(store)?.pop() else { return Ok(None) };
        let path = directory(run).join(checkpoint.name.as_str());
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Some(serde_json::from_slice(&bytes)?))
    }

    /// All of it or nothing: written and synced beside, then renamed.
    fn write(&self, directory: &Path, name: &str) -> Result<()> {
        let beside = directory.join("new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&beside, directory.join(name))?;
        Ok(File::open(directory)?.sync_all()?)
    }
}

/// Where the models of a run are.
pub fn directory(run: &Path) -> PathBuf {
    run.join("models")
}

/// The trainer's checkpoints that the store still has, the newest last.
pub fn checkpoints(store: &Store) -> Result<Vec<Checkpoint>> {
    let group = store.groups()?.into_iter().find(|group| group.name.as_str() == GROUP);
    Ok(group.map(|group| group.checkpoints).unwrap_or_default())
}

/// Saves a model, and lets go of those that are too old. Of the two orders here each matters: saved before it
/// is marked as a checkpoint, dropped before it is deleted.
pub fn save(store: &Store, run: &Run, directory: &Path, position: Position, model: &Model) -> Result<()> {
    let name = format!("step-{:06}", position.step.get());
    Saved::new(position, model).write(directory, &name)?;
    run.checkpoint(position, &name)?;
    let checkpoints = checkpoints(store)?;
    run.retain(checkpoints.iter().rev().take(KEPT).map(|checkpoint| checkpoint.name.as_str()))?;
    delete_unmarked(store, directory)
}

/// Deletes every model that isn't one of a checkpoint.
pub fn delete_unmarked(store: &Store, directory: &Path) -> Result<()> {
    let marked = checkpoints(store)?;
    for file in fs::read_dir(directory)? {
        let file = file?;
        if !marked.iter().any(|checkpoint| checkpoint.name.as_str() == file.file_name()) {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}
