//! `debug`: what one does by hand to try out or to mend, never in a run.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use batchweave::{Counts, Draft, Name, Published, Store};
use clap::Subcommand;
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::output::{self, Format};

/// Try things out by hand
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Example:
  batchweave debug publish /dev/shm/try --producer by-hand one.bin two.bin"
)]
pub(crate) struct Debug {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Publish(Publish),
}

/// Publish one part, a slice from each file
///
/// The producer is opened anew, so a process that runs under its name is fenced off, and is left
/// unfinished. Samples and tokens aren't counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave debug publish /dev/shm/try --producer by-hand --state cursor=2 one.bin two.bin")]
struct Publish {
    /// The store's directory
    root: PathBuf,
    /// The producer's name
    #[arg(long, value_name = "NAME")]
    producer: Name,
    /// The state that the producer goes on from; without it, the one that it has
    #[arg(long, value_name = "TEXT")]
    state: Option<OsString>,
    /// The part's metadata
    #[arg(long, value_name = "TEXT")]
    metadata: Option<OsString>,
    /// The files, in the order of their slices
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Done {
    producer: Name,
    #[serde(flatten)]
    published: Published,
    slices: u64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { producer, published, slices } = self;
        let Published { version, part, step, sequence, .. } = published;
        let slices = output::count(*slices, "slice");
        write!(
            f,
            "step {step}: {slices} of {producer} (its sequence {sequence}, part {part}, version {version})"
        )
    }
}

impl Debug {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        match &self.verb {
            Verb::Publish(publish) => publish.run(),
        }
    }
}

impl Publish {
    fn run(&self) -> Result<Answer, Failure> {
        // A file that isn't there is found before anyone is fenced.
        self.files.iter().try_for_each(|path| check(path))?;
        let store = Store::open(&self.root)?;
        let mut producer = store.producer(self.producer.as_str())?;
        let mut draft = producer.draft()?;
        let mut buffer = vec![0; 1 << 20];
        for path in &self.files {
            add_slice(&mut draft, path, &mut buffer)?;
        }
        if let Some(metadata) = &self.metadata {
            draft.metadata(metadata.as_bytes())?;
        }
        let state = match &self.state {
            Some(state) => state.as_bytes().to_vec(),
            None => producer.state(),
        };
        let slices = draft.slices();
        let published = producer.publish_now(draft, state).map_err(batchweave::Error::from)?;
        output::print(&Done { producer: self.producer.clone(), published, slices }, self.format)?;
        Ok(Answer::Yes)
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| Failure::of_file(path, error))
}

/// Whether a file can be read, as far as can be told without taking from a pipe.
fn check(path: &Path) -> Result<(), Failure> {
    let kind = fs::metadata(path).map_err(|error| Failure::of_file(path, error))?;
    if kind.is_dir() {
        return Err(Failure::of_file(path, io::ErrorKind::IsADirectory.into()));
    }
    if kind.is_file() { open(path).map(drop) } else { Ok(()) }
}

/// Streams a file into a slice.
fn add_slice(draft: &mut Draft, path: &Path, buffer: &mut [u8]) -> Result<(), Failure> {
    let mut file = open(path)?;
    let mut slice = draft.slice()?;
    loop {
        let read = match file.read(buffer) {
            Ok(0) => break,
            Ok(read) => &buffer[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::of_file(path, error)),
        };
        slice.write_all(read).map_err(Failure::Draft)?;
    }
    Ok(slice.finish(Counts::default())?)
}
