//! One life on a store, until the power is cut in it: it goes on from what is there, with each operation
//! once, and then does what is under trial again and again.
//!
//! - Whatever the engine has acknowledged is said at once: the power takes nothing of that.
//! - Nothing may fail before the cut. Then a call has to fail soon, as the disk does: `Io`, naming its path.
//! - What those before have left lying is removed by two reclaims.

use std::path::Path;
use std::sync::Arc;

use batchweave::env::System;
use batchweave::storage::Posix;
use batchweave::{
    Consumer, ErrorKind, Position, Producer, ReclaimOptions, Reclaimed, Run, Settings, Share, Store,
};
use batchweave_sim::{Fault, Plan};

use super::cut::{Moment, Operation, Place, Power, Syncs};
use super::known::{GROUP, PRODUCER};
use crate::child::PATIENCE;
use crate::{Failure, Result, part};

/// Versions of a segment (see [`part::options`]).
const SEGMENT: u64 = 16;
/// Parts between two reclaims under trial: two segments go each time.
const BETWEEN_RECLAIMS: u64 = 2 * SEGMENT;
/// More operations than it ever takes to come to the drawn call, or to meet the dead disk.
const OPERATIONS_MAX: u64 = 100;

/// A child's life.
pub(super) fn live(path: &Path, place: Place, left_out: Syncs, say: &dyn Fn(&str)) -> Result<()> {
    let power = Arc::new(Power::new(path, place, left_out)?);
    let storage = Fault::new(Arc::new(Posix::new()), Plan::new()).judged_by(power.clone());
    let store = Store::open_on(path, Arc::new(storage), Arc::new(System::new()), &Settings::new())?;
    let mut life = Life::begin(&store, &power, say)?;
    life.go_on()?;
    for _ in 0..OPERATIONS_MAX {
        let done = life.turn(place.operation);
        match (done, power.is_cut()?) {
            (Ok(()), None) if place.moment == Moment::Never => {
                say(&format!("calls {}", power.calls()));
                return Ok(());
            }
            (Ok(()), _) => {}
            (Err(error), Some(at)) => {
                expect_dead_disk(error)?;
                say(&format!("dark {at}"));
                return Ok(());
            }
            (Err(error), None) => return Err(error),
        }
    }
    Err(format!("{OPERATIONS_MAX} operations, and none has met a dead disk; cut: {:?}", power.is_cut()?)
        .into())
}

/// What is told of a disk that is gone.
fn expect_dead_disk(error: Failure) -> Result<()> {
    let Some(told) = error.downcast_ref::<batchweave::Error>() else { return Err(error) };
    if told.kind() != ErrorKind::Io || told.path().is_none() {
        let kind = told.kind();
        return Err(format!("instead of Io, with a path, it is told {kind} of the dead disk: {told}").into());
    }
    Ok(())
}

struct Life<'a> {
    store: &'a Store,
    power: &'a Power,
    say: &'a dyn Fn(&str),
    run: Run,
    consumer: Consumer,
    producer: Producer,
}

impl<'a> Life<'a> {
    /// Takes over from those before: the group from its newest checkpoint, the producer from its state.
    fn begin(store: &'a Store, power: &'a Power, say: &'a dyn Fn(&str)) -> Result<Self> {
        let groups = store.groups()?;
        let newest = groups.first().and_then(|group| group.checkpoints.last());
        let saved: Option<Position> = newest.map(|checkpoint| checkpoint.position);
        let run = store.group(GROUP)?.begin(saved)?;
        let consumer = run.consumer(Share::WHOLE)?;
        let producer = store.producer(PRODUCER)?;
        part::check_state(&producer)?;
        say(&format!("opened {} {}", producer.next_sequence(), consumer.position().step));
        Ok(Self { store, power, say, run, consumer, producer })
    }

    /// Each operation once, with nothing wrong.
    fn go_on(&mut self) -> Result<()> {
        self.publish()?;
        self.deliver()?;
        self.checkpoint()?;
        let seen = self.reclaim(Vec::new())?.control_seen;
        self.reclaim(seen)?;
        let report = self.store.verify(|_| ())?;
        if let Some(left) = report.litter.first() {
            return Err(
                format!("after two reclaims {} still lies there: {}", left.path.display(), left.why).into()
            );
        }
        Ok(())
    }

    /// What is under trial, and what has to come before it.
    fn turn(&mut self, operation: Operation) -> Result<()> {
        let power = self.power;
        match operation {
            Operation::Publish => power.on_trial(|| self.publish()),
            Operation::Checkpoint => {
                self.publish()?;
                self.deliver()?;
                power.on_trial(|| self.checkpoint())
            }
            Operation::Reclaim => {
                for _ in 0..BETWEEN_RECLAIMS {
                    self.publish()?;
                }
                self.deliver()?;
                self.checkpoint()?;
                let freed = power.on_trial(|| self.reclaim(Vec::new()))?.segments.count;
                if freed == 0 { Err("this shows nothing: no segment was freed".into()) } else { Ok(()) }
            }
            Operation::Index => {
                while !self.next_version()?.is_multiple_of(SEGMENT) {
                    self.publish()?;
                }
                power.on_trial(|| self.publish())
            }
        }
    }

    fn next_version(&self) -> Result<u64> {
        Ok(self.store.info()?.head_version.map_or(0, |head| head.get() + 1))
    }

    fn publish(&mut self) -> Result<()> {
        let published = part::publish(&mut self.producer)?;
        (self.say)(&format!("published {}", published.sequence));
        Ok(())
    }

    /// All that is there, as a trainer does.
    fn deliver(&mut self) -> Result<()> {
        while self.consumer.position().step.get() < self.producer.next_sequence().get() {
            let batch = self.consumer.next_batch_timeout(PATIENCE)?.ok_or("the stream ended early")?;
            let id = part::check(&batch)?;
            if !id.is(PRODUCER, batch.step().get()) {
                return Err(format!("step {} holds {id}", batch.step()).into());
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        let position = self.consumer.position();
        (self.say)(&format!("checkpointing {}", position.step));
        self.run.checkpoint(position, &format!("step-{}", position.step))?;
        (self.say)(&format!("checkpointed {}", position.step));
        Ok(())
    }

    fn reclaim(&mut self, control_seen: Vec<String>) -> Result<Reclaimed> {
        let options = ReclaimOptions::new().keep(1).control_seen(control_seen);
        let reclaimed = self.store.reclaim(&options)?;
        (self.say)(&format!("reclaimed {}", reclaimed.floor));
        Ok(reclaimed)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::power::known::Known;

    #[test]
    fn each_life_goes_on_from_the_one_before_and_does_each_operation() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        Store::create(&path, part::options()).unwrap();
        let mut known = Known::default();
        for operation in Operation::ALL {
            let place = Place { operation, moment: Moment::Never, call: 0 };
            let words = RefCell::new(Vec::new());
            live(&path, place, Syncs::None, &|word| words.borrow_mut().push(word.to_owned())).unwrap();
            let mut words = words.into_inner();
            let last = words.pop().unwrap();
            assert!(last.strip_prefix("calls ").unwrap().parse::<u64>().unwrap() > 4, "{last}");
            words.iter().for_each(|word| known.hear(word, std::process::id()).unwrap());
            known.judge(&path).unwrap();
        }
    }

    #[test]
    fn only_an_error_of_the_disk_that_says_where_is_expected_of_a_dead_one() {
        let home = tempfile::tempdir().unwrap();
        let missing = Store::open(home.path()).unwrap_err();
        let said = expect_dead_disk(missing.into()).unwrap_err().to_string();
        assert!(said.starts_with("instead of Io, with a path, it is told invalid"), "{said}");
        assert_eq!(expect_dead_disk("LOST: a part".into()).unwrap_err().to_string(), "LOST: a part");
    }
}
