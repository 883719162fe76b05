//! Racing processes. The method: children (this binary again) publish on a real filesystem, are killed and
//! stopped at moments that a generator draws, and are started again until they are done; then the ids in
//! the store are compared with what was to be there.
//!
//! - Each id once, in the order of its producer (P3); nobody's death stops another (P7); a name taken over
//!   fences (P4).
//! - No outcome depends on when a signal arrives; only which lines are run does.
//! - Where: the temporary directory, /dev/shm, and the mount that `BATCHWEAVE_TEST_DIR` names.

#[path = "processes/cluster.rs"]
mod cluster;
#[path = "processes/forked.rs"]
mod forked;
#[path = "processes/lifetimes.rs"]
mod lifetimes;
#[expect(dead_code, reason = "what examines crashes in memory isn't needed here")]
mod support;
#[path = "processes/turns.rs"]
mod turns;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use batchweave::{Durability, ErrorKind, Store};
use rustix::process::{Pid, Signal, kill_process};
use support::*;

/// What a child is to do: `store producer parts`.
const TASK: &str = "BATCHWEAVE_TEST_TASK";

/// Publishes until the producer has so many parts, saying each; retires the name. A child's whole life.
#[test]
#[ignore = "the life of a child of the other tests"]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let words: Vec<&str> = task.split(' ').collect();
    let [path, name, parts] = words[..] else { panic!("not a task: {task}") };
    let parts: u64 = parts.parse().unwrap();
    let store = Store::open(path).unwrap();
    let mut producer = store.producer(name).unwrap();
    let expected =
        producer.next_sequence().get().checked_sub(1).map(|last| state(name, last)).unwrap_or_default();
    assert_eq!(producer.state(), expected.as_bytes(), "the state is that of the last visible part");
    while producer.next_sequence().get() < parts {
        match publish(&mut producer) {
            Ok(published) => say(&format!("published {}", published.sequence)),
            Err(error) if error.kind() == ErrorKind::Fenced => return say("fenced"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
    match producer.finish() {
        Ok(()) => say("finished"),
        Err(error) if error.kind() == ErrorKind::Fenced => say("fenced"),
        Err(error) => panic!("{name}: {error}"),
    }
}

/// One line to the parent; a parent that has stopped listening is no fault.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "> {line}").and_then(|()| out.flush());
}

/// This binary again, with just that life.
fn life_of(life: &str, task: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", life, "--ignored", "--nocapture"]).env(TASK, task);
    command
}

struct Running {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    fn start(path: &Path, name: &str, parts: u64) -> Self {
        Self::child("child", &format!("{} {name} {parts}", path.display()))
    }

    /// Starts a life.
    fn child(life: &str, task: &str) -> Self {
        Self::of(&mut life_of(life, task))
    }

    /// Starts what says things by [`say`].
    fn of(command: &mut Command) -> Self {
        Self::reading(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    fn reading(mut process: Child) -> Self {
        let said = BufReader::new(process.stdout.take().unwrap());
        Self { process, said }
    }

    /// The next thing it says; none when it has ended.
    fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.said.read_line(&mut line).unwrap() > 0 {
            // The test harness says things on the same line.
            if let Some((_, said)) = line.trim_end().split_once("> ") {
                return Some(said.to_owned());
            }
            line.clear();
        }
        None
    }

    /// Reads on to its end; gives the last word. It has to end well.
    fn end(mut self) -> String {
        let last = std::iter::from_fn(|| self.next()).last();
        let status = self.process.wait().unwrap();
        assert!(status.success(), "a child failed: {status}");
        last.expect("a child that ends well says how")
    }

    /// Kills it, whatever it does.
    fn kill(mut self) {
        self.signal(Signal::KILL);
        self.process.wait().unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

/// The directories to test in; the second is the bulk's.
fn places() -> Vec<PathBuf> {
    let mut places = vec![std::env::temp_dir()];
    match std::env::var_os("BATCHWEAVE_TEST_DIR") {
        Some(mount) => places.push(mount.into()),
        None => {
            batchweave_sim::skipped("processes on the mount under test", &"BATCHWEAVE_TEST_DIR isn't set")
        }
    }
    places
}

/// The place of what is written much: memory, where there is some.
fn bulk() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if tempfile::tempdir_in(&shared).is_ok() { shared } else { std::env::temp_dir() }
}

fn with_store(place: &Path, durability: Durability, test: impl FnOnce(&Path, &Store)) {
    let home = tempfile::tempdir_in(place).unwrap();
    let path = home.path().join("store");
    let store = Store::create(&path, options().durability(durability)).unwrap();
    test(&path, &store);
}

/// All ids are there, each once, in order; and nothing else (P3).
fn check_all(store: &Store, names: &[String], parts: u64) {
    let found = check_replay(store).parts();
    assert_eq!(read_all(store), found);
    let counts = check_dense(&found);
    assert_eq!(counts.len(), names.len());
    for name in names {
        assert_eq!(counts[name], parts, "{name}");
    }
    let producers = store.producers().unwrap();
    assert!(producers.iter().all(|one| one.finished), "all have retired");
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("tok-{number:03}")).collect()
}

/// Races producers, until each has its parts; of those that run, one after another is killed.
fn race(place: &Path, durability: Durability, producers: usize, parts: u64, kills: u64) {
    with_store(place, durability, |path, store| {
        let names = names(producers);
        let mut running: Vec<Running> = names.iter().map(|name| Running::start(path, name, parts)).collect();
        let mut drawn = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..kills {
            drawn = drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let victim = (drawn >> 33) as usize % producers;
            // After so many of its words, wherever it is then.
            for _ in 0..(drawn >> 50) % 12 {
                if running[victim].next().is_none() {
                    break;
                }
            }
            running[victim].signal(Signal::KILL);
            running[victim].process.wait().unwrap();
            running[victim] = Running::start(path, &names[victim], parts);
        }
        for one in running {
            assert_eq!(one.end(), "finished");
        }
        check_all(store, &names, parts);
    });
}

#[test]
fn eight_producers_race_over_many_segments() {
    race(&bulk(), Durability::Unsynced, 8, 200, 0);
}

#[test]
fn killed_and_started_again_until_done() {
    race(&bulk(), Durability::Unsynced, 4, 100, 24);
}

#[test]
fn killed_on_a_synced_store() {
    for place in places() {
        race(&place, Durability::Synced, 3, 30, 8);
    }
}

#[test]
fn a_stopped_producer_that_is_taken_over_is_fenced_when_it_goes_on() {
    for place in places() {
        with_store(&place, Durability::Synced, |path, store| {
            for round in 0..5 {
                let name = format!("tok-{round}");
                let mut stopped = Running::start(path, &name, 1 << 40);
                for _ in 0..=round {
                    stopped.next().expect("it publishes");
                }
                stopped.signal(Signal::STOP);
                let mut owner = store.producer(&name).unwrap();
                assert!(owner.next_sequence().get() > round, "what was said to be published is there");
                publish(&mut owner).unwrap();
                stopped.signal(Signal::CONT);
                assert_eq!(stopped.end(), "fenced", "nothing else can become of it (P4)");
                publish(&mut owner).unwrap();
                let count = owner.next_sequence().get();
                owner.finish().unwrap();
                let parts = check_replay(store).parts();
                assert_eq!(check_dense(&parts)[&name], count, "nothing of the zombie came after");
            }
        });
    }
}

#[test]
fn any_number_may_create() {
    let home = tempfile::tempdir_in(bulk()).unwrap();
    let path = home.path().join("store");
    let creators: Vec<Child> = (0..6)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "creator", "--ignored", "--nocapture"])
                .env(TASK, &path)
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut creator in creators {
        assert!(creator.wait().unwrap().success());
    }
    let store = Store::open(&path).unwrap();
    let parts = check_replay(&store).parts();
    assert_eq!(check_dense(&parts)["together"], parts.len() as u64);
    assert!(!parts.is_empty());
}

/// Opens or creates, and publishes under a name that the others want too. A child's whole life.
#[test]
#[ignore = "the life of a child of `any_number_may_create`"]
fn creator() {
    let Some(path) = std::env::var_os(TASK) else { return };
    let store = Store::open_or_create(path, options().durability(Durability::Unsynced)).unwrap();
    let published = store.producer("together").and_then(|mut producer| publish(&mut producer));
    match published {
        Ok(_) => {}
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Contended), "{error}"),
    }
}
