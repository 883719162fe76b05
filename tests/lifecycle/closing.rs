//! Closes and reopens that others' words come between: a skip takes nothing from them, a rewind is told, and
//! whoever met the closed stream goes on once it is reopened.

use batchweave::{ErrorKind, MountClass, PublishError, RewindOptions, Step};
use batchweave_sim::{Fault, Match, Method, Plan};

use super::*;

/// A process that, right before its next link, sleeps while another does `act`.
fn overtaken_by(disk: &Memory, act: impl Fn(&Store) + Send + Sync + 'static) -> Store {
    let storage = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(storage.clone(), 2, &Settings::new()).unwrap();
    let disk = disk.clone();
    let meanwhile = move || act(&process(&disk, 3));
    storage.set_plan(Plan::new().meanwhile(Match::method(Method::Link).nth(1), meanwhile));
    store
}

fn skip(store: &Store) {
    assert!(store.skip(Step::new(7), Step::new(8), "the loss explodes").unwrap());
}

#[test]
fn who_closes_or_reopens_while_steps_are_skipped_has_done_so() {
    let disk = prepared(20);
    assert!(overtaken_by(&disk, skip).close(false).unwrap());
    let info = process(&disk, 4).info().unwrap();
    assert_eq!((info.closed, info.generation.get()), (Some(Step::new(20)), 1));

    let disk = prepared(20);
    process(&disk, 4).close(false).unwrap();
    assert!(overtaken_by(&disk, skip).reopen().unwrap());
    let info = process(&disk, 5).info().unwrap();
    assert_eq!((info.closed, info.generation.get()), (None, 1));
    check_replay(&process(&disk, 6));
}

#[test]
fn who_closes_while_another_rewinds_is_told_so() {
    // One that drops nothing is another's word on the stream all the same.
    for step in [5, 20] {
        let disk = prepared(20);
        let store = overtaken_by(&disk, move |other| {
            other.rewind(Step::new(step), RewindOptions::new()).map(drop).unwrap();
        });
        let error = store.close(false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rewound, "to {step}: {error}");
        assert_eq!(process(&disk, 4).info().unwrap().closed, None, "nothing was closed");
        assert!(store.close(false).unwrap(), "who says it now has seen what is left");
        assert_eq!(process(&disk, 5).info().unwrap().closed, Some(Step::new(step)));
        check_replay(&process(&disk, 6));
    }
}

#[test]
fn who_reopens_while_another_rewinds_finds_it_done() {
    for step in [5, 20] {
        let disk = prepared(20);
        process(&disk, 4).close(false).unwrap();
        let store = overtaken_by(&disk, move |other| {
            other.rewind(Step::new(step), RewindOptions::new()).map(drop).unwrap();
        });
        assert!(!store.reopen().unwrap(), "the rewind to {step} has reopened it");
        assert_eq!(process(&disk, 5).info().unwrap().closed, None);
    }
}

#[test]
fn who_closes_where_another_has_rewound_and_closed_finds_it_done() {
    let disk = prepared(20);
    let store = overtaken_by(&disk, |other| {
        other.rewind(Step::new(5), RewindOptions::new()).map(drop).unwrap();
        assert!(other.close(false).unwrap());
    });
    assert!(!store.close(false).unwrap());
    assert_eq!(process(&disk, 4).info().unwrap().closed, Some(Step::new(5)));
}

/// A producer that had met the closed stream believed in it for good: where nothing rings, its handle looked
/// no further before the next part.
#[test]
fn a_part_that_met_the_closed_stream_goes_in_once_it_is_reopened() {
    for class in [MountClass::Local, MountClass::CloseToOpen] {
        let disk = prepared(20);
        let settings = Settings::new().mount_class(class);
        let store = open_with(Arc::new(disk.clone()), 2, &settings).unwrap();
        let mut producer = store.producer("a").unwrap();
        let operator = process(&disk, 3);
        operator.close(false).unwrap();
        let mut part = draft(&mut producer, 1).unwrap();
        for _ in 0..3 {
            let PublishError { error, draft, .. } = producer.publish_now(part, "").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("the stream is closed"), "{error}");
            part = *draft.expect("it is given back to be published later");
        }
        operator.reopen().unwrap();
        assert_eq!(producer.publish_now(part, "").unwrap().step, Step::new(20), "{class:?}");
        check_replay(&operator);
    }
}
