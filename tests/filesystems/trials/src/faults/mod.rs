//! Faults through a real mount: a filesystem of this program's own (FUSE), over a directory, in which what is
//! asked for goes wrong as a trial says. What the simulator tries at the storage's seam is tried here below
//! it, against the kernel's own calls.
//!
//! | file | what it has |
//! |---|---|
//! | `rules` | what goes wrong, and what was seen: the order in which things become durable |
//! | `nodes` | the inodes and handles of a mount |
//! | `filesystem` | the filesystem itself |
//! | `control` | the process that serves the mounts, and how it is told |
//! | `case` | a store on the mounts, and how its work is seen through |
//! | `works` | pieces of the engine's work |
//! | `each_call` | each call of each piece fails once, in each way |
//! | `lasting` | refused links, a full disk, transfers cut short: for as long as it lasts |
//! | `delayed` | names that the other mount doesn't find at first |

mod case;
mod control;
mod delayed;
mod each_call;
mod filesystem;
mod lasting;
mod nodes;
mod rules;
mod works;

use std::path::Path;

use case::Place;
pub(crate) use control::serve;

use crate::{Result, say};

type Trial = fn(&Place) -> Result<String>;

const TRIALS: [(&str, Trial); 5] = [
    ("refused-links", lasting::refused),
    ("full-disk", lasting::full),
    ("short-transfers", lasting::short),
    ("delayed-names", delayed::delayed),
    ("each-call", each_call::each_call),
];

/// All of them, with a line for each and one for the whole.
pub(crate) fn faults(source: &Path, a: &Path, b: &Path, thorough: bool) -> bool {
    say("faults", || {
        let place = Place::new(source, a, b, thorough)?;
        let failed: Vec<_> = TRIALS
            .iter()
            .filter(|(name, trial)| !say(name, || trial(&place)))
            .map(|(name, _)| *name)
            .collect();
        if failed.is_empty() { Ok(format!("{} trials", TRIALS.len())) } else { Err(failed.join(", ").into()) }
    })
}
