//! A signal ends what waits or measures, and nothing of it is left. Method: it comes once the directory is
//! there that would be left.

use rustix::process::{Pid, Signal, kill_process};

use super::{args, *};

/// Begins it, waits until a file is in its directory, and signals the process alone.
#[track_caller]
fn interrupt(arguments: &[&OsStr], dir: &Path, file: &str, signal: Signal) -> Ended {
    let child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_there = || {
        let mut made = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        made.any(|made| made.join(file).exists())
    };
    while !is_there() {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    let ended = wait(child);
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "something is left; {}", ended.stderr);
    ended
}

#[test]
fn a_peer_that_waits_for_another_leaves_nothing() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    let doctor = args!["doctor", "--peer", dir, "--timeout", "600"];
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let sentence = interrupt(doctor, dir, "word-0-0", signal).failed(130);
        assert!(sentence.starts_with("stopped while it waited for number 2 of 2"), "{sentence}");
    }
}

#[test]
fn a_measurement_leaves_nothing() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    let commit = args!["bench", "commit", dir, "--producers", "2", "--seconds", "600"];
    for signal in [Signal::INT, Signal::TERM] {
        assert_eq!(interrupt(commit, dir, "store/STORE", signal).code, 130);
    }
    let basics = args!["bench", "basics", dir];
    assert_eq!(interrupt(basics, dir, ".", Signal::INT).code, 130);
}

#[test]
fn a_look_at_a_mount_leaves_nothing() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    // It may be over before it is heard.
    let code = interrupt(args!["doctor", dir], dir, ".", Signal::INT).code;
    assert!([0, 130].contains(&code), "{code}");
}
