//! A [`Position`]: what a trainer saves beside its model, the same on all ranks.

use serde::{Deserialize, Serialize};

use crate::id::{Checksum, Generation, Step, StoreUuid};

/// A place between two global batches of one store.
///
/// It serialises to JSON (or any serde format) and compares equal on every rank that has delivered the same
/// steps.
///
/// ```
/// use batchweave::Position;
/// let json = r#"{"store": "000102030405060708090a0b0c0d0e0f",
///     "generation": 0, "step": 7, "lineage": "00000000000000ff"}"#;
/// let position: Position = serde_json::from_str(json)?;
/// assert_eq!(position.step.get(), 7);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// The store it belongs to.
    pub store: StoreUuid,
    /// The generation that it was read in.
    pub generation: Generation,
    /// The next step to deliver.
    pub step: Step,
    /// Record checksum of the commit that holds the last part of the step before; zero for step 0.
    pub lineage: Checksum,
}
