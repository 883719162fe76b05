//! Tries the probe on real mounts, and on mounts that refuse, lie, hide names or break down at any call.

use std::sync::atomic::Ordering;

use super::*;
use crate::env::System;
use crate::storage::Posix;
use crate::storage::odd::{Does, Odd};

const EPERM: i32 = 1;
const EINVAL: i32 = 22;

/// Probes a new directory, in which nothing may be left.
fn probed_in(home: &Path, storage: &dyn Storage, options: &Options) -> Result<Report> {
    let home = tempfile::tempdir_in(home).expect("a directory");
    let dir = Posix.open_root(home.path()).expect("it opens");
    let report = probe(storage, &System::new(), &dir, home.path(), options);
    assert_eq!(Posix.list(&dir).expect("listed"), [""; 0], "the probe left something");
    report
}

fn probed(odd: &Odd) -> Report {
    probed_in(&std::env::temp_dir(), odd, &Options::new()).expect("it can be probed")
}

/// The refusal and the error's own words, which have to be the same.
fn refusal(report: Report) -> String {
    let error = report.accept().expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    error.to_string()
}

#[test]
fn real_mounts_do_all_and_link_is_preferred() {
    for home in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
        let report = probed_in(&home, &Posix, &Options::new().allow_unknown_fuse(true)).expect("probed");
        let text = serde_json::to_string(&report).expect("a report is always readable");
        println!("{text}");
        assert_eq!(report.listing, Finding::Good, "{text}");
        assert_eq!(report.chosen, Some(Primitive::Link), "{text}");
    }
    let shared = probed_in(Path::new("/dev/shm"), &Posix, &Options::new()).expect("probed");
    assert!(shared.attempts.iter().all(Attempt::works));
    assert_eq!(shared.accept().expect("tmpfs will do"), (MountClass::Local, Primitive::Link));
}

#[test]
fn what_lies_is_not_published_by() {
    for does in [Does::Fail(EPERM), Does::Replace, Does::ClaimToWin, Does::MakeADirectory] {
        let report = probed(&Odd { link: does, ..Odd::new() });
        assert!(
            !report.attempts.iter().any(|attempt| attempt.primitive == Primitive::Link && attempt.works())
        );
        let (class, primitive) = report.accept().expect("the next one works");
        assert_eq!((class, primitive), (MountClass::Local, Primitive::RenameNoreplace), "link: {does:?}");
    }
}

#[test]
fn a_refusal_names_mount_calls_and_errors_and_says_what_to_do() {
    let (link, noreplace) = (Does::Fail(EPERM), Does::Fail(EINVAL));
    let only_directories = probed(&Odd { kind: "exfat", link, noreplace, ..Odd::new() });
    assert_eq!(only_directories.accept().expect("it works").1, Primitive::RenameDirectory);
    let nothing = refusal(probed(&Odd { kind: "exfat", link, noreplace, rename: noreplace, ..Odd::new() }));
    for part in [
        "the exfat filesystem mounted at /data",
        "link failed: Operation not permitted (os error 1)",
        "renameat2(RENAME_NOREPLACE) failed: Invalid argument (os error 22)",
        "rename of a directory failed: Invalid argument",
        "put the store on another filesystem",
    ] {
        assert!(nothing.contains(part), "{part:?} isn't in: {nothing}");
    }

    let odd = Odd { link: Does::Replace, noreplace: Does::ClaimToWin, rename: noreplace, ..Odd::new() };
    let lies = refusal(probed(&odd));
    assert!(lies.contains("link onto a taken name replaces what has the name"), "{lies}");
    assert!(lies.contains("renameat2(RENAME_NOREPLACE) onto a taken name says that it won"), "{lies}");
}

#[test]
fn marks_that_cannot_be_read_afresh_are_refused() {
    let text = refusal(probed(&Odd { hides_marks: true, ..Odd::new() }));
    println!("{text}");
    assert!(text.contains("a listing opened afresh doesn't show a new name"), "{text}");
}

#[test]
fn unknown_fuse_needs_a_word_and_rclone_gets_none() {
    let temp = std::env::temp_dir();
    for kind in ["fuse", "fuse.bindfs", "fuseblk"] {
        let odd = Odd { kind, ..Odd::new() };
        let report = probed(&odd);
        assert_eq!(report.attempts.len(), 3, "what it does is found out all the same");
        let text = refusal(report);
        assert!(text.contains(&format!("the {kind} filesystem mounted at /data is FUSE, and")), "{text}");
        let allowed = probed_in(&temp, &odd, &Options::new().allow_unknown_fuse(true)).expect("probed");
        assert_eq!(allowed.accept().expect("allowed"), (MountClass::CloseToOpen, Primitive::Link));
    }
    let (link, fails) = (Does::Fail(EPERM), Does::Fail(EINVAL));
    let hopeless = Odd { kind: "fuseblk", link, noreplace: fails, rename: fails, ..Odd::new() };
    let text = refusal(probed(&hopeless));
    assert!(!text.contains("allow"), "advice that wouldn't help: {text}");
    let odd = Odd { kind: "fuse.rclone", ..Odd::new() };
    let report = probed_in(&temp, &odd, &Options::new().allow_unknown_fuse(true)).expect("probed");
    assert!(refusal(report).contains("lets two writers create the same name"));
}

#[test]
fn whatever_call_breaks_nothing_is_left_and_it_is_never_taken_for_sound() {
    let whole = Odd::new();
    let sound = probed(&whole);
    let calls = whole.calls.load(Ordering::Relaxed);
    println!("{calls} breakable calls");
    assert!(calls > 20);
    for breaks_at in 1..=calls {
        match probed_in(&std::env::temp_dir(), &Odd { breaks_at, ..Odd::new() }, &Options::new()) {
            Err(error) => {
                assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(5)), "call {breaks_at}")
            }
            Ok(report) => assert_ne!(report.attempts, sound.attempts, "call {breaks_at} was passed over"),
        }
    }
}
