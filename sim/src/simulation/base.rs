//! Stores that runs begin with: made once for each kind, and forked.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use batchweave::{Counts, Durability, Incarnation, Options, Published, Settings, Store};
use parking_lot::Mutex;

use super::Setup;
use crate::oracle::{Ledger, state, text};
use crate::{Memory, Seeded};

/// Where the store is.
pub(crate) const PATH: &str = "/store";
/// Who has written what is there before a run begins.
const NAME: &str = "base";
/// The writer's number in its texts: no process of a run has it.
const WRITER: usize = usize::MAX;

/// A store as it is before a run.
struct Base {
    memory: Memory,
    told: Vec<(String, Incarnation, Published)>,
}

type Key = (u64, bool, u32, u32);

/// The filesystem of a run: a store of `setup.base` versions, or no store; and what is known of it.
pub(crate) fn fork(setup: &Setup) -> (Memory, Arc<Ledger>, u64) {
    static BASES: OnceLock<Mutex<BTreeMap<Key, Arc<Base>>>> = OnceLock::new();
    let ledger = Arc::new(Ledger::default());
    if setup.base == 0 {
        return (Memory::new(), ledger, 0);
    }
    let key = (setup.base, setup.synced, setup.parts_per_step, setup.divisor);
    let base = {
        let mut bases = BASES.get_or_init(Mutex::default).lock();
        Arc::clone(bases.entry(key).or_insert_with(|| Arc::new(make(setup))))
    };
    for (text, incarnation, published) in &base.told {
        ledger.acknowledge(text, *incarnation, *published).expect("what one producer was told");
    }
    (base.memory.fork(), ledger, base.told.len() as u64)
}

/// What the stores of a set-up are made with: the smallest segments, so that boundaries come often.
pub(crate) fn options(setup: &Setup) -> Options {
    let durability = if setup.synced { Durability::Synced } else { Durability::Unsynced };
    Options::new()
        .segment_size(16)
        .durability(durability)
        .parts_per_step(setup.parts_per_step)
        .divisor(setup.divisor)
}

fn make(setup: &Setup) -> Base {
    let memory = Memory::new();
    let storage = Arc::new(memory.clone());
    let env = Arc::new(Seeded::new(setup.base));
    let store = Store::open_or_create_on(Path::new(PATH), storage, env, options(setup), &Settings::new());
    let store = store.expect("a store on a filesystem without faults");
    let mut producer = store.producer(NAME).expect("a producer");
    let mut told = Vec::new();
    // The Open is a version too.
    for _ in 1..setup.base {
        let text = text(NAME, producer.next_sequence().get(), WRITER);
        let mut draft = producer.draft().expect("a draft");
        for _ in 0..setup.divisor {
            draft.add_slice(text.as_bytes(), Counts { samples: 1, tokens: 1 }).expect("a slice");
        }
        let ticket = producer.publish(draft, state(&text)).expect("a publish");
        told.push((text, producer.incarnation(), ticket.wait().expect("it is in")));
    }
    drop(producer);
    memory.write_back();
    Base { memory, told }
}
