//! The zombie of two nodes: a producer on one mount is stopped, its name is opened on the other and goes on
//! there, and then the first one goes on too: it is fenced, and nothing of it comes after (P4).

use batchweave::Store;
use rustix::process::Signal;

use crate::child::{Crew, Task};
use crate::{Mounts, Result, judge, part};

const ROUNDS: u64 = 6;
/// Parts of the new owner before the zombie wakes: the very one that the zombie was about to publish, some,
/// or so many that it wakes in a segment that is long done.
const MEANWHILE: [u64; 3] = [1, 3, 40];

/// The part of which a word says that it is published.
fn sequence(word: &str) -> Option<u64> {
    word.strip_prefix("published ")?.parse().ok()
}

pub(crate) fn zombie(mounts: &Mounts) -> Result<String> {
    let trial = "zombie";
    let mut random = mounts.random();
    mounts.create(trial)?;
    let rounds = ROUNDS * mounts.times;
    for round in 0..rounds {
        let name = format!("tok-{round:03}");
        let [there, here] = [mounts.of(round as usize / 2), mounts.of(round as usize / 2 + 1)];
        let mut crew = Crew::new();
        let task = Task::Producer { store: there.join(trial), name: name.clone(), parts: 1 << 40 };
        let zombie = crew.start(format!("the stopped producer {name}"), &task)?;
        let words = 1 + random.below(10);
        let process = crew.process(zombie);
        let mut acknowledged = Vec::new();
        for _ in 0..words {
            let word = crew.hear_of(zombie)?.ok_or("it ended before it was stopped")?;
            acknowledged.extend(sequence(&word));
        }
        crew.signal(zombie, Signal::STOP)?;
        let mut owner = Store::open(here.join(trial))?.producer(&name)?;
        part::check_state(&owner)?;
        let found = owner.next_sequence().get();
        let meanwhile = MEANWHILE[round as usize % MEANWHILE.len()];
        for _ in 0..meanwhile {
            part::publish(&mut owner)?;
        }
        crew.signal(zombie, Signal::CONT)?;
        let mut last = None;
        while let Some(word) = crew.hear_of(zombie)? {
            acknowledged.extend(sequence(&word));
            last = Some(word);
        }
        if last.as_deref() != Some("fenced") {
            return Err(format!("the zombie wasn't fenced: it says {last:?}").into());
        }
        part::publish(&mut owner)?;
        owner.finish()?;
        let counts = judge::judge(&mounts.a.join(trial), &mounts.b.join(trial))?;
        let (has, expected) = (counts.get(&name).copied().unwrap_or_default(), found + meanwhile + 1);
        if has != expected {
            return Err(format!("{name} has {has} parts, not {expected}: the zombie's came after").into());
        }
        let own: Vec<_> = judge::read_all(&mounts.a.join(trial))?
            .into_iter()
            .filter(|id| id.producer == name && id.process == process)
            .collect();
        if let Some(lost) =
            acknowledged.iter().find(|sequence| own.iter().all(|id| id.sequence != **sequence))
        {
            return Err(
                format!("LOST: {name}/{lost} was acknowledged to the zombie, and isn't its own").into()
            );
        }
    }
    Ok(format!("{rounds} rounds, fenced each time"))
}
