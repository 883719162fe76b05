//! Looking for a planted bug.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Shape, jobs, on_cores, simulate};
use crate::coverage::Coverage;

/// Plants a bug by its name, or `none`, and simulates seeds from 0 until a promise is broken: after how many
/// schedules, and which.
///
/// # Errors
/// There is no such bug, or this build can't plant any.
pub fn hunt(bug: &str, seeds: u64) -> Result<Option<(u64, String)>, String> {
    let shape = plant(bug)?;
    let coverage = Arc::new(Coverage::default());
    let (next, caught) = (AtomicU64::new(0), AtomicU64::new(seeds));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= caught.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(trouble) = simulate(seed, shape, &coverage).trouble {
                caught.fetch_min(seed, Ordering::Relaxed);
                return Some((seed + 1, trouble));
            }
        }
    };
    Ok(on_cores(jobs(), work).into_iter().flatten().min())
}

/// Plants the bug; gives what a run has to be about for it to show, if not any.
#[cfg(batchweave_planted)]
fn plant(bug: &str) -> Result<Option<Shape>, String> {
    use batchweave::planted::{Bug, plant};
    if bug == "none" {
        plant(None);
        return Ok(None);
    }
    let bug: Bug = bug.parse().map_err(|error| format!("{error}"))?;
    plant(Some(bug));
    Ok(match bug {
        Bug::AckOnLink | Bug::AckOnReread | Bug::SequenceIgnored | Bug::AbsenceUnmarked => {
            Some(Shape::Sleepers)
        }
        Bug::ReplayUnsynced => Some(Shape::Endings),
        Bug::HoleIsHead => Some(Shape::Damage),
        Bug::TurnsByVersion | Bug::TurnIgnored => Some(Shape::Turns),
        Bug::CheckpointLate
        | Bug::FloorUnsynced
        | Bug::IncarnationsCounted
        | Bug::RewindOfNow
        | Bug::SkipSilent
        | Bug::ReclaimOlderView
        | Bug::RemovedEarly
        | Bug::EndUnseen
        | Bug::ReopenIgnored
        | Bug::CloseUnindexed
        | Bug::ClosedForGood
        | Bug::ForgetKept
        | Bug::ForgottenRewound => Some(Shape::Lifecycle),
        _ => Some(Shape::Traffic),
    })
}

#[cfg(not(batchweave_planted))]
fn plant(bug: &str) -> Result<Option<Shape>, String> {
    match bug {
        "none" => Ok(None),
        _ => Err("this build can't plant a bug: it lacks --cfg batchweave_planted".to_owned()),
    }
}
