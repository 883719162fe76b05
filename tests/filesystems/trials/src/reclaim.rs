//! Reclaims against a reader that lags behind: it gets its bytes right, or `Reclaimed`; never wrong bytes,
//! and never a signal.
//!
//! The reader reads while a reclaim frees under it, looks at older steps too, and keeps what it was handed
//! out last: that stays right whatever is removed.

use std::collections::VecDeque;
use std::io::BufRead;
use std::path::Path;

use batchweave::{Consumer, ErrorKind, ReclaimOptions, Share, Slice, Start, Step, Store};

use crate::child::{Crew, PATIENCE, Task, say};
use crate::random::Random;
use crate::{Mounts, Result, judge, part};

const TURNS: u64 = 30;
/// Parts published in a turn, at most. The reader reads half of that, so it lags.
const PARTS_MAX: u64 = 20;
/// Steps at the head that no reclaim is told to free.
const KEPT: u64 = 24;
/// Batches whose slices the reader keeps.
const HELD: usize = 12;

/// A reader's life: for each number that it is told it reads so many steps, and says what came of them.
pub(crate) fn read(path: &Path) -> Result<()> {
    let mut reader = Reader::open(path)?;
    say("ready");
    for line in std::io::stdin().lock().lines() {
        let steps: u64 = line?.parse()?;
        for _ in 0..steps {
            reader.step()?;
            reader.look()?;
        }
        reader.check_held()?;
        say(&format!("{} {} {}", reader.consumer.position().step, reader.right, reader.reclaimed));
    }
    Ok(())
}

struct Reader {
    store: Store,
    consumer: Consumer,
    held: VecDeque<Vec<Slice>>,
    random: Random,
    right: u64,
    reclaimed: u64,
}

impl Reader {
    fn open(path: &Path) -> Result<Self> {
        let store = Store::open(path)?;
        let consumer = store.run(Start::Beginning)?.consumer(Share::WHOLE)?;
        let random = Random::new(7);
        Ok(Self { store, consumer, held: VecDeque::new(), random, right: 0, reclaimed: 0 })
    }

    /// The next step; if that was reclaimed, on from the floor.
    fn step(&mut self) -> Result<()> {
        let delivered = self.consumer.next_batch_timeout(PATIENCE);
        let checked = delivered.map_err(Into::into).and_then(|batch| {
            let batch = batch.ok_or("the stream ended early")?;
            part::check(&batch)?;
            Ok(batch.slices().collect::<Result<Vec<_>, _>>()?)
        });
        match checked {
            Ok(slices) => {
                self.right += 1;
                self.held.push_back(slices);
                if self.held.len() > HELD {
                    self.held.pop_front();
                }
                Ok(())
            }
            Err(error) => {
                expect_reclaimed(error)?;
                self.reclaimed += 1;
                self.go_on_from_floor()
            }
        }
    }

    /// The floor may rise again between asking for it and beginning there: once for each reclaim, and there
    /// is one while this reads.
    fn go_on_from_floor(&mut self) -> Result<()> {
        let begin = |store: &Store| store.run(store.info()?.floor)?.consumer(Share::WHOLE);
        self.consumer = begin(&self.store).or_else(|error| match error.kind() {
            ErrorKind::Reclaimed => begin(&self.store),
            _ => Err(error),
        })?;
        Ok(())
    }

    /// Any step before, which may be gone.
    fn look(&mut self) -> Result<()> {
        let step = self.random.below(self.consumer.position().step.get());
        if step == 0 {
            return Ok(());
        }
        match self.store.batch(Step::new(step)).map_err(Into::into).and_then(|batch| part::check(&batch)) {
            Ok(_) => self.right += 1,
            Err(error) => {
                expect_reclaimed(error)?;
                self.reclaimed += 1;
            }
        }
        Ok(())
    }

    fn check_held(&self) -> Result<()> {
        for slices in &self.held {
            for (number, slice) in (0..).zip(slices) {
                part::check_slice(slice, number).map_err(|what| format!("kept since before: {what}"))?;
            }
        }
        Ok(())
    }
}

fn expect_reclaimed(error: crate::Failure) -> Result<()> {
    match error.downcast_ref::<batchweave::Error>().map(batchweave::Error::kind) {
        Some(ErrorKind::Reclaimed) => Ok(()),
        Some(kind) => Err(format!("instead of Reclaimed it is told {kind}: {error}").into()),
        None => Err(error),
    }
}

pub(crate) fn reclaim(mounts: &Mounts) -> Result<String> {
    let trial = "reclaim";
    let mut random = mounts.random();
    let store = mounts.create(trial)?;
    let paths = [mounts.a.join(trial), mounts.b.join(trial)];
    let at_b = Store::open(&paths[1])?;
    let mut crew = Crew::new();
    let reader = crew.start("the reader on B", &Task::Reader { store: paths[1].clone() })?;
    crew.hear_of(reader)?;
    let mut producer = store.producer("tok")?;
    let (mut next, mut segments, mut said) = (0, 0, (0, 0));
    for turn in 0..TURNS * mounts.times {
        for _ in 0..=random.below(PARTS_MAX) {
            part::publish(&mut producer)?;
        }
        let head = producer.next_sequence().get();
        let steps = random.below(PARTS_MAX / 2).min(head - next);
        crew.tell(reader, &steps.to_string())?;
        // While it reads; mostly from A, sometimes from B.
        let floor = store.info()?.floor.get();
        let up_to = floor + random.below(head.saturating_sub(KEPT).saturating_sub(floor) + 1);
        let reclaimer = if turn % 4 == 3 { &at_b } else { &store };
        segments += reclaimer.reclaim(&ReclaimOptions::new().up_to(Step::new(up_to)))?.segments.count;
        let word = crew.hear_of(reader)?.ok_or("the reader ended early")?;
        let numbers: Vec<u64> = word.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [at, right, reclaimed] = numbers[..] else { return Err(format!("it says {word:?}").into()) };
        (next, said) = (at, (right, reclaimed));
    }
    crew.hang_up(reader);
    crew.end()?;
    let (right, reclaimed) = said;
    if right == 0 || reclaimed == 0 || segments == 0 {
        let what = format!("{right} batches, {reclaimed} times Reclaimed, {segments} segments freed");
        return Err(format!("this shows nothing: {what}").into());
    }
    for path in &paths {
        judge::verify(path)?;
    }
    Ok(format!("{right} batches right, {reclaimed} times Reclaimed, {segments} segments freed"))
}
