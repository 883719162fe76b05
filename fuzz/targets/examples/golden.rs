//! Writes the golden stores of the format as it is now into a directory that has none of them.
//!
//! `cargo run -p batchweave-fuzz-targets --example golden -- tests/fixtures/format-1`, once for each format
//! version: stores that were released are never made again.

use std::fs;
use std::path::Path;

use batchweave_fuzz_targets::{files, golden};
use batchweave_sim::Memory;

/// Longer than a block of checksums, so that one slice has a list of them.
const LARGE: usize = (1 << 20) + 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("say where to")?;
    for (name, memory) in [
        ("plain", golden::plain(LARGE)),
        ("unknown-optional", golden::unknown(false)),
        ("unknown-required", golden::unknown(true)),
    ] {
        write(&Path::new(&directory).join(name), &memory)?;
    }
    Ok(())
}

fn write(directory: &Path, memory: &Memory) -> Result<(), Box<dyn std::error::Error>> {
    fs::create_dir_all(directory.parent().ok_or("a directory in a directory")?)?;
    fs::create_dir(directory)?;
    for path in files::all(memory) {
        // It means nothing, and is made anew by whoever needs it.
        if path == batchweave::format::names::BALLAST {
            continue;
        }
        let to = directory.join(&path);
        fs::create_dir_all(to.parent().ok_or("a file in a directory")?)?;
        fs::write(to, files::read(memory, &path).ok_or("a file that is listed can be read")?)?;
    }
    Ok(())
}
