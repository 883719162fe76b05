//! Producers and a trainer, all killed at once again and again, and started again on the other mount.
//!
//! - Each round ends after a drawn number of words, wherever everybody is then.
//! - What the trainer delivered over all its lives is every id once, in one order; and so is what the store
//!   holds.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use batchweave::{Position, Share, Start, Store};

use crate::child::{Crew, PATIENCE, Task, say};
use crate::part::Id;
use crate::{Mounts, Result, judge, part, race};

const PRODUCERS: usize = 5;
const ROUNDS: u64 = 12;
/// Words of all together, before a round ends.
const WORDS_MAX: u64 = 100;
/// Parts of each producer after the last kill, beyond what the busiest had.
const MORE: u64 = 6;
/// More than there is time for before the kill.
const ENDLESS: u64 = 1 << 40;
/// Steps between two checkpoints.
const EVERY: u64 = 7;

/// A trainer's life: delivers, notes, saves and checkpoints until it has so many steps.
pub(crate) fn train(path: &Path, journal: &Path, steps: u64) -> Result<()> {
    let saved_at = journal.with_extension("saved");
    let saved: Option<Position> = match fs::read(&saved_at) {
        Ok(json) => Some(serde_json::from_slice(&json)?),
        Err(_) => None,
    };
    let store = Store::open(path)?;
    let run = store.group("job")?.begin(Start::from(saved))?;
    let mut consumer = run.consumer(Share::WHOLE)?;
    let mut journal = OpenOptions::new().create(true).append(true).open(journal)?;
    say("begun");
    while consumer.position().step.get() < steps {
        let batch = consumer.next_batch_timeout(PATIENCE)?.ok_or("the stream ended early")?;
        // One write, so that a kill leaves a line whole or not at all.
        let line = format!("{} {}\n", batch.step(), part::check(&batch)?);
        journal.write_all(line.as_bytes())?;
        say(&format!("delivered {}", batch.step()));
        if batch.position().step.get().is_multiple_of(EVERY) {
            let unfinished = saved_at.with_extension("new");
            fs::write(&unfinished, serde_json::to_vec(&batch.position())?)?;
            fs::rename(&unfinished, &saved_at)?;
            run.checkpoint(batch.position(), &format!("step-{}", batch.position().step))?;
        }
    }
    say("done");
    Ok(())
}

pub(crate) fn killed(mounts: &Mounts) -> Result<String> {
    let trial = "killed";
    let mut random = mounts.random();
    let store = mounts.create(trial)?;
    let names = race::names(PRODUCERS);
    // The trainer's own files are where a trainer has them: not on the mount under trial.
    let home = tempfile::tempdir()?;
    let journal = home.path().join("journal");
    let start = |crew: &mut Crew, round: u64, parts: u64| {
        for (number, name) in names.iter().enumerate() {
            let store = mounts.of(number + round as usize).join(trial);
            crew.start(format!("producer {name}"), &Task::Producer { store, name: name.clone(), parts })?;
        }
        let steps = parts.saturating_mul(PRODUCERS as u64);
        let store = mounts.of(round as usize + 1).join(trial);
        crew.start("trainer", &Task::Trainer { store, journal: journal.clone(), steps })
    };
    let rounds = ROUNDS * mounts.times;
    let mut fewest = u64::MAX;
    for round in 0..rounds {
        let mut crew = Crew::new();
        start(&mut crew, round, ENDLESS)?;
        let words = random.below(WORDS_MAX);
        for _ in 0..words {
            crew.hear()?;
        }
        crew.kill_all()?;
        fewest = fewest.min(words);
    }
    let most = store.producers()?.iter().map(|one| one.sequence.get()).max().unwrap_or_default();
    let parts = most + MORE;
    let mut crew = Crew::new();
    start(&mut crew, rounds, parts)?;
    crew.end()?;
    judge_journal(&fs::read_to_string(&journal)?, &names, parts)?;
    let counts = judge::judge(&mounts.a.join(trial), &mounts.b.join(trial))?;
    judge::all_have(&counts, &names, parts)?;
    Ok(format!("{rounds} rounds, {} parts, each once", parts * PRODUCERS as u64))
}

/// Whatever was delivered again after a kill was the same; and all in all every id was, once.
fn judge_journal(journal: &str, names: &[String], parts: u64) -> Result<()> {
    let mut delivered: BTreeMap<u64, Id> = BTreeMap::new();
    for line in journal.lines() {
        let parsed = line.split_once(' ').and_then(|(step, id)| Some((step.parse().ok()?, Id::parse(id)?)));
        let (step, id) = parsed.ok_or_else(|| format!("the trainer noted {line:?}"))?;
        let before = delivered.entry(step).or_insert_with(|| id.clone());
        if *before != id {
            return Err(format!("step {step} was delivered as {before} and as {id}").into());
        }
    }
    if let Some((missing, _)) = (0..).zip(delivered.keys()).find(|(expected, step)| expected != *step) {
        return Err(format!("LOST: the trainer never delivered step {missing}").into());
    }
    judge::all_have(&judge::count(delivered.into_values())?, names, parts)
}
