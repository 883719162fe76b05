//! What a consumer gets that has slept until its step is there: a small commit is read with its header, in
//! one call and into memory; so all that can't be trusted of a file is tried on this way too.
//!
//! The method: right before the call in which the consumer falls asleep another handle publishes the step,
//! and the file may be changed, so that the wait is over at once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::env::System;
use batchweave::storage::Posix;
use batchweave::{Error, ErrorKind, ReadMode, Settings, Share, Start, Store};
use batchweave_sim::{Fault, Match, Method, Plan};

use crate::{Home, MODES, add, bytes_of, quiet, unsynced};

/// Longer than any wait: whoever waits this long has slept through it.
const PATIENCE: Duration = Duration::from_secs(20);

/// The step that a consumer has waited for, published with these slices while it fell asleep, its file
/// changed by `tamper`; and the consumer's storage.
fn wait_for(
    mode: ReadMode,
    slices: &[Vec<u8>],
    tamper: impl Fn(&Path) + Send + Sync + 'static,
) -> (Result<Vec<Vec<u8>>, Error>, Arc<Fault>) {
    let home = Home::new(unsynced());
    let store = home.open(mode);
    let producer = parking_lot::Mutex::new(store.producer("a").unwrap());
    let published = slices.to_vec();
    let asleep = Match::method(Method::Wait).nth(1);
    let plan = Plan::new().meanwhile(asleep, move || {
        add(&mut producer.lock(), &published);
        tamper(&store.batch(batchweave::Step::ZERO).unwrap().location(0).unwrap().path);
    });
    let process = Arc::new(Fault::new(Arc::new(Posix), plan));
    let settings = Settings::new().read_mode(mode);
    let theirs = Store::open_on(&home.path(), process.clone(), Arc::new(System::new()), &settings).unwrap();
    let mut consumer = theirs.run(Start::Beginning).unwrap().consumer_with(Share::WHOLE, quiet()).unwrap();
    let read = consumer.next_batch_timeout(PATIENCE).map(|batch| bytes_of(&batch.expect("not closed")));
    assert_eq!(process.count(Method::Wait), 1, "it has waited once");
    (read, process)
}

#[test]
fn a_small_commit_is_read_in_one_call_and_a_large_one_mapped() {
    let small = vec![vec![3; 4000], Vec::new(), vec![5; 77]];
    for mode in MODES {
        let (read, process) = wait_for(mode, &small, |_| ());
        assert_eq!(read.unwrap(), small, "{mode:?}");
        let trace = process.trace();
        let woken = trace.iter().skip_while(|call| call.method != Method::Wait);
        let count = |wanted: &[Method]| woken.clone().filter(|call| wanted.contains(&call.method)).count();
        assert_eq!(count(&[Method::ReadAt]), 1, "{mode:?}");
        assert_eq!(count(&[Method::Map, Method::Populate, Method::Size]), 0, "{mode:?}");
    }
    let large = vec![vec![3; 4000], vec![4; 20_000]];
    let (read, process) = wait_for(ReadMode::Map, &large, |_| ());
    assert_eq!(read.unwrap(), large);
    assert_eq!(process.count(Method::Map), 1);
}

#[test]
fn hostile_commits_are_typed_errors_to_who_has_waited() {
    let written = vec![vec![3; 4000], vec![4; 100]];
    let good = {
        let bytes = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let into = Arc::clone(&bytes);
        let (read, _) =
            wait_for(ReadMode::Map, &written, move |path| *into.lock() = std::fs::read(path).unwrap());
        assert_eq!(read.unwrap(), written);
        std::mem::take(&mut *bytes.lock())
    };
    let mut hostile: Vec<(String, Vec<u8>)> = Vec::new();
    for length in [0, 1, 4095, 4096, 5000, good.len() - 1] {
        hostile.push((format!("cut to {length}"), good[..length].to_vec()));
    }
    let header = (0..4096).filter(|at| good[*at] != 0).step_by(3);
    for at in header.chain((4096..good.len()).step_by(997)).chain((good.len() - 200..good.len()).step_by(7)) {
        let mut flipped = good.clone();
        flipped[at] ^= 1 << (at % 8);
        hostile.push((format!("bit of byte {at}"), flipped));
    }
    hostile.push(("zeros".to_owned(), vec![0; good.len()]));
    for length in [1, 100, 50_000] {
        hostile.push((format!("{length} bytes behind it"), [&good[..], &vec![7; length]].concat()));
    }
    let mut caught = 0;
    for (how, bytes) in hostile {
        let (read, _) = wait_for(ReadMode::Map, &written, move |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::write(path, &bytes).unwrap();
        });
        match read {
            Ok(found) => assert_eq!(found, written, "{how}: other bytes were handed out"),
            Err(error) => {
                caught += 1;
                let typed = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported);
                assert!(typed && error.path().is_some(), "{how}: {error:?}");
            }
        }
    }
    assert!(caught > 50, "only {caught} of the hostile files were caught");
}
