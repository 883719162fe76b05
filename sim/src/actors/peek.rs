//! A reader that waits for nothing: it opens the store, reads what there is, and looks again.

use batchweave::{ConsumerOptions, Next, Share, Start};

use super::Stage;
use crate::Process;
use crate::oracle::texts_of;

/// Opens the store and reads to its end, `looks` times.
///
/// # Errors
/// A promise is broken: what is read is no prefix, or can't be read.
pub fn peek(process: &Process, stage: &Stage, looks: u32) -> Result<(), String> {
    process.world.meet();
    stage.persist(process, || {
        let store = stage.open_or_create(process)?;
        let parts = store.options().parts_per_step as usize;
        let run = store.run(Start::Beginning)?;
        let mut consumer = run.consumer_with(Share::WHOLE, ConsumerOptions::new().window_steps(0))?;
        let mut next = run.position().step;
        for _ in 0..looks {
            while let Next::Batch(batch) = consumer.try_next()? {
                if batch.step() != next {
                    return Err(format!("P2: step {} was delivered, not {next}", batch.step()).into());
                }
                stage.ledger.deliver(next.get(), texts_of(&batch, parts)?)?;
                next = next.next();
            }
        }
        Ok(())
    })
}
