//! What the engine's tests share: stores over the simulator's storages, parts that say whose they are, and
//! the examination of what a crash has left.
//!
//! - A part's slices, and the state committed with it, are functions of producer and sequence: whoever
//!   reads them can tell a lost, doubled, torn or misplaced one.
//! - The simulator's oracle replays the log from its first version by itself, without indexes: the truth that
//!   tails are held against.
//! - Nothing here waits, sleeps or looks at a clock.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::storage::Storage;
use batchweave::{
    ConsumerOptions, Counts, Next, Options, Primitive, Producer, Published, Result, Settings, Share, Start,
    Store,
};
pub use batchweave_sim::oracle::{check_replay, replay};
use batchweave_sim::{Match, Method, Plan, Seeded, errno};

/// Where the stores of these tests lie in memory.
pub const PATH: &str = "/store";

/// The smallest segments, so that boundaries come often.
pub fn options() -> Options {
    Options::new().segment_size(16)
}

/// Opens or creates the store as a process of its own: its nonces come from `seed`, so no two may share one.
pub fn create(storage: Arc<dyn Storage>, seed: u64, options: Options, settings: &Settings) -> Result<Store> {
    Store::open_or_create_on(Path::new(PATH), storage, Arc::new(Seeded::new(seed)), options, settings)
}

/// Opens the store as a process of its own.
pub fn open(storage: impl Storage + 'static, seed: u64) -> Result<Store> {
    open_with(Arc::new(storage), seed, &Settings::new())
}

/// As [`open`], with settings.
pub fn open_with(storage: Arc<dyn Storage>, seed: u64, settings: &Settings) -> Result<Store> {
    Store::open_on(Path::new(PATH), storage, Arc::new(Seeded::new(seed)), settings)
}

/// As [`open_with`], by a clock that the test moves: a handle looks at most so often without being rung for.
pub fn open_in(storage: Arc<dyn Storage>, env: &Arc<Seeded>, settings: &Settings) -> Result<Store> {
    Store::open_on(Path::new(PATH), storage, env.clone(), settings)
}

/// Longer than any pause between two looks at the log.
pub const PAUSE: Duration = Duration::from_millis(100);

/// A mount that has this primitive, and none that is preferred to it.
pub fn mount_with(primitive: Primitive) -> Plan {
    let plan = Plan::new();
    if primitive == Primitive::Link {
        return plan;
    }
    let plan = plan.fail(Match::method(Method::Link), errno::EPERM);
    if primitive == Primitive::RenameNoreplace {
        return plan;
    }
    plan.fail(Match::method(Method::RenameNoreplace), errno::EINVAL)
}

/// A mount that refuses its primitive between two directories, though not in one (R9).
pub fn refusing_across(primitive: Primitive, errno: i32) -> Plan {
    let method = if primitive == Primitive::Link { Method::Link } else { Method::RenameNoreplace };
    let crosses = |on: &str| {
        let directory = |path: &str| path.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned();
        on.split_once(" -> ").is_some_and(|(from, to)| directory(from) != directory(to))
    };
    mount_with(primitive).fail(Match::method(method).when(crosses), errno)
}

/// What part `sequence` of a producer holds.
pub fn text(producer: &str, sequence: u64) -> String {
    format!("{producer}/{sequence}")
}

/// What a producer commits with part `sequence`.
pub fn state(producer: &str, sequence: u64) -> String {
    format!("{producer} is after {sequence}")
}

/// Who a text belongs to.
pub fn parse(text: &[u8]) -> (String, u64) {
    let text = std::str::from_utf8(text).expect("the text of a part");
    let (producer, sequence) = text.split_once('/').expect("producer/sequence");
    (producer.to_owned(), sequence.parse().expect("a sequence"))
}

/// A draft of the producer's next part: the text, once for every slice that the divisor asks for.
pub fn draft(producer: &mut Producer, slices: u32) -> Result<batchweave::Draft> {
    let bytes = text(producer.name().as_str(), producer.next_sequence().get());
    let mut draft = producer.draft()?;
    for _ in 0..slices {
        draft.add_slice(bytes.as_bytes(), Counts { samples: 1, tokens: 2 })?;
    }
    Ok(draft)
}

/// Publishes the producer's next part.
pub fn publish(producer: &mut Producer) -> Result<Published> {
    let draft = draft(producer, 1)?;
    let after = state(producer.name().as_str(), producer.next_sequence().get());
    Ok(producer.publish_now(draft, after)?)
}

/// Reads all that is visible by a consumer, from step 0; one text for each part.
pub fn read_all(store: &Store) -> Vec<(String, u64)> {
    let run = store.run(Start::Beginning).expect("a run from the beginning");
    let options = ConsumerOptions::new().window_steps(0);
    let mut consumer = run.consumer_with(Share::WHOLE, options).expect("a consumer");
    let mut found = Vec::new();
    loop {
        match consumer.try_next().expect("a readable step") {
            Next::Batch(batch) => {
                let slices: Vec<_> = batch.slices().map(|slice| slice.expect("a whole slice")).collect();
                let each = slices.len() / store.options().parts_per_step as usize;
                found.extend(slices.iter().step_by(each.max(1)).map(|slice| parse(slice)));
            }
            _ => return found,
        }
    }
}

/// Every producer's parts are 0, 1, 2, ... in the order of the log; gives how many there are (P3).
pub fn check_dense(parts: &[(String, u64)]) -> BTreeMap<String, u64> {
    let mut next = BTreeMap::new();
    for (producer, sequence) in parts {
        let expected = next.entry(producer.clone()).or_insert(0);
        assert_eq!(sequence, expected, "producer {producer} lost or doubled a part: {parts:?}");
        *expected += 1;
    }
    next
}

/// Opens a name and holds it against what is visible of it: next sequence and state are exactly those (P3).
pub fn reopen(store: &Store, name: &str, parts: &[(String, u64)]) -> Producer {
    let producer = store.producer(name).expect("a name can always be taken over");
    let count = parts.iter().filter(|(other, _)| other == name).count() as u64;
    assert_eq!(producer.next_sequence().get(), count, "{name} goes on after its last visible part");
    let expected = count.checked_sub(1).map(|last| state(name, last)).unwrap_or_default();
    assert_eq!(producer.state(), expected.as_bytes(), "{name} gets the state of its last visible part");
    producer
}

/// Everyone can go on: a new producer, the old names, and a reader of all (P7). Gives all parts that are
/// there then.
pub fn check_going_on(store: &Store, names: &[&str]) -> Vec<(String, u64)> {
    if store.info().expect("its info").closed.is_some() {
        assert!(store.reopen().expect("a closed stream can be reopened"));
    }
    let before = replay(store.inner()).parts();
    let mut other = store.producer("another").expect("a new name");
    publish(&mut other).expect("another producer goes on");
    for name in names {
        let mut producer = reopen(store, name, &before);
        publish(&mut producer).expect("a reopened producer goes on");
    }
    let after = check_replay(store).parts();
    assert_eq!(after.len(), before.len() + 1 + names.len());
    assert!(after.starts_with(&before), "what was visible stays, in its order (P2)");
    check_dense(&after);
    let per_step = store.options().parts_per_step as usize;
    assert_eq!(read_all(store), after[..after.len() / per_step * per_step], "a consumer reads just that");
    after
}
