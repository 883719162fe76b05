//! A trainer: reads steps with all its ranks, checkpoints what it has delivered, keeps the position that it
//! saved, and begins again from that.
//!
//! - Whatever it is told is held against the truth of that moment: who is told that he is late is late.
//! - Its ranks go in step, so what one has got all have; some of them have joined by the snapshot.

use std::sync::Arc;
use std::time::Duration;

use batchweave::{
    Batch, Consumer, ConsumerOptions, Error, ErrorKind, Group, Position, Run, Share, Start, Store,
};
use parking_lot::Mutex;

use super::{Stage, Trouble};
use crate::oracle::{Model, Seen, Truth, texts_of};
use crate::{Met, Process};

/// What a trainer does.
#[derive(Clone, Debug)]
pub struct Training {
    /// Its group; several processes may be of the same. Without one it only reads.
    pub group: Option<String>,
    /// How many steps it reads in one life.
    pub steps: u64,
    /// Steps held ready; 0 has no thread.
    pub window: usize,
    /// Its ranks, with a share each.
    pub ranks: u32,
    /// Of how many steps it saves its position after one, and checkpoints after one.
    pub saves_one_in: u32,
    /// ... and checkpoints after one.
    pub checkpoints_one_in: u32,
    /// Whether it lets go of older checkpoints by itself.
    pub retains: bool,
    /// Whether it retires its group in the end.
    pub retires: bool,
    /// What its group has saved.
    pub saved: Arc<Saved>,
}

/// What is outside of the store, and outlives whoever wrote it.
#[derive(Debug, Default)]
pub struct Saved {
    /// The newest position of a saved model, and how often the power was cut before.
    position: Mutex<Option<(Position, u64)>>,
    /// The snapshot of the newest run, and its incarnation.
    pub(super) snapshot: Mutex<Option<(u64, Vec<u8>)>>,
    /// Trainers that run.
    running: Mutex<u32>,
}

/// Longer than any pause between two looks at the log.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often, and when, a rank looks for its snapshot.
const LOOKS: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// What a wait for a step came to.
pub(super) enum Waited {
    /// It.
    Batch(Batch),
    /// Nothing: nobody publishes any more.
    Nothing,
    /// The stream's end.
    End,
}

/// Trains until it has read its steps, until nothing comes any more, or until it is fenced.
///
/// # Errors
/// A promise is broken.
pub fn train(process: &Process, stage: &Stage, plan: &Training) -> Result<(), String> {
    *plan.saved.running.lock() += 1;
    let trained = stage.persist(process, || {
        let Some(store) = stage.open_existing(process)? else { return Ok(()) };
        let Some(run) = begin(process, stage, plan, &store)? else { return Ok(()) };
        let (run, key) = run;
        let read = read(process, stage, plan, &store, (&run, key));
        match read {
            Ok(()) if plan.retires && !process.is_dead() => {
                let Some(group) = &plan.group else { return Ok(()) };
                super::operate::retire(process, stage, &store, group)
            }
            read => read,
        }
    });
    *plan.saved.running.lock() -= 1;
    trained
}

/// A run, and by which key the annals know it.
fn begin(
    process: &Process,
    stage: &Stage,
    plan: &Training,
    store: &Store,
) -> Result<Option<(Run, u64)>, Trouble> {
    let annals = stage.annals();
    let _ = plan.saved.position.lock().take_if(|(position, cuts)| annals.may_be_lost(position, *cuts));
    let saved = plan.saved.position.lock().map(|(position, _)| position);
    let group = plan.group.as_ref().map(|name| store.group(name)).transpose()?;
    let before = stage.truth()?.state.next_version.get();
    let begun = match &group {
        Some(group) => group.begin(Start::from(saved)),
        None => store.run(Start::from(saved)),
    };
    let run = match begun {
        Ok(run) => run,
        Err(_) if process.is_dead() => return Ok(None),
        Err(error) => return Err(refused(stage, plan, group.as_ref(), saved, error)?),
    };
    if process.is_dead() {
        return Ok(None);
    }
    if let (Some(name), Some(incarnation)) = (&plan.group, run.incarnation()) {
        annals.begin(name, incarnation.get(), saved, run.position())?;
        *plan.saved.snapshot.lock() = Some((incarnation.get(), run.snapshot()));
        stage.coverage.met(Met::BegunAnew, u64::from(*plan.saved.running.lock() > 1));
    }
    if saved.is_some_and(|saved| saved.generation < run.position().generation) {
        stage.coverage.met(Met::PositionTaken, 1);
    }
    let truth = stage.truth()?;
    // A group's view is as of its record, or of what came right after.
    let incarnation = run.incarnation().map(|incarnation| incarnation.get());
    let views = (incarnation.map_or(before, |version| version + 1), truth.state.next_version.get());
    stage.coverage.met(Met::BegunClosed, u64::from(truth.model.stream.closed_at(views.0).is_some()));
    let key = annals.watch(incarnation, run.position().generation.get(), views);
    Ok(Some((run, key)))
}

/// What to do when a run isn't begun: what was saved is refused just when the truth refuses it; then the
/// trainer goes on from its newest checkpoint, or from the beginning.
fn refused(
    stage: &Stage,
    plan: &Training,
    group: Option<&Group>,
    saved: Option<Position>,
    error: Error,
) -> Result<Trouble, Trouble> {
    if error.kind() == ErrorKind::Fenced {
        return Ok(Trouble::Again);
    }
    if !matches!(error.kind(), ErrorKind::Rewound | ErrorKind::Reclaimed | ErrorKind::Invalid) {
        return Err(error.into());
    }
    let truth = stage.truth()?;
    let Some(saved) = saved else {
        // From the beginning of what is retained: only a change in this very moment can be in the way.
        return match error.kind() {
            ErrorKind::Invalid => Err(format!("the beginning was refused: {error}").into()),
            _ => Ok(Trouble::Again),
        };
    };
    let seen: Seen = truth.model.now();
    let (generation, step) = (saved.generation.get(), saved.step.get());
    let changed = error.kind() == ErrorKind::Rewound && seen.generation > generation;
    if truth.model.refuses(generation, step, &seen, u64::MAX).is_none() {
        // History was changed while the name was opened, which is told though the position is good.
        return if changed {
            Ok(Trouble::Again)
        } else {
            Err(format!("P2: {saved:?} was refused, and is good: {error}").into())
        };
    }
    stage.coverage.met(Met::PositionRefused, 1);
    let newest = match group.map(Group::checkpoints) {
        Some(Ok(kept)) => kept.last().map(|kept| kept.position),
        _ => None,
    };
    *plan.saved.position.lock() = newest.map(|position| (position, stage.annals().power_cuts()));
    Ok(Trouble::Again)
}

/// The consumers of a run's ranks: of every other one by the snapshot, with a handle of its own.
fn consumers(process: &Process, stage: &Stage, plan: &Training, run: &Run) -> Result<Vec<Consumer>, Trouble> {
    let options = ConsumerOptions::new().window_steps(plan.window).timeout(PATIENCE);
    let mut consumers = Vec::new();
    for rank in 0..plan.ranks {
        let share = Share::new(rank, plan.ranks)?;
        let joined = if rank > 0 && process.world.choices().chance(2) {
            let Some(store) = stage.open_existing(process)? else { continue };
            stage.coverage.met(Met::Joined, 1);
            Some(store.join(&run.snapshot())?)
        } else {
            None
        };
        consumers.push(joined.as_ref().unwrap_or(run).consumer_with(share, options)?);
    }
    Ok(consumers)
}

fn read(
    process: &Process,
    stage: &Stage,
    plan: &Training,
    store: &Store,
    (run, key): (&Run, u64),
) -> Result<(), Trouble> {
    let choices = process.world.choices();
    let parts = store.options().parts_per_step as usize;
    let began = run.position();
    let incarnation = run.incarnation().map(|incarnation| incarnation.get());
    let mut ranks = match consumers(process, stage, plan, run) {
        Err(Trouble::Told(error)) if !process.is_dead() => {
            return Err(late(process, stage, began, incarnation, error)?);
        }
        made => made?,
    };
    let (mut next, mut names) = (began, Vec::<String>::new());
    for number in 0..plan.steps as usize {
        let (mut after, mut ended) = (None, 0);
        for rank in &mut ranks {
            let at = next.step.get();
            let batch = match next_of(process, stage, rank, (began, key), at, incarnation)? {
                Waited::Batch(batch) => batch,
                Waited::Nothing => return Ok(()),
                Waited::End => {
                    ended += 1;
                    continue;
                }
            };
            let texts = texts_of(&batch, parts).map_err(|what| told(process, what))?;
            if process.is_dead() {
                return Ok(());
            }
            let step = batch.step().get();
            stage.coverage.met(Met::PassedOver, u64::from(step > at));
            stage.annals().deliver((key, number), (began.generation.get(), step), texts)?;
            if after.is_some_and(|after| after != batch.position()) {
                return Err(
                    format!("P2: after one step the ranks are at {after:?}, {:?}", batch.position()).into()
                );
            }
            after = Some(batch.position());
        }
        if ended > 0 && after.is_some() {
            return Err(format!("P2: at {next:?} the run ended for {ended} ranks, and not for others").into());
        }
        let Some(after) = after else { return at_end(process) };
        next = after;
        if choices.chance(plan.saves_one_in) {
            save(stage, plan, after);
        }
        if plan.group.is_some() && choices.chance(plan.checkpoints_one_in) {
            save(stage, plan, after);
            match checkpoint(process, stage, plan, run, after, &mut names) {
                Ok(()) => {}
                // A newer trainer has the group: what is left is its business.
                Err(Trouble::Over) => return Ok(()),
                Err(trouble) => return Err(trouble),
            }
        }
    }
    Ok(())
}

/// At the stream's end it is done, or looks whether it goes on, as a run that begins now does once it is
/// reopened.
fn at_end(process: &Process) -> Result<(), Trouble> {
    if process.world.choices().chance(2) { Ok(()) } else { Err(Trouble::Again) }
}

fn save(stage: &Stage, plan: &Training, position: Position) {
    *plan.saved.position.lock() = Some((position, stage.annals().power_cuts()));
}

/// Marks what is saved; now and then lets go of all but the newest two.
fn checkpoint(
    process: &Process,
    stage: &Stage,
    plan: &Training,
    run: &Run,
    at: Position,
    names: &mut Vec<String>,
) -> Result<(), Trouble> {
    let name = format!("s{}", at.step);
    let incarnation = run.incarnation().map(|incarnation| incarnation.get());
    let group = plan.group.as_deref().unwrap_or_default();
    match run.checkpoint(at, &name) {
        Ok(_) if process.is_dead() => return Err(Trouble::Over),
        Ok(kept) => {
            stage.coverage.met(Met::CheckpointKept, 1);
            stage.annals().keep(kept.version.get(), group, &name, at.step.get());
        }
        Err(error) if !process.is_dead() => return Err(late(process, stage, at, incarnation, error)?),
        Err(error) => return Err(error.into()),
    }
    names.push(name);
    if !plan.retains || !process.world.choices().chance(2) {
        return Ok(());
    }
    let newest = &names[names.len().saturating_sub(2)..];
    match run.retain(newest) {
        Ok(gone) => {
            stage.coverage.met(Met::CheckpointRetainedNot, gone.len() as u64);
            Ok(())
        }
        Err(error) if !process.is_dead() => Err(late(process, stage, at, incarnation, error)?),
        Err(error) => Err(error.into()),
    }
}

/// What an error means to a run at a position: that it is late, which the truth has to bear out, or something
/// that others have caused, which is given back as it is.
pub(super) fn late(
    process: &Process,
    stage: &Stage,
    at: Position,
    incarnation: Option<u64>,
    error: Error,
) -> Result<Trouble, Trouble> {
    let kind = error.kind();
    if process.is_dead() || !matches!(kind, ErrorKind::Rewound | ErrorKind::Reclaimed | ErrorKind::Fenced) {
        return Err(error.into());
    }
    let truth = stage.truth()?;
    let current = incarnation.is_some_and(|mine| is_current(&truth, mine));
    match kind {
        ErrorKind::Rewound if truth.model.generation > at.generation.get() => {
            stage.coverage.met(Met::RunRewound, 1);
            Ok(Trouble::Again)
        }
        // Its own checkpoints are at or below what it has read: so as long as it is the group's newest run,
        // nothing that it reads may go.
        ErrorKind::Reclaimed if truth.model.floor > at.step.get() && !current => {
            stage.coverage.met(Met::BelowFloor, 1);
            Ok(Trouble::Again)
        }
        ErrorKind::Fenced if !current => {
            stage.coverage.met(Met::TrainerFenced, 1);
            Ok(Trouble::Over)
        }
        ErrorKind::Reclaimed => {
            Err(format!("P5: a run at {at:?}, current: {current}, was told: {error}").into())
        }
        ErrorKind::Rewound => Err(format!("P2: nothing has changed since {at:?}: {error}").into()),
        _ => Err(format!("P4: incarnation {incarnation:?} is current, and was told: {error}").into()),
    }
}

fn is_current(truth: &Truth, incarnation: u64) -> bool {
    truth.model.groups.values().any(|group| group.live && group.newest == incarnation)
}

/// The next batch of a rank that is at a step, of the run that the annals know by a key.
pub(super) fn next_of(
    process: &Process,
    stage: &Stage,
    rank: &mut Consumer,
    (began, key): (Position, u64),
    step: u64,
    incarnation: Option<u64>,
) -> Result<Waited, Trouble> {
    // What came at the last moment the second wait finds.
    for _ in 0..2 {
        match rank.next_batch() {
            Ok(Some(batch)) => return Ok(Waited::Batch(batch)),
            Ok(None) if process.is_dead() => return Ok(Waited::Nothing),
            Ok(None) => {
                let model = stage.truth()?.model;
                let end = due(&model, began, step);
                if model.stream.closes.iter().all(|(_, step)| *step != end) {
                    return Err(format!("P2: {began:?} ended before step {end}: {:?}", model.stream).into());
                }
                stage.annals().end(key, end)?;
                stage.coverage.met(Met::Ended, 1);
                let goes_on = model.generation == began.generation.get() && model.head() > end;
                stage.coverage.met(Met::EndedBefore, u64::from(goes_on));
                return Ok(Waited::End);
            }
            Err(error) if error.kind() == ErrorKind::Timeout && !process.is_dead() => {
                let model = stage.truth()?.model;
                if may_wait(stage, &model, (began, key), step) {
                    return Ok(Waited::Nothing);
                }
            }
            Err(_) if process.is_dead() => return Ok(Waited::Nothing),
            Err(error) => {
                let at = Position { step: step.into(), ..began };
                return Err(late(process, stage, at, incarnation, error)?);
            }
        }
    }
    Err(format!("P7: what comes after step {step} of {began:?} isn't found by waiting").into())
}

/// The first step from one on that a run of a generation doesn't pass over.
fn due(model: &Model, began: Position, step: u64) -> u64 {
    let skipped = model.skipped_in(began.generation.get());
    (step..).find(|step| !skipped.contains(step)).unwrap_or(step)
}

/// Whether there is nothing to tell a run that waits for a step: no batch, no change of history, no end.
fn may_wait(stage: &Stage, model: &Model, (began, key): (Position, u64), step: u64) -> bool {
    let goes_on = stage.annals().ends(key, model).is_none_or(|ends| ends.contains(&None));
    goes_on && model.generation == began.generation.get() && !model.has_next(step)
}

/// What a dead process sees isn't anybody's trouble.
fn told(process: &Process, what: String) -> Trouble {
    if process.is_dead() { Trouble::Over } else { Trouble::Broken(what) }
}

/// Another rank, in a process of its own: joins by the snapshot that it is handed, reads all, writes nothing.
///
/// # Errors
/// A promise is broken.
pub fn join(process: &Process, stage: &Stage, plan: &Training) -> Result<(), String> {
    let handed = || plan.saved.snapshot.lock().clone();
    for _ in 0..LOOKS {
        if handed().is_some() || process.is_dead() {
            break;
        }
        process.env().sleep(LOOK_AGAIN);
    }
    stage.persist(process, || {
        let Some(store) = stage.open_existing(process)? else { return Ok(()) };
        // Nobody may ever begin one.
        let Some((incarnation, snapshot)) = handed() else { return Ok(()) };
        let parts = store.options().parts_per_step as usize;
        let run = store.join(&snapshot)?;
        stage.coverage.met(Met::Joined, 1);
        let options = ConsumerOptions::new().window_steps(plan.window).timeout(PATIENCE);
        let mut consumer = run.consumer_with(Share::WHOLE, options)?;
        let began = run.position();
        let mut step = began.step.get();
        for number in 0..plan.steps as usize {
            // It may be slower than the trainer that it reads for, whose checkpoints pass it.
            match next_of(process, stage, &mut consumer, (began, incarnation), step, None) {
                Ok(Waited::Batch(batch)) => {
                    let texts = texts_of(&batch, parts).map_err(|what| told(process, what))?;
                    if process.is_dead() {
                        return Ok(());
                    }
                    let place = (began.generation.get(), batch.step().get());
                    stage.annals().deliver((incarnation, number), place, texts)?;
                    step = batch.position().step.get();
                }
                // It isn't its business to begin again.
                Ok(Waited::Nothing | Waited::End) | Err(Trouble::Again | Trouble::Over) => return Ok(()),
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    })
}
