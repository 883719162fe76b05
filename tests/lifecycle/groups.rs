//! Groups and checkpoints: who may speak, what is protected, and what a saved position is worth.

use batchweave::{CheckpointOptions, ErrorKind, Next, Position, Start, Step};
use batchweave_sim::{Fault, Match, Method, Plan, errno};

use super::*;

#[test]
fn a_job_resumes_from_its_checkpoint() {
    let disk = prepared(20);
    let store = process(&disk, 2);
    let group = store.group("llama-7b").unwrap();
    let run = group.begin(Start::Beginning).unwrap();
    let saved = position_after(&run, 7);
    let options = CheckpointOptions::new().metadata("loss 2.5");
    let written = run.checkpoint_with(saved, "step-7", &options).unwrap();
    assert_eq!((written.position, written.metadata.as_slice()), (saved, b"loss 2.5".as_slice()));
    // Said again, it is there: by this run, and by one that finds it.
    assert_eq!(run.checkpoint_with(saved, "step-7", &options).unwrap(), written);
    let known = process(&disk, 3).groups().unwrap();
    assert_eq!((known.len(), known[0].needs), (1, Some(Step::new(7))));
    assert_eq!(known[0].checkpoints, std::slice::from_ref(&written));
    // The position survives JSON, as a trainer saves it.
    let saved: Position = serde_json::from_str(&serde_json::to_string(&saved).unwrap()).unwrap();
    let again = process(&disk, 4).group("llama-7b").unwrap().begin(saved).unwrap();
    assert_eq!(deliver(&mut consumer(&again), 13), (7..20).collect::<Vec<_>>());
    let from_checkpoint = process(&disk, 5).group("llama-7b").unwrap().begin(&written).unwrap();
    assert_eq!(from_checkpoint.position(), saved);
}

#[test]
fn a_requeued_job_fences_its_zombie() {
    let disk = prepared(20);
    let zombie = process(&disk, 2).group("g").unwrap().begin(Start::Beginning).unwrap();
    let kept = zombie.checkpoint(position_after(&zombie, 3), "three").unwrap();
    let requeued = process(&disk, 3).group("g").unwrap().begin(kept.position).unwrap();
    let later = position_after(&zombie, 9);
    for said in [
        zombie.checkpoint(later, "nine").map(drop),
        zombie.drop_checkpoint("three").map(drop),
        zombie.retain(["nine"]).map(drop),
    ] {
        let error = said.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    }
    let known = process(&disk, 4).groups().unwrap();
    assert_eq!(known[0].checkpoints.len(), 1);
    assert_eq!(
        known[0].incarnation,
        requeued.checkpoint(later, "nine").map(|_| known[0].incarnation).unwrap()
    );
    // It still reads: nobody takes that from it.
    assert_eq!(position_after(&zombie, 20).step.get(), 20);
}

#[test]
fn a_sleeping_zombies_checkpoint_is_void() {
    let disk = prepared(20);
    let process_of_zombie = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process_of_zombie.clone(), 2, &Settings::new()).unwrap();
    let zombie = store.group("g").unwrap().begin(Start::Beginning).unwrap();
    let position = position_after(&zombie, 5);
    let other = disk.clone();
    // It sleeps right before its link, while the name is opened anew.
    process_of_zombie.set_plan(Plan::new().meanwhile(Match::method(Method::Link).nth(1), move || {
        let store = open(other.clone(), 3).unwrap();
        let run = store.group("g").unwrap().begin(Step::new(2)).unwrap();
        run.checkpoint(position_after(&run, 1), "three").unwrap();
    }));
    let error = zombie.checkpoint(position, "five").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    let known = process(&disk, 4).groups().unwrap();
    let names: Vec<_> = known[0].checkpoints.iter().map(|kept| kept.name.as_str()).collect();
    assert_eq!(names, ["three"]);
}

#[test]
fn several_groups_keep_their_own() {
    let disk = prepared(20);
    let store = process(&disk, 2);
    let one = store.group("one").unwrap().begin(Start::Beginning).unwrap();
    let two = store.group("two").unwrap().begin(Step::new(4)).unwrap();
    one.checkpoint(position_after(&one, 9), "same").unwrap();
    two.checkpoint(position_after(&two, 2), "same").unwrap();
    let needs: Vec<_> = store.groups().unwrap().iter().map(|group| group.needs.unwrap().get()).collect();
    assert_eq!(needs, [9, 6]);
    assert!(store.group("two").unwrap().retire().unwrap());
    assert!(!store.group("two").unwrap().retire().unwrap(), "done already");
    let known = store.groups().unwrap();
    assert_eq!((known[1].incarnation, known[1].needs), (None, None));
    let error = two.checkpoint(position_after(&two, 3), "late").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(store.group("three").unwrap().retire().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn checkpoints_are_dropped_and_retained_by_name() {
    let disk = prepared(20);
    let store = process(&disk, 2);
    let group = store.group("g").unwrap();
    let run = group.begin(Start::Beginning).unwrap();
    for step in 1..=5 {
        let options = CheckpointOptions::new().pinned(step == 1);
        run.checkpoint_with(position_after(&run, step), &format!("c{step}"), &options).unwrap();
    }
    let error = run.checkpoint(position_after(&run, 9), "c3").unwrap_err();
    assert_eq!((error.kind(), error.about_step()), (ErrorKind::Invalid, Some(Step::new(9))), "{error}");
    assert!(run.drop_checkpoint("c2").unwrap());
    assert!(!run.drop_checkpoint("c2").unwrap());
    let went: Vec<_> = run.retain(["c5", "never-was"]).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(went, ["c3", "c4"]);
    let left: Vec<_> = group.checkpoints().unwrap().iter().map(|kept| kept.name.to_string()).collect();
    assert_eq!(left, ["c1", "c5"], "a pinned one stays");
    assert!(group.drop_checkpoint("c1").unwrap(), "until it is dropped by name");
    let too_long = CheckpointOptions::new().metadata(vec![0; (64 << 10) + 1]);
    let error = run.checkpoint_with(run.position(), "long", &too_long).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn operators_checkpoint_without_fencing() {
    let disk = prepared(20);
    let store = process(&disk, 2);
    let group = store.group("g").unwrap();
    let at = |step| store.position(Step::new(step)).unwrap();
    // Nobody runs it: it is opened, at the floor.
    group.checkpoint(at(4), "four", &CheckpointOptions::new()).unwrap();
    let opened = store.groups().unwrap()[0].incarnation;
    group.checkpoint(at(6), "six", &CheckpointOptions::new()).unwrap();
    assert_eq!(store.groups().unwrap()[0].incarnation, opened);
    let run = group.begin(at(6)).unwrap();
    group.checkpoint(at(8), "eight", &CheckpointOptions::new()).unwrap();
    run.checkpoint(at(9), "nine").unwrap();
    assert_eq!(group.checkpoints().unwrap().len(), 4);
}

#[test]
fn positions_of_elsewhere_are_refused() {
    let disk = prepared(20);
    let store = process(&disk, 2);
    let group = store.group("g").unwrap();
    let good = store.position(Step::new(5)).unwrap();
    let other = process(&prepared(20), 9);
    assert_eq!(other.uuid(), store.uuid(), "made by the same seed");
    let kind = |position: Position| group.begin(position).map(drop).unwrap_err().kind();
    assert_eq!(kind(Position { store: batchweave::StoreUuid::new([9; 16]), ..good }), ErrorKind::Invalid);
    assert_eq!(kind(Position { step: Step::new(6), ..good }), ErrorKind::Rewound, "another lineage");
    assert_eq!(kind(Position { step: Step::new(21), ..good }), ErrorKind::Rewound);
    let newer = Position { generation: batchweave::Generation::new(1), ..good };
    assert_eq!(kind(newer), ErrorKind::Rewound);
    assert!(store.groups().unwrap().is_empty(), "what is refused opens nothing");
    let run = group.begin(good).unwrap();
    let error = run.checkpoint(Position { step: Step::new(6), ..good }, "six").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rewound);
    let no_group = store.run(Start::Beginning).unwrap();
    assert_eq!(no_group.checkpoint(good, "five").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(group.begin(Step::new(21)).map(drop).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn the_ends_are_places_to_resume_from() {
    let disk = prepared(20);
    let store = process(&disk, 2);
    let group = store.group("g").unwrap();
    let run = group.begin(Start::Beginning).unwrap();
    for (step, name) in [(0, "first"), (19, "last-but-one"), (20, "last")] {
        run.checkpoint(position_after(&run, step), name).unwrap();
    }
    store.close(false).unwrap();
    let mut reader = consumer(&run);
    deliver(&mut reader, 20);
    assert!(matches!(reader.try_next().unwrap(), Next::Closed));
    run.checkpoint(reader.position(), "closed").unwrap();
    // After the end: nothing, and it says so; then more is published, and it goes on at exactly that.
    for kept in group.checkpoints().unwrap() {
        let again = process(&disk, 3).group("g").unwrap().begin(&kept).unwrap();
        let left = (kept.position.step.get()..20).collect::<Vec<_>>();
        let mut reader = consumer(&again);
        assert_eq!(deliver(&mut reader, left.len()), left);
        assert!(matches!(reader.try_next().unwrap(), Next::Closed), "{kept:?}");
    }
    assert!(store.reopen().unwrap());
    let mut producer = reopen(&store, "a", &replay(store.inner()).parts());
    publish(&mut producer).unwrap();
    for kept in group.checkpoints().unwrap() {
        let again = process(&disk, 4).group("g").unwrap().begin(&kept).unwrap();
        let left = (kept.position.step.get()..21).collect::<Vec<_>>();
        assert_eq!(deliver(&mut consumer(&again), left.len()), left);
    }
}

#[test]
fn a_read_only_mount_reads_and_says_why_it_cannot_checkpoint() {
    let disk = prepared(20);
    let opened = process(&disk, 2).group("g").unwrap().begin(Start::Beginning).unwrap();
    let snapshot = opened.snapshot();
    let plan = Plan::new().fail(Match::method(Method::CreateExclusive), errno::EROFS);
    let store = open_with(Arc::new(Fault::new(Arc::new(disk.clone()), plan)), 3, &Settings::new()).unwrap();
    let run = store.join(&snapshot).unwrap();
    let position = position_after(&run, 5);
    let error = run.checkpoint(position, "five").unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(errno::EROFS)), "{error}");
}
