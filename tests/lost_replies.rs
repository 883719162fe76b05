//! Errors and lost replies. The method: a fork of a prepared disk for each call of a publish, of a publish
//! across a boundary and of a creation; that call fails, once before its effect and once after, by each
//! errno in question; then the producer does what its documentation says, and the log is examined.
//!
//! - Exactly once, whatever failed: the part is in, once, and the next one follows (R2, P3).
//! - Nothing of unknown outcome is cleaned up (R2); a file whose sync or close failed isn't published (R3);
//!   after a failed sync of a directory only a producer opened anew tells (R3).

#[path = "lost_replies/dead_disk.rs"]
mod dead_disk;
#[path = "lost_replies/drafts.rs"]
mod drafts;
#[path = "lost_replies/patience.rs"]
mod patience;
#[path = "lost_replies/refused.rs"]
mod refused;
#[path = "lost_replies/remounted.rs"]
mod remounted;
mod support;

use std::sync::Arc;

use batchweave::storage::Storage;
use batchweave::{Durability, Error, ErrorKind, Primitive, Producer, Settings, Store};
use batchweave_sim::{Fault, Match, Memory, Method, Outcome, Plan, errno};
use support::*;

const ERRNOS: [i32; 6] =
    [errno::EIO, errno::ETIMEDOUT, errno::ESTALE, errno::EINTR, errno::ENOSPC, errno::EDQUOT];

/// What can come instead of a reply, and whether the call had its effect. EEXIST is true or the word of a
/// call that was sent twice: without effect and without a name it is no answer of any filesystem.
fn failures() -> impl Iterator<Item = (i32, bool)> {
    let both = ERRNOS.into_iter().flat_map(|errno| [(errno, false), (errno, true)]);
    both.chain([(errno::EEXIST, true)])
}

/// A disk with a store of `commits` commits by "a" (its Open among them), and the plan that every process
/// of it obeys.
fn prepared(commits: u64, plan: Plan) -> (Memory, Plan) {
    let disk = Memory::new();
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), plan.clone()));
    let store = create(process, 1, options(), &Settings::new()).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 1..commits {
        publish(&mut producer).unwrap();
    }
    (disk, plan)
}

/// Publishes one part the way the documentation says, whatever happens; gives the producer that knows it to
/// be in.
fn see_through(store: &Store, mut producer: Producer, sequence: u64) -> Producer {
    let mut draft = None;
    for _ in 0..8 {
        if producer.next_sequence().get() > sequence {
            return producer;
        }
        let whole = match draft.take() {
            Some(draft) => draft,
            None => match support::draft(&mut producer, 1) {
                Ok(draft) => draft,
                Err(error) => {
                    check_kind(&error);
                    producer = open_again(store);
                    continue;
                }
            },
        };
        match producer.publish_now(whole, state("a", sequence)) {
            Ok(_) => return producer,
            Err(failed) => {
                check_kind(&failed.error);
                match failed.draft {
                    // Nothing of it can become visible. A draft that broke is written anew.
                    Some(given_back) if failed.error.kind() != ErrorKind::Invalid => {
                        draft = Some(*given_back)
                    }
                    Some(_) => {}
                    None => match producer.flush() {
                        Ok(()) => {}
                        // Poisoned, or still unknown: replay knows.
                        Err(error) => {
                            check_kind(&error);
                            producer = open_again(store);
                        }
                    },
                }
            }
        }
    }
    panic!("part {sequence} isn't in after 8 attempts, though only one call failed");
}

fn open_again(store: &Store) -> Producer {
    let opened = (0..3).find_map(|_| store.producer("a").map_err(|error| check_kind(&error)).ok());
    opened.expect("a name can be opened again once the error has passed")
}

/// A passing error of the system is never taken for damage, a zombie or a lost race; and it says where.
fn check_kind(error: &Error) {
    let kinds = [ErrorKind::Io, ErrorKind::Full, ErrorKind::Invalid];
    assert!(kinds.contains(&error.kind()), "a passing error became {error:?}");
    assert!(error.path().is_some(), "an error names no path: {error:?}");
}

/// Every call of one publish fails once, in every way.
fn fail_each_call(commits: u64, mount: Plan, settings: &Settings) {
    let (disk, plan) = prepared(commits, mount);
    let mut ways = 0;
    for (errno, lose_reply) in failures() {
        for call in 1.. {
            let process = Arc::new(Fault::new(Arc::new(disk.fork()), plan.clone()));
            if !fail_call(&process, &plan, settings, (errno, lose_reply), call) {
                break;
            }
            ways += 1;
        }
    }
    assert!(ways > 120, "only {ways} ways to fail");
}

/// Call `call` of a publish fails; false if there are fewer.
fn fail_call(
    process: &Arc<Fault>,
    plan: &Plan,
    settings: &Settings,
    (errno, lose_reply): (i32, bool),
    call: u64,
) -> bool {
    let store = open_with(process.clone(), 2, settings).unwrap();
    let producer = store.producer("a").unwrap();
    let sequence = producer.next_sequence().get();
    let before = process.calls();
    let which = Match::any().nth(call);
    let failing =
        if lose_reply { plan.clone().lose_reply(which, errno) } else { plan.clone().fail(which, errno) };
    process.set_plan(failing);
    let mut producer = see_through(&store, producer, sequence);
    let calls = process.calls() - before;
    process.set_plan(plan.clone());
    let how =
        || format!("{:?}", process.trace().get(before as usize + call as usize - 1).map(ToString::to_string));
    publish(&mut producer).unwrap_or_else(|error| panic!("the next part after {}: {error}", how()));
    drop(producer);
    let parts = check_replay(&open_with(process.clone(), 3, &Settings::new()).unwrap()).parts();
    assert_eq!(check_dense(&parts)["a"], sequence + 2, "exactly once, after {}", how());
    check_going_on(&open_with(process.clone(), 4, &Settings::new()).unwrap(), &["a"]);
    calls >= call
}

#[test]
fn a_publish_by_link_survives_the_failure_of_each_call() {
    fail_each_call(3, mount_with(Primitive::Link), &Settings::new());
}

#[test]
fn a_publish_by_rename_survives_the_failure_of_each_call() {
    fail_each_call(3, mount_with(Primitive::RenameNoreplace), &Settings::new());
}

#[test]
fn a_publish_by_rename_of_a_directory_survives_the_failure_of_each_call() {
    fail_each_call(3, mount_with(Primitive::RenameDirectory), &Settings::new());
    fail_each_call(15, mount_with(Primitive::RenameDirectory), &Settings::new());
}

#[test]
fn a_publish_from_beside_its_place_survives_the_failure_of_each_call() {
    for primitive in [Primitive::Link, Primitive::RenameNoreplace] {
        fail_each_call(3, refusing_across(primitive, errno::EXDEV), &Settings::new());
        fail_each_call(15, refusing_across(primitive, errno::EXDEV), &Settings::new());
    }
}

#[test]
fn a_publish_across_a_boundary_by_link_survives_the_failure_of_each_call() {
    // The process under test opens the name anew, which takes a version: its part is the first of a segment.
    fail_each_call(15, mount_with(Primitive::Link), &Settings::new());
}

#[test]
fn a_publish_across_a_boundary_by_rename_survives_the_failure_of_each_call() {
    fail_each_call(15, mount_with(Primitive::RenameNoreplace), &Settings::new());
}

#[test]
fn a_creation_survives_the_failure_of_each_call() {
    for (errno, lose_reply) in failures() {
        for call in 1.. {
            let which = Match::any().nth(call);
            let plan = Plan::new();
            let plan = if lose_reply { plan.lose_reply(which, errno) } else { plan.fail(which, errno) };
            let process = Arc::new(Fault::new(Arc::new(Memory::new()), plan));
            // A mount that refuses a call for a moment may be refused as a mount; the next attempt is sound.
            let first = create(process.clone(), 1, options(), &Settings::new());
            let calls = process.calls();
            process.set_plan(Plan::new());
            let store = create(process.clone(), 2, options(), &Settings::new())
                .unwrap_or_else(|error| panic!("call {call}, {errno}, {lose_reply}: {error}"));
            if let Ok(first) = &first {
                assert_eq!(first.uuid(), store.uuid(), "a creation that was acknowledged stands");
            }
            check_going_on(&store, &["a"]);
            if calls < call {
                break;
            }
        }
    }
}

/// A process over a disk with some commits, its producer open.
fn process(primitive: Primitive) -> (Memory, Arc<Fault>, Store, Producer) {
    let (disk, plan) = prepared(3, mount_with(primitive));
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), plan));
    let store = open_with(process.clone(), 2, &Settings::new()).unwrap();
    let producer = store.producer("a").unwrap();
    (disk, process, store, producer)
}

#[test]
fn an_unknown_outcome_keeps_every_file_and_the_same_file_is_tried_again() {
    // The link has its effect or not, and nothing can be looked up: nobody can know.
    for linked in [false, true] {
        let (disk, process, store, mut producer) = process(Primitive::Link);
        let sequence = producer.next_sequence().get();
        let link = Match::method(Method::Link);
        let plan = if linked {
            Plan::new().lose_reply(link, errno::EIO)
        } else {
            Plan::new().fail(link, errno::EIO)
        };
        let plan = plan.fail(Match::method(Method::Open).named("log/0"), errno::EIO);
        let draft = draft(&mut producer, 1).unwrap();
        process.set_plan(plan);
        let failed = producer.publish_now(draft, state("a", sequence)).unwrap_err();
        assert_eq!((failed.error.kind(), failed.draft.is_none()), (ErrorKind::Io, true), "{}", failed.error);
        let staged: Vec<String> =
            disk.paths().into_iter().filter(|path| path.starts_with("store/stage/a.")).collect();
        assert_eq!(staged.len(), 1, "the file of unknown outcome stays: {:?}", disk.paths());
        // Other drafts wait for it.
        let next = producer.draft().unwrap();
        let refused = producer.publish_now(next, "never").unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::Io, "{}", refused.error);
        assert!(refused.draft.is_some(), "the later draft is untouched");
        drop(refused);
        let links = process.count(Method::Link);
        process.set_plan(Plan::new());
        producer.flush().unwrap();
        assert_eq!(producer.next_sequence().get(), sequence + 1);
        let retried =
            process.trace().into_iter().filter(|call| call.method == Method::Link).skip(links as usize);
        for call in retried {
            assert!(call.on.contains(&staged[0]["store/".len()..]), "another file was tried: {call}");
        }
        drop((producer, store));
        let store = open(disk.clone(), 3).unwrap();
        assert_eq!(check_dense(&check_replay(&store).parts())["a"], sequence + 1);
        check_going_on(&store, &["a"]);
    }
}

#[test]
fn a_producer_dropped_with_an_unknown_outcome_removes_nothing_and_a_new_one_knows() {
    for primitive in [Primitive::Link, Primitive::RenameNoreplace] {
        for effect in [false, true] {
            let (disk, process, store, mut producer) = process(primitive);
            let sequence = producer.next_sequence().get();
            let method = if primitive == Primitive::Link { Method::Link } else { Method::RenameNoreplace };
            let which = Match::method(method);
            let plan = if effect {
                Plan::new().lose_reply(which, errno::ETIMEDOUT)
            } else {
                Plan::new().fail(which, errno::ETIMEDOUT)
            };
            let draft = draft(&mut producer, 1).unwrap();
            process.set_plan(plan.fail(Match::method(Method::Open).named("log/0"), errno::ETIMEDOUT));
            let before = disk.paths().iter().filter(|path| path.contains("stage/a.")).count();
            producer.publish_now(draft, state("a", sequence)).unwrap_err();
            let removed = process.count(Method::Remove);
            drop((producer, store));
            assert_eq!(process.count(Method::Remove), removed, "a file of unknown outcome is removed (R2)");
            let after = disk.paths().iter().filter(|path| path.contains("stage/a.")).count();
            let moved = usize::from(effect && primitive == Primitive::RenameNoreplace);
            assert_eq!(after + moved, before);
            let store = open(disk.clone(), 3).unwrap();
            let producer = store.producer("a").unwrap();
            assert_eq!(
                producer.next_sequence().get(),
                sequence + u64::from(effect),
                "the reopened one knows"
            );
        }
    }
}

#[test]
fn a_file_whose_sync_or_close_failed_is_never_published() {
    for method in [Method::SyncFile, Method::Close, Method::WriteAt] {
        for errno in [errno::EIO, errno::ENOSPC, errno::EDQUOT] {
            let (disk, process, store, mut producer) = process(Primitive::Link);
            let sequence = producer.next_sequence().get();
            let draft = draft(&mut producer, 1).unwrap();
            process.set_plan(Plan::new().fail(Match::method(method).named("stage/a.").nth(1), errno));
            let failed = producer.publish_now(draft, state("a", sequence)).unwrap_err();
            let full = errno != errno::EIO;
            assert_eq!(failed.error.kind(), if full { ErrorKind::Full } else { ErrorKind::Io });
            assert_eq!(failed.error.errno(), Some(errno));
            let broken =
                process.trace().into_iter().rev().find(|call| matches!(call.outcome, Outcome::Failed(_)));
            let file = broken.expect("the failed call").on;
            let again = producer.publish_now(*failed.draft.expect("nothing is in"), "state").unwrap_err();
            assert_eq!(
                again.error.kind(),
                ErrorKind::Invalid,
                "{method}: written anew, never tried again (R3)"
            );
            drop(again);
            publish(&mut producer).unwrap();
            let published = process
                .trace()
                .into_iter()
                .any(|call| call.method == Method::Link && call.on.contains(&file));
            assert!(!published, "{method}: {file} was published after all");
            assert!(
                !disk.paths().iter().any(|path| path.ends_with(&file)),
                "{method}: {file} is left behind"
            );
            drop((producer, store));
            check_going_on(&open(disk, 3).unwrap(), &["a"]);
        }
    }
}

#[test]
fn a_failed_sync_of_the_directory_poisons_and_a_new_producer_knows() {
    let (disk, process, store, mut producer) = process(Primitive::Link);
    let sequence = producer.next_sequence().get();
    let draft = draft(&mut producer, 1).unwrap();
    process.set_plan(Plan::new().fail(Match::method(Method::SyncDir).named("log/0").nth(1), errno::EIO));
    let failed = producer.publish_now(draft, state("a", sequence)).unwrap_err();
    assert_eq!((failed.error.kind(), failed.draft.is_none()), (ErrorKind::Io, true));
    for error in
        [producer.flush().unwrap_err(), producer.draft().unwrap_err(), producer.finish().unwrap_err()]
    {
        assert!(error.to_string().contains("poisoned"), "{error}");
    }
    let producer = store.producer("a").unwrap();
    assert_eq!(producer.next_sequence().get(), sequence + 1, "the link had its effect");
    drop((producer, store));
    // The newer Open's own sync made it durable.
    disk.power_cut();
    let store = open(disk, 3).unwrap();
    assert_eq!(check_dense(&check_replay(&store).parts())["a"], sequence + 1);
    check_going_on(&store, &["a"]);
}

#[test]
fn what_replay_finds_in_is_acknowledged_only_after_a_sync() {
    // The link's reply is lost, and so is the look afterwards. Another's commit makes it read on, and there
    // it is; the other's sync failed, so nothing has made either durable. That has to come before the
    // acknowledgement (R3).
    let (disk, process, store, mut producer) = process(Primitive::Link);
    let other = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let elsewhere = open_with(other.clone(), 5, &Settings::new()).unwrap();
    let mut rival = elsewhere.producer("b").unwrap();
    store.info().unwrap();
    let draft = draft(&mut producer, 1).unwrap();
    let sequence = producer.next_sequence().get();
    let lost = Plan::new().lose_reply(Match::method(Method::Link), errno::EIO);
    process.set_plan(lost.fail(Match::method(Method::Open).named("log/0"), errno::EIO));
    producer.publish_now(draft, state("a", sequence)).unwrap_err();
    other.set_plan(Plan::new().fail(Match::method(Method::SyncDir), errno::EIO));
    publish(&mut rival).unwrap_err();
    process.set_plan(Plan::new());
    let links = process.count(Method::Link);
    producer.flush().unwrap();
    assert_eq!(process.count(Method::Link), links, "it was found by reading on");
    disk.power_cut();
    let store = open(disk, 3).unwrap();
    assert_eq!(
        check_dense(&check_replay(&store).parts())["a"],
        sequence + 1,
        "acknowledged, and lost by the cut"
    );
}

#[test]
fn short_writes_and_reads_are_looped() {
    let disk = Memory::new();
    let plan = Plan::new().cut(Match::method(Method::WriteAt), 1000).cut(Match::method(Method::ReadAt), 700);
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), plan));
    let store = create(process.clone(), 1, options(), &Settings::new()).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 0..17 {
        publish(&mut producer).unwrap();
    }
    assert_eq!(read_all(&store).len(), 17);
    check_going_on(&open(disk, 3).unwrap(), &["a"]);
}

#[test]
fn a_full_disk_is_said_and_later_room_is_used() {
    let (disk, _, store, mut producer) = process(Primitive::Link);
    let used = {
        let root = disk.open_root("/".as_ref()).unwrap();
        let space = disk.space(&root).unwrap();
        space.bytes_total - space.bytes_free
    };
    disk.set_capacity(used);
    let error = publish(&mut producer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error:?}");
    disk.set_inodes(1);
    let error = publish(&mut producer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error:?}");
    disk.set_capacity(1 << 40);
    disk.set_inodes(1 << 20);
    publish(&mut producer).unwrap();
    drop((producer, store));
    check_going_on(&open(disk, 3).unwrap(), &["a"]);
}

#[test]
fn an_unsynced_store_never_syncs() {
    let process = Arc::new(Fault::new(Arc::new(Memory::new()), Plan::new()));
    let options = options().durability(Durability::Unsynced);
    let store = create(process.clone(), 1, options, &Settings::new()).unwrap();
    check_going_on(&store, &["a", "b"]);
    store.retire("a").unwrap();
    store.close(false).unwrap();
    assert_eq!(process.count(Method::SyncFile) + process.count(Method::SyncDir), 0);
}
