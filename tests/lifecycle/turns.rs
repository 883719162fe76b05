//! Producers that take turns: who waits for whom, until when, and what a rewind, a retirement, another ring
//! or a stop makes of it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use batchweave::env::Env;
use batchweave::storage::Storage;
use batchweave::{
    Bounds, CheckpointOptions, ErrorKind, MountClass, Producer, PublishError, ReclaimOptions, RepairOptions,
    RewindOptions, Step, TurnsInfo, Version,
};
use batchweave_sim::{Fault, Match, Method, Plan, Seeded, errno};

use super::*;

/// A process whose clock moves while it waits, with its storage and its clock.
fn waiter(disk: &Memory, seed: u64) -> (Arc<Fault>, Arc<Seeded>, Store) {
    let (storage, env) =
        (Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new())), Arc::new(Seeded::new(seed)));
    let settings = Settings::new().mount_class(MountClass::CloseToOpen);
    let store = open_in(storage.clone(), &env, &settings).unwrap();
    (storage, env, store)
}

/// A disk with a store in which these take turns.
fn ring(names: &[&str], parts_per_turn: u32, parts_per_step: u32) -> Memory {
    let disk = Memory::new();
    let options = options().parts_per_step(parts_per_step);
    let store = create(Arc::new(disk.clone()), 1, options, &Settings::new()).unwrap();
    assert!(store.set_turns(names, parts_per_turn).unwrap());
    disk
}

/// What somebody else does as soon as a process has waited 15 s.
fn while_it_waits(storage: &Fault, env: &Arc<Seeded>, act: impl Fn() + Send + Sync + 'static) {
    let clock = env.clone();
    let waited = move |_: &str| clock.now() >= Duration::from_secs(15);
    storage.set_plan(Plan::new().meanwhile(Match::any().when(waited).nth(1), act));
}

fn bounded(store: &Store, name: &str) -> Producer {
    let mut producer = store.producer(name).unwrap();
    producer.set_bounds(Bounds::new().timeout(Duration::from_secs(60)));
    producer
}

fn try_publish(producer: &mut Producer) -> Result<u64, Box<PublishError>> {
    let after = state(producer.name().as_str(), producer.next_sequence().get());
    let full = draft(producer, 1).unwrap();
    Ok(producer.publish_now(full, after).map_err(Box::new)?.part.get())
}

fn publish_many(producer: &mut Producer, count: u64) {
    (0..count).for_each(|_| assert!(publish(producer).is_ok()));
}

fn times_out(producer: &mut Producer) -> String {
    let failed = try_publish(producer).unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Timeout, "{}", failed.error);
    assert!(failed.draft.is_some(), "the draft comes back");
    failed.error.to_string()
}

/// Whose the live parts are, in order; nothing in the log is void.
fn order(disk: &Memory) -> String {
    let store = process(disk, 90);
    let replayed = check_replay(&store);
    assert!(replayed.voids.iter().all(Option::is_none), "{:?}", replayed.voids);
    check_clean_and_listed(&store);
    replayed.parts().into_iter().map(|(producer, _)| producer).collect()
}

fn check_clean_and_listed(store: &Store) {
    let report = store.verify(|_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    assert!(store.commits(Version::ZERO).unwrap().all(|commit| commit.is_ok()));
}

fn known(disk: &Memory) -> TurnsInfo {
    process(disk, 91).turns().unwrap().unwrap()
}

fn turn(disk: &Memory) -> (String, u32) {
    let known = known(disk);
    (known.turn.unwrap().to_string(), known.parts_left)
}

#[test]
fn a_ring_is_set_and_ended_and_said_again_is_done() {
    let disk = prepared(0);
    let store = process(&disk, 2);
    assert_eq!(store.turns().unwrap(), None);
    assert!(!store.end_turns().unwrap(), "there was none");
    assert!(store.preview_turns(["a", "b"], 2).unwrap());
    assert_eq!(store.turns().unwrap(), None, "a preview changes nothing");
    assert!(store.set_turns(["a", "b"], 2).unwrap());
    assert!(!store.set_turns(["a", "b"], 2).unwrap(), "it is so already");
    assert!(!store.preview_turns(["a", "b"], 2).unwrap());
    assert!(store.set_turns(["b", "a"], 2).unwrap(), "the order is another");
    assert!(store.set_turns(["b", "a"], 1).unwrap());
    assert_eq!(turn(&disk), ("b".to_owned(), 1));
    store.close(false).unwrap();
    assert!(store.end_turns().unwrap(), "also of a closed stream");
    assert_eq!(process(&disk, 3).turns().unwrap(), None);
    let none: [&str; 0] = [];
    for (names, parts) in [(&none[..], 1), (&["a", "a"], 1), (&["a"], 0), (&["/"], 1)] {
        assert_eq!(store.set_turns(names, parts).unwrap_err().kind(), ErrorKind::Invalid, "{names:?}");
        assert_eq!(store.preview_turns(names, parts).unwrap_err().kind(), ErrorKind::Invalid, "{names:?}");
    }
    let many: Vec<String> = (0..65_537).map(|number| format!("p{number}")).collect();
    assert_eq!(store.set_turns(&many, 1).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(store.set_turns(&many[1..], 1).unwrap(), "as many as there may be producers");
    assert_eq!(order(&disk), "");
}

#[test]
fn of_two_who_set_a_ring_at_once_one_is_told() {
    for (others, outcome) in [(["a", "b"], Ok(false)), (["b", "a"], Err(ErrorKind::Contended))] {
        let disk = prepared(0);
        let storage = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let store = open_with(storage.clone(), 2, &Settings::new()).unwrap();
        let other = disk.clone();
        storage.set_plan(Plan::new().meanwhile(Match::method(Method::Link).nth(1), move || {
            assert!(process(&other, 3).set_turns(others, 1).unwrap());
        }));
        let set = store.set_turns(["a", "b"], 1).map_err(|error| error.kind());
        assert_eq!(set, outcome);
        assert_eq!(known(&disk).members.iter().map(|name| name.as_str()).collect::<Vec<_>>(), others);
    }
}

#[test]
fn who_is_not_next_waits_and_says_for_whom() {
    let disk = ring(&["a", "b"], 2, 1);
    let (storage, env, store) = waiter(&disk, 2);
    let mut b = bounded(&store, "b");
    let said = times_out(&mut b);
    assert!(said.contains("it is that of a, which was never opened"), "{said}");
    assert!(env.now() >= Duration::from_secs(60));
    let mut a = process(&disk, 3).producer("a").unwrap();
    publish(&mut a).unwrap();
    let said = times_out(&mut b);
    assert!(said.contains("a last committed ") && said.contains("(version 3)"), "{said}");
    assert_eq!(order(&disk), "a", "nothing of b is in");
    // Parts that are ready go in as soon as it is their turn.
    let other = disk.clone();
    let began = env.now();
    let clock = env.clone();
    let waited = move |_: &str| clock.now() >= began + Duration::from_secs(15);
    storage.set_plan(Plan::new().meanwhile(Match::any().when(waited).nth(1), move || {
        publish(&mut process(&other, 4).producer("a").unwrap()).unwrap();
    }));
    assert_eq!(try_publish(&mut b).unwrap(), 2);
    assert!(env.now() < began + Duration::from_secs(20));
    publish(&mut b).unwrap();
    assert_eq!((order(&disk), turn(&disk)), ("aabb".to_owned(), ("a".to_owned(), 2)));
}

#[test]
fn who_is_outside_is_told_at_once_whatever_he_knew() {
    let disk = prepared(0);
    let (_, env, store) = waiter(&disk, 2);
    let mut c = bounded(&store, "c");
    publish(&mut c).unwrap();
    // This handle hasn't seen it yet, nor that it is over.
    process(&disk, 3).set_turns(["a", "b"], 1).unwrap();
    let before = env.now();
    let failed = try_publish(&mut c).unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Invalid);
    assert!(failed.error.to_string().contains("c isn't one of them"), "{}", failed.error);
    assert_eq!(env.now(), before, "without waiting");
    process(&disk, 4).end_turns().unwrap();
    c.publish_now(*failed.draft.unwrap(), state("c", 1)).unwrap();
    assert_eq!(order(&disk), "cc");
}

type Act = fn(&Store);

#[test]
fn a_stalled_member_is_retired_or_replaced_while_others_wait() {
    let acts: [(Act, &str); 4] = [
        (|store| assert!(store.retire("a").unwrap()), "ab"),
        (|store| assert!(store.set_turns(["b", "c"], 1).unwrap()), "ab"),
        (|store| assert!(store.end_turns().unwrap()), "ab"),
        (|store| store.producer("a").unwrap().finish().unwrap(), "ab"),
    ];
    for (act, expected) in acts {
        let disk = ring(&["a", "b"], 2, 1);
        let mut a = process(&disk, 3).producer("a").unwrap();
        publish(&mut a).unwrap();
        let (storage, env, store) = waiter(&disk, 2);
        let mut b = bounded(&store, "b");
        let other = disk.clone();
        while_it_waits(&storage, &env, move || act(&process(&other, 4)));
        assert_eq!(try_publish(&mut b).unwrap(), 1);
        assert!(env.now() < Duration::from_secs(20), "as soon as it is seen");
        assert_eq!(order(&disk), expected);
    }
}

#[test]
fn who_waits_in_vain_is_told_why() {
    let acts: [(Act, ErrorKind); 4] = [
        (|store| drop(store.producer("b").unwrap()), ErrorKind::Fenced),
        (|store| assert!(store.close(false).unwrap()), ErrorKind::Invalid),
        (|store| assert!(store.set_turns(["a", "c"], 1).unwrap()), ErrorKind::Invalid),
        (|store| drop(store.rewind(Step::new(0), RewindOptions::new()).unwrap()), ErrorKind::Fenced),
    ];
    for (act, kind) in acts {
        let disk = ring(&["a", "b"], 1, 1);
        let (storage, env, store) = waiter(&disk, 2);
        let mut b = bounded(&store, "b");
        let other = disk.clone();
        while_it_waits(&storage, &env, move || act(&process(&other, 4)));
        let failed = try_publish(&mut b).unwrap_err();
        assert_eq!(failed.error.kind(), kind, "{}", failed.error);
        assert!(env.now() < Duration::from_secs(20));
        assert_eq!(order(&disk), "");
    }
}

#[test]
fn a_ring_that_is_set_between_look_and_link_is_waited_for() {
    let disk = ring(&["a", "b"], 2, 1);
    let (storage, env, store) = waiter(&disk, 2);
    let mut a = bounded(&store, "a");
    let other = disk.clone();
    storage.set_plan(Plan::new().meanwhile(Match::method(Method::Link).nth(1), move || {
        process(&other, 3).set_turns(["b", "a"], 1).unwrap();
    }));
    let said = times_out(&mut a);
    assert!(said.contains("it is that of b") && env.now() >= Duration::from_secs(60), "{said}");
    publish(&mut process(&disk, 4).producer("b").unwrap()).unwrap();
    assert_eq!(try_publish(&mut a).unwrap(), 1);
    assert_eq!(order(&disk), "ba");
}

#[test]
fn control_records_and_segments_never_move_the_turn() {
    let disk = ring(&["a", "b", "c"], 2, 1);
    let mut stores: Vec<(Store, Producer)> = ["a", "b", "c"]
        .into_iter()
        .zip(10..)
        .map(|(name, seed)| {
            let store = process(&disk, seed);
            let producer = store.producer(name).unwrap();
            (store, producer)
        })
        .collect();
    for round in 0..40u64 {
        let who = (round / 2 % 3) as usize;
        publish(&mut stores[who].1).unwrap();
        let store = &stores[(round % 3) as usize].0;
        let position = store.position(Step::new(round)).unwrap();
        let group = store.group("g").unwrap();
        group.checkpoint(position, &format!("c{round}"), &CheckpointOptions::new()).unwrap();
        store.producer("other").unwrap();
        if round % 8 == 7 {
            store.skip(Step::new(round), Step::new(round), "").unwrap();
        }
    }
    let expected: String = (0..40).map(|round| ["a", "b", "c"][round / 2 % 3]).collect();
    assert_eq!(order(&disk), expected);
    // Who begins from an index, or by a reclaimed log, knows whose turn it is.
    let store = process(&disk, 50);
    for name in store.group("g").unwrap().checkpoints().unwrap().iter().take(30) {
        store.group("g").unwrap().drop_checkpoint(name.name.as_str()).unwrap();
    }
    assert!(store.reclaim(&ReclaimOptions::new()).unwrap().segments.count > 2);
    assert_eq!(turn(&disk), ("c".to_owned(), 2));
    let joined = store.join(&store.run(Step::new(39)).unwrap().snapshot()).unwrap();
    deliver_last(&joined);
    publish(&mut process(&disk, 51).producer("c").unwrap()).unwrap();
    assert_eq!(turn(&disk), ("c".to_owned(), 1));
}

fn deliver_last(run: &Run) {
    let error = consumer(run).try_next();
    assert!(error.is_ok(), "{error:?}");
}

#[test]
fn a_rewind_into_the_middle_of_a_turn_goes_on_there() {
    for (step, whose, left) in [
        (7, "b", 3),
        (6, "b", 3),
        (5, "b", 1),
        (4, "b", 2),
        (3, "b", 3),
        (2, "a", 1),
        (1, "a", 2),
        (0, "a", 3),
    ] {
        // Far enough apart that the states of the past come from an index, too.
        for between in [0, 40] {
            let disk = ring(&["a", "b"], 3, 1);
            let mut order_of = Vec::new();
            let store = process(&disk, 2);
            for (name, count) in [("a", 3), ("b", 3), ("a", 1)] {
                let mut producer = store.producer(name).unwrap();
                publish_many(&mut producer, count);
                order_of.extend(std::iter::repeat_n(name, count as usize));
            }
            (0..between).for_each(|_| drop(store.producer("other").unwrap()));
            let expected = if step == 7 {
                ("a", 2)
            } else if step == 6 {
                ("a", 3)
            } else {
                (whose, left)
            };
            process(&disk, 3).rewind(Step::new(step), RewindOptions::new()).unwrap();
            assert_eq!(turn(&disk), (expected.0.to_owned(), expected.1), "at step {step}");
            let kept: String = order_of[..step as usize].concat();
            assert_eq!(order(&disk), kept);
            let mut again = process(&disk, 4).producer(expected.0).unwrap();
            for _ in 0..expected.1 {
                publish(&mut again).unwrap();
            }
            assert_eq!(order(&disk), kept + &expected.0.repeat(expected.1 as usize));
            assert_eq!(known(&disk).parts_left, 3);
        }
    }
}

#[test]
fn a_rewind_leaves_the_ring_and_begins_it_where_it_was_not_set_yet() {
    let disk = prepared(0);
    let store = process(&disk, 2);
    publish(&mut store.producer("x").unwrap()).unwrap();
    store.set_turns(["a", "b"], 2).unwrap();
    let mut a = store.producer("a").unwrap();
    publish(&mut a).unwrap();
    store.set_turns(["a", "b", "c"], 1).unwrap();
    publish(&mut a).unwrap();
    a.finish().unwrap();
    publish(&mut store.producer("b").unwrap()).unwrap();
    assert_eq!(turn(&disk), ("c".to_owned(), 1));
    // To when the ring was there, and a hadn't finished.
    store.rewind(Step::new(3), RewindOptions::new()).unwrap();
    assert_eq!((known(&disk).members.len(), turn(&disk)), (3, ("b".to_owned(), 1)));
    // To when another was, and to when there was none.
    for step in [2, 1] {
        store.rewind(Step::new(step), RewindOptions::new()).unwrap();
        assert_eq!((known(&disk).members.len(), turn(&disk)), (3, ("a".to_owned(), 1)));
    }
    store.end_turns().unwrap();
    store.rewind(Step::new(0), RewindOptions::new()).unwrap();
    assert_eq!(store.turns().unwrap(), None, "what has ended doesn't come back");
    check_replay(&store);
}

#[test]
fn a_rewind_that_meets_another_ring_is_made_anew() {
    for (step, ended) in [(1, false), (2, false), (1, true), (2, true)] {
        let disk = ring(&["a", "b"], 2, 1);
        let mut a = process(&disk, 2).producer("a").unwrap();
        publish_many(&mut a, 2);
        let storage = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let store = open_with(storage.clone(), 3, &Settings::new()).unwrap();
        let other = disk.clone();
        storage.set_plan(Plan::new().meanwhile(Match::method(Method::Link).nth(1), move || {
            let store = process(&other, 4);
            let changed = if ended { store.end_turns() } else { store.set_turns(["b", "a"], 2) };
            assert!(changed.unwrap());
        }));
        store.rewind(Step::new(step), RewindOptions::new()).unwrap();
        if ended {
            assert_eq!(process(&disk, 5).turns().unwrap(), None);
        } else {
            assert_eq!(turn(&disk), ("b".to_owned(), 2), "the ring's beginning, not the old one's turn");
        }
        assert_eq!(order(&disk), "a".repeat(step as usize));
    }
}

#[test]
fn finished_members_are_passed_over_and_when_all_are_everybody_publishes() {
    let disk = ring(&["a", "b"], 2, 1);
    let store = process(&disk, 2);
    let mut a = store.producer("a").unwrap();
    publish(&mut a).unwrap();
    a.finish().unwrap();
    let mut b = store.producer("b").unwrap();
    publish_many(&mut b, 5);
    assert_eq!(turn(&disk), ("b".to_owned(), 1));
    b.finish().unwrap();
    assert_eq!((known(&disk).turn, known(&disk).parts_left), (None, 0));
    publish(&mut store.producer("c").unwrap()).unwrap();
    // One that comes back is in the ring again.
    let mut a = store.producer("a").unwrap();
    publish(&mut a).unwrap();
    let failed = try_publish(&mut bounded(&store, "c")).unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Invalid);
    assert_eq!(order(&disk), "abbbbbca");
}

#[test]
fn a_member_is_not_forgotten_since_it_would_be_waited_for() {
    let disk = ring(&["a", "b"], 1, 1);
    let store = process(&disk, 2);
    let mut a = store.producer("a").unwrap();
    publish(&mut a).unwrap();
    a.finish().unwrap();
    store.reclaim(&ReclaimOptions::new().up_to(Step::new(1))).unwrap();
    let error = store.forget("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("in the ring of turns"), "{error}");
    store.set_turns(["b"], 1).unwrap();
    assert!(store.forget("a").unwrap());
}

#[test]
fn a_part_whose_link_had_no_reply_is_found_though_its_turn_is_over() {
    let disk = ring(&["a", "b"], 1, 1);
    let (storage, _, store) = waiter(&disk, 2);
    let mut a = bounded(&store, "a");
    // The link's reply is lost, and so is every look at what has become of it.
    let linked = Arc::new(AtomicBool::new(false));
    let (links, looks) = (linked.clone(), move |_: &str| linked.load(Ordering::Relaxed));
    let link = Match::method(Method::Link).when(move |_| {
        links.store(true, Ordering::Relaxed);
        true
    });
    let plan = Plan::new().lose_reply(link, errno::EIO);
    let plan = plan.fail(Match::method(Method::Open).when(looks.clone()), errno::EIO);
    storage.set_plan(plan.fail(Match::method(Method::OpenDir).when(looks), errno::EIO));
    let failed = try_publish(&mut a).unwrap_err();
    assert!(failed.draft.is_none(), "its outcome is unknown");
    storage.set_plan(Plan::new());
    publish(&mut process(&disk, 3).producer("b").unwrap()).unwrap();
    a.flush().unwrap();
    assert_eq!(a.next_sequence().get(), 1);
    assert_eq!((order(&disk), turn(&disk)), ("ab".to_owned(), ("a".to_owned(), 1)));
}

#[test]
fn setting_a_ring_stops_anywhere_and_another_does_it() {
    for call in 0.. {
        let disk = prepared(13);
        let stopping = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new().stop_at(call)));
        let set = open_with(stopping, 3, &Settings::new()).and_then(|store| {
            store.set_turns(["a", "b"], 2)?;
            publish(&mut store.producer("a")?)?;
            store.end_turns()?;
            store.set_turns(["b", "a"], 1)
        });
        for cut in [false, true] {
            let left = disk.fork();
            if cut {
                left.power_cut_keeping(|_| call % 2 == 0);
            }
            let other = process(&left, 4);
            other.set_turns(["b", "a"], 1).unwrap();
            assert_eq!(turn(&left).0, "b", "stopped in call {call}");
            publish(&mut other.producer("b").unwrap()).unwrap();
            publish(&mut other.producer("a").unwrap()).unwrap();
            check_replay(&other);
        }
        if set.is_ok() {
            assert!(call > 20);
            return;
        }
    }
}

#[test]
fn a_step_is_mixed_from_one_part_of_each() {
    let disk = ring(&["a", "b", "c"], 1, 3);
    let mut producers = ["c", "a", "b"].map(|name| process(&disk, 2).producer(name).unwrap());
    for _ in 0..10 {
        for who in [1, 2, 0] {
            publish(&mut producers[who]).unwrap();
        }
    }
    let expected: Vec<_> =
        (0..10).flat_map(|step| ["a", "b", "c"].map(|name| (name.to_owned(), step))).collect();
    assert_eq!(read_all(&process(&disk, 3)), expected);
}

#[test]
fn a_repair_goes_back_to_the_turn_before_what_was_lost() {
    let disk = ring(&["a", "b"], 3, 1);
    let store = process(&disk, 2);
    publish_many(&mut store.producer("a").unwrap(), 3);
    publish_many(&mut store.producer("b").unwrap(), 3);
    assert_eq!(turn(&disk), ("a".to_owned(), 3));
    drop(store);
    // Its versions: the ring, an Open, three parts, an Open, and the first part of "b".
    let root = disk.open_root(Path::new(PATH)).unwrap();
    let segment = disk.open_dir(&disk.open_dir(&root, "log").unwrap(), "000000000000").unwrap();
    disk.remove(&segment, &format!("{:020}", 7)).unwrap();
    let repaired = process(&disk, 3).repair(RepairOptions::new().confirm(true)).unwrap();
    assert!(repaired.dropped);
    assert_eq!((order(&disk), turn(&disk)), ("aaab".to_owned(), ("b".to_owned(), 2)));
    publish_many(&mut process(&disk, 4).producer("b").unwrap(), 2);
    assert_eq!(turn(&disk), ("a".to_owned(), 3));
}
