//! A mount that is away for a while. The method: a reader whose mount is taken for a remote one, by a clock
//! that stands still unless it waits; each of its calls fails for a while, by each errno in question, or all
//! of them fail for as long as the test says.
//!
//! - What passes in time nobody notices: every step once, with its own bytes.
//! - What lasts is an error after just so long, the position unmoved, and the next call goes on.
//! - What doesn't pass, a local mount, and a tool that reports what it sees, are told at once.

use std::sync::Arc;
use std::time::Duration;

use batchweave::env::Env;
use batchweave::storage::{Access, Storage};
use batchweave::{
    Consumer, ConsumerOptions, Error, ErrorKind, MountClass, Primitive, Settings, Share, Start, Step, Store,
};
use batchweave_sim::{Fault, Match, Memory, Method, Plan, Seeded, errno};

use super::support::*;
use super::{fail_each_call, prepared};

const AWAY: [i32; 6] =
    [errno::EIO, errno::ESTALE, errno::ESHUTDOWN, errno::ENOTCONN, errno::ETIMEDOUT, errno::EREMOTEIO];
const PATIENCE: Duration = Duration::from_secs(120);
/// More calls in a row than one look at a commit makes by itself.
const WHILE: u64 = 12;
/// Steps in the store: over a boundary, so that an index is read.
const STEPS: u64 = 20;

pub(super) fn remote() -> Settings {
    Settings::new().mount_class(MountClass::CloseToOpen)
}

/// A process with a mount that can go away, and its clock.
pub(super) struct Process {
    pub(super) disk: Memory,
    pub(super) mount: Arc<Fault>,
    pub(super) env: Arc<Seeded>,
}

impl Process {
    pub(super) fn new() -> Self {
        Self::over(prepared(STEPS + 1, mount_with(Primitive::Link)).0)
    }

    pub(super) fn over(disk: Memory) -> Self {
        let mount = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        Self { disk, mount, env: Arc::new(Seeded::new(9)) }
    }

    pub(super) fn open(&self, settings: &Settings) -> Store {
        open_in(self.mount.clone(), &self.env, settings).unwrap()
    }

    /// How long something takes by its clock.
    fn time<T>(&self, what: impl FnOnce() -> T) -> (T, Duration) {
        let began = self.env.now();
        let done = what();
        (done, self.env.now() - began)
    }
}

fn consumer(store: &Store, window_steps: usize) -> Consumer {
    let options = ConsumerOptions::new().window_steps(window_steps);
    store.run(Start::Beginning).unwrap().consumer_with(Share::WHOLE, options).unwrap()
}

fn next(consumer: &mut Consumer) -> Result<(String, u64), Error> {
    let batch = consumer.next_batch()?.expect("an open stream");
    Ok(parse(&batch.slice(0)?))
}

pub(super) fn all_fail(errno: i32) -> Plan {
    Plan::new().fail(Match::any(), errno)
}

fn commit_of(step: u64) -> String {
    // Version 0 is the producer's Open.
    format!("log/{:012}/{:020}", (step + 1) / 16, step + 1)
}

/// Reads all there is in every way there is.
fn read_in_every_way(process: &Process) {
    let store = process.open(&remote());
    assert_eq!(store.info().unwrap().next_step, Step::new(STEPS));
    let producers = store.producers().unwrap();
    assert_eq!(producers[0].state, state("a", STEPS - 1).as_bytes());
    let mut consumer = consumer(&store, 0);
    for step in 0..STEPS {
        assert_eq!(next(&mut consumer).unwrap(), ("a".to_owned(), step), "every step, once, in order");
    }
    let last = STEPS - 1;
    let batch = store.batch(Step::new(last)).unwrap();
    let expected = text("a", last);
    assert_eq!(&*batch.slice(0).unwrap(), expected.as_bytes());
    assert_eq!(&*batch.range(0, 1..3).unwrap(), &expected.as_bytes()[1..3]);
    assert_eq!(batch.location(0).unwrap().length, expected.len() as u64);
    assert_eq!(batch.metadata().unwrap(), [[]; 1]);
    assert_eq!(batch.attachments().unwrap(), [[]; 1]);
    assert_eq!(batch.producers().unwrap()[0].as_str(), "a");
}

#[test]
fn whichever_call_fails_for_a_while_every_step_is_read_once() {
    let disk = prepared(STEPS + 1, mount_with(Primitive::Link)).0;
    for errno in AWAY {
        let mut waited = 0;
        for call in 1.. {
            let process = Process::over(disk.clone());
            let away =
                (call..call + WHILE).fold(Plan::new(), |plan, call| plan.fail(Match::any().nth(call), errno));
            process.mount.set_plan(away);
            let ((), time) = process.time(|| read_in_every_way(&process));
            waited += u64::from(time > Duration::ZERO);
            if process.mount.calls() < call {
                break;
            }
        }
        assert!(waited > 100, "only {waited} outages by errno {errno}");
    }
}

#[test]
fn an_outage_longer_than_patience_is_an_error_and_the_next_call_goes_on() {
    for errno in AWAY {
        for window_steps in [0, 4] {
            let process = Process::new();
            let store = process.open(&remote());
            let mut consumer = consumer(&store, window_steps);
            for step in 0..STEPS {
                assert_eq!(next(&mut consumer).unwrap().1, step);
            }
            process.mount.set_plan(all_fail(errno));
            let at = consumer.position();
            let (error, time) = process.time(|| next(&mut consumer).unwrap_err());
            assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(errno)), "{error}");
            assert!(error.path().is_some_and(|path| path.starts_with(PATH)), "{error}");
            let most = PATIENCE + Duration::from_secs(3);
            assert!((PATIENCE..most).contains(&time), "waited {time:?}: {error}");
            assert_eq!(consumer.position(), at);
            process.mount.set_plan(Plan::new());
            let elsewhere = open(process.disk.clone(), 5).unwrap();
            publish(&mut elsewhere.producer("a").unwrap()).unwrap();
            assert_eq!(next(&mut consumer).unwrap().1, STEPS);
        }
    }
}

#[test]
fn a_store_is_opened_and_a_run_begun_as_patiently() {
    for errno in AWAY {
        // The mount's class isn't known before it has answered; this one would say it is local.
        for (settings, patience) in [
            (remote(), PATIENCE),
            (Settings::new(), PATIENCE),
            (remote().io_patience(Duration::from_secs(7)), Duration::from_secs(7)),
            (Settings::new().mount_class(MountClass::Local), Duration::ZERO),
        ] {
            let process = Process::new();
            process.mount.set_plan(all_fail(errno));
            let open = || open_in(process.mount.clone(), &process.env, &settings).unwrap_err();
            let (error, time) = process.time(open);
            assert_eq!((error.kind(), error.errno(), time), (ErrorKind::Io, Some(errno), patience));
            process.mount.set_plan(Plan::new());
            let store = process.open(&remote());
            process.mount.set_plan(all_fail(errno));
            let (error, time) = process.time(|| store.run(Start::Beginning).unwrap_err());
            assert_eq!((error.kind(), error.errno(), time), (ErrorKind::Io, Some(errno), PATIENCE));
        }
    }
}

#[test]
fn an_outage_that_was_over_before_the_call_is_not_told() {
    // The thread that reads ahead gives up while the trainer is busy elsewhere.
    let away = || Plan::new().fail(Match::method(Method::ReadAt).named(&commit_of(5)), errno::EIO);
    let process = Process::new();
    let store = process.open(&remote());
    let mut consumer = consumer(&store, 4);
    process.mount.set_plan(away());
    for step in 0..5 {
        assert_eq!(next(&mut consumer).unwrap().1, step);
    }
    process.env.sleep(10 * PATIENCE);
    process.mount.set_plan(Plan::new());
    for step in 5..STEPS {
        assert_eq!(next(&mut consumer).unwrap().1, step);
    }
    // While it lasts it is told, after one patience and not two.
    let mut consumer = self::consumer(&store, 4);
    process.mount.set_plan(away());
    for step in 0..5 {
        assert_eq!(next(&mut consumer).unwrap().1, step);
    }
    process.env.sleep(PAUSE);
    for _ in 0..2 {
        let (error, time) = process.time(|| next(&mut consumer).unwrap_err());
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(errno::EIO)), "{error}");
        assert!(time <= PATIENCE + Duration::from_secs(3), "waited {time:?}");
    }
}

#[test]
fn a_local_mount_and_no_patience_fail_at_once_and_a_local_one_can_be_told_to_wait() {
    let local = Settings::new();
    let seven = Duration::from_secs(7);
    for (settings, patience) in [
        (local, Duration::ZERO),
        (remote().io_patience(Duration::ZERO), Duration::ZERO),
        (local.io_patience(seven), seven),
    ] {
        for errno in AWAY {
            let process = Process::new();
            let store = process.open(&settings);
            let mut consumer = consumer(&store, 0);
            assert_eq!(next(&mut consumer).unwrap().1, 0);
            process.mount.set_plan(all_fail(errno));
            let (error, time) = process.time(|| next(&mut consumer).unwrap_err());
            assert_eq!((error.kind(), error.errno(), time), (ErrorKind::Io, Some(errno), patience));
            process.mount.set_plan(Plan::new());
            assert_eq!(next(&mut consumer).unwrap().1, 1);
        }
    }
}

#[test]
fn what_does_not_pass_is_told_at_once() {
    let (step, name) = (Step::new(3), commit_of(3));
    for (errno, kind) in [(errno::ENOENT, ErrorKind::Corrupt), (errno::EACCES, ErrorKind::Io)] {
        let process = Process::new();
        let store = process.open(&remote());
        store.info().unwrap();
        process.mount.set_plan(Plan::new().fail(Match::method(Method::Open).named(&name), errno));
        let (error, time) = process.time(|| store.batch(step).unwrap_err());
        assert_eq!((error.kind(), time), (kind, Duration::ZERO), "{error}");
    }
    let process = Process::new();
    let store = process.open(&remote());
    store.info().unwrap();
    let (segment, version) = name.rsplit_once('/').unwrap();
    let dir = process.disk.open_root(format!("{PATH}/{segment}").as_ref()).unwrap();
    let file = process.disk.open(&dir, version, Access::Update).unwrap();
    process.disk.write_at(&file, &[0xff], 100).unwrap();
    let (error, time) = process.time(|| store.batch(step).unwrap_err());
    assert_eq!((error.kind(), time), (ErrorKind::Corrupt, Duration::ZERO), "{error}");
}

#[test]
fn tools_report_what_they_see() {
    let process = Process::new();
    let store = process.open(&remote());
    process.mount.set_plan(all_fail(errno::EIO));
    let (error, time) = process.time(|| store.commits(0u64.into()).map(drop).unwrap_err());
    assert_eq!((error.errno(), time), (Some(errno::EIO), Duration::ZERO));
    let (report, time) = process.time(|| store.verify(|_| {}));
    assert!(report.is_err() || !report.unwrap().findings.is_empty());
    assert!(time < Duration::from_secs(10), "it took {time:?}");
}

#[test]
fn history_that_changed_during_an_outage_is_noticed_before_the_next_step() {
    // The newest commit is gone when the mount is back: all that was replayed is in doubt (R10).
    for errno in [errno::EIO, errno::ESTALE, errno::ENOTCONN] {
        let process = Process::new();
        let store = process.open(&remote());
        let mut consumer = consumer(&store, 0);
        assert_eq!(next(&mut consumer).unwrap().1, 0);
        let disk = process.disk.clone();
        let newest = commit_of(STEPS - 1);
        let (segment, version) = newest.rsplit_once('/').unwrap();
        let (segment, version) = (format!("{PATH}/{segment}"), version.to_owned());
        let read = || Match::method(Method::ReadAt).named(&commit_of(1)).nth(1);
        let plan = Plan::new().fail(read(), errno).meanwhile(read(), move || {
            disk.remove(&disk.open_root(segment.as_ref()).unwrap(), &version).unwrap();
        });
        process.mount.set_plan(plan);
        let error = next(&mut consumer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rewound, "{error}");
        assert_eq!(consumer.position().step, Step::new(1));
    }
}

#[test]
fn what_was_opened_before_a_mount_was_mounted_anew_is_opened_again() {
    for (errno, patience) in AWAY.into_iter().flat_map(|errno| [(errno, PATIENCE), (errno, Duration::ZERO)]) {
        let process = Process::new();
        let store = process.open(&remote().io_patience(patience));
        let mut consumer = consumer(&store, 0);
        let last = store.batch(Step::new(STEPS - 1)).unwrap();
        let elsewhere = open(process.disk.clone(), 5).unwrap();
        let mut producer = elsewhere.producer("a").unwrap();
        for step in 0..2 * STEPS {
            if step >= STEPS {
                publish(&mut producer).unwrap();
            }
            process.mount.remount(errno);
            let read = unless_outlived(errno, patience, || next(&mut consumer));
            assert_eq!(read.1, step);
            process.mount.remount(errno);
            let read = unless_outlived(errno, patience, || last.slice(0));
            assert_eq!(parse(&read).1, STEPS - 1);
            process.mount.remount(errno);
            unless_outlived(errno, patience, || store.info());
        }
        process.mount.remount(errno);
        let mut producer = unless_outlived(errno, patience, || store.producer("b"));
        publish(&mut producer).unwrap();
    }
}

/// Without patience the call that meets an old handle fails, and the one after it goes on.
fn unless_outlived<T>(errno: i32, patience: Duration, mut call: impl FnMut() -> Result<T, Error>) -> T {
    match call() {
        Err(error) if patience.is_zero() => {
            assert_eq!(error.errno(), Some(errno), "{error}");
            call().unwrap()
        }
        result => result.unwrap(),
    }
}

#[test]
fn an_index_that_has_outlived_its_mount_still_judges_what_comes_after_it() {
    // A writer has crossed a boundary and not linked yet: whoever opens now has the index and nothing after
    // it, and looks into it when the next commit says what it has seen (R10).
    let disk = prepared(16, mount_with(Primitive::Link)).0;
    let writer = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let writing = open_with(writer.clone(), 5, &Settings::new()).unwrap();
    writer.set_plan(Plan::new().fail(Match::method(Method::Link).named("-> log/000000000001"), errno::EIO));
    writing.producer("a").unwrap_err();
    writer.set_plan(Plan::new());
    let process = Process::over(disk);
    let store = process.open(&remote());
    assert_eq!(store.info().unwrap().head_version, Some(15u64.into()));
    process.mount.remount(errno::ESTALE);
    writing.producer("a").unwrap();
    assert_eq!(store.info().unwrap().head_version, Some(16u64.into()));
}

#[test]
fn who_is_patient_holds_nothing_that_others_need() {
    let process = Process::new();
    let store = process.open(&remote());
    let mut consumer = consumer(&store, 0);
    for step in 0..STEPS {
        assert_eq!(next(&mut consumer).unwrap().1, step);
    }
    // The step that it waits for can't be looked for; another thread reads an old one meanwhile.
    process
        .mount
        .set_plan(Plan::new().fail(Match::method(Method::Open).named(&commit_of(STEPS)), errno::EIO));
    let (env, elsewhere) = (process.env.clone(), store.clone());
    let other = process.env.spawn(
        "other",
        Box::new(move || {
            env.sleep(PATIENCE / 4);
            let began = env.now();
            elsewhere.batch(Step::new(2)).unwrap().slice(0).unwrap();
            assert_eq!(env.now() - began, Duration::ZERO, "it was kept waiting");
        }),
    );
    let error = next(&mut consumer).unwrap_err();
    assert_eq!(error.errno(), Some(errno::EIO));
    assert!(other.unwrap().join());
}

#[test]
fn who_follows_another_thread_is_patient_as_long_as_that_one() {
    // One of a handle's consumers probes for all; what it meets counts for all.
    let process = Process::new();
    let store = process.open(&remote());
    let at_head = || {
        let mut consumer = consumer(&store, 0);
        (0..STEPS).for_each(|step| assert_eq!(next(&mut consumer).unwrap().1, step));
        consumer
    };
    let (mut first, mut second) = (at_head(), at_head());
    process.mount.set_plan(all_fail(errno::EIO));
    let most = process.env.now() + PATIENCE + Duration::from_secs(3);
    let env = process.env.clone();
    let give_up = move |consumer: &mut Consumer| {
        assert_eq!(next(consumer).unwrap_err().errno(), Some(errno::EIO));
        assert!(env.now() < most, "one patience after the other: {:?}", env.now());
    };
    let also = give_up.clone();
    let other = process.env.spawn("other", Box::new(move || also(&mut second)));
    give_up(&mut first);
    assert!(other.unwrap().join());
}

#[test]
fn a_writer_catches_up_over_an_outage_and_its_link_is_judged_as_ever() {
    for errno in AWAY {
        let process = Process::new();
        let store = process.open(&remote());
        let away = || {
            let read = |call: &str| call.starts_with("log") || call.starts_with("marks");
            (1..=WHILE).fold(Plan::new(), |plan, nth| {
                plan.fail(Match::method(Method::OpenDir).when(read).nth(nth), errno)
            })
        };
        process.mount.set_plan(away());
        let mut producer = store.producer("a").unwrap();
        assert_eq!(producer.next_sequence().get(), STEPS);
        let draft = draft(&mut producer, 1).unwrap();
        let links = process.mount.count(Method::Link);
        process.mount.set_plan(away());
        let published = producer.publish_now(draft, state("a", STEPS)).unwrap();
        assert_eq!(published.step, Step::new(STEPS));
        assert_eq!(process.mount.count(Method::Link), links + 1, "it was outlasted before the link");
        drop((producer, store));
        check_going_on(&open(process.disk.clone(), 3).unwrap(), &["a"]);
    }
}

#[test]
fn a_publish_on_a_remote_mount_survives_the_failure_of_each_call() {
    fail_each_call(3, mount_with(Primitive::Link), &remote());
    fail_each_call(15, mount_with(Primitive::Link), &remote());
}
