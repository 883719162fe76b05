//! Which staged files nobody needs: by what the log knows of them; no age, no owner's process, no clock (P8).
//!
//! - The names were listed before the log was replayed: a file's Open, or the one that fences it, is in.
//! - A draft is dead if its nonce is in the log, its sequence is in, or its incarnation can't publish any
//!   more. One whose outcome is unknown, of a producer that lives, is none of these (R2).
//! - A control file is dead if its nonce is in the log, or it is seen a second time; at once, if it was moved
//!   there by a reclaim, since nobody owns that. If its owner lives all the same, his link finds nothing, and
//!   he stages it again: nothing is lost, only done twice.
//! - Names that the store doesn't give are a stranger's, and stay.

use std::collections::BTreeSet;

use super::remove::REMOVED;
use crate::format::names::{self, Staged};
use crate::id::Nonce;
use crate::log::state::State;
use crate::log::tail::Tail;
use crate::planted::{Bug, is_planted};
use crate::storage::Names;

/// What of the staged files may go.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// Dead, and whether the bytes are in the log by another name.
    pub(super) dead: Vec<(String, bool)>,
    /// Control files that may be in use.
    pub(super) control: Vec<String>,
}

/// Judges the names in stage/, as they were before the log was replayed.
pub(super) fn judge(listed: &Names, tail: &Tail, seen_before: &[String]) -> Judged {
    let published: BTreeSet<Nonce> = tail.entries().map(|(_, entry)| entry.nonce).collect();
    let seen_before: BTreeSet<&str> = seen_before.iter().map(String::as_str).collect();
    let mut judged = Judged::default();
    for name in listed.iter() {
        let (Some(staged), Some(name)) = (names::parse_staged(name), name.to_str()) else { continue };
        let is_in = match &staged {
            Staged::Draft { nonce, .. } | Staged::Control { nonce, .. } => published.contains(nonce),
        };
        let is_control = matches!(staged, Staged::Control { .. });
        let dead = is_in
            || match &staged {
                Staged::Draft { .. } => is_dead_draft(&staged, &tail.state),
                Staged::Control { kind, .. } => kind == REMOVED || seen_before.contains(name),
            };
        if dead {
            judged.dead.push((name.to_owned(), is_in));
        } else if is_control {
            judged.control.push(name.to_owned());
        }
    }
    judged.dead.sort();
    judged.control.sort();
    judged
}

/// A live draft's name never carries a sequence below the one that it is published with, and that is never
/// below the next one.
fn is_dead_draft(staged: &Staged, state: &State) -> bool {
    let Staged::Draft { producer, incarnation, first, .. } = staged else { return false };
    // It speaks of an Open that this replay hasn't come to: nothing is known of it.
    if incarnation.get() >= state.next_version.get() && !is_planted(Bug::ReclaimOlderView) {
        return false;
    }
    match state.producers.get(producer) {
        None => true,
        Some(known) => known.incarnation != Some(*incarnation) || *first < known.next,
    }
}
