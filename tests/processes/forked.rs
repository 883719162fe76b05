//! A fork takes a handle's memory along, but no threads: the child is told so at once, whatever it calls, and
//! takes nothing from its parent, whatever it drops.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use batchweave::{
    Consumer, Counts, Draft, Producer, ReclaimOptions, Reclaimer, Result, Run, Share, Start, Step, Ticket,
};
use nix::libc::_exit;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// What the parent has when it forks.
struct Handles {
    store: Store,
    producer: Producer,
    /// Of a part that waits for another producer's turn.
    ticket: Ticket,
    draft: Draft,
    run: Run,
    consumer: Consumer,
    reclaimer: Reclaimer,
}

#[track_caller]
fn is_refused<T>(called: Result<T>) {
    let error = called.map(drop).expect_err("it isn't refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("a fork can't take it along"), "{error}");
}

/// The child's whole life.
fn live(mut had: Handles, path: &Path) {
    is_refused(had.consumer.next_batch());
    is_refused(had.consumer.try_next());
    is_refused(had.run.checkpoint(had.consumer.position(), "child"));
    is_refused(had.store.info());
    is_refused(had.store.batch(Step::new(0)));
    is_refused(had.store.verify(|_| ()));
    is_refused(had.store.clone().destroy());
    is_refused(had.store.reclaim(&ReclaimOptions::new()));
    is_refused(had.store.reclaim_in_background(ReclaimOptions::new(), HOUR));
    is_refused(had.producer.draft());
    is_refused(had.producer.flush());
    is_refused(had.ticket.wait());
    assert!(had.producer.withdraw().is_empty());
    is_refused(had.draft.add_slice(b"child", Counts::default()));
    is_refused(had.draft.attach(b"child"));
    is_refused(had.draft.metadata(b"child"));
    let refused = had.producer.publish(had.draft, "child").expect_err("it isn't refused");
    is_refused::<()>(Err(refused.error));
    drop((refused.draft, had.producer, had.ticket, had.consumer, had.run, had.store));
    // Opened anew it is a process like any other, and its threads are its own.
    let store = Store::open(path).unwrap();
    assert_eq!(store.batch(Step::new(0)).unwrap().len(), 1);
    let own = store.reclaim_in_background(ReclaimOptions::new(), HOUR).unwrap();
    drop((had.reclaimer, own));
    let mut producer = store.producer("other").unwrap();
    publish(&mut producer).unwrap();
    publish(&mut producer).unwrap();
}

#[test]
fn a_forked_child_is_told_at_once_and_takes_nothing_from_its_parent() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store");
    let store = Store::create(&path, options()).unwrap();
    let mut producer = store.producer("parent").unwrap();
    for _ in 0..20 {
        publish(&mut producer).unwrap();
    }
    store.set_turns(["other", "parent"], 1).unwrap();
    let waiting = draft(&mut producer, 1).unwrap();
    let ticket = producer.publish(waiting, state("parent", 20)).unwrap();
    let run = store.group("job").unwrap().begin(Start::Beginning).unwrap();
    let mut consumer = run.consumer(Share::WHOLE).unwrap();
    consumer.next_batch().unwrap().unwrap();
    let draft = draft(&mut producer, 1).unwrap();
    let reclaimer = store.reclaim_in_background(ReclaimOptions::new(), HOUR).unwrap();
    let handles = Handles { store, producer, ticket, draft, run, consumer, reclaimer };
    // SAFETY: what the child shares with threads that it hasn't are the handles, which is what is tried, and
    // the allocator, which a fork leaves well. The locks of the environment and of stderr other tests hold
    // for an instant at most; were it this one, the alarm would tell.
    #[expect(unsafe_code, reason = "there is no other way to fork")]
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            // A child that hangs is ended, and found by how it ended.
            alarm::set(60);
            let lived = catch_unwind(AssertUnwindSafe(|| live(handles, &path)));
            if let Err(panic) = &lived {
                // Whoever captures a test's output doesn't see a child's.
                let what = panic.downcast_ref::<String>();
                let _ = writeln!(std::io::stderr(), "the child: {what:?}");
            }
            // SAFETY: it ends here, and nothing of the parent's test may be run.
            unsafe { _exit(i32::from(lived.is_err())) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        }
    }
    let Handles { store, mut producer, ticket, draft, mut consumer, .. } = handles;
    assert_eq!(ticket.wait().unwrap().step, Step::new(21));
    producer.publish_now(draft, state("parent", 21)).expect("the draft is still there");
    for step in 1..24 {
        let batch = consumer.next_batch().unwrap().expect("the stream is open");
        assert_eq!(batch.step(), Step::new(step));
    }
    assert_eq!(
        store.info().unwrap().next_step,
        Step::new(24),
        "two of the child's, two more of the parent's"
    );
}
