//! Producers that a rewind has set back and nobody has opened since: an operator can retire them, and forget
//! them after that.

use batchweave::{ErrorKind, ReclaimOptions, RewindOptions, Step};
use batchweave_sim::{Fault, Match, Method, Plan};

use super::*;

/// A disk on which "a" had 20 parts, of which 5 are left.
fn set_back() -> Memory {
    let disk = prepared(20);
    process(&disk, 2).rewind(Step::new(5), RewindOptions::new()).unwrap();
    disk
}

#[test]
fn a_producer_that_was_set_back_can_be_retired_and_forgotten() {
    let disk = set_back();
    let store = process(&disk, 3);
    let error = store.forget("a").unwrap_err();
    assert!(error.to_string().contains("retire it first"), "{error}");
    assert!(store.retire("a").unwrap(), "it hadn't finished");
    let known = store.producers().unwrap().remove(0);
    assert!(known.finished && known.incarnation.is_none(), "{known:?}");
    assert_eq!(known.sequence.get(), 5, "what it has published stays");
    assert!(!store.retire("a").unwrap(), "done already");
    store.reclaim(&ReclaimOptions::new().up_to(Step::new(5))).unwrap();
    assert!(store.forget("a").unwrap());
    assert_eq!(store.producers().unwrap(), []);
    let error = store.retire("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    check_replay(&store);
}

#[test]
fn retiring_it_stops_anywhere_and_another_does_it() {
    for call in 0.. {
        let disk = set_back();
        let store = open_with(
            Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new().stop_at(call))),
            3,
            &Settings::new(),
        );
        let retired = store.and_then(|store| store.retire("a"));
        let other = process(&disk, 4);
        other.retire("a").unwrap();
        assert!(other.producers().unwrap()[0].finished, "stopped in call {call}");
        check_replay(&other);
        if retired.is_ok() {
            assert!(call > 8);
            return;
        }
    }
}

#[test]
fn whoever_opens_or_rewinds_while_it_is_retired_is_seen() {
    // Before each link: another opens the name, or sets it back again.
    for rewinds in [false, true] {
        for link in 1..=2 {
            let disk = set_back();
            let process_of_operator = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
            let store = open_with(process_of_operator.clone(), 3, &Settings::new()).unwrap();
            let other = disk.clone();
            let before_link = Match::method(Method::Link).nth(link);
            process_of_operator.set_plan(Plan::new().meanwhile(before_link, move || {
                let store = process(&other, 4);
                if rewinds {
                    store.rewind(Step::new(3), RewindOptions::new()).map(drop).unwrap();
                } else {
                    publish(&mut store.producer("a").unwrap()).unwrap();
                }
            }));
            assert!(store.retire("a").unwrap());
            let known = store.producers().unwrap().remove(0);
            assert!(known.finished, "{known:?}");
            assert_eq!(known.sequence.get(), if rewinds { 3 } else { 6 });
            check_replay(&process(&disk, 5));
        }
    }
}

#[test]
fn in_a_closed_stream_it_is_told_why_it_cannot_be_retired() {
    let disk = set_back();
    let store = process(&disk, 3);
    store.close(false).unwrap();
    let error = store.retire("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("reopen"), "{error}");
    store.reopen().unwrap();
    assert!(store.retire("a").unwrap());
}
