//! Producers that take turns give one order: whoever is slow, killed and started again, and whatever is
//! checkpointed and reclaimed meanwhile, every step has the same bytes in every run.

use std::time::Duration;

use batchweave::{ReclaimOptions, Share, Start};

use super::*;

const PRODUCERS: usize = 4;
/// Parts of the first producer; each later one has some fewer, so that they finish one after another.
const PARTS: u64 = 40;
const FEWER: u64 = 7;
const PARTS_PER_TURN: u32 = 3;
/// Steps between two checkpoints.
const EVERY: u64 = 10;

fn parts_of(number: usize) -> u64 {
    PARTS - number as u64 * FEWER
}

/// As `child`, with a pause before each part that is drawn from a seed: `store producer parts seed`.
///
/// No test by itself, so `cargo test` passes it over: the tests below start this binary again with just this.
/// The pause stands for a producer's own work and makes the runs differ in time; nobody waits by it for
/// anybody.
#[test]
#[ignore = "the life of a child of the other tests"]
#[expect(clippy::disallowed_methods, reason = "what a producer's own work may take; nobody relies on it")]
fn producer() {
    let Ok(task) = std::env::var(TASK) else { return };
    let words: Vec<&str> = task.split(' ').collect();
    let [path, name, parts, seed] = words[..] else { panic!("not a task: {task}") };
    let (parts, mut drawn): (u64, u64) = (parts.parse().unwrap(), seed.parse().unwrap());
    let store = Store::open(path).unwrap();
    let mut producer = store.producer(name).unwrap();
    while producer.next_sequence().get() < parts {
        drawn = next(drawn);
        std::thread::sleep(Duration::from_micros((drawn >> 33) % 3000));
        let published = publish(&mut producer).unwrap();
        say(&format!("published {}", published.sequence));
    }
    producer.finish().unwrap();
    say("finished");
}

fn next(drawn: u64) -> u64 {
    drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f)
}

/// What every step had, in a run that a seed disturbs.
fn run(seed: u64, takes_turns: bool) -> Vec<String> {
    let mut delivered = Vec::new();
    with_store(&bulk(), Durability::Unsynced, |path, store| {
        let names = names(PRODUCERS);
        if takes_turns {
            store.set_turns(&names, PARTS_PER_TURN).unwrap();
        }
        let mut drawn = next(seed ^ 0x9e37_79b9_7f4a_7c15);
        let mut start = |number: usize| {
            drawn = next(drawn);
            let task = format!("{} {} {} {drawn}", path.display(), names[number], parts_of(number));
            Running::child("turns::producer", &task)
        };
        let mut running: Vec<Running> = (0..PRODUCERS).map(&mut start).collect();
        let victims: Vec<(u64, usize)> = (0..6)
            .map(|number| {
                (number * 15 + (next(seed + number) >> 40) % 15, (next(seed * 7 + number) >> 40) as usize % 4)
            })
            .collect();
        let often = Duration::from_millis(5);
        let reclaimer = store.reclaim_in_background(ReclaimOptions::new().keep(2), often).unwrap();
        let job = store.group("job").unwrap().begin(Start::Beginning).unwrap();
        let mut consumer = job.consumer(Share::WHOLE).unwrap();
        let steps: u64 = (0..PRODUCERS).map(parts_of).sum();
        while (delivered.len() as u64) < steps {
            let batch = consumer.next_batch_timeout(Duration::from_secs(300)).unwrap().unwrap();
            delivered.push(String::from_utf8_lossy(&batch.slice(0).unwrap()).into_owned());
            let step = batch.position().step;
            if step.get().is_multiple_of(EVERY) {
                job.checkpoint(batch.position(), &format!("step-{step}")).unwrap();
            }
            for (_, victim) in victims.iter().filter(|(at, _)| *at == batch.step().get()) {
                running[*victim].signal(Signal::KILL);
                running[*victim].process.wait().unwrap();
                running[*victim] = start(*victim);
            }
        }
        drop(reclaimer);
        store.reclaim(&ReclaimOptions::new().keep(2)).unwrap();
        for one in running {
            assert_eq!(one.end(), "finished");
        }
        assert!(store.info().unwrap().floor.get() > 0, "something was reclaimed on the way");
        assert!(store.verify(|_| ()).unwrap().is_clean());
    });
    delivered
}

#[test]
fn every_run_has_the_same_bytes_at_every_step() {
    let mut expected = Vec::new();
    let mut came = [0; PRODUCERS];
    while (0..PRODUCERS).any(|number| came[number] < parts_of(number)) {
        for (number, name) in names(PRODUCERS).iter().enumerate() {
            for _ in 0..PARTS_PER_TURN {
                if came[number] < parts_of(number) {
                    expected.push(text(name, came[number]));
                    came[number] += 1;
                }
            }
        }
    }
    for seed in 0..2 {
        assert_eq!(run(seed, true), expected, "seed {seed}");
    }
    // Without turns they don't, in one of so many runs at least.
    assert!((0..5).any(|seed| run(seed, false) != expected), "the test could not fail");
}
