//! Makes stores of the format as it is now, with everything that a store can have: what golden stores were
//! made by, once, and what whole stores are fuzzed from.
//!
//! - Clock and nonces come from seeds, so the same library makes the same bytes.
//! - A golden store that was released is never made again: it shows what *that* library wrote. A new format
//!   version gets stores of its own beside it.

use std::path::Path;
use std::sync::Arc;

use batchweave::format::commit::Seen;
use batchweave::format::names;
use batchweave::format::record::{Parts, Record};
use batchweave::storage::Storage;
use batchweave::{
    CheckpointOptions, Compression, Counts, Nonce, Options, Producer, ReclaimOptions, RewindOptions,
    Settings, Start, Step, Store,
};
use batchweave_sim::{Memory, Seeded};

use crate::craft::{self, Contents, Who};
use crate::files;

/// Opens the store as a process of its own.
pub fn open(memory: &Memory, seed: u64) -> Store {
    let storage = Arc::new(memory.clone()) as Arc<dyn Storage>;
    Store::open_on(Path::new(files::ROOT), storage, Arc::new(Seeded::new(seed)), &Settings::new())
        .expect("the store")
}

/// Creates a store.
fn create(memory: &Memory, options: Options) -> Store {
    let storage = Arc::new(memory.clone()) as Arc<dyn Storage>;
    let env = Arc::new(Seeded::new(1));
    Store::open_or_create_on(Path::new(files::ROOT), storage, env, options, &Settings::new())
        .expect("a new store")
}

/// The text of a slice: by it a reader tells whose it is.
pub fn text(producer: &str, sequence: u64, slice: usize) -> String {
    format!("{producer} part {sequence} slice {slice}. ").repeat(1 + 7 * slice)
}

/// Publishes the producer's next part, in two slices; `large` is one byte more of the first slice each.
fn publish(producer: &mut Producer, large: usize) {
    let (name, sequence) = (producer.name().to_string(), producer.next_sequence().get());
    let mut draft = producer.draft().expect("a draft");
    for slice in 0..2 {
        let mut bytes = text(&name, sequence, slice).into_bytes();
        if slice == 0 {
            bytes.extend((0..large).map(|at| (at / 4096) as u8));
        }
        draft.add_slice(&bytes, Counts { samples: 1, tokens: sequence + 1 }).expect("a slice");
    }
    draft.attach(format!("the ids of {name} {sequence}").as_bytes()).expect("an attachment");
    if sequence.is_multiple_of(2) {
        draft.metadata(format!("about {name} {sequence}").as_bytes()).expect("metadata");
    }
    producer.publish_now(draft, format!("{name} is after {sequence}")).expect("a commit");
}

/// A store with several producers, groups, checkpoints, changes of history, and segments with an index;
/// `large` is how long a slice of several blocks of checksums is, if there is to be one.
pub fn plain(large: usize) -> Memory {
    let memory = Memory::new();
    let store = create(&memory, Options::new().divisor(2).parts_per_step(2).segment_size(16));
    let mut a = store.producer("tok-a").expect("a name");
    let mut b = store.producer("tok-b").expect("a name");
    b.set_compression(Compression::Zstd(3));
    let steps = |a: &mut Producer, b: &mut Producer, count: usize| {
        for _ in 0..count {
            publish(a, 0);
            publish(b, 0);
        }
    };
    steps(&mut a, &mut b, 2);
    let run = store.group("llama").begin_at_the_beginning();
    steps(&mut a, &mut b, 1);
    checkpoint(&store, 2, "step-2", &CheckpointOptions::new());
    store.set_turns(["tok-a", "tok-b"], 1).expect("a ring");
    steps(&mut a, &mut b, 1);
    checkpoint(&store, 4, "step-4", &CheckpointOptions::new().pinned(true).metadata(*b"a model"));
    store.skip(Step::new(1), Step::new(1), "a bad step").expect("a skip");
    drop(run);
    control(&store);
    steps(&mut a, &mut b, 2);
    store.rewind(Step::new(5), RewindOptions::new().even_with_groups(true)).expect("a rewind");
    let mut a = store.producer("tok-a").expect("a name");
    let mut b = store.producer("tok-b").expect("a name");
    b.set_compression(Compression::Zstd(3));
    steps(&mut a, &mut b, 1);
    store.end_turns().expect("no ring");
    publish(&mut a, large);
    publish(&mut b, 0);
    gathered(&memory, &store, &a);
    b.finish().expect("an end");
    store.close(false).expect("the end of the stream");
    memory
}

/// A step whose parts are both in one commit, by hand: who publishes alone has no company to gather.
fn gathered(memory: &Memory, store: &Store, producer: &Producer) {
    let first = producer.next_sequence();
    let mut parts: Vec<_> = (first.get()..first.get() + 2)
        .map(|sequence| {
            let mut contents = Contents::default();
            for slice in 0..2 {
                contents.slice(text("tok-a", sequence, slice).as_bytes(), slice == 1);
            }
            contents.state = format!("tok-a is after {sequence}").into_bytes();
            contents.part()
        })
        .collect();
    let payload = craft::place(&mut parts);
    let record = Record::Parts(Parts {
        producer: producer.name().clone(),
        incarnation: producer.incarnation(),
        first,
        parts: parts.iter().map(|part| part.descriptor).collect(),
    });
    let who = next_of(store, 1);
    let (bytes, _) = craft::commit(who, &record, &payload).expect("a sound record");
    append(memory, store, &bytes);
}

trait Begin {
    fn begin_at_the_beginning(&self) -> batchweave::Run;
}

impl Begin for batchweave::Result<batchweave::Group> {
    fn begin_at_the_beginning(&self) -> batchweave::Run {
        self.as_ref().expect("a group").begin(Start::Beginning).expect("a run")
    }
}

fn checkpoint(store: &Store, step: u64, name: &str, options: &CheckpointOptions) {
    let position = store.position(Step::new(step)).expect("a position");
    store.group("llama").and_then(|group| group.checkpoint(position, name, options)).expect("a checkpoint");
}

/// One record of every kind that isn't used elsewhere.
fn control(store: &Store) {
    store.producer("tok-c").and_then(Producer::finish).expect("a producer without parts");
    store.forget("tok-c").expect("a forgotten name");
    store.producer("tok-d").and_then(Producer::finish).expect("another");
    drop(store.group("old").begin_at_the_beginning());
    store.group("old").and_then(|group| group.retire()).expect("a retired group");
    store.close(false).expect("a close");
    store.reopen().expect("a reopen");
    store.group("llama").and_then(|group| group.drop_checkpoint("step-2")).expect("a drop");
    store.reclaim(&ReclaimOptions::new().up_to(Step::new(1)).keep(9)).expect("a floor");
}

/// What a commit that is put at the end by hand has to say of itself.
pub fn next_of(store: &Store, number: u8) -> Who {
    let tail = store.inner().current().expect("the end of the log");
    Who {
        store: store.uuid(),
        nonce: Nonce::new([number; 16]),
        generation: tail.state.generation,
        seen: tail.seen().expect("the newest commit"),
    }
}

/// Puts a commit at the end by hand; its segment has to be begun.
fn append(memory: &Memory, store: &Store, bytes: &[u8]) {
    let next = store.inner().current().expect("the end of the log").state.next_version;
    let path = store.inner().commit_path(next);
    let path = path.strip_prefix(files::ROOT).expect("a path in the store").to_str().expect("an ASCII path");
    files::write(memory, path, bytes);
}

/// A store in which a later library has written a record of a kind that this one doesn't know, at version 3.
/// If it is optional, this one has gone on after it, into the next segment.
pub fn unknown(required: bool) -> Memory {
    let memory = Memory::new();
    let store = create(&memory, Options::new().divisor(2).segment_size(16));
    let mut producer = store.producer("tok-a").expect("a name");
    publish(&mut producer, 0);
    publish(&mut producer, 0);
    let (bytes, _) = craft::unknown(next_of(&store, 3), if required { 1001 } else { 1000 }, required);
    append(&memory, &store, &bytes);
    if !required {
        for _ in 0..16 {
            publish(&mut producer, 0);
        }
        producer.finish().expect("an end");
        store.close(false).expect("the end of the stream");
    }
    memory
}

/// What a commit after the newest one has to have seen.
pub fn newest(store: &Store) -> Option<Seen> {
    next_of(store, 0).seen
}

/// Names that a copy of a store has to have as directories, also where they are empty.
pub fn directories() -> impl Iterator<Item = &'static str> {
    names::DIRECTORIES.into_iter()
}
