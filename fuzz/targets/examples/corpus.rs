//! Writes what the targets begin from into `fuzz/corpus/`, where cargo-fuzz looks: seeds, and inputs that
//! once
//! went wrong.
//!
//! `cargo run -p batchweave-fuzz-targets --example corpus`

use std::fs;
use std::path::Path;

use batchweave_fuzz_targets::{TARGETS, kept, seeds};

fn main() -> std::io::Result<()> {
    for target in TARGETS {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target.name);
        fs::create_dir_all(&directory)?;
        for (number, seed) in seeds::of(target.name).iter().chain(&kept(target.name)).enumerate() {
            fs::write(directory.join(format!("seed-{number:03}")), seed)?;
        }
    }
    Ok(())
}
