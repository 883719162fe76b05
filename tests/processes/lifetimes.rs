//! Producers and a trainer of one job, all killed at once, again and again, at moments that a generator
//! draws: what the trainer delivered over all its lives is every id once, in one order, whatever was
//! reclaimed meanwhile; and none of the killed has left, or even opened, anything outside the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::time::Duration;

use batchweave::{Position, ReclaimOptions, Share, Start};

use super::*;

const PRODUCERS: usize = 32;
/// Parts of each producer after the last kill, beyond what the busiest had.
const MORE: u64 = 20;
/// More than there is time for before the kill.
const ENDLESS: u64 = 1 << 40;
const ROUNDS: u64 = 20;
/// Steps between two checkpoints.
const EVERY: u64 = 7;

/// Delivers, notes, saves and checkpoints until it has so many steps: `store journal steps`. A child's whole
/// life.
///
/// No test by itself, so `cargo test` passes it over: the test below starts this binary again with just this,
/// to have a process that it can kill.
#[test]
#[ignore = "the life of a child of the other tests"]
#[expect(clippy::disallowed_methods, reason = "a trainer saves its own files as it likes")]
fn trainer() {
    let Ok(task) = std::env::var(TASK) else { return };
    let words: Vec<&str> = task.split(' ').collect();
    let [path, journal, steps] = words[..] else { panic!("not a task: {task}") };
    let steps: u64 = steps.parse().unwrap();
    let saved_at = format!("{journal}.saved");
    let saved = fs::read(&saved_at).ok().map(|json| serde_json::from_slice::<Position>(&json).unwrap());
    let store = Store::open(path).unwrap();
    let run = store.group("job").unwrap().begin(Start::from(saved)).unwrap();
    let mut consumer = run.consumer(Share::WHOLE).unwrap();
    let mut journal = OpenOptions::new().create(true).append(true).open(journal).unwrap();
    say("begun");
    while consumer.position().step.get() < steps {
        let batch = consumer.next_batch_timeout(Duration::from_secs(120)).unwrap().unwrap();
        let slice = batch.slices().next().unwrap().unwrap();
        // One write, so that a kill leaves a line whole or not at all.
        let line = format!("{} {}\n", batch.step(), String::from_utf8_lossy(&slice));
        journal.write_all(line.as_bytes()).unwrap();
        say("delivered");
        if batch.position().step.get().is_multiple_of(EVERY) {
            let json = serde_json::to_vec(&batch.position()).unwrap();
            fs::write(format!("{saved_at}.new"), json).unwrap();
            fs::rename(format!("{saved_at}.new"), &saved_at).unwrap();
            match run.checkpoint(batch.position(), &format!("step-{}", batch.position().step)) {
                Err(error) if error.kind() == ErrorKind::Fenced => return say("fenced"),
                written => drop(written.unwrap()),
            }
            store.reclaim(&ReclaimOptions::new().keep(2)).unwrap();
        }
    }
    say("done");
}

#[test]
fn a_stopped_trainer_that_is_taken_over_is_fenced_when_it_goes_on() {
    with_store(&bulk(), Durability::Unsynced, |path, store| {
        let mut producer = store.producer("a").unwrap();
        let mut publish_all = |parts: u64| (0..parts).for_each(|_| assert!(publish(&mut producer).is_ok()));
        publish_all(60);
        let task = format!("{} {} {ENDLESS}", path.display(), path.with_file_name("journal").display());
        let kept = || store.groups().unwrap().remove(0).checkpoints;
        let mut words = 0;
        for round in 0..5 {
            let mut stopped = Running::child("lifetimes::trainer", &task);
            // Wherever it is after so many of its words: each life goes on where it was saved last.
            for _ in 0..=round * 4 {
                stopped.next().expect("it delivers");
                words += 1;
            }
            stopped.signal(Signal::STOP);
            let run = store.group("job").unwrap().begin(Start::Beginning).unwrap();
            let before = kept();
            stopped.signal(Signal::CONT);
            // Enough for its next checkpoint, and for the words of the next life.
            publish_all(4 * EVERY);
            assert_eq!(stopped.end(), "fenced", "nothing else can become of it (P4)");
            // It may have dropped some, as anybody may; none of its own came in.
            assert!(kept().iter().all(|one| before.contains(one)), "a zombie's checkpoint: {:?}", kept());
            let step = store.info().unwrap().next_step;
            run.checkpoint(store.position(step).unwrap(), &format!("taken-over-{round}")).unwrap();
        }
        assert!(words > 40);
    });
}

#[test]
fn a_job_that_is_killed_twenty_times_delivers_every_id_once() {
    with_store(&bulk(), Durability::Unsynced, |path, store| {
        let names = names(PRODUCERS);
        let journal = path.with_file_name("journal");
        let elsewhere = path.with_file_name("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        // What is given to be littered is empty in the end.
        let child = |life: &str, task: &str| {
            let mut command = life_of(life, task);
            for home in ["TMPDIR", "HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"] {
                command.env(home, &elsewhere);
            }
            Running::of(command.current_dir(&elsewhere))
        };
        let start = |parts: u64| {
            let producer = |name| child("child", &format!("{} {name} {parts}", path.display()));
            let producers = names.iter().map(producer);
            let steps = parts * PRODUCERS as u64;
            let task = format!("{} {} {steps}", path.display(), journal.display());
            let trainer = child("lifetimes::trainer", &task);
            (producers.collect::<Vec<_>>(), trainer)
        };
        let mut drawn = 0x2545_f491_4f6c_dd1d_u64;
        for round in 0..ROUNDS {
            drawn = drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let (producers, mut trainer) = start(ENDLESS);
            // After so many of its words, wherever everybody is then.
            for _ in 0..(drawn >> 40) % 60 {
                trainer.next().expect("it goes on until it is killed");
            }
            // Another producer in each round: the others publish on meanwhile.
            let looked_at = [&producers[round as usize % PRODUCERS], &trainer];
            looked_at.into_iter().for_each(|one| check_open(one, path.parent().unwrap()));
            for one in producers.into_iter().chain([trainer]) {
                one.kill();
            }
        }
        let known = store.producers().unwrap();
        let parts = known.iter().map(|one| one.sequence.get()).max().unwrap_or(0) + MORE;
        let (producers, trainer) = start(parts);
        for one in producers {
            assert_eq!(one.end(), "finished");
        }
        assert_eq!(trainer.end(), "done");
        check_journal(&fs::read_to_string(&journal).unwrap(), &names, parts);
        check_freed(store);
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "something is left outside the store");
        let left = names_in(path.parent().unwrap());
        assert_eq!(
            left,
            BTreeSet::from(["elsewhere", "journal", "journal.saved", "store"].map(str::to_owned))
        );
        let documented = ["STORE", "HEAD", "ballast", "groups", "index", "log", "marks", "stage"];
        assert_eq!(names_in(path), BTreeSet::from(documented.map(str::to_owned)));
    });
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A process holds, open or mapped, no file but those below `home`, and what programs are made of: so nothing
/// in /dev/shm or /tmp, and nothing that has no name.
fn check_open(running: &Running, home: &Path) {
    let process = PathBuf::from(format!("/proc/{}", running.process.id()));
    let inherited = descriptors_of(Path::new("/proc/self"));
    let maps = fs::read_to_string(process.join("maps")).unwrap();
    let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    let programs = ["/usr", "/lib", "/lib64", "/proc", "/sys", "/etc"];
    let this = std::env::current_exe().unwrap();
    for path in descriptors_of(&process).into_iter().chain(mapped) {
        let text = path.to_string_lossy();
        let has_no_file = ["pipe:", "socket:", "anon_inode:"].iter().any(|kind| text.starts_with(kind));
        let is_program = path == this || programs.iter().any(|dir| path.starts_with(dir));
        let is_known = has_no_file || is_program || path.starts_with(home) || inherited.contains(&path);
        assert!(is_known, "a child holds {text}");
    }
}

/// What a process has open, beside the harness's first three.
fn descriptors_of(process: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(process.join("fd")).unwrap().flatten();
    let own =
        entries.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok_and(|fd| fd > 2));
    own.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
}

/// Whatever was delivered again after a kill was the same; and all in all every id was, once.
fn check_journal(journal: &str, names: &[String], parts: u64) {
    let mut delivered: BTreeMap<u64, (String, u64)> = BTreeMap::new();
    for line in journal.lines() {
        let (step, id) = line.split_once(' ').unwrap();
        let (step, id) = (step.parse().unwrap(), parse(id.as_bytes()));
        let before = delivered.entry(step).or_insert_with(|| id.clone());
        assert_eq!(*before, id, "step {step} was delivered differently");
    }
    assert_eq!(
        delivered.keys().copied().collect::<Vec<_>>(),
        (0..parts * PRODUCERS as u64).collect::<Vec<_>>()
    );
    let counts = check_dense(&delivered.into_values().collect::<Vec<_>>());
    assert_eq!(counts.len(), names.len());
    assert!(counts.values().all(|count| *count == parts), "{counts:?}");
}

/// What no checkpoint needs is gone, up to three segments; and what is left is whole.
fn check_freed(store: &Store) {
    // Control files of the killed are litter when they are seen twice.
    let seen = store.reclaim(&ReclaimOptions::new().keep(2)).unwrap().control_seen;
    store.reclaim(&ReclaimOptions::new().keep(2).control_seen(seen)).unwrap();
    assert_eq!(fs::read_dir(store.path().join("stage")).unwrap().count(), 0, "nothing staged is left");
    let info = store.info().unwrap();
    let needed = store.groups().unwrap()[0].needs.unwrap();
    assert_eq!(info.floor, needed);
    // Those from the floor's on, and the slack.
    let first = store.commits(batchweave::Version::ZERO).unwrap().next().unwrap().unwrap().version;
    let head = info.head_version.unwrap();
    let left = fs::read_dir(store.path().join("log")).unwrap().count() as u64;
    assert!(
        left <= head.get() / 16 - first.get() / 16 + 1,
        "{left} segments are left from {first} to {head}"
    );
    let parts_after = info.next_step.get() - needed.get();
    let commits = store.commits(first).unwrap().map(Result::unwrap);
    let kept = commits.filter(|commit| commit.kind == "parts" && commit.void.is_none()).count() as u64;
    assert!(kept <= parts_after + 3 * 16, "{kept} parts are left, {parts_after} are needed");
    assert!(store.verify(|_| ()).unwrap().is_clean());
}
