//! A signal ends what waits or measures, and nothing of it is left. Method: it comes once the directory is
//! there that would be left.

use rustix::process::{Pid, Signal, kill_process};

use super::{args, *};

/// A process's signals of that kind, a bit each from signal 1 on.
fn signals(process: &str, kind: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix(kind)).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

/// Signals that a command started by this process hears: under nohup, or in a shell's background, some are
/// ignored.
fn heard() -> impl Iterator<Item = Signal> {
    let ignored = signals("self", "SigIgn:");
    let all = [Signal::TERM, Signal::INT, Signal::HUP].into_iter();
    all.filter(move |signal| ignored >> (signal.as_raw() - 1) & 1 == 0)
}

/// Begins it, and signals the process alone once a file is in its directory.
#[track_caller]
fn interrupt(arguments: &[&OsStr], dir: &Path, file: &str, signal: Signal) -> Ended {
    let child = begin(command(arguments), dir, file);
    kill_process(Pid::from_child(&child), signal).unwrap();
    let ended = wait(child);
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "something is left; {}", ended.stderr);
    ended
}

/// Begins it, and waits until a file is in its directory.
fn begin(mut command: Command, dir: &Path, file: &str) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_there = || {
        let mut made = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        made.any(|made| made.join(file).exists())
    };
    while !is_there() {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended before");
        std::thread::yield_now();
    }
    child
}

#[test]
fn a_peer_that_waits_for_another_leaves_nothing() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    let doctor = args!["doctor", "--peer", dir, "--timeout", "600"];
    for signal in heard() {
        let sentence = interrupt(doctor, dir, "word-0-0", signal).failed(130);
        assert!(sentence.starts_with("stopped while it waited for number 2 of 2"), "{sentence}");
    }
}

#[test]
fn peers_that_race_leave_nothing() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    let doctor = args!["doctor", "--peer", dir, "--timeout", "600"];
    let one = command(doctor).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let other = begin(command(doctor), dir, "from-0");
    for peer in [&one, &other] {
        kill_process(Pid::from_child(peer), Signal::TERM).unwrap();
    }
    // They may be done before they hear it.
    for ended in [wait(one), wait(other)] {
        assert!([0, 130].contains(&ended.code), "{}", ended.stderr);
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "something is left");
}

#[test]
fn a_measurement_leaves_nothing() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    let commit = args!["bench", "commit", dir, "--producers", "2", "--seconds", "600"];
    for signal in heard() {
        assert_eq!(interrupt(commit, dir, "store/STORE", signal).code, 130);
    }
    let basics = args!["bench", "basics", dir];
    assert_eq!(interrupt(basics, dir, ".", Signal::TERM).code, 130);
}

#[test]
fn a_look_at_a_mount_leaves_nothing() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    // It may be over before it is heard.
    let code = interrupt(args!["doctor", dir], dir, ".", Signal::TERM).code;
    assert!([0, 130].contains(&code), "{code}");
}

#[test]
fn who_races_for_another_ends_with_it_and_leaves_nothing() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    let child = begin(command(args!["doctor", dir]), dir, "seat-0");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!([0, 130].contains(&wait(child).code));
    // The last of them may end a moment later.
    let is_empty = || fs::read_dir(dir).unwrap().count() == 0;
    assert!(
        (0..1_000_000).any(|_| is_empty() || {
            std::thread::yield_now();
            false
        }),
        "something is left"
    );
}

#[test]
fn what_was_to_be_ignored_is() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_batchweave")]);
    shell.args(args!["doctor", "--peer", dir, "--timeout", "600"]).stdin(Stdio::null());
    let child = begin(shell, dir, "word-0-0");
    let caught = signals(&child.id().to_string(), "SigCgt:");
    assert_eq!([Signal::HUP, Signal::TERM].map(|signal| caught >> (signal.as_raw() - 1) & 1), [0, 1]);
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    wait(child).failed(130);
}
