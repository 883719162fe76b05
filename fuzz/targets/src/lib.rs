//! What is fuzzed: one function for each thing that takes bytes from outside. cargo-fuzz calls them
//! (`fuzz/fuzz_targets/`), and so does a seeded mutator where there is no nightly toolchain
//! (`tests/seeded.rs`).
//!
//! - A target takes any bytes and panics where a promise is broken; it writes no file, and looks at no clock.
//! - [`seeds::of`] gives what both begin from: pieces of sound stores, and of hostile ones.
//! - An input that once went wrong is kept in `fuzz/regressions/`, and is run by every test.
//!
//! `docs/fuzzing.md` says how to run it.
#![deny(missing_docs, unsafe_code)]

pub mod craft;
mod crafted;
mod decoders;
mod draw;
pub mod files;
pub mod golden;
pub mod hostile;
mod input;
pub mod mutate;
mod names;
mod reading;
mod replay;
mod reseal;
pub mod seeds;
mod tree;

use std::fs;
use std::path::Path;

/// Something that takes bytes from outside.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, by which corpora are kept.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
}

/// All of them, those of small pieces first.
pub const TARGETS: [Target; 11] = [
    Target { name: "store", run: decoders::store },
    Target { name: "header", run: decoders::header },
    Target { name: "record", run: decoders::record },
    Target { name: "part", run: decoders::part },
    Target { name: "index", run: decoders::index },
    Target { name: "state", run: decoders::state },
    Target { name: "codec", run: decoders::codec },
    Target { name: "names", run: names::names },
    Target { name: "replay", run: replay::replay },
    Target { name: "tree", run: tree::tree },
    Target { name: "crafted", run: crafted::crafted },
];

/// Inputs of a target that once went wrong.
///
/// # Panics
/// When one that is listed can't be read.
pub fn kept(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../regressions").join(name);
    let Ok(listed) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<_> = listed.map(|entry| entry.expect("a kept input").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).expect("a kept input")).collect()
}

/// Runs the target of a name on an input.
///
/// # Panics
/// When there is none of that name, or a promise is broken.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of that name");
    (target.run)(data);
}
