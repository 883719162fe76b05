//! The program itself, on one directory that is mounted nowhere twice: every trial is run and says so, and
//! one that can't hold is a failure with a sentence. The method: the real binary, its lines and exit code.

use std::path::Path;
use std::process::{Command, Output};

fn trials(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trials")).args(arguments).output().unwrap()
}

/// What it said: the first two words of each line.
fn verdicts(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn every_trial_holds_on_the_temporary_directory() {
    let home = tempfile::tempdir().unwrap();
    let at = text(home.path());
    let output = trials(&["all", at, at, "--seed", "3"]);
    let expected =
        ["doctor fit", "contract ok", "race ok", "fresh ok", "killed ok", "reclaim ok", "zombie ok"];
    assert_eq!(verdicts(&output), expected, "{output:?}");
    assert!(output.status.success());
}

#[test]
fn two_directories_that_are_not_one_are_found_out() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for trial in ["race", "fresh", "killed", "reclaim", "zombie"] {
        let output = trials(&["one", trial, text(a.path()), text(b.path())]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(verdicts(&output), [format!("{trial} FAIL")], "{output:?}");
    }
}

#[test]
fn a_mount_that_is_fit_is_not_refused() {
    let home = tempfile::tempdir().unwrap();
    let output = trials(&["refused", text(home.path()), "any words"]);
    assert_eq!(verdicts(&output), ["refused FAIL"], "{output:?}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_disk_that_cannot_be_mounted_is_said() {
    let home = tempfile::tempdir().unwrap();
    let output = trials(&["power", "/dev/null", text(home.path()), "--kind", "ext4"]);
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(said.starts_with("power FAIL"), "{said}");
    assert!(said.contains("the disk can't be mounted"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
