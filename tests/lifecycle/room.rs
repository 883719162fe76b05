//! Back-pressure, the disk's margin and the ballast: who waits for whom, who never does, and what can still
//! be written when nothing else can.

use std::path::Path;
use std::time::Duration;

use batchweave::env::Env;
use batchweave::{Bounds, CheckpointOptions, ErrorKind, MountClass, ReclaimOptions, Start, Step};
use batchweave_sim::{Fault, Match, Method, Plan, Seeded, errno};

use super::*;

/// A process whose clock moves while it waits: as on a remote mount, it sleeps between its looks.
fn waiter(disk: &Memory, seed: u64) -> Store {
    let settings = Settings::new().mount_class(MountClass::CloseToOpen);
    open_in(Arc::new(disk.clone()), &Arc::new(Seeded::new(seed)), &settings).unwrap()
}

/// Delivers so many steps, waiting for them.
fn take(consumer: &mut Consumer, count: usize) {
    for _ in 0..count {
        assert!(consumer.next_batch_timeout(Duration::from_secs(5)).unwrap().is_some());
    }
}

fn position_at(run: &Run, count: usize) -> Position {
    let mut consumer = consumer(run);
    take(&mut consumer, count);
    consumer.position()
}

/// A disk with an empty store, and a process of it.
fn new_store() -> (Memory, Store) {
    let disk = prepared(0);
    let store = waiter(&disk, 2);
    (disk, store)
}

/// Bytes that one part of these tests takes.
fn part_bytes(store: &Store, producer: &mut batchweave::Producer) -> u64 {
    let before = store.info().unwrap().retained_bytes;
    publish(producer).unwrap();
    store.info().unwrap().retained_bytes - before
}

#[test]
fn a_producer_waits_for_room_and_says_why() {
    let (disk, store) = new_store();
    let mut producer = reopen(&store, "a", &[]);
    let each = part_bytes(&store, &mut producer);
    let run = waiter(&disk, 3).group("llama-7b").unwrap().begin(Start::Beginning).unwrap();
    let bounds = Bounds::new().retained_bytes(5 * each).timeout(Duration::from_secs(60));
    producer.set_bounds(bounds);
    for _ in 1..5 {
        publish(&mut producer).unwrap();
    }
    let full = draft(&mut producer, 1).unwrap();
    let failed = producer.publish_now(full, "s").unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Timeout);
    let said = failed.error.to_string();
    assert!(said.contains("group llama-7b needs step 0 and all after it"), "{said}");
    // The draft is given back, and goes in once there is room.
    run.checkpoint(position_at(&run, 3), "three").unwrap();
    let failed = producer.publish_now(*failed.draft.unwrap(), "s").unwrap_err();
    assert!(failed.error.to_string().contains("could be reclaimed"), "{}", failed.error);
    assert_eq!(store.info().unwrap().next_step, Step::new(5), "nothing was published");
}

#[test]
fn nobody_waits_while_the_group_is_hungry() {
    let (disk, store) = new_store();
    let mut producer = reopen(&store, "a", &[]);
    let each = part_bytes(&store, &mut producer);
    let run = waiter(&disk, 3).group("g").unwrap().begin(Start::Beginning).unwrap();
    producer.set_bounds(Bounds::new().retained_bytes(3 * each));
    for _ in 1..3 {
        publish(&mut producer).unwrap();
    }
    // It takes all there is and waits for the next: no checkpoint can come of that.
    let mut reader = consumer(&run);
    take(&mut reader, 3);
    let waited = reader.next_batch_timeout(Duration::from_secs(5)).unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::Timeout);
    let full = draft(&mut producer, 1).unwrap();
    let failed = producer.publish_now(full, state("a", 3)).unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Full);
    let said = failed.error.to_string();
    let (_, bound) = said.split_once("a bound of at least ").unwrap();
    let bound: u64 = bound.split_once(" bytes would do").unwrap().0.parse().unwrap();
    assert_eq!(bound, 4 * each, "{said}");
    producer.set_bounds(Bounds::new().retained_bytes(bound));
    producer.publish_now(*failed.draft.unwrap(), state("a", 3)).unwrap();
    take(&mut reader, 1);
}

#[test]
fn what_could_be_reclaimed_keeps_no_hungry_group_waiting() {
    let (disk, store) = new_store();
    let mut producer = reopen(&store, "a", &[]);
    let each = part_bytes(&store, &mut producer);
    producer.set_bounds(Bounds::new().retained_bytes(2 * each));
    publish(&mut producer).unwrap();
    let run = waiter(&disk, 3).group("g").unwrap().begin(Start::Beginning).unwrap();
    run.checkpoint(position_at(&run, 1), "one").unwrap();
    let mut reader = consumer(&run);
    take(&mut reader, 2);
    reader.next_batch_timeout(Duration::from_secs(5)).unwrap_err();
    publish(&mut producer).unwrap();
    assert_eq!(reader.next_batch().unwrap().unwrap().step(), Step::new(2));
}

#[test]
fn a_lead_is_waited_for_and_a_silent_group_is_not() {
    let disk = prepared(0);
    let env = Arc::new(Seeded::new(2));
    let store = open_in(Arc::new(disk.clone()), &env, &Settings::new()).unwrap();
    let mut producer = reopen(&store, "a", &[]);
    producer.set_bounds(Bounds::new().lead_steps(4).timeout(Duration::from_secs(30)));
    for _ in 0..4 {
        publish(&mut producer).unwrap();
    }
    let failed = {
        let full = draft(&mut producer, 1).unwrap();
        producer.publish_now(full, state("a", 4)).unwrap_err()
    };
    assert!(failed.error.to_string().contains("no group reads them yet"), "{}", failed.error);
    drop(failed);
    let run = waiter(&disk, 3).group("g").unwrap().begin(Start::Beginning).unwrap();
    // It hasn't told anything yet, so nobody waits for it.
    publish(&mut producer).unwrap();
    let mut reader = consumer(&run);
    take(&mut reader, 1);
    // Groups are asked once a second, as often as they tell.
    env.sleep(Duration::from_secs(1));
    let full = draft(&mut producer, 1).unwrap();
    let failed = producer.publish_now(full, state("a", 5)).unwrap_err();
    let said = failed.error.to_string();
    assert!(said.contains("4 steps of 4 lie ahead of group g, which is at step 1"), "{said}");
}

#[test]
fn an_open_step_may_always_be_completed() {
    let disk = Memory::new();
    let two = options().parts_per_step(2);
    let store = create(Arc::new(disk.clone()), 1, two, &Settings::new()).unwrap();
    let mut one = store.producer("a").unwrap();
    let mut other = store.producer("b").unwrap();
    publish(&mut one).unwrap();
    publish(&mut other).unwrap();
    other.set_bounds(Bounds::new().retained_bytes(1).timeout(Duration::ZERO));
    let full = draft(&mut other, 1).unwrap();
    let failed = other.publish_now(full, state("b", 1)).unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Timeout, "a step of its own");
    publish(&mut one).unwrap();
    other.publish_now(*failed.draft.unwrap(), state("b", 1)).unwrap();
}

#[test]
fn the_margin_is_kept_from_parts_only() {
    let (disk, store) = new_store();
    let run = store.group("g").unwrap().begin(Start::Beginning).unwrap();
    let mut producer = reopen(&store, "a", &[]);
    disk.set_capacity(4 << 20);
    let mut published = 0;
    let error = loop {
        match publish(&mut producer) {
            Ok(_) => published += 1,
            Err(error) => break error,
        }
        assert!(published < 2000, "the disk never fills");
    };
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("are kept from parts"), "{error}");
    run.checkpoint(position_at(&run, 7), "seven").unwrap();
    disk.set_capacity(64 << 20);
    publish(&mut producer).unwrap();
    check_dense(&read_all(&store));
}

#[test]
fn the_ballast_is_given_up_for_a_control_record_and_made_anew() {
    let (disk, store) = new_store();
    let run = store.group("g").unwrap().begin(Start::Beginning).unwrap();
    assert!(has_ballast(&disk));
    let used = {
        let root = batchweave::storage::Storage::open_root(&disk, Path::new(PATH)).unwrap();
        let space = batchweave::storage::Storage::space(&disk, &root).unwrap();
        space.bytes_total - space.bytes_free
    };
    disk.set_capacity(used);
    // Not a byte is free: a checkpoint needs the ballast's room.
    run.checkpoint(run.position(), "zero").unwrap();
    assert!(!has_ballast(&disk));
    run.checkpoint_with(run.position(), "again", &CheckpointOptions::new().pinned(true)).unwrap();
    disk.set_capacity(used + (8 << 20));
    run.drop_checkpoint("again").unwrap();
    assert!(has_ballast(&disk));
    check_replay(&store);
}

#[test]
fn a_ballast_that_the_dead_gave_up_is_made_anew_by_a_reclaim() {
    let (disk, store) = new_store();
    let root = batchweave::storage::Storage::open_root(&disk, Path::new(PATH)).unwrap();
    batchweave::storage::Storage::remove(&disk, &root, "ballast").unwrap();
    store.reclaim(&ReclaimOptions::new().dry_run(true)).unwrap();
    assert!(!has_ballast(&disk), "a dry run writes nothing");
    store.reclaim(&ReclaimOptions::new()).unwrap();
    assert!(has_ballast(&disk));
}

fn has_ballast(disk: &Memory) -> bool {
    disk.paths().iter().any(|path| path.ends_with("/ballast"))
}

fn staged(disk: &Memory) -> usize {
    disk.paths().iter().filter(|path| path.contains("/stage/") && !path.ends_with('/')).count()
}

/// So many bytes are free from now on.
fn leave_free(disk: &Memory, bytes: u64) {
    let root = batchweave::storage::Storage::open_root(disk, Path::new(PATH)).unwrap();
    let space = batchweave::storage::Storage::space(disk, &root).unwrap();
    disk.set_capacity(space.bytes_total - space.bytes_free + bytes);
}

#[test]
fn a_control_record_at_a_boundary_gets_the_ballasts_room_for_the_index() {
    let (disk, store) = new_store();
    let run = store.group("g").unwrap().begin(Start::Beginning).unwrap();
    run.checkpoint(run.position(), "zero").unwrap();
    let mut producer = reopen(&store, "a", &[]);
    // A state that makes the index longer than what is left; the next version is a segment's first.
    loop {
        let part = draft(&mut producer, 1).unwrap();
        if producer.publish_now(part, vec![7; 20_000]).unwrap().version.get() % 16 == 15 {
            break;
        }
    }
    // The record itself just fits.
    leave_free(&disk, 8192);
    assert!(run.drop_checkpoint("zero").unwrap());
    assert!(!has_ballast(&disk));
    check_replay(&store);
    assert_eq!(staged(&disk), 0);
    assert!(store.groups().unwrap()[0].checkpoints.is_empty());
}

#[test]
fn a_control_record_whose_link_finds_no_room_is_linked_again_itself() {
    // A directory that would grow has no room for it: the same staged file is tried again (R2).
    let disk = prepared(3);
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process.clone(), 2, &Settings::new()).unwrap();
    let run = store.group("g").unwrap().begin(Start::Beginning).unwrap();
    let full = disk.clone();
    let link = Match::method(Method::Link).when(move |name| name.contains("log/") && has_ballast(&full));
    process.set_plan(Plan::new().fail(link, errno::ENOSPC));
    let before = process.count(Method::CreateExclusive);
    leave_free(&disk, 64 << 10);
    run.checkpoint(run.position(), "zero").unwrap();
    let created = process.count(Method::CreateExclusive) - before;
    assert_eq!((created, staged(&disk)), (2, 0), "staged once; the other is the ballast, made anew");
    assert!(has_ballast(&disk));
    // If that doesn't help it is told, and what was staged stays.
    process.set_plan(Plan::new().fail(Match::method(Method::Link), errno::ENOSPC));
    let error = run.checkpoint_with(run.position(), "one", &CheckpointOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(!has_ballast(&disk));
    assert_eq!(staged(&disk), 1, "its outcome is unknown");
    check_replay(&store);
}

#[test]
fn a_link_whose_outcome_is_unknown_stays_so_whatever_comes_of_the_next_attempt() {
    let disk = prepared(0);
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process.clone(), 2, &Settings::new()).unwrap();
    let run = store.group("g").unwrap().begin(Start::Beginning).unwrap();
    let mut producer = reopen(&store, "a", &[]);
    while publish(&mut producer).unwrap().version.get() % 16 != 15 {}
    // The link finds no room; once the ballast is gone, the index before it can't be looked at any more.
    let (link, gone) = (Match::method(Method::Link).named("log/000000000001/"), disk.clone());
    let look = Match::method(Method::Open).when(move |name| name.contains("index/0") && !has_ballast(&gone));
    process.set_plan(Plan::new().fail(link, errno::ENOSPC).fail(look, errno::EIO));
    let error = run.checkpoint(run.position(), "zero").unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(errno::EIO)), "{error}");
    assert_eq!((has_ballast(&disk), staged(&disk)), (false, 1), "nothing is cleaned up (R2)");
}

#[test]
fn who_is_taken_over_waits_no_longer() {
    let (disk, store) = new_store();
    let mut producer = reopen(&store, "a", &[]);
    publish(&mut producer).unwrap();
    producer.set_bounds(Bounds::new().lead_steps(1));
    let full = draft(&mut producer, 1).unwrap();
    process(&disk, 3).producer("a").unwrap();
    let failed = producer.publish_now(full, state("a", 1)).unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Fenced, "{}", failed.error);
}
