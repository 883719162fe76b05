//! The zombie of two nodes: a producer on one mount is stopped, its name is opened on the other and goes on
//! there, and then the first one goes on too: it is fenced, and nothing of it comes after (P4).

use batchweave::Store;
use rustix::process::Signal;

use crate::child::{Crew, Task};
use crate::{Mounts, Result, judge, part};

const ROUNDS: u64 = 6;
/// Parts of the new owner before the zombie wakes: more than two segments every other round, so that it
/// wakes in one that is long done.
const MEANWHILE: [u64; 2] = [3, 40];

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
        let mut acknowledged = 0;
        for _ in 0..words {
            let word = crew.hear_of(zombie)?.ok_or("it ended before it was stopped")?;
            acknowledged += u64::from(word.starts_with("published"));
        }
        crew.signal(zombie, Signal::STOP)?;
        let mut owner = Store::open(here.join(trial))?.producer(&name)?;
        part::check_state(&owner)?;
        let found = owner.next_sequence().get();
        if found < acknowledged {
            return Err(format!("LOST: {acknowledged} parts were acknowledged, {found} are there").into());
        }
        let meanwhile = MEANWHILE[round as usize % MEANWHILE.len()];
        for _ in 0..meanwhile {
            part::publish(&mut owner)?;
        }
        crew.signal(zombie, Signal::CONT)?;
        let last = crew.end()?;
        if last != ["fenced"] {
            return Err(format!("the zombie wasn't fenced: it says {last:?}").into());
        }
        part::publish(&mut owner)?;
        owner.finish()?;
        let counts = judge::judge(&mounts.a.join(trial), &mounts.b.join(trial))?;
        let (has, expected) = (counts.get(&name).copied().unwrap_or_default(), found + meanwhile + 1);
        if has != expected {
            return Err(format!("{name} has {has} parts, not {expected}: the zombie's came after").into());
        }
    }
    Ok(format!("{rounds} rounds, fenced each time"))
}
