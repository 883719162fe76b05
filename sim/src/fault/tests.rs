//! A plan does to each call just what it says, and to no other.

use std::error::Error;
use std::sync::Arc;

use super::*;
use crate::{Memory, Seeded};

fn publish(storage: &dyn Storage) -> io::Result<()> {
    let root = storage.open_root("/".as_ref())?;
    let file = storage.create_exclusive(&root, "x")?;
    batchweave::storage::write_all_at(storage, &file, b"bytes", 0)?;
    storage.sync_file(&file)?;
    storage.close(file)?;
    storage.link(&root, "x", &root, "v")?;
    storage.remove(&root, "x")
}

fn on_memory(plan: Plan) -> (Memory, Fault) {
    let memory = Memory::new();
    (memory.clone(), Fault::new(Arc::new(memory), plan))
}

fn words(fault: &Fault) -> Vec<String> {
    fault.trace().iter().map(Call::to_string).collect()
}

#[test]
fn a_process_stops_at_every_call() {
    let mut seen = Vec::new();
    for k in 0.. {
        let (memory, process) = on_memory(Plan::new().stop_at(k));
        let result = publish(&process);
        seen.push(memory.paths().join(" "));
        match result {
            Ok(()) => break,
            Err(error) => assert!(Stopped::caused(&error), "{error}"),
        }
        assert!(Stopped::caused(&process.open_root("/".as_ref()).unwrap_err()), "it stays stopped");
        assert_eq!(process.calls(), k + 2);
    }
    assert_eq!(seen, ["", "", "x", "x", "x", "x", "v x", "v"]);
}

#[test]
fn stopped_is_found_behind_other_errors() {
    #[derive(Debug)]
    struct Outer(io::Error);
    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }
    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }
    assert!(Stopped::caused(&Outer(io::Error::other(Stopped))));
    assert!(Stopped::caused(&io::Error::other(Outer(io::Error::other(Stopped)))));
    assert!(!Stopped::caused(&Outer(io::Error::other("else"))));
}

#[test]
fn a_failure_is_before_the_effect_and_a_lost_reply_after() {
    let link = || Match::method(Method::Link);
    let (memory, process) = on_memory(Plan::new().fail(link(), errno::EIO));
    assert_eq!(publish(&process).unwrap_err().raw_os_error(), Some(errno::EIO));
    assert_eq!(memory.paths(), ["x"]);
    assert_eq!(words(&process).last().unwrap(), "link x -> v: EIO");

    let (memory, process) = on_memory(Plan::new().lose_reply(link(), errno::EEXIST));
    assert_eq!(publish(&process).unwrap_err().raw_os_error(), Some(errno::EEXIST));
    assert_eq!(memory.paths(), ["v", "x"]);
    assert_eq!(words(&process).last().unwrap(), "link x -> v: done, but the caller got EEXIST");

    let root = process.open_root("/".as_ref()).unwrap();
    process.set_plan(Plan::new().lose_reply(Match::any(), errno::EIO));
    let absent = process.remove(&root, "absent").unwrap_err();
    assert_eq!(absent.raw_os_error(), Some(errno::ENOENT), "it had no effect, so its own error is the reply");
}

#[test]
fn rules_count_what_they_fit() {
    let plan = Plan::new()
        .fail(Match::method(Method::MakeDir).nth(2), errno::EIO)
        .fail(Match::any().when(|name| name.ends_with("e")).from_nth(2), errno::ESTALE)
        .fail(Match::any().named("both").nth(1), errno::EDQUOT);
    let (memory, process) = on_memory(plan);
    let root = process.open_root("/".as_ref()).unwrap();
    let make = |name| process.make_dir(&root, name).err().and_then(|error| error.raw_os_error());
    let errors = ["a", "b", "e", "fe", "ge", "both", "both"].map(make);
    let stale = Some(errno::ESTALE);
    assert_eq!(errors, [None, Some(errno::EIO), None, stale, stale, Some(errno::EDQUOT), None]);
    assert_eq!(memory.paths(), ["a/", "both/", "e/"]);
    assert_eq!((process.count(Method::MakeDir), process.calls()), (7, 8));
}

#[test]
fn writes_reads_and_copies_are_cut() {
    let (_, process) = on_memory(Plan::new().cut(Match::any(), 2));
    publish(&process).unwrap();
    assert_eq!(process.count(Method::WriteAt), 3);
    let root = process.open_root("/".as_ref()).unwrap();
    let file = process.open(&root, "v", Access::Read).unwrap();
    let mut buffer = [0; 9];
    assert_eq!(process.read_at(&file, &mut buffer, 3).unwrap(), 2);
    assert_eq!(buffer, *b"es\0\0\0\0\0\0\0");
    let copy = process.create_exclusive(&root, "copy").unwrap();
    assert_eq!(process.copy_range(&file, 0, &copy, 0, 5).unwrap(), 2);
}

#[test]
fn a_sync_that_may_move_nothing_is_left_out() {
    let survives = |without: Option<Method>| {
        let none = |plan: Plan, method| plan.cut(Match::method(method), 0);
        let (memory, process) = on_memory(without.into_iter().fold(Plan::new(), none));
        publish(&process).unwrap();
        process.sync_dir(&process.open_root("/".as_ref()).unwrap()).unwrap();
        memory.power_cut();
        let root = memory.open_root("/".as_ref()).unwrap();
        memory.open(&root, "v", Access::Read).ok().map(|file| memory.size(&file).unwrap())
    };
    assert_eq!(survives(None), Some(5));
    assert_eq!(survives(Some(Method::SyncFile)), Some(0));
    assert_eq!(survives(Some(Method::SyncDir)), None);
}

#[test]
fn delays_sleep_through_the_env() {
    let env = Arc::new(Seeded::new(0));
    let plan = Plan::new()
        .delay(Match::any(), Duration::from_millis(1))
        .delay(Match::method(Method::Link), Duration::from_secs(1));
    publish(&Fault::with_env(Arc::new(Memory::new()), plan, env.clone())).unwrap();
    assert_eq!(env.now(), Duration::from_millis(1007));
}

#[test]
fn a_trace_speaks_of_paths() {
    let (_, process) = on_memory(Plan::new().stop_at(6));
    let root = process.open_root("/".as_ref()).unwrap();
    process.make_dir(&root, "log").unwrap();
    let log = process.open_dir(&root, "log").unwrap();
    process.make_dir(&log, "0").unwrap();
    process.make_dir(&log, "0").unwrap_err();
    process.sync_dir(&root).unwrap();
    process.list(&log).unwrap_err();
    let expected = [
        "open_root /: ok",
        "make_dir log: ok",
        "open_dir log: ok",
        "make_dir log/0: ok",
        "make_dir log/0: EEXIST",
        "sync_dir /: ok",
        "list log: stopped",
    ];
    assert_eq!(words(&process), expected);
    assert_eq!(process.trace()[4].outcome, Outcome::Failed("EEXIST".to_owned()));
}

/// A process that is stopped while it waits never hears how the wait ended.
#[test]
fn a_running_call_of_a_stopped_process_has_no_reply() {
    let (memory, process) = on_memory(Plan::new());
    publish(&process).unwrap();
    let root = process.open_root("/".as_ref()).unwrap();
    let word = process.map_word(&process.open(&root, "v", Access::Read).unwrap()).unwrap();
    let seen = word.load();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let result = process.wait(&*word, seen, Duration::from_secs(60));
            ended.store(true, std::sync::atomic::Ordering::Release);
            result
        });
        while process.count(Method::Wait) == 0 {
            std::thread::yield_now();
        }
        process.stop();
        while !ended.load(std::sync::atomic::Ordering::Acquire) {
            memory.wake(&*word).unwrap();
            std::thread::yield_now();
        }
        assert!(Stopped::caused(&waiter.join().unwrap().unwrap_err()));
    });
}

#[test]
fn others_act_while_a_call_waits() {
    let disk = Memory::new();
    let other = disk.clone();
    let act = move || {
        let root = other.open_root("/".as_ref()).unwrap();
        other.make_dir(&root, "log").unwrap();
    };
    let plan = Plan::new().meanwhile(Match::method(Method::MakeDir).named("log").nth(1), act);
    let process = Fault::new(Arc::new(disk), plan);
    let root = process.open_root("/".as_ref()).unwrap();
    let error = process.make_dir(&root, "log").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(errno::EEXIST), "another came first");
}

#[test]
fn bytes_are_counted_where_they_move() {
    let (memory, process) = on_memory(Plan::new());
    publish(&process).unwrap();
    let root = process.open_root("/".as_ref()).unwrap();
    let file = process.open(&root, "v", Access::Read).unwrap();
    assert_eq!(process.read_at(&file, &mut [0; 9], 1).unwrap(), 4);
    assert_eq!(process.map(&file, 5).unwrap().len(), 5);
    assert_eq!(process.list(&root).unwrap().len(), memory.paths().len());
    let moved = Method::ALL.iter().map(|method| (*method, process.bytes(*method)));
    let moved: Vec<_> = moved.filter(|(_, bytes)| *bytes > 0).collect();
    assert_eq!(moved, [(Method::ReadAt, 4), (Method::WriteAt, 5), (Method::Map, 5), (Method::List, 1)]);
}
