//! The life of a store around its data: groups, checkpoints, resuming, closing, forgetting. The method: one
//! thread over a filesystem in memory; each case is a story of a few processes, held against what each
//! of them was told.

#[path = "lifecycle/closing.rs"]
mod closing;
#[path = "lifecycle/forgotten.rs"]
mod forgotten;
#[path = "lifecycle/groups.rs"]
mod groups;
#[path = "lifecycle/joining.rs"]
mod joining;
#[path = "lifecycle/races.rs"]
mod races;
#[path = "lifecycle/room.rs"]
mod room;
#[path = "lifecycle/set_back.rs"]
mod set_back;
#[path = "lifecycle/stops.rs"]
mod stops;
#[expect(dead_code, reason = "what examines crashes isn't needed here")]
mod support;
#[path = "lifecycle/to_the_floor.rs"]
mod to_the_floor;
#[path = "lifecycle/turns.rs"]
mod turns;

use std::sync::Arc;

use batchweave::{Consumer, ConsumerOptions, Next, Position, Run, Settings, Share, Store};
use batchweave_sim::Memory;
use support::*;

/// A disk with a store of so many steps by "a".
fn prepared(steps: u64) -> Memory {
    let disk = Memory::new();
    let store = create(Arc::new(disk.clone()), 1, options(), &Settings::new()).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 0..steps {
        publish(&mut producer).unwrap();
    }
    disk
}

fn process(disk: &Memory, seed: u64) -> Store {
    open(disk.clone(), seed).unwrap()
}

fn consumer(run: &Run) -> Consumer {
    run.consumer_with(Share::WHOLE, ConsumerOptions::new().window_steps(0)).unwrap()
}

/// Delivers so many steps; gives their numbers.
fn deliver(consumer: &mut Consumer, count: usize) -> Vec<u64> {
    let mut steps = Vec::new();
    while steps.len() < count {
        match consumer.try_next().unwrap() {
            Next::Batch(batch) => {
                let slice = batch.slices().next().unwrap().unwrap();
                assert_eq!(*slice, *text("a", batch.step().get()).as_bytes());
                steps.push(batch.step().get());
            }
            other => panic!("{other:?} after {steps:?}"),
        }
    }
    steps
}

fn position_after(run: &Run, count: usize) -> Position {
    let mut consumer = consumer(run);
    deliver(&mut consumer, count);
    consumer.position()
}
