//! A consumer: reads every step in order, saves its position, and begins again from what it saved.

use std::sync::Arc;
use std::time::Duration;

use batchweave::{ConsumerOptions, ErrorKind, Position, Share, Start};
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
        let store = stage.open_or_create(process)?;
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
        let mut consumer = run.consumer_with(Share::WHOLE, options)?;
        let mut missed = None;
        while next.get() < plan.steps {
            let began = process.env().now();
            let got = consumer.next_batch();
            let took = process.env().now().saturating_sub(began);
            if took > WAIT_MAX && !process.is_dead() {
                return Err(format!("P7: a wait of {PATIENCE:?} took {took:?}").into());
            }
            let batch = match got {
                Ok(Some(batch)) => batch,
                Ok(None) => {
                    stage.ledger.end(next.get())?;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Timeout && !process.is_dead() => {
                    if !is_visible(stage, next.get(), parts)? {
                        return Ok(());
                    }
                    // It may have come at the last moment; then the next wait finds it.
                    if missed.replace(next) == Some(next) {
                        return Err(format!("P7: step {next} is visible, and isn't found by waiting").into());
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if batch.step() != next {
                return Err(format!("P2: step {} was delivered, not {next}", batch.step()).into());
            }
            let texts: Vec<String> = texts_of(&batch, parts).map_err(|what| told(process, what))?;
            stage.ledger.deliver(next.get(), texts)?;
            next = next.next();
            if batch.position().step != next || consumer.position() != batch.position() {
                let (says, at) = (batch.position(), consumer.position());
                return Err(format!(
                    "P3: step {} was delivered, its position is {says:?} and the consumer's {at:?}",
                    batch.step()
                )
                .into());
            }
            if next.get().is_multiple_of(plan.saves_every) {
                *plan.saved.lock() = Some(batch.position());
            }
        }
        Ok(())
    })
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
