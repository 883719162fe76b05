//! Words that are said at once: by an operator and a trainer, by a job and its zombie, by ranks and whoever
//! changes history. Each is told what became of its own.

use batchweave::{CheckpointOptions, ErrorKind, RewindOptions, Run, Start, Step};
use batchweave_sim::{Fault, Match, Method, Plan, Seeded};
use parking_lot::Mutex;

use super::*;

/// A process that sleeps right before its next link, while `act` is done.
fn asleep(disk: &Memory, seed: u64) -> (Arc<Fault>, Store) {
    let storage = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(storage.clone(), seed, &Settings::new()).unwrap();
    (storage, store)
}

fn while_it_sleeps(process: &Fault, act: impl Fn() + Send + Sync + 'static) {
    process.set_plan(Plan::new().meanwhile(Match::method(Method::Link).nth(1), act));
}

/// Begins a run by a process of its own, to be kept.
fn begin_elsewhere(disk: &Memory) -> (Arc<Mutex<Option<Run>>>, impl Fn() + Send + Sync + 'static) {
    let kept = Arc::<Mutex<Option<Run>>>::default();
    let (keep, disk) = (kept.clone(), disk.clone());
    let begin = move || {
        let store = open(disk.clone(), 40).unwrap();
        *keep.lock() = Some(store.group("g").unwrap().begin(Start::Beginning).unwrap());
    };
    (kept, begin)
}

#[test]
fn an_operator_fences_nobody_who_began_meanwhile() {
    let disk = prepared(20);
    let (sleeper, operator) = asleep(&disk, 2);
    let at = operator.position(Step::new(5)).unwrap();
    let (trainer, begin) = begin_elsewhere(&disk);
    while_it_sleeps(&sleeper, begin);
    operator.group("g").unwrap().checkpoint(at, "operators", &CheckpointOptions::new()).unwrap();
    let trainer = trainer.lock().take().unwrap();
    trainer.checkpoint(at, "trainers").unwrap();
    assert_eq!(operator.group("g").unwrap().checkpoints().unwrap().len(), 2);
}

#[test]
fn who_slept_in_begin_fences_nobody_newer() {
    let disk = prepared(20);
    let (sleeper, old) = asleep(&disk, 2);
    let (newer, begin) = begin_elsewhere(&disk);
    while_it_sleeps(&sleeper, begin);
    let error = old.group("g").unwrap().begin(Start::Beginning).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    let newer = newer.lock().take().unwrap();
    newer.checkpoint(newer.position(), "mine").unwrap();
}

#[test]
fn a_zombie_is_not_told_that_another_jobs_checkpoint_is_its_own() {
    for rewinds in [false, true] {
        let disk = prepared(20);
        let (sleeper, store) = asleep(&disk, 2);
        let zombie = store.group("g").unwrap().begin(Start::Beginning).unwrap();
        let position = position_after(&zombie, 5);
        let elsewhere = disk.clone();
        while_it_sleeps(&sleeper, move || {
            let store = open(elsewhere.clone(), 40).unwrap();
            if rewinds {
                store.rewind(Step::new(2), RewindOptions::default()).unwrap();
                let mut producer = store.producer("a").unwrap();
                for _ in 0..9 {
                    publish(&mut producer).unwrap();
                }
            }
            let run = store.group("g").unwrap().begin(Start::Beginning).unwrap();
            run.checkpoint(position_after(&run, 5), "step-5").unwrap();
        });
        let error = zombie.checkpoint(position, "step-5").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Rewound), "{error}");
    }
}

#[test]
fn a_refused_checkpoint_opens_no_group() {
    let disk = prepared(20);
    let store = process(&disk, 2);
    let good = store.position(Step::new(5)).unwrap();
    let bad = Position { step: Step::new(6), ..good };
    store.group("typo").unwrap().checkpoint(bad, "c", &CheckpointOptions::new()).unwrap_err();
    assert!(store.groups().unwrap().is_empty());
}

#[test]
fn a_checkpoint_that_is_there_otherwise_is_said() {
    let disk = prepared(20);
    let run = process(&disk, 2).group("g").unwrap().begin(Start::Beginning).unwrap();
    let position = position_after(&run, 5);
    run.checkpoint(position, "c").unwrap();
    for other in [CheckpointOptions::new().pinned(true), CheckpointOptions::new().metadata("loss 2")] {
        let error = run.checkpoint_with(position, "c", &other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    run.checkpoint(position, "c").unwrap();
}

#[test]
fn joining_by_an_old_snapshot_sets_no_handle_back() {
    let disk = prepared(20);
    let old = process(&disk, 2).run(Start::Beginning).unwrap().snapshot();
    process(&disk, 3).rewind(Step::new(5), RewindOptions::default()).unwrap();
    let store = process(&disk, 4);
    let mut producer = store.producer("a").unwrap();
    publish(&mut producer).unwrap();
    let run = store.run(Start::Beginning).unwrap();
    let mut reader = consumer(&run);
    deliver(&mut reader, 2);
    let joined = store.join(&old).unwrap();
    let error = consumer(&joined).try_next().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rewound, "{error}");
    assert_eq!(deliver(&mut reader, 4), [2, 3, 4, 5]);
}

#[test]
fn who_joins_looks_at_history_first_however_young_his_process() {
    let disk = prepared(20);
    let old = process(&disk, 2).run(Start::Beginning).unwrap().snapshot();
    process(&disk, 3).rewind(Step::new(5), RewindOptions::default()).unwrap();
    for age_ms in [0, 500, 2000] {
        let env = Arc::new(Seeded::new(90 + age_ms));
        env.advance(std::time::Duration::from_millis(age_ms));
        let store = open_in(Arc::new(disk.clone()), &env, &Settings::new()).unwrap();
        let error = consumer(&store.join(&old).unwrap()).try_next().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rewound, "after {age_ms} ms: {error}");
    }
}

#[test]
fn who_was_set_back_to_finished_is_not_told_that_it_finished() {
    let disk = prepared(5);
    let store = process(&disk, 2);
    let mut other = store.producer("b").unwrap();
    publish(&mut other).unwrap();
    other.finish().unwrap();
    let mut producer = reopen(&store, "a", &replay(store.inner()).parts());
    publish(&mut producer).unwrap();
    // It comes back for more, and a rewind goes to before that: to when it had finished.
    let mut back = process(&disk, 3).producer("b").unwrap();
    publish(&mut back).unwrap();
    process(&disk, 4).rewind(Step::new(6), RewindOptions::default()).unwrap();
    assert!(
        process(&disk, 5)
            .producers()
            .unwrap()
            .iter()
            .any(|known| known.name.as_str() == "b" && known.finished)
    );
    assert_eq!(back.finish().unwrap_err().kind(), ErrorKind::Fenced);
}
