//! Names that were forgotten: who has one after that is another producer, and no rewind gives the old one
//! back.

use batchweave::{ReclaimOptions, RewindOptions, Step};
use batchweave_sim::{Fault, Match, Method, Plan};

use super::*;

/// Publishes so many parts by a name.
fn publish_by(store: &Store, name: &str, parts: usize) {
    let mut producer = store.producer(name).unwrap();
    for _ in 0..parts {
        publish(&mut producer).unwrap();
    }
}

/// A disk on which "old" has finished with the first 3 of 13 steps, which are freed; the others are of "b".
fn finished() -> (Memory, Store) {
    let disk = prepared(0);
    let store = process(&disk, 2);
    publish_by(&store, "old", 3);
    store.retire("old").unwrap();
    publish_by(&store, "b", 10);
    store.reclaim(&ReclaimOptions::new().up_to(Step::new(3))).unwrap();
    (disk, store)
}

fn forget_and_begin_anew(store: &Store, parts: usize) {
    assert!(store.forget("old").unwrap());
    publish_by(store, "old", parts);
}

/// What who opens the store now knows of "old": its next sequence, its state, whether it has finished.
fn known(disk: &Memory, seed: u64) -> (u64, String, bool) {
    let store = process(disk, seed);
    check_replay(&store);
    let known = store.producers().unwrap().into_iter().find(|known| known.name.as_str() == "old").unwrap();
    (known.sequence.get(), String::from_utf8(known.state).unwrap(), known.finished)
}

/// It was set back to who had the name before: after parts and a state that aren't its own, and finished.
#[test]
fn a_rewind_gives_no_forgotten_producer_back() {
    // The log goes on into further segments, or doesn't.
    for more in [0, 40] {
        let (disk, store) = finished();
        forget_and_begin_anew(&store, 4);
        publish_by(&store, "b", more);
        // Once it has begun anew, it is set back as anybody is.
        store.rewind(Step::new(15), RewindOptions::new()).unwrap();
        assert_eq!(known(&disk, 3), (2, state("old", 1), false), "{more}");
        store.rewind(Step::new(8), RewindOptions::new()).unwrap();
        assert_eq!(known(&disk, 4), (0, String::new(), false), "{more}");
        let anew = store.producer("old").unwrap();
        assert_eq!((anew.next_sequence().get(), anew.state(), anew.was_finished()), (0, Vec::new(), false));
    }
}

#[test]
fn a_name_that_begins_anew_twice_is_nobody_before() {
    let (disk, store) = finished();
    forget_and_begin_anew(&store, 0);
    store.retire("old").unwrap();
    forget_and_begin_anew(&store, 2);
    publish_by(&store, "b", 40);
    store.rewind(Step::new(14), RewindOptions::new()).unwrap();
    assert_eq!(known(&disk, 3), (1, state("old", 0), false));
    store.rewind(Step::new(12), RewindOptions::new()).unwrap();
    assert_eq!(known(&disk, 4), (0, String::new(), false));
}

/// A rewind's record speaks of names: one that had become another's while it was staged was set back to who
/// had had it.
#[test]
fn who_begins_a_forgotten_name_anew_while_a_rewind_is_staged_is_not_set_back_to_who_had_it() {
    let (disk, store) = finished();
    let storage = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let operator = open_with(storage.clone(), 5, &Settings::new()).unwrap();
    let meanwhile = move || forget_and_begin_anew(&store, 2);
    storage.set_plan(Plan::new().meanwhile(Match::method(Method::Link).nth(1), meanwhile));
    operator.rewind(Step::new(8), RewindOptions::new()).unwrap();
    assert_eq!(known(&disk, 6), (0, String::new(), false));
}
