//! The simulation can fail: by planting bugs in the engine, one at a time, and seeing each caught.
//!
//! - The engine is built again with `--cfg batchweave_planted`, in a target folder of its own, so that no
//!   other build can hold a bug.
//! - Each bug has to be caught within so many schedules, several times what it took when its row was
//!   written; docs/design.md, section 11, has the table.
//! - Without a bug nothing may be caught: else the first row caught something else than its bug.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use batchweave::planted::Bug;
use parking_lot::Mutex;

/// Bugs, and the schedules within which each has to be caught.
const LIMITS: [(Bug, u64); 35] = [
    (Bug::AckOnLink, 1000),
    (Bug::AckOnReread, 1000),
    (Bug::EexistTrusted, 6000),
    (Bug::DirectoryUnsynced, 100),
    (Bug::FileSyncRepeated, 300),
    (Bug::DirectorySyncRepeated, 6000),
    (Bug::ReplayUnsynced, 3000),
    (Bug::LookupsStale, 1000),
    (Bug::AbsenceUnmarked, 300),
    (Bug::IncarnationIgnored, 300),
    (Bug::SequenceIgnored, 3000),
    (Bug::SequenceAlone, 1000),
    (Bug::IndexPartial, 100),
    (Bug::IndexOfBuilder, 100),
    (Bug::MarkBeforeIndex, 300),
    (Bug::BoundaryUnsynced, 300),
    (Bug::HoleIsHead, 300),
    (Bug::PositionReadAhead, 100),
    (Bug::WaitUnbounded, 1000),
    (Bug::StoreUnsynced, 300),
    (Bug::CheckpointLate, 300),
    (Bug::FloorUnsynced, 300),
    (Bug::IncarnationsCounted, 100),
    (Bug::RewindOfNow, 100),
    (Bug::SkipSilent, 100),
    (Bug::ReclaimOlderView, 1000),
    (Bug::RemovedEarly, 4000),
    (Bug::TurnsByVersion, 100),
    (Bug::TurnIgnored, 100),
    (Bug::EndUnseen, 100),
    (Bug::ReopenIgnored, 100),
    (Bug::CloseUnindexed, 100),
    (Bug::ClosedForGood, 100),
    (Bug::ForgetKept, 100),
    (Bug::ForgottenRewound, 1000),
];

/// Bugs in the running system's storage, which a simulation replaces: `tests/filesystems/run teeth` has them.
const BELOW_THE_SEAM: [Bug; 3] = [Bug::FileSyncIgnored, Bug::CloseIgnored, Bug::ShortWriteWhole];

/// The program that looks for a planted bug, built with the cfg.
fn build() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = manifest.join("../target/planted");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--bin", "planted"]).current_dir(manifest);
    cargo.env("RUSTFLAGS", "--cfg batchweave_planted").env("CARGO_TARGET_DIR", &target);
    // What this very test was built with isn't to be passed on.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "the engine with planted bugs can't be built: {status}");
    target.join("debug/planted")
}

/// What is said of a bug, and whether it was caught.
fn hunt(program: &Path, bug: &str, schedules: u64) -> (bool, String) {
    let output =
        Command::new(program).args([bug, &schedules.to_string()]).env("RUST_BACKTRACE", "0").output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{bug}: {} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.code() == Some(0), said)
}

#[test]
fn every_bug_has_its_row_and_only_one() {
    let mut rows: Vec<_> =
        LIMITS.iter().map(|(bug, _)| bug).chain(&BELOW_THE_SEAM).map(|bug| bug.name()).collect();
    let mut bugs: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
    rows.sort_unstable();
    bugs.sort_unstable();
    assert_eq!(rows, bugs);
}

#[test]
fn every_planted_bug_is_caught_and_without_one_nothing_is() {
    let program = build();
    // As many side by side as there are cores: each is a process of its own, and the longest take a minute.
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((bug, schedules)) = LIMITS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (caught, said) = hunt(&program, bug.name(), *schedules);
                    println!("{said}");
                    if !caught {
                        missed.lock().push(said);
                    }
                }
            });
        }
    });
    let missed = missed.into_inner();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    let (caught, said) = hunt(&program, "none", 500);
    assert!(!caught, "{said}");
}

#[test]
fn an_ordinary_build_can_plant_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_planted")).args(["ack-on-link", "1"]).output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("batchweave_planted"));
}
