//! What runs, positions and late records make of a change of history.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::commit::staged::{open_stage, stage_control};
use batchweave::commit::writer::{Settled, append_control};
use batchweave::format::names;
use batchweave::format::record::{Checkpoint, Record};
use batchweave::log::past::Past;
use batchweave::log::void::Void;
use batchweave::storage::Storage;
use batchweave::{
    Checksum, Consumer, ConsumerOptions, Error, ErrorKind, Name, Next, Position, Producer, RewindOptions,
    Segment, Settings, Share, Start, Step, Store, Version,
};
use batchweave_sim::{Fault, Match, Memory, Method, Plan, Seeded};

use crate::support::*;
use crate::{dir_path, remove_segment, segment_path};

const SLICES: u32 = 4;

/// A store of steps with four slices, the producer that writes them, and a handle whose clock is moved.
struct Stream {
    disk: Memory,
    store: Store,
    producer: Producer,
    other: (Store, Arc<Seeded>),
}

impl Stream {
    fn new(steps: u64) -> Self {
        let disk = Memory::new();
        let options = options().divisor(SLICES);
        let store = create(Arc::new(disk.clone()), 1, options, &Settings::new()).unwrap();
        let producer = store.producer("a").unwrap();
        let env = Arc::new(Seeded::new(2));
        let other = open_in(Arc::new(disk.clone()), &env, &Settings::new()).unwrap();
        let mut stream = Self { disk, store, producer, other: (other, env) };
        stream.publish(steps);
        stream
    }

    fn publish(&mut self, steps: u64) {
        for _ in 0..steps {
            let draft = draft(&mut self.producer, SLICES).unwrap();
            let after = state("a", self.producer.next_sequence().get());
            self.producer.publish_now(draft, after).unwrap();
        }
    }

    fn rewind(&mut self, step: u64) {
        self.store.rewind(Step::new(step), RewindOptions::new()).unwrap();
        self.producer = self.store.producer("a").unwrap();
        assert_eq!(self.producer.next_sequence().get(), step, "a part is a step here");
    }

    fn skip(&self, first: u64, last: u64) -> bool {
        self.store.skip(Step::new(first), Step::new(last), "loss spike").unwrap()
    }

    fn later(&self) {
        self.other.1.advance(Duration::from_secs(2));
    }
}

fn consumer(store: &Store, start: impl Into<Start>, share: (u32, u32), window: usize) -> Consumer {
    let run = store.run(start).unwrap();
    let options = ConsumerOptions::new().window_steps(window);
    run.consumer_with(Share::new(share.0, share.1).unwrap(), options).unwrap()
}

/// The steps up to the head, or to the end, and whether it was the end.
fn steps_of(consumer: &mut Consumer) -> (Vec<u64>, bool) {
    let mut steps = Vec::new();
    loop {
        match consumer.try_next().unwrap() {
            Next::Batch(batch) => {
                assert_eq!(
                    parse(&batch.slice(0).unwrap()).1,
                    batch.step().get(),
                    "a sequence is a step here"
                );
                steps.push(batch.step().get());
            }
            Next::Closed => return (steps, true),
            _ => return (steps, false),
        }
    }
}

fn refused(consumer: &mut Consumer) -> Error {
    // What was ready before may still come; then nothing ever does.
    let error = (0..100).find_map(|_| consumer.try_next().err()).expect("an error");
    assert_eq!(consumer.try_next().unwrap_err().kind(), error.kind(), "it stays");
    error
}

/// Every way to read ahead and to share.
fn ways() -> impl Iterator<Item = ((u32, u32), usize)> {
    let shares = [(0, 1), (0, 2), (1, 2), (3, 4)];
    shares.into_iter().flat_map(|share| [(share, 0), (share, 8)])
}

#[test]
fn skipped_steps_are_passed_over_by_every_share() {
    let mut stream = Stream::new(12);
    let before = consumer(&stream.store, Step::new(4), (0, 1), 0).position();
    assert!(stream.skip(3, 5));
    assert!(!stream.skip(4, 5), "they are skipped already");
    assert!(stream.skip(5, 6), "one of them isn't");
    for (share, window) in ways() {
        let mut all = consumer(&stream.store, Start::Beginning, share, window);
        assert_eq!(steps_of(&mut all), (vec![0, 1, 2, 7, 8, 9, 10, 11], false));
        // A position inside the range, of the generation before, and one given by step.
        for start in [Start::Position(before), Start::Step(Step::new(6))] {
            let mut inside = consumer(&stream.store, start, share, window);
            assert_eq!(steps_of(&mut inside), (vec![7, 8, 9, 10, 11], false));
        }
    }
    // Up to the head: what comes next is delivered next.
    assert!(stream.skip(9, 11));
    let mut waiting: Vec<_> =
        ways().map(|(share, window)| consumer(&stream.store, Step::new(8), share, window)).collect();
    for consumer in &mut waiting {
        assert_eq!(steps_of(consumer), (vec![8], false));
    }
    stream.publish(1);
    for consumer in &mut waiting {
        assert_eq!(steps_of(consumer), (vec![12], false));
    }
    // The end may come right after what is skipped.
    assert!(stream.skip(12, 12) && stream.store.close(false).unwrap());
    for (share, window) in ways() {
        let mut last = consumer(&stream.store, Step::new(9), share, window);
        assert_eq!(steps_of(&mut last), (vec![], true));
    }
    assert!(stream.store.verify(|_| ()).unwrap().is_clean());
    check_replay(&stream.store);
}

#[test]
fn skips_that_cannot_be_are_refused_in_words() {
    let stream = Stream::new(5);
    for (first, last, words) in [(3, 5, "the next one is 5"), (5, 5, "published"), (3, 2, "no steps from 3")]
    {
        let error = stream.store.skip(Step::new(first), Step::new(last), "why").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = stream.store.skip(Step::new(1), Step::new(1), &"x".repeat(4097)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    raise_floor(&stream.store, 2);
    let error = stream.store.skip(Step::new(1), Step::new(3), "why").unwrap_err();
    assert_eq!((error.kind(), error.about_step()), (ErrorKind::Reclaimed, Some(Step::new(1))), "{error}");
    assert_eq!(stream.store.info().unwrap().generation.get(), 0, "nothing was changed");
}

#[test]
fn runs_that_are_under_way_are_told_before_their_next_batch() {
    for skips in [true, false] {
        for (share, window) in ways() {
            let mut stream = Stream::new(12);
            let mut running = consumer(&stream.other.0, Start::Beginning, share, window);
            let mut ended = consumer(&stream.other.0, Step::new(12), share, window);
            for _ in 0..4 {
                assert!(matches!(running.try_next().unwrap(), Next::Batch(_)));
            }
            assert_eq!(steps_of(&mut ended), (vec![], false));
            if skips {
                assert!(stream.skip(9, 10))
            } else {
                stream.rewind(6)
            }
            stream.publish(10);
            stream.later();
            for consumer in [&mut running, &mut ended] {
                let error = refused(consumer);
                assert_eq!(error.kind(), ErrorKind::Rewound, "{error}");
                assert!(error.about_step().is_some(), "{error}");
            }
            assert_eq!(running.position().step.get(), 4, "the position doesn't move");
            let again = consumer(&stream.other.0, running.position(), share, window);
            assert_eq!(again.position().step.get(), 4, "and is good");
        }
    }
}

#[test]
fn a_run_never_delivers_what_its_own_handle_has_published_since() {
    // The handle's tail is moved on by who writes through it, before its consumers have looked.
    for (share, window) in ways() {
        let mut stream = Stream::new(12);
        let mut running = consumer(&stream.store, Start::Beginning, share, window);
        assert!(matches!(running.try_next().unwrap(), Next::Batch(_)));
        stream.rewind(1);
        let mut other = stream.store.producer("b").unwrap();
        for _ in 0..12 {
            let draft = draft(&mut other, SLICES).unwrap();
            other.publish_now(draft, "").unwrap();
        }
        for _ in 0..20 {
            match running.try_next() {
                Ok(Next::Batch(batch)) => {
                    let (producer, _) = parse(&batch.slice(0).unwrap());
                    assert_eq!(producer, "a", "step {} is another generation's", batch.step());
                }
                Ok(next) => panic!("{next:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Rewound, "{error}"),
            }
        }
    }
}

#[test]
fn positions_at_or_below_the_step_are_good() {
    let mut stream = Stream::new(40);
    let at = |step: u64| stream.store.run(Step::new(step)).unwrap().position();
    let old: Vec<Position> = [0, 6, 10, 11, 40].map(at).into();
    stream.rewind(10);
    stream.publish(60);
    stream.later();
    let good = |position: Position| stream.other.0.run(position).map(|run| run.position());
    for position in &old[..3] {
        let found = good(*position).unwrap();
        assert_eq!((found.step, found.lineage), (position.step, position.lineage));
        assert_eq!(found.generation.get(), 1);
    }
    for position in &old[3..] {
        let error = good(*position).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rewound, "{error}");
        assert!(error.to_string().contains("rewound to step 10"), "{error}");
    }
    // A newer one isn't, in a store that doesn't have its generation.
    let newer = stream.store.run(Step::new(12)).unwrap().position();
    let mut before = Stream::new(40);
    before.publish(1);
    let foreign = Position { store: before.store.uuid(), ..newer };
    assert_eq!(before.store.run(foreign).unwrap_err().kind(), ErrorKind::Rewound);
}

#[test]
fn a_closed_stream_is_open_after_a_rewind_and_ends_anew() {
    let mut stream = Stream::new(8);
    stream.store.close(false).unwrap();
    let report = stream.store.preview_rewind(Step::new(5), RewindOptions::new()).unwrap();
    assert!(report.reopens);
    stream.rewind(5);
    let mut late = consumer(&stream.store, Start::Beginning, (0, 1), 0);
    stream.publish(1);
    stream.store.close(false).unwrap();
    assert_eq!(steps_of(&mut late), (vec![0, 1, 2, 3, 4, 5], true), "not at the Close that was rewound");
}

fn past_bytes(store: &Store, step: u64) -> u64 {
    let mut tail = store.inner().current().unwrap();
    let part = Step::new(step).first_part(store.options().parts_per_step);
    tail.read(store.inner(), |tail| Past::before(store.inner(), tail, part)).unwrap().state.bytes_written
}

/// As a reclaim raises it, without groups.
fn raise_floor(store: &Store, step: u64) {
    let bytes_before = past_bytes(store, step);
    let log = store.inner();
    let mut tail = log.current().unwrap();
    let lineage = log.lineage(&tail, Step::new(step)).unwrap();
    let step = Step::new(step);
    let make = |state: &batchweave::log::state::State| {
        Ok((state.floor < step).then_some(Record::Floor { step, lineage, bytes_before }))
    };
    append_control(log, &mut tail, make, |_, _| Settled::Open).unwrap();
}

/// As a reclaim frees what lies below the floor: dead segments, then indexes as a prefix.
fn free(disk: &Memory, store: &Store, floor_version: u64) {
    let head = store.info().unwrap().head_version.unwrap().get();
    let (newest, live) = (head / 16, floor_version / 16);
    for segment in (0..live).filter(|segment| segment + 2 <= newest) {
        remove_segment(disk, segment);
    }
    let indexes = disk.open_root(Path::new(&dir_path(&[names::INDEX]))).unwrap();
    for segment in (0..live).filter(|segment| segment + 1 < live && segment + 3 <= newest) {
        disk.remove(&indexes, &names::segment(Segment::new(segment))).unwrap();
    }
}

#[test]
fn rewinds_to_the_floor_of_a_reclaimed_store() {
    // The floor's first part is the first, a middle and the last version of its segment.
    for version in [48, 55, 63, 16, 31] {
        let stream = Stream::new(90);
        let floor = version - 1;
        raise_floor(&stream.store, floor);
        free(&stream.disk, &stream.store, version);
        let store = open(stream.disk.clone(), 50).unwrap();
        let error = store.rewind(Step::new(floor - 1), RewindOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reclaimed, "{error}");
        assert!(error.to_string().contains("below the floor"), "{error}");
        for round in 0..2 {
            let report = store.rewind(Step::new(floor), RewindOptions::new()).unwrap();
            assert_eq!(report.parts, if round == 0 { 90 - floor } else { 1 });
            let mut producer = store.producer("a").unwrap();
            assert_eq!(producer.next_sequence().get(), floor, "as of the floor");
            assert_eq!(producer.state(), state("a", floor - 1).as_bytes());
            let draft = draft(&mut producer, SLICES).unwrap();
            let after = state("a", floor);
            assert_eq!(producer.publish_now(draft, after).unwrap().step, Step::new(floor));
            let info = store.info().unwrap();
            let part = past_bytes(&store, floor + 1) - past_bytes(&store, floor);
            assert_eq!(info.retained_bytes, part, "just the one part is left");
            let fresh = open(stream.disk.clone(), 60 + round).unwrap();
            let mut all = consumer(&fresh, Start::Beginning, (0, 1), 0);
            assert_eq!(steps_of(&mut all), (vec![floor], false));
            let report = fresh.verify(|_| ()).unwrap();
            assert!(report.is_clean(), "{report:?}");
        }
    }
}

#[test]
fn rewinds_that_cannot_be_are_refused_in_words() {
    let stream = Stream::new(5);
    let error = stream.store.rewind(Step::new(6), RewindOptions::new()).unwrap_err();
    assert_eq!((error.kind(), error.about_step()), (ErrorKind::Invalid, Some(Step::new(6))), "{error}");
    assert!(error.to_string().contains("beyond its next step, 5"), "{error}");
    for name in ["eval", "train"] {
        let log = stream.store.inner();
        let group = Name::new(name).unwrap();
        let make = |state: &batchweave::log::state::State| {
            let record = Record::Group { group: group.clone(), last: None, start: Step::ZERO };
            Ok((!state.groups.contains_key(&group)).then_some(record))
        };
        append_control(log, &mut log.current().unwrap(), make, |_, _| Settled::Open).unwrap();
    }
    let error = stream.store.rewind(Step::new(3), RewindOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("eval, train"), "{error}");
    assert_eq!(stream.store.info().unwrap().generation.get(), 0, "nothing was changed");
    let told = RewindOptions::new().even_with_groups(true);
    assert_eq!(stream.store.rewind(Step::new(3), told).unwrap().parts, 2);
}

#[test]
fn a_name_is_forgotten_once_it_is_finished_and_below_the_floor() {
    let mut stream = Stream::new(5);
    let refused = |store: &Store, words: &str| {
        let error = store.forget("a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    refused(&stream.store, "hasn't finished");
    stream.store.retire("a").unwrap();
    refused(&stream.store, "its last one is of step 4");
    raise_floor(&stream.store, 4);
    refused(&stream.store, "the floor is 4");
    raise_floor(&stream.store, 5);
    assert!(stream.store.forget("a").unwrap());
    assert!(!stream.other.0.forget("a").unwrap(), "it is gone already");
    let failed =
        draft(&mut stream.producer, SLICES).and_then(|draft| Ok(stream.producer.publish_now(draft, "")?));
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Fenced, "a zombie of a forgotten name");
    let anew = stream.store.producer("a").unwrap();
    assert_eq!((anew.next_sequence().get(), anew.state(), anew.was_finished()), (0, Vec::new(), false));
    assert!(stream.store.verify(|_| ()).unwrap().is_clean());
}

/// A process that sleeps before its first link to the log while `act` happens.
fn sleeping(disk: &Memory, seed: u64, act: impl Fn() + Send + Sync + 'static) -> (Store, Arc<Fault>) {
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process.clone(), seed, &Settings::new()).unwrap();
    store.info().unwrap();
    process.set_plan(Plan::new().meanwhile(Match::method(Method::Link).named("log/").nth(1), act));
    (store, process)
}

#[test]
fn of_two_that_rewind_at_once_one_is_told() {
    for (mine, theirs) in [(5, 3), (3, 5), (4, 4)] {
        let stream = Stream::new(8);
        let elsewhere = open(stream.disk.clone(), 60).unwrap();
        let (store, _process) = sleeping(&stream.disk, 50, move || {
            elsewhere.rewind(Step::new(theirs), RewindOptions::new()).unwrap();
        });
        let error = store.rewind(Step::new(mine), RewindOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rewound, "{error}");
        let info = open(stream.disk.clone(), 61).unwrap().info().unwrap();
        assert_eq!((info.next_step.get(), info.generation.get()), (theirs, 1), "it has changed nothing");
    }
}

#[test]
fn a_rewind_races_whoever_publishes_opens_and_skips() {
    // What comes before it in the log is dropped, whoever it is; a name that is new is in its record.
    let mut stream = Stream::new(8);
    stream.publish(0);
    let elsewhere = open(stream.disk.clone(), 60).unwrap();
    let (store, _process) = sleeping(&stream.disk, 50, move || {
        let mut new = elsewhere.producer("new").unwrap();
        for _ in 0..20 {
            let draft = draft(&mut new, SLICES).unwrap();
            new.publish_now(draft, "mine").unwrap();
        }
        elsewhere.skip(Step::new(1), Step::new(2), "why").unwrap();
    });
    let report = store.rewind(Step::new(6), RewindOptions::new()).unwrap();
    assert_eq!((report.next_step.get(), report.parts, report.generation.get()), (28, 22, 2));
    let new = report.producers.iter().find(|one| one.producer.as_str() == "new").unwrap();
    assert_eq!((new.sequence.get(), new.parts), (0, 20));
    let fresh = open(stream.disk.clone(), 70).unwrap();
    assert_eq!(check_replay(&fresh).parts().len(), 6);
    let new = fresh.producer("new").unwrap();
    assert_eq!((new.next_sequence().get(), new.state()), (0, Vec::new()), "it was opened later");
    let mut all = consumer(&fresh, Start::Beginning, (0, 1), 0);
    assert_eq!(steps_of(&mut all), (vec![0, 3, 4, 5], false));
    assert!(fresh.verify(|_| ()).unwrap().is_clean());
}

#[test]
fn a_publish_that_a_rewind_overtakes_is_fenced_and_given_back() {
    let stream = Stream::new(8);
    let elsewhere = open(stream.disk.clone(), 60).unwrap();
    let (store, process) = sleeping(&stream.disk, 50, || ());
    let mut producer = store.producer("a").unwrap();
    process.set_plan(Plan::new().meanwhile(Match::method(Method::Link).named("log/").nth(1), move || {
        drop(elsewhere.rewind(Step::new(5), RewindOptions::new()).unwrap())
    }));
    let draft = draft(&mut producer, SLICES).unwrap();
    let failed = producer.publish_now(draft, "").unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Fenced, "{}", failed.error);
    assert!(failed.error.to_string().contains("rewind"), "{}", failed.error);
    assert!(failed.draft.is_some(), "nothing of it is in");
    let replayed = check_replay(&open(stream.disk, 70).unwrap());
    assert_eq!(replayed.parts().len(), 5);
}

#[test]
fn late_records_of_an_older_generation_are_void() {
    // Staged before a rewind, linked after it: as a server does that carries a call out late.
    let mut stream = Stream::new(8);
    let log = stream.store.inner().clone();
    let group = Name::new("train").unwrap();
    let make = |state: &batchweave::log::state::State| {
        let record = Record::Group { group: group.clone(), last: None, start: Step::ZERO };
        Ok((!state.groups.contains_key(&group)).then_some(record))
    };
    let opened = append_control(&log, &mut log.current().unwrap(), make, |_, _| Settled::Open).unwrap();
    let producer = Name::new("a").unwrap();
    let stage = open_stage(&log).unwrap();
    let tail = log.current().unwrap();
    let (incarnation, lineage) =
        (opened.unwrap().version.incarnation(), log.lineage(&tail, Step::new(3)).unwrap());
    let retiring = tail.state.producers[&producer].incarnation.unwrap();
    let checkpoint = Checkpoint {
        group,
        incarnation,
        step: Step::new(3),
        lineage,
        name: Name::new("late").unwrap(),
        pinned: false,
        metadata: Vec::new(),
    };
    let records = [
        (Record::Checkpoint(checkpoint), Void::OtherGeneration),
        (Record::Floor { step: Step::ZERO, lineage: Checksum::ZERO, bytes_before: 0 }, Void::OtherGeneration),
        (Record::Close { step: Step::new(8), closes: 0, open_step: false }, Void::OtherGeneration),
        (
            Record::Skip { first: Step::new(1), last: Step::new(1), reason: "late".to_owned() },
            Void::OtherGeneration,
        ),
        (Record::Retire { producer, incarnation: retiring }, Void::Fenced),
    ];
    let staged =
        records.map(|(record, void)| (stage_control(&log, &tail, &stage, record.into()).unwrap().name, void));
    drop(tail);
    stream.rewind(5);
    for (name, void) in staged {
        let version: Version =
            open(stream.disk.clone(), 60).unwrap().info().unwrap().head_version.unwrap().next();
        assert_ne!(version.slot(16), 0, "no boundary is crossed by hand");
        let segment = stream.disk.open_root(Path::new(&segment_path(version.get()))).unwrap();
        stream.disk.link(&stage_of(&stream.disk), &name, &segment, &names::version(version)).unwrap();
        let replayed = check_replay(&open(stream.disk.clone(), 61).unwrap());
        assert_eq!(replayed.voids.last(), Some(&Some(void)));
        if version.slot(16) == 14 {
            stream.publish(4);
        }
    }
    let info = stream.store.info().unwrap();
    assert_eq!((info.closed, info.generation.get()), (None, 1));
    assert!(stream.store.verify(|_| ()).unwrap().is_clean());
}

fn stage_of(disk: &Memory) -> batchweave::storage::Dir {
    disk.open_root(Path::new(&dir_path(&[names::STAGE]))).unwrap()
}
