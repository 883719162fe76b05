//! Producers as processes over both mounts, all at once, over many segments.

use std::path::Path;

use batchweave::{ErrorKind, Store};

use crate::child::{Crew, Task, say};
use crate::{Mounts, Result, judge, part};

const PRODUCERS: usize = 8;
/// Of each producer: three hundred and twenty parts come to twenty segments of sixteen commits.
const PARTS: u64 = 40;

/// A producer's life: publishes until it has so many parts, saying each; then retires the name.
pub(crate) fn produce(path: &Path, name: &str, parts: u64) -> Result<()> {
    let store = Store::open(path)?;
    let mut producer = match store.producer(name) {
        Err(error) if error.kind() == ErrorKind::Fenced => {
            say("fenced");
            return Ok(());
        }
        opened => opened?,
    };
    part::check_state(&producer)?;
    say(&format!("opened {}", producer.next_sequence()));
    let fenced = |ended: Result<(), batchweave::Error>| match ended {
        Err(error) if error.kind() == ErrorKind::Fenced => Ok(true),
        ended => ended.map(|()| false),
    };
    while producer.next_sequence().get() < parts {
        if fenced(
            part::publish(&mut producer).map(|published| say(&format!("published {}", published.sequence))),
        )? {
            say("fenced");
            return Ok(());
        }
    }
    say(if fenced(producer.finish())? { "fenced" } else { "finished" });
    Ok(())
}

pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("tok-{number:03}")).collect()
}

/// Each of these names as a child, every other one on B.
pub(crate) fn start_producers(
    crew: &mut Crew,
    mounts: &Mounts,
    trial: &str,
    names: &[String],
    parts: u64,
) -> Result<()> {
    for (number, name) in names.iter().enumerate() {
        let store = mounts.of(number).join(trial);
        crew.start(format!("producer {name}"), &Task::Producer { store, name: name.clone(), parts })?;
    }
    Ok(())
}

pub(crate) fn race(mounts: &Mounts) -> Result<String> {
    let trial = "race";
    let store = mounts.create(trial)?;
    let (names, parts) = (names(PRODUCERS), PARTS * mounts.times);
    let mut crew = Crew::new();
    start_producers(&mut crew, mounts, trial, &names, parts)?;
    if let Some(word) = crew.end()?.into_iter().find(|word| word != "finished") {
        return Err(format!("a producer ended with {word:?}, though nobody took its name").into());
    }
    let counts = judge::judge(&mounts.a.join(trial), &mounts.b.join(trial))?;
    judge::all_have(&counts, &names, parts)?;
    let commits = store.info()?.head_version.map_or(0, |version| version.get() + 1);
    Ok(format!("{} parts of {PRODUCERS} producers in {commits} commits", PRODUCERS as u64 * parts))
}
