//! Which checkpoints of a group a reclaim drops: pure, without I/O, clock or state of its own.
//!
//! - The newest so many by log order stay, and whatever is pinned; pinned ones don't count.
//! - A group that has checkpoints is left without any only by who says so: with the last one goes what a
//!   trainer can go back to (P5).

use crate::error::{Error, ErrorKind, Result};
use crate::log::groups::{GroupState, Kept};
use crate::name::Name;

/// The checkpoints that a group can do without, in log order.
pub fn dropped(known: &GroupState, keep: usize) -> Vec<&Kept> {
    let mut spare: Vec<&Kept> = known.checkpoints.iter().filter(|kept| !kept.pinned).collect();
    spare.truncate(spare.len().saturating_sub(keep));
    spare
}

/// As [`dropped`], unless that leaves nothing and `allow_none` isn't said.
///
/// # Errors
/// `Invalid`, naming the group and the word that would allow it.
pub fn choose<'g>(
    group: &Name,
    known: &'g GroupState,
    keep: usize,
    allow_none: bool,
) -> Result<Vec<&'g Kept>> {
    let spare = dropped(known, keep);
    if spare.is_empty() || spare.len() < known.checkpoints.len() || allow_none {
        return Ok(spare);
    }
    let what = format!(
        "keeping {keep} checkpoints would leave group {group} without any: keep one at least, pin one, \
         or say `allow_no_checkpoint`"
    );
    Err(Error::new(ErrorKind::Invalid, what))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::{Checksum, Generation, Incarnation, Nonce, Step, Version};

    fn group(checkpoints: &[(u64, bool)]) -> GroupState {
        let kept = |(place, (step, pinned)): (usize, &(u64, bool))| Kept {
            version: Version::new(place as u64 * 3 + 1),
            generation: Generation::ZERO,
            step: Step::new(*step),
            lineage: Checksum::ZERO,
            name: Name::new(&format!("c{place}")).unwrap(),
            pinned: *pinned,
            metadata: Vec::new(),
        };
        GroupState {
            incarnation: Some(Incarnation::ZERO),
            last_group: Version::ZERO,
            nonce: Nonce::new([0; 16]),
            start: Step::ZERO,
            holds: None,
            checkpoints: checkpoints.iter().enumerate().map(kept).collect(),
        }
    }

    proptest! {
        #[test]
        fn the_newest_and_the_pinned_stay(
            checkpoints in prop::collection::vec((0u64..50, any::<bool>()), 0..20),
            keep in 0usize..8,
        ) {
            let known = group(&checkpoints);
            let gone = dropped(&known, keep);
            prop_assert!(gone.iter().all(|kept| !kept.pinned), "a pinned one stays");
            let unpinned = checkpoints.iter().filter(|(_, pinned)| !pinned).count();
            prop_assert_eq!(unpinned - gone.len(), keep.min(unpinned), "just so many stay");
            // By log order, whatever their steps: none that goes is newer than an unpinned one that stays.
            let newest_gone = gone.iter().map(|kept| kept.version).max();
            let stays = |kept: &&Kept| !kept.pinned && !gone.contains(kept);
            let oldest_left = known.checkpoints.iter().filter(stays).map(|kept| kept.version).min();
            if let (Some(gone), Some(left)) = (newest_gone, oldest_left) {
                prop_assert!(gone < left);
            }
        }

        #[test]
        fn more_kept_is_never_more_dropped_and_doing_it_twice_drops_no_more(
            checkpoints in prop::collection::vec((0u64..50, any::<bool>()), 0..20),
            keep in 0usize..8,
        ) {
            let known = group(&checkpoints);
            let (gone, with_more) = (dropped(&known, keep), dropped(&known, keep + 1));
            prop_assert!(with_more.iter().all(|kept| gone.contains(kept)));
            let mut left = known.clone();
            left.checkpoints.retain(|kept| !gone.contains(&kept));
            prop_assert!(dropped(&left, keep).is_empty());
        }

        #[test]
        fn a_group_is_left_without_any_only_if_told(
            checkpoints in prop::collection::vec((0u64..50, any::<bool>()), 0..6),
            keep in 0usize..3,
        ) {
            let (known, name) = (group(&checkpoints), Name::new("train").unwrap());
            let some_left = known.checkpoints.len() > dropped(&known, keep).len();
            match choose(&name, &known, keep, false) {
                Ok(gone) => prop_assert!(gone.is_empty() || some_left),
                Err(error) => {
                    prop_assert!(!some_left && keep == 0);
                    let text = error.to_string();
                    let said = text.contains("group train") && text.contains("allow_no_checkpoint");
                    prop_assert!(said, "{}", text);
                    prop_assert_eq!(error.kind(), ErrorKind::Invalid);
                }
            }
            prop_assert_eq!(choose(&name, &known, keep, true).unwrap(), dropped(&known, keep));
        }
    }
}
