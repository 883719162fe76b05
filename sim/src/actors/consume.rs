//! A consumer: reads every step in order, saves its position, and begins again from what it saved.

use std::sync::Arc;
use std::time::Duration;

use batchweave::{Batch, Consumer, ConsumerOptions, ErrorKind, Position, Share, Start, Step};
use parking_lot::Mutex;

use super::{Stage, Trouble};
use crate::Process;
use crate::oracle::{examine, texts_of};

/// What a consumer does.
#[derive(Clone, Debug)]
pub struct Consuming {
    /// How many steps it reads.
    pub steps: u64,
    /// Steps held ready; 0 has no thread.
    pub window: usize,
    /// Ranks of its trainer, with a share each.
    pub ranks: u32,
    /// What it saved last: a process that takes its place goes on from there.
    pub saved: Arc<Mutex<Option<Position>>>,
    /// It saves after each so many steps.
    pub saves_every: u64,
}

/// Longer than any pause between two looks at the log.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than any wait lasts: a mount that is away is outlasted now and then on the way.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Reads `steps` steps, or until nothing comes any more though nobody is left who owes any.
///
/// # Errors
/// A promise is broken.
pub fn consume(process: &Process, stage: &Stage, plan: &Consuming) -> Result<(), String> {
    stage.persist(process, || {
        let Some(store) = stage.open_existing(process)? else { return Ok(()) };
        let parts = store.options().parts_per_step as usize;
        // A trainer that checkpoints makes all before it durable first; these only save.
        let lost = |saved: &mut Position| stage.ledger.may_be_lost(saved.step.get());
        let _ = plan.saved.lock().take_if(lost);
        let saved = *plan.saved.lock();
        let run = store.run(Start::from(saved))?;
        let mut next = run.position().step;
        if saved.is_some_and(|saved| saved.step != next) {
            return Err(format!("P2: saved {saved:?}, the run begins at step {next}").into());
        }
        let options = ConsumerOptions::new().window_steps(plan.window).timeout(PATIENCE);
        let mut ranks = Vec::new();
        for rank in 0..plan.ranks {
            ranks.push(run.consumer_with(Share::new(rank, plan.ranks)?, options)?);
        }
        while next.get() < plan.steps {
            let mut after = None;
            for rank in &mut ranks {
                let Some(batch) = next_of(process, stage, rank, next, parts)? else { return Ok(()) };
                let texts = texts_of(&batch, parts).map_err(|what| told(process, what))?;
                // What was ready when it died needs no call to be handed out; but nobody gets it.
                if process.is_dead() {
                    return Ok(());
                }
                stage.ledger.deliver(next.get(), texts)?;
                after = Some(batch.position());
            }
            next = next.next();
            if next.get().is_multiple_of(plan.saves_every) {
                *plan.saved.lock() = after;
            }
        }
        Ok(())
    })
}

/// The next batch of a rank, which has to be this step; none if there is no more.
fn next_of(
    process: &Process,
    stage: &Stage,
    rank: &mut Consumer,
    step: Step,
    parts: usize,
) -> Result<Option<Batch>, Trouble> {
    // What came at the last moment the second wait finds.
    for _ in 0..2 {
        let began = process.env().now();
        let got = rank.next_batch();
        let took = process.env().now().saturating_sub(began);
        if took > WAIT_MAX && !process.is_dead() {
            return Err(format!("P7: a wait of {PATIENCE:?} took {took:?}").into());
        }
        match got {
            Ok(Some(batch)) => {
                check_place(rank, &batch, step)?;
                return Ok(Some(batch));
            }
            Ok(None) if process.is_dead() => return Ok(None),
            Ok(None) => {
                stage.ledger.end(step.get())?;
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::Timeout && !process.is_dead() => {
                if !is_visible(stage, step.get(), parts)? {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(format!("P7: step {step} is visible, and isn't found by waiting").into())
}

/// Ranks that share a view deliver the same step as their n-th (P2), and what they save is what they have
/// delivered, however far they read ahead (P3).
fn check_place(rank: &Consumer, batch: &Batch, step: Step) -> Result<(), String> {
    if batch.step() != step {
        return Err(format!("P2: step {} was delivered, not {step}", batch.step()));
    }
    let (says, at) = (batch.position(), rank.position());
    if says.step != step.next() || at != says {
        return Err(format!("P3: after step {step} the batch's position is {says:?}, the consumer's {at:?}"));
    }
    Ok(())
}

/// What a dead process sees isn't anybody's trouble.
fn told(process: &Process, what: String) -> Trouble {
    if process.is_dead() { Trouble::Broken(String::new()) } else { Trouble::Broken(what) }
}

/// Nothing came for longer than anything takes: is there really nothing? What is damaged nobody can tell.
fn is_visible(stage: &Stage, step: u64, parts: usize) -> Result<bool, String> {
    if stage.allowed.damage {
        return Ok(false);
    }
    let truth = examine(&stage.memory, &stage.path, &stage.ledger)?;
    Ok(truth.is_some_and(|truth| (truth.holders.len() / parts) as u64 > step))
}
