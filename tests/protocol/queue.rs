//! The queue between publishing and committing: what overlaps, what goes into one commit, and what becomes of
//! parts that wait when something fails.
//!
//! - A policy that holds for ever makes parts wait; another one, set afterwards, lets them go together.

#![expect(clippy::disallowed_methods, reason = "the two threads of a producer are led through their steps")]

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use batchweave::commit::pacing::{Attempt, Observed, Pacing, Verdict};
use batchweave::commit::rivals::Greedy;
use batchweave::{
    Compression, Counts, Draft, ErrorKind, MountClass, Options, Producer, Settings, Share, Start, Step,
    Store, Ticket,
};
use batchweave_sim::{Fault, Match, Memory, Method, Plan, Seeded, errno};

use crate::support::{
    check_dense, check_replay, create, draft, open, open_in, options, publish, read_all, state,
};

/// Never commits.
#[derive(Debug)]
struct Never;

impl Pacing for Never {
    fn decide(&mut self, _: &Observed) -> Verdict {
        Verdict::Hold(Duration::from_secs(3600))
    }

    fn note(&mut self, _: &Attempt) {}
}

fn new_store(options: Options) -> (Memory, Arc<Fault>, Store) {
    let disk = Memory::new();
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = create(process.clone(), 1, options, &Settings::new()).unwrap();
    (disk, process, store)
}

/// A producer whose parts wait.
fn holding(store: &Store, parts: usize) -> Producer {
    let mut producer = store.producer("a").unwrap();
    producer.set_queue_parts(parts);
    producer.set_pacing(Box::new(Never));
    producer
}

/// Publishes the next part into the queue.
fn queue(producer: &mut Producer) -> Ticket {
    let draft = draft(producer, 1).unwrap();
    let after = state(producer.name().as_str(), producer.next_sequence().get());
    producer.publish(draft, after).unwrap()
}

fn let_go(producer: &mut Producer) {
    producer.set_pacing(Box::new(Greedy));
}

fn staged(disk: &Memory) -> usize {
    disk.paths().iter().filter(|path| path.contains("/stage/") && !path.ends_with('/')).count()
}

/// Says what it sees, and commits.
#[derive(Debug)]
struct Telling(mpsc::Sender<Observed>);

impl Pacing for Telling {
    fn decide(&mut self, seen: &Observed) -> Verdict {
        self.0.send(*seen).unwrap();
        Verdict::Commit
    }

    fn note(&mut self, _: &Attempt) {}
}

#[test]
fn the_policy_sees_who_else_commits_and_who_is_hungry() {
    let disk = Memory::new();
    let env = Arc::new(Seeded::new(1));
    create(Arc::new(disk.clone()), 9, options(), &Settings::new()).unwrap();
    let settings = Settings::new().mount_class(MountClass::CloseToOpen);
    let store = open_in(Arc::new(disk.clone()), &env, &settings).unwrap();
    let (tell, told) = mpsc::channel();
    let mut producer = store.producer("a").unwrap();
    producer.set_pacing(Box::new(Telling(tell)));
    publish(&mut producer).unwrap();
    let seen = told.try_iter().last().unwrap();
    assert_eq!((seen.producers, seen.hungry, seen.parts), (1, false, 1));
    let mut other = open(disk.clone(), 2).unwrap().producer("b").unwrap();
    publish(&mut other).unwrap();
    let run = store.group("g").unwrap().begin(Start::Beginning).unwrap();
    let mut consumer = run.consumer(Share::WHOLE).unwrap();
    for _ in 0..2 {
        consumer.next_batch().unwrap().unwrap();
    }
    // By the attempt before it has seen them.
    for _ in 0..2 {
        publish(&mut producer).unwrap();
    }
    let seen = told.try_iter().last().unwrap();
    assert_eq!((seen.producers, seen.hungry), (2, false));
    for _ in 0..2 {
        consumer.next_batch().unwrap().unwrap();
    }
    consumer.next_batch_timeout(Duration::from_secs(5)).unwrap_err();
    queue(&mut producer);
    queue(&mut producer);
    producer.flush().unwrap();
    assert!(told.try_iter().any(|seen| seen.hungry), "the group waits for step 4");
}

#[test]
fn who_hears_anothers_doorbell_doesnt_link_in_vain() {
    let home = tempfile::tempdir().unwrap();
    let one = Store::create(home.path().join("store"), options()).unwrap();
    let other = Store::open(one.path()).unwrap();
    let (mut a, mut b) = (one.producer("a").unwrap(), other.producer("b").unwrap());
    for producer in [&mut a, &mut b] {
        let_go(producer);
    }
    // The second one of each meets nobody, so it takes itself for alone.
    for producer in [&mut a, &mut b] {
        queue(producer).wait().unwrap();
        queue(producer).wait().unwrap();
    }
    let before = one.stats().calls.link;
    queue(&mut a).wait().unwrap();
    assert_eq!(one.stats().calls.link - before, 1, "a look at the log first");
}

#[test]
fn the_next_part_is_written_and_published_while_one_is_committed() {
    let (disk, process, store) = new_store(options());
    let mut producer = store.producer("a").unwrap();
    let (linking, is_linking) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    process.set_plan(Plan::new().meanwhile(Match::method(Method::Link).named("a.").nth(1), move || {
        linking.send(()).unwrap();
        may_go_on.lock().unwrap().recv().unwrap();
    }));
    let first = queue(&mut producer);
    is_linking.recv().unwrap();
    let others: Vec<_> = (0..3).map(|_| queue(&mut producer)).collect();
    assert!(first.published().is_none() && others.iter().all(|ticket| ticket.published().is_none()));
    assert_eq!((producer.next_sequence().get(), producer.state()), (4, Vec::new()));
    go_on.send(()).unwrap();
    let first = first.wait().unwrap();
    let others: Vec<_> = others.iter().map(|ticket| ticket.wait().unwrap()).collect();
    assert!(others.iter().all(|other| other.version == first.version.next()), "in one commit: {others:?}");
    let steps: Vec<_> = others.iter().map(|other| (other.step.get(), other.sequence.get())).collect();
    assert_eq!(steps, [(1, 1), (2, 2), (3, 3)]);
    assert_eq!(producer.state(), state("a", 3).as_bytes());
    assert_eq!((check_dense(&read_all(&store))["a"], staged(&disk)), (4, 0));
    check_replay(&store);
}

#[test]
fn parts_of_any_kind_go_into_one_commit_and_are_what_they_were() {
    let (disk, _, store) = new_store(options().parts_per_step(2));
    let mut producer = holding(&store, 100);
    let bytes =
        |length: usize, seed: usize| -> Vec<u8> { (0..length).map(|at| (at * 31 + seed) as u8).collect() };
    // Beside small ones: none at all, longer than a write buffer, longer than a block, packed.
    let lengths = [10, 0, 300_000, 3 << 20, 4097, 1, 700_000, 12];
    let fill = |draft: &mut Draft, seed: usize| {
        draft.add_slice(&bytes(lengths[seed], seed), Counts { samples: 1, tokens: seed as u64 }).unwrap();
        draft.add_slice(&bytes(100, seed), Counts::default()).unwrap();
        draft.attach(&bytes(5000 * (seed % 3), seed)).unwrap();
        draft.metadata(format!("part {seed}").as_bytes()).unwrap();
    };
    let mut tickets = Vec::new();
    for seed in 0..lengths.len() {
        producer.set_compression(if seed % 2 == 1 { Compression::Zstd(1) } else { Compression::None });
        let mut draft = producer.draft().unwrap();
        fill(&mut draft, seed);
        tickets.push(producer.publish(draft, vec![seed as u8; seed]).unwrap());
    }
    let_go(&mut producer);
    producer.flush().unwrap();
    let published: Vec<_> = tickets.iter().map(|ticket| ticket.wait().unwrap()).collect();
    assert!(published.iter().all(|part| part.version == published[0].version), "{published:?}");
    let mut seed = 0;
    for step in 0..lengths.len() as u64 / 2 {
        let batch = store.batch(Step::new(step)).unwrap();
        let slices: Vec<_> = batch.slices().map(|slice| slice.unwrap().to_vec()).collect();
        for (part, attachment) in batch.attachments().unwrap().iter().enumerate() {
            assert_eq!(slices[2 * part], bytes(lengths[seed], seed), "part {seed}");
            assert_eq!(slices[2 * part + 1], bytes(100, seed), "part {seed}");
            assert_eq!(attachment.to_vec(), bytes(5000 * (seed % 3), seed), "part {seed}");
            seed += 1;
        }
    }
    assert_eq!((seed, staged(&disk)), (lengths.len(), 0));
    assert!(store.verify(|_| ()).unwrap().is_clean());
    check_replay(&store);
    let again = open(disk, 9).unwrap().producer("a").unwrap();
    assert_eq!((again.next_sequence().get(), again.state()), (8, vec![7; 7]));
}

#[test]
fn a_large_part_gets_a_commit_of_its_own() {
    let (_, _, store) = new_store(options());
    let mut producer = holding(&store, 100);
    let mut tickets = Vec::new();
    for length in [10, 5 << 20, 10, 10, 4 << 20, 10] {
        let mut draft = producer.draft().unwrap();
        draft.add_slice(&vec![1; length], Counts::default()).unwrap();
        tickets.push(producer.publish(draft, "").unwrap());
    }
    let_go(&mut producer);
    let versions: Vec<_> = tickets.iter().map(|ticket| ticket.wait().unwrap().version.get()).collect();
    let first = versions[0];
    assert_eq!(versions, [first, first + 1, first + 2, first + 2, first + 3, first + 4]);
    assert!(store.verify(|_| ()).unwrap().is_clean());
}

#[test]
fn a_dropped_producer_commits_what_waits() {
    let (disk, _, store) = new_store(options());
    let mut producer = store.producer("a").unwrap();
    let tickets: Vec<_> = (0..5).map(|_| queue(&mut producer)).collect();
    drop(producer);
    assert_eq!((check_dense(&read_all(&store))["a"], staged(&disk)), (5, 0));
    assert!(tickets.iter().all(|ticket| ticket.wait().is_ok()));
}

#[test]
fn what_waits_can_be_taken_back_and_published_again() {
    let (disk, _, store) = new_store(options());
    let mut producer = holding(&store, 100);
    let tickets: Vec<_> = (0..3).map(|_| queue(&mut producer)).collect();
    let later = draft(&mut producer, 1).unwrap();
    let mut back = producer.withdraw();
    assert_eq!((back.len(), producer.next_sequence().get()), (3, 0));
    assert!(tickets.iter().all(|ticket| ticket.wait().unwrap_err().kind() == ErrorKind::Invalid));
    let refused = producer.publish(later, state("a", 3)).unwrap_err();
    assert!(refused.error.to_string().contains("isn't published or dropped yet"), "{}", refused.error);
    let later = *refused.draft.unwrap();
    let changed = producer.publish(back.remove(0), "another state").unwrap_err();
    assert!(changed.error.to_string().contains("another state"), "{}", changed.error);
    let_go(&mut producer);
    let mut all = vec![*changed.draft.unwrap()];
    all.append(&mut back);
    all.push(later);
    for (sequence, draft) in (0..).zip(all) {
        producer.publish(draft, state("a", sequence)).unwrap();
    }
    producer.flush().unwrap();
    assert_eq!((check_dense(&read_all(&store))["a"], staged(&disk)), (4, 0));
    let queued = queue(&mut producer);
    drop(producer.withdraw());
    drop((queued, producer));
    assert_eq!(staged(&disk), 0, "a draft that was taken back is its holder's");
}

/// Its outcome is unknown: nothing of it is given back, nothing behind it goes before it, and the same file
/// is tried again (R2).
#[test]
fn behind_a_commit_whose_outcome_is_unknown_parts_wait() {
    let (disk, process, store) = new_store(options());
    let mut producer = holding(&store, 100);
    let tickets: Vec<_> = (0..3).map(|_| queue(&mut producer)).collect();
    let gathered = staged(&disk) + 1;
    process.set_plan(Plan::new().lose_reply(Match::method(Method::Link).from_nth(1), errno::EIO));
    process.set_plan(Plan::new().fail(Match::method(Method::Link).from_nth(1), errno::EIO));
    let_go(&mut producer);
    assert_eq!(producer.flush().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(staged(&disk), gathered);
    let behind = draft(&mut producer, 1).unwrap();
    let refused = producer.publish(behind, state("a", 3)).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Io);
    assert!(producer.withdraw().is_empty());
    assert!(tickets.iter().all(|ticket| ticket.wait().is_err() && ticket.published().is_none()));
    process.set_plan(Plan::new());
    producer.publish(*refused.draft.unwrap(), state("a", 3)).unwrap().wait().unwrap();
    assert!(tickets.iter().all(|ticket| ticket.published().is_some()));
    assert_eq!((check_dense(&read_all(&store))["a"], staged(&disk)), (4, 0));
    check_replay(&store);
}

#[test]
fn a_zombies_queue_is_refused_whole() {
    let (disk, _, store) = new_store(options());
    let mut producer = holding(&store, 100);
    let tickets: Vec<_> = (0..3).map(|_| queue(&mut producer)).collect();
    let mut new = open(disk.clone(), 2).unwrap().producer("a").unwrap();
    publish(&mut new).unwrap();
    let_go(&mut producer);
    assert_eq!(producer.flush().unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(tickets[0].wait().unwrap_err().kind(), ErrorKind::Fenced);
    drop(producer);
    assert_eq!((check_dense(&read_all(&store))["a"], staged(&disk)), (1, 0));
}

#[test]
fn a_panic_of_the_thread_poisons_the_producer() {
    let (disk, process, store) = new_store(options());
    let mut producer = store.producer("a").unwrap();
    let (linking, is_linking) = mpsc::channel();
    process.set_plan(Plan::new().meanwhile(Match::method(Method::Link).named("a.").nth(1), move || {
        linking.send(()).unwrap();
        panic!("a planted panic");
    }));
    let ticket = queue(&mut producer);
    is_linking.recv().unwrap();
    let error = ticket.wait().unwrap_err();
    assert!(error.to_string().contains("poisoned by a panic"), "{error}");
    assert!(producer.draft().unwrap_err().to_string().contains("poisoned"));
    assert!(producer.flush().unwrap_err().to_string().contains("open it anew"));
    drop(producer);
    let mut anew = open(disk, 2).unwrap().producer("a").unwrap();
    publish(&mut anew).unwrap();
    assert_eq!(check_dense(&read_all(&store))["a"], anew.next_sequence().get());
}

#[test]
fn a_panic_of_a_caller_who_commits_poisons_it_too() {
    let (_, process, store) = new_store(options());
    let mut producer = store.producer("a").unwrap();
    process.set_plan(
        Plan::new().meanwhile(Match::method(Method::Link).named("a.").nth(1), || panic!("a planted panic")),
    );
    let full = draft(&mut producer, 1).unwrap();
    let caught =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(producer.publish_now(full, "s"))));
    assert!(caught.is_err());
    assert!(producer.flush().unwrap_err().to_string().contains("poisoned by a panic"));
}

/// Every call of gathering and committing three parts fails once: nothing is lost or doubled, and what is
/// left waits for a flush.
#[test]
fn any_call_of_a_gathered_commit_may_fail() {
    for number in [errno::EIO, errno::ENOSPC] {
        for call in 1.. {
            let (disk, process, store) = new_store(options());
            let mut producer = holding(&store, 100);
            for _ in 0..3 {
                queue(&mut producer);
            }
            let before = process.calls();
            process.set_plan(Plan::new().fail(Match::any().nth(call), number));
            let_go(&mut producer);
            let flushed = producer.flush();
            let made = process.calls() - before;
            process.set_plan(Plan::new());
            if flushed.is_err() && producer.flush().is_err() {
                drop(producer);
                let found = check_dense(&read_all(&store)).get("a").copied().unwrap_or(0);
                assert!(found == 0 || found == 3, "all or none of a commit: {found}");
            } else {
                assert_eq!(check_dense(&read_all(&store))["a"], 3, "call {call}");
                assert!(staged(&disk) <= 1, "call {call} may have been that which removes a file");
            }
            check_replay(&store);
            if made < call {
                break;
            }
        }
    }
}
