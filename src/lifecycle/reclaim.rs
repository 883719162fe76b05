//! Reclaim: checkpoints dropped, the floor raised, and what nobody needs removed.
//!
//! - In this order: names listed; the log replayed to its end; litter removed; Drops; on a synced store all
//!   synced that removal leans on; the Floor; segments; indexes, lowest first; the ballast made anew. A Floor
//!   is durable before anything goes by it, whoever wrote it (P5, P6).
//! - What goes is found by the floor in the state, not by what this call raised: so a second reclaim removes
//!   what one that was stopped has left, and any number of them may run at once.
//! - A reclaimer may sleep between any two calls, for any number of commits. Drops and the Floor are records
//!   like others: linked only at the head of a replayed log (R5), and void where the log has changed. Each
//!   removal is of a name that was dead when it was listed, and dead stays dead: the floor never falls, a
//!   rewound part doesn't come back, a mark is never taken back. If the name is another's by then, that is a
//!   writer's who slept through the removal of his segment, and he finds by the marks that he isn't in (R6).
//! - No call is made for a segment that stays, but the listings.
//! - Readers need no word: who has replayed the Floor gets `Reclaimed` by it, and who meets a removal looks
//!   at the log again (R7).

use super::dead::{self, Dead, Listed};
use super::floor;
use super::litter::{self, Judged};
use super::reclaimed::{Freed, ReclaimOptions, Reclaimed};
use super::remove::Remover;
use crate::commit::ballast;
use crate::error::Result;
use crate::format::names;
use crate::log::Log;
use crate::planted::{Bug, is_planted};

/// Frees what no live group needs.
///
/// # Errors
/// `Invalid` when a group would be left without a checkpoint, or for a step beyond the end; `Contended`,
/// `Corrupt`, `Full`, `Io`. What was done before it stands, and another reclaim goes on.
pub(crate) fn reclaim(log: &Log, options: &ReclaimOptions) -> Result<Reclaimed> {
    let older = if is_planted(Bug::ReclaimOlderView) { Some(log.current()?) } else { None };
    let listed = Listed::now(log)?;
    let mut tail = older.map_or_else(|| log.current(), Ok)?;
    let spare = floor::spare(log, &tail.state, options)?;
    floor::aim(log, &tail.state, options.up_to)?;
    let judged = litter::judge(&listed.stage, &tail, &options.control_seen);
    let floor_before = tail.state.floor;
    let mut gone = Gone::default();
    gone.staged(log, &judged, options.dry_run)?;
    let (state, dropped, dead) = if options.dry_run {
        tail.read(log, |tail| {
            let (state, dropped) = floor::pretend(log, tail, &spare, options)?;
            let dead = dead::find(log, tail, &state, &listed)?;
            Ok((state, dropped, dead))
        })?
    } else {
        let dropped = floor::drop_all(log, &mut tail, spare, options)?;
        floor::raise(log, &mut tail, options.up_to)?;
        let dead = tail.read(log, |tail| dead::find(log, tail, &tail.state, &listed))?;
        if !dead.is_empty() {
            floor::secure(log, &tail)?;
        }
        (tail.state.clone(), dropped, dead)
    };
    let (_, held_by) = floor::aim(log, &state, options.up_to)?;
    drop(tail);
    gone.segments(log, &dead, options.dry_run)?;
    if !options.dry_run {
        // Whoever gave it up may have died since.
        ballast::restore(log);
    }
    let reclaimed = Reclaimed {
        dry_run: options.dry_run,
        floor_before,
        floor: state.floor,
        held_by,
        dropped,
        segments: gone.segments,
        indexes: gone.indexes,
        litter: gone.litter,
        litter_names: gone.litter_names,
        bytes_retained: state.bytes_written.saturating_sub(state.bytes_reclaimed),
        control_seen: judged.control.into_iter().chain(gone.control_moved).collect(),
    };
    if !options.dry_run {
        let Reclaimed { floor, segments, indexes, litter, .. } = &reclaimed;
        tracing::info!(%floor, %segments, %indexes, %litter, path = %log.path.display(), "reclaimed");
    }
    Ok(reclaimed)
}

/// What is removed, or would be.
#[derive(Debug, Default)]
struct Gone {
    segments: Freed,
    indexes: Freed,
    litter: Freed,
    litter_names: Vec<String>,
    /// Moved back to stage/, so seen once.
    control_moved: Vec<String>,
}

impl Gone {
    /// Staged files first: they need no record, which a full disk may refuse.
    fn staged(&mut self, log: &Log, judged: &Judged, dry_run: bool) -> Result<()> {
        if judged.dead.is_empty() {
            return Ok(());
        }
        let remover = Remover::new(log, names::STAGE, dry_run)?;
        for (name, is_in) in &judged.dead {
            let mut freed = remover.file(name)?;
            if *is_in {
                freed.bytes = 0;
            }
            self.add_litter(names::STAGE, name, freed);
        }
        Ok(())
    }

    fn segments(&mut self, log: &Log, dead: &Dead, dry_run: bool) -> Result<()> {
        if !dead.segments.is_empty() || !dead.strays.is_empty() {
            let remover = Remover::new(log, names::LOG, dry_run)?;
            for segment in &dead.strays {
                let freed = remover.segment(*segment)?;
                self.add_litter(names::LOG, &names::segment(*segment), freed);
            }
            for segment in &dead.segments {
                self.segments.add(remover.segment(*segment)?);
            }
            self.control_moved.extend(remover.moved());
        }
        if !dead.indexes.is_empty() {
            let remover = Remover::new(log, names::INDEX, dry_run)?;
            remover.move_back()?;
            for segment in &dead.indexes {
                self.indexes.add(remover.file(&names::segment(*segment))?);
            }
            self.control_moved.extend(remover.moved());
        }
        Ok(())
    }

    fn add_litter(&mut self, parent: &str, name: &str, freed: Freed) {
        self.litter.add(freed);
        if freed.count > 0 {
            self.litter_names.push(format!("{parent}/{name}"));
        }
    }
}
