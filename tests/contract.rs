//! The contract suite of the simulator's crate against the real filesystem: in the temporary directory, and
//! on the mount that `BATCHWEAVE_TEST_DIR` names. The method: property tests of the storage trait, one
//! function each.

use std::path::Path;
use std::sync::Arc;

use batchweave::storage::{Counting, Posix};
use batchweave_sim::{Fault, Plan, SkipZeros, contract};

/// The suite in a directory of its own below `parent`, which is removed afterwards.
fn check_below(parent: &Path) {
    let home = tempfile::tempdir_in(parent).expect("a directory for the suite");
    contract::check(&Posix::new(), &home.path().join("posix"));
    contract::check(&Counting::new(Arc::new(Posix::new())), &home.path().join("counting"));
    contract::check(&Fault::new(Arc::new(Posix::new()), Plan::new()), &home.path().join("fault"));
    contract::check(&SkipZeros::new(Arc::new(Posix::new())), &home.path().join("skip-zeros"));
}

#[test]
fn the_temporary_directory_keeps_the_contract() {
    check_below(&std::env::temp_dir());
}

#[test]
fn the_mount_under_test_keeps_the_contract() {
    match std::env::var_os("BATCHWEAVE_TEST_DIR") {
        Some(mount) => check_below(mount.as_ref()),
        None => batchweave_sim::skipped("the mount under test", &"BATCHWEAVE_TEST_DIR isn't set"),
    }
}
