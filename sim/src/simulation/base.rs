//! Stores that runs begin with: made once for each kind, and forked.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use batchweave::{Counts, Durability, Incarnation, Options, Published, Settings, Store};
use parking_lot::Mutex;

use crate::mount::{Alone, Class, Links, Mount, Traits};
use crate::oracle::{Ledger, state, text};
use crate::{Choices, Memory, Seeded};

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

/// What a store is like before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    /// How many versions it has; none: there is no store.
    pub(crate) versions: u64,
    /// Whether it is synced.
    pub(crate) synced: bool,
    /// Parts of a step.
    pub(crate) parts_per_step: u32,
    /// Slices divide by it.
    pub(crate) divisor: u32,
    /// Whether it was made on a local disk without links, and so is published by another primitive.
    pub(crate) linkless: bool,
}

/// The filesystem of a run: a store of so many versions, or no store; and what is known of it, by a list for
/// stores whose history changes if it does.
pub(crate) fn fork(kind: Kind, changes: bool) -> (Memory, Arc<Ledger>, u64) {
    static BASES: OnceLock<Mutex<BTreeMap<Kind, Arc<Base>>>> = OnceLock::new();
    let ledger = Arc::new(if changes { Ledger::of_lifecycle() } else { Ledger::default() });
    if kind.versions == 0 {
        return (Memory::new(), ledger, 0);
    }
    let base = {
        let mut bases = BASES.get_or_init(Mutex::default).lock();
        Arc::clone(bases.entry(kind).or_insert_with(|| Arc::new(make(kind))))
    };
    for (text, incarnation, published) in &base.told {
        ledger.acknowledge(text, *incarnation, *published).expect("what one producer was told");
    }
    (base.memory.fork(), ledger, base.told.len() as u64)
}

/// What the stores of a set-up are made with: the smallest segments, so that boundaries come often.
pub(crate) fn options(kind: Kind) -> Options {
    let durability = if kind.synced { Durability::Synced } else { Durability::Unsynced };
    Options::new()
        .segment_size(16)
        .durability(durability)
        .parts_per_step(kind.parts_per_step)
        .divisor(kind.divisor)
}

fn make(kind: Kind) -> Base {
    let memory = Memory::new();
    // What it is published by is found by its probe.
    let links = if kind.linkless { Links::Nowhere } else { Links::Everywhere };
    let traits = Traits { links, ..Class::Local.traits() };
    let tame = Choices::replay(Vec::new());
    let storage = Arc::new(Mount::with_traits(memory.clone(), Class::Local, traits, tame, Arc::new(Alone)));
    let env = Arc::new(Seeded::new(kind.versions));
    let store = Store::open_or_create_on(Path::new(PATH), storage, env, options(kind), &Settings::new());
    let store = store.expect("a store on a filesystem without faults");
    let mut producer = store.producer(NAME).expect("a producer");
    let mut told = Vec::new();
    // The Open is a version too.
    for _ in 1..kind.versions {
        let text = text(NAME, producer.next_sequence().get(), WRITER);
        let mut draft = producer.draft().expect("a draft");
        for _ in 0..kind.divisor {
            draft.add_slice(text.as_bytes(), Counts { samples: 1, tokens: 1 }).expect("a slice");
        }
        let published = producer.publish_now(draft, state(&text)).expect("it is in");
        told.push((text, producer.incarnation(), published));
    }
    drop(producer);
    memory.write_back();
    Base { memory, told }
}
