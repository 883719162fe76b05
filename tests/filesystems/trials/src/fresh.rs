//! How soon a step is seen through the other mount by who waits for it.
//!
//! The delay is from the acknowledgement on one mount to the word of a process on the other.

use std::path::Path;
use std::time::{Duration, Instant};

use batchweave::{Producer, Share, Start, Store};

use crate::child::{Crew, PATIENCE, Task, say};
use crate::{Mounts, Result, judge, part};

const STEPS: u64 = 24;
/// What a filesystem may take. Default NFS takes 30 s to forget that a name wasn't there.
const DELAY_MAX: Duration = Duration::from_secs(2);
/// The usual gap between two steps is drawn from this.
const GAP_MAX_MS: u64 = 250;
/// Before some it is longer: so long that a client has asked for the name, and remembers that it isn't there.
const LONG_GAP: Duration = Duration::from_secs(3);
const LONG_GAP_ON_ONE_HOST: Duration = Duration::from_millis(500);

/// A watcher's life: waits for each step, and says it.
pub(crate) fn watch(path: &Path, steps: u64) -> Result<()> {
    let run = Store::open(path)?.run(Start::Beginning)?;
    let mut consumer = run.consumer(Share::WHOLE)?;
    say("waiting");
    while consumer.position().step.get() < steps {
        let batch = consumer.next_batch_timeout(PATIENCE)?.ok_or("the stream ended early")?;
        say(&format!("sees {}", batch.step()));
        part::check(&batch)?;
    }
    Ok(())
}

pub(crate) fn fresh(mounts: &Mounts) -> Result<String> {
    let trial = "fresh";
    let mut random = mounts.random();
    let steps = STEPS * mounts.times;
    let store = mounts.create(trial)?;
    let paths = [mounts.a.join(trial), mounts.b.join(trial)];
    let mut crew = Crew::new();
    for (path, node) in paths.iter().zip(["A", "B"]) {
        let watcher =
            crew.start(format!("watcher on {node}"), &Task::Watcher { store: path.clone(), steps })?;
        crew.hear_of(watcher)?;
    }
    let at_b = Store::open(&paths[1])?;
    let mut writers: [Producer; 2] = [store.producer("on-a")?, at_b.producer("on-b")?];
    let long_gap = if store.info()?.mount_class.is_remote() { LONG_GAP } else { LONG_GAP_ON_ONE_HOST };
    let mut delays = Vec::new();
    for step in 0..steps {
        let gap = match step % STEPS {
            // The first of all, and one well within a later segment.
            0 | 20 => long_gap,
            _ => Duration::from_millis(random.below(GAP_MAX_MS)),
        };
        // Nobody waits by it for anybody: how long a step doesn't come is what is varied here, since the
        // longer that lasts, the less often a watcher looks, and the older a client's cached "not there" is.
        std::thread::sleep(gap);
        let writer = random.below(2) as usize;
        part::publish(&mut writers[writer])?;
        let published = Instant::now();
        for _ in 0..paths.len() {
            let heard = crew.hear_word()?;
            let expected = format!("sees {step}");
            if heard.word.as_ref() != Some(&expected) {
                return Err(format!("a watcher says {:?} instead of {expected:?}", heard.word).into());
            }
            // The watchers were started in the order of the mounts.
            if heard.who != writer {
                delays.push((heard.at.saturating_duration_since(published), step));
            }
        }
    }
    crew.end()?;
    judge::judge(&paths[0], &paths[1])?;
    delays.sort_unstable();
    let (median, _) = delays.get(delays.len() / 2).copied().unwrap_or_default();
    let (largest, slowest) = delays.last().copied().unwrap_or_default();
    let said = format!(
        "seen after at most {:.2} s (step {slowest}), usually {:.3} s, over {steps} steps",
        largest.as_secs_f64(),
        median.as_secs_f64(),
    );
    if largest > DELAY_MAX { Err(said.into()) } else { Ok(said) }
}
