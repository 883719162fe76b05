//! Drafts that went wrong halfway. Method: one write of a draft fails in the simulator's storage, and the
//! caller goes on as if it hadn't; what is then published has to read back whole, or not be published at
//! all.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use batchweave::env::Env;
use batchweave::storage::Storage;
use batchweave::{Compression, Counts, Draft, ErrorKind, Options, Producer, Settings, Step, Store};
use batchweave_sim::{Fault, Match, Memory, Method, Plan, Seeded, errno};

const PIECE: usize = 3 << 20;

fn store() -> (Arc<Fault>, Store) {
    let storage = Arc::new(Fault::new(Arc::new(Memory::new()), Plan::new()));
    let env = Arc::new(Seeded::new(1));
    let path = Path::new("/store");
    let store =
        Store::open_or_create_on(path, Arc::clone(&storage) as _, env, Options::new(), &Settings::new());
    (storage, store.unwrap())
}

/// A draft in whose first slice a write has failed, and was tried again.
fn halfway(storage: &Fault, producer: &mut Producer) -> (Draft, batchweave::Result<()>) {
    let mut draft = producer.draft().unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(PIECE).collect();
    let mut slice = draft.slice().unwrap();
    slice.write_all(&bytes).unwrap();
    storage.set_plan(Plan::new().fail(Match::method(Method::WriteAt).nth(1), errno::ENOSPC));
    slice.write_all(&bytes).expect_err("there is no space");
    let _ = slice.write_all(&bytes);
    let finished = slice.finish(Counts::default());
    (draft, finished)
}

#[test]
fn a_draft_of_which_a_write_failed_is_not_published() {
    let (storage, store) = store();
    let mut producer = store.producer("p").unwrap();
    let (mut draft, finished) = halfway(&storage, &mut producer);
    assert_eq!(finished.expect_err("a piece is missing").kind(), ErrorKind::Invalid);
    assert_eq!(draft.slice().expect_err("a piece is missing").kind(), ErrorKind::Invalid);
    let refused = producer.publish_now(draft, b"").expect_err("a piece is missing");
    assert_eq!(refused.error.kind(), ErrorKind::Invalid);
    assert_eq!(store.info().unwrap().next_step, Step::ZERO);

    drop(refused);
    let mut draft = producer.draft().unwrap();
    draft.add_slice(b"whole", Counts::default()).unwrap();
    producer.publish_now(draft, b"").unwrap();
    assert_eq!(&*store.batch(Step::ZERO).unwrap().slice(0).unwrap(), b"whole");
}

#[test]
fn a_write_that_failed_names_the_drafts_file() {
    for compression in [Compression::None, Compression::Zstd(1)] {
        let (storage, store) = store();
        let mut producer = store.producer("p").unwrap();
        producer.set_compression(compression);
        let mut draft = producer.draft().unwrap();
        // Nothing of it can be packed, so it doesn't fit into a buffer.
        let mut bytes = vec![0; PIECE];
        Seeded::new(3).entropy(&mut bytes).unwrap();
        storage.set_plan(Plan::new().fail(Match::method(Method::WriteAt), errno::EIO));
        let error = draft.add_slice(&bytes, Counts::default()).expect_err("the disk can't");
        let path = error.path().expect("it is told where").to_owned();
        assert!(path.starts_with("/store/stage") && error.errno() == Some(errno::EIO), "{error}");
    }
}

#[test]
fn a_draft_whose_file_was_ended_says_so() {
    let (storage, store) = store();
    let mut producer = store.producer("p").unwrap();
    let mut draft = producer.draft().unwrap();
    draft.add_slice(b"bytes", Counts::default()).unwrap();
    draft.metadata(b"metadata").unwrap();
    storage.set_plan(Plan::new().fail(Match::method(Method::WriteAt).nth(1), errno::ENOSPC));
    let full = producer.publish_now(draft, b"").expect_err("there is no space");
    assert_eq!(full.error.kind(), ErrorKind::Full);
    let again =
        producer.publish_now(*full.draft.expect("nothing of it is visible"), b"").expect_err("once only");
    assert_eq!(again.error.kind(), ErrorKind::Invalid);
    assert!(again.error.to_string().contains("write it anew"), "{}", again.error);
}

#[test]
fn a_draft_whose_finished_file_vanished_is_given_back_to_be_written_anew() {
    let memory = Memory::new();
    let storage = Arc::new(Fault::new(Arc::new(memory.clone()), Plan::new()));
    let env = Arc::new(Seeded::new(1));
    let path = Path::new("/store");
    let store =
        Store::open_or_create_on(path, Arc::clone(&storage) as _, env, Options::new(), &Settings::new());
    let store = store.unwrap();
    let mut producer = store.producer("p").unwrap();
    // What a purge of stage/ does, just before the link.
    let purge = move || {
        let stage = memory.open_root(Path::new("/store/stage")).unwrap();
        for name in memory.list(&stage).unwrap() {
            memory.remove(&stage, name.to_str().unwrap()).unwrap();
        }
    };
    storage.set_plan(Plan::new().meanwhile(Match::method(Method::Link).nth(1), purge));
    let mut draft = producer.draft().unwrap();
    draft.add_slice(b"bytes", Counts::default()).unwrap();
    let failed = producer.publish_now(draft, b"1").expect_err("its file is gone");
    assert_eq!(failed.error.kind(), ErrorKind::Io);
    assert!(failed.error.to_string().contains("write it anew"), "{}", failed.error);
    let again =
        producer.publish_now(*failed.draft.expect("it isn't in"), b"1").expect_err("nothing is left of it");
    assert_eq!(again.error.kind(), ErrorKind::Invalid);
    drop(again);
    let mut draft = producer.draft().unwrap();
    draft.add_slice(b"anew", Counts::default()).unwrap();
    producer.publish_now(draft, b"1").unwrap();
    assert_eq!(&*store.batch(Step::ZERO).unwrap().slice(0).unwrap(), b"anew");
    assert_eq!(store.info().unwrap().next_step, Step::ZERO.next());
}
