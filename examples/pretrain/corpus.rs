//! The corpus: a list of text files in partitions, and how a partition is packed into windows of tokens.
//!
//! - A token is a byte. A document is a file and an end token; documents follow one another without a gap.
//! - Packing is a pure function of list and cursor: whoever goes on from a cursor packs the very same
//!   windows.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::job::{PARTITIONS, Result, STEPS_MIN, WINDOWS_PER_BATCH};

/// Tokens in a window: with its id they make 512 bytes, so that a full microbatch is a page.
pub const WINDOW: usize = 504;
/// Bytes of a window in a slice: its id, then its tokens.
pub const STORED: usize = 8 + WINDOW;
const END_OF_DOCUMENT: u8 = 0;

#[derive(Serialize, Deserialize)]
pub struct Corpus {
    documents: Vec<Document>,
    bytes: u64,
    /// Where the list was cut off, if it was.
    cap: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Document {
    path: PathBuf,
    /// So much of the file is taken.
    bytes: u64,
}

impl Corpus {
    /// The files at `paths` in the order of their paths, up to a number of bytes.
    pub fn find(paths: &[PathBuf], bytes_max: u64) -> Result<Self> {
        let mut corpus = Self { documents: Vec::new(), bytes: 0, cap: None };
        if paths.is_empty() {
            for directory in dependencies()? {
                corpus.add(&directory, bytes_max, &is_source)?;
            }
        }
        for path in paths {
            let path = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
            corpus.add(&path, bytes_max, &|_| true)?;
        }
        let (steps, least) = (corpus.steps(), STEPS_MIN);
        if steps < least {
            let what =
                format!("{corpus}: that makes {steps} steps, but the run takes at least {least}; give it");
            return Err(format!("{what} about 7 MB of text as PATH...").into());
        }
        Ok(corpus)
    }

    fn add(&mut self, path: &Path, bytes_max: u64, wanted: &dyn Fn(&Path) -> bool) -> Result<()> {
        let context = |error| format!("{}: {error}", path.display());
        let kind = fs::symlink_metadata(path).map_err(context)?;
        if kind.is_dir() {
            let entries = fs::read_dir(path).map_err(context)?;
            let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
            paths.sort();
            return paths.iter().try_for_each(|path| self.add(path, bytes_max, wanted));
        }
        if !kind.is_file() || !wanted(path) || self.cap.is_some() {
            return Ok(());
        }
        let bytes = kind.len().min(bytes_max - self.bytes);
        self.cap = (bytes < kind.len()).then_some(bytes_max);
        self.bytes += bytes;
        self.documents.push(Document { path: path.to_path_buf(), bytes });
        Ok(())
    }

    pub fn save(&self, run: &Path) -> Result<()> {
        Ok(fs::write(run.join("corpus.json"), serde_json::to_vec(self)?)?)
    }

    pub fn load(run: &Path) -> Result<Self> {
        Ok(serde_json::from_slice(&fs::read(run.join("corpus.json"))?)?)
    }

    /// Every so-manieth document, so that the partitions are of about the same size.
    fn partition(&self, partition: usize) -> Vec<&Document> {
        self.documents.iter().skip(partition).step_by(PARTITIONS).collect()
    }

    pub fn windows(&self, partition: usize) -> u64 {
        let tokens: u64 = self.partition(partition).iter().map(|document| document.bytes + 1).sum();
        tokens.div_ceil(WINDOW as u64)
    }

    pub fn batches(&self, partition: usize) -> u64 {
        self.windows(partition).div_ceil(WINDOWS_PER_BATCH as u64)
    }

    pub fn steps(&self) -> u64 {
        (0..PARTITIONS).map(|partition| self.batches(partition)).sum()
    }
}

impl fmt::Display for Corpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} MB in {} files", self.bytes as f64 / 1e6, self.documents.len())?;
        match self.cap {
            Some(cap) => {
                write!(f, ", the first by path: there is more, capped at {} MB (--mb)", cap / 1_000_000)
            }
            None => Ok(()),
        }
    }
}

/// The directories in cargo's registry that hold what this crate was built from.
fn dependencies() -> Result<Vec<PathBuf>> {
    let quoted = |line: &str, key: &str| Some(line.strip_prefix(key)?.trim_matches('"').to_owned());
    let lock: Vec<&str> = include_str!("../../Cargo.lock").lines().collect();
    let pairs = lock.windows(2).filter_map(|pair| {
        Some(format!("{}-{}", quoted(pair[0], "name = ")?, quoted(pair[1], "version = ")?))
    });
    let wanted: HashSet<String> = pairs.collect();
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home =
        home.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).ok_or("there is no home directory")?;
    let sources = home.join("registry/src");
    let mut found = Vec::new();
    for registry in fs::read_dir(&sources).map_err(|error| format!("{}: {error}", sources.display()))? {
        for package in fs::read_dir(registry?.path())? {
            let package = package?;
            if package.file_name().to_str().is_some_and(|name| wanted.contains(name)) {
                found.push(package.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_source(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| ["rs", "md", "toml", "txt"].iter().any(|text| extension == *text))
}

/// One sample.
#[derive(PartialEq, Eq)]
pub struct Window<'t> {
    pub id: u64,
    pub tokens: &'t [u8],
}

impl<'t> Window<'t> {
    /// Partition and number in one, so that an id says where it comes from.
    pub fn id(partition: usize, number: u64) -> u64 {
        (partition as u64) << 32 | number
    }

    pub fn partition(&self) -> usize {
        (self.id >> 32) as usize
    }

    fn number(&self) -> u64 {
        self.id & u64::from(u32::MAX)
    }

    /// Of its tokens: equal tokens, equal digests.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.tokens);
        hasher.finish()
    }

    /// The windows of a slice, where they lie.
    pub fn all_in(slice: &'t [u8]) -> impl Iterator<Item = Self> {
        let (stored, _) = slice.as_chunks::<STORED>();
        stored.iter().map(|stored| {
            let (id, tokens) = stored.split_first_chunk().expect("a stored window is longer than its id");
            Self { id: u64::from_le_bytes(*id), tokens }
        })
    }
}

impl fmt::Display for Window<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "window {} of partition {}", self.number(), self.partition())
    }
}

/// Where a producer stands in its partition: the state that it commits with each batch.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Cursor {
    document: usize,
    offset: usize,
    /// How many windows were packed.
    pub windows: u64,
}

/// Packs a partition into windows.
pub struct Packer<'c> {
    partition: usize,
    documents: Vec<&'c Document>,
    pub cursor: Cursor,
    /// The tokens of the document at the cursor, once read.
    tokens: Option<Vec<u8>>,
}

impl<'c> Packer<'c> {
    /// Goes on from a cursor.
    pub fn new(corpus: &'c Corpus, partition: usize, cursor: Cursor) -> Self {
        Self { partition, documents: corpus.partition(partition), cursor, tokens: None }
    }

    /// Packs the next window into `stored`, as it lies in a slice. False at the end; the last window is
    /// padded.
    pub fn pack(&mut self, stored: &mut Vec<u8>) -> Result<bool> {
        let begin = stored.len();
        stored.extend(Window::id(self.partition, self.cursor.windows).to_le_bytes());
        while stored.len() < begin + STORED && self.cursor.document < self.documents.len() {
            let tokens = match self.tokens.take() {
                Some(tokens) => tokens,
                None => self.documents[self.cursor.document].read()?,
            };
            let rest = &tokens[self.cursor.offset..];
            let taken = rest.len().min(begin + STORED - stored.len());
            stored.extend(&rest[..taken]);
            self.cursor.offset += taken;
            if taken < rest.len() {
                self.tokens = Some(tokens);
            } else {
                self.cursor.document += 1;
                self.cursor.offset = 0;
            }
        }
        if stored.len() == begin + STORED - WINDOW {
            stored.truncate(begin);
            return Ok(false);
        }
        stored.resize(begin + STORED, END_OF_DOCUMENT);
        self.cursor.windows += 1;
        Ok(true)
    }
}

impl Document {
    fn read(&self) -> Result<Vec<u8>> {
        let mut tokens = Vec::with_capacity(self.bytes as usize + 1);
        let context = |error| format!("{}: {error}", self.path.display());
        File::open(&self.path)
            .map_err(context)?
            .take(self.bytes)
            .read_to_end(&mut tokens)
            .map_err(context)?;
        if tokens.len() as u64 != self.bytes {
            return Err(format!("{} became shorter during the run", self.path.display()).into());
        }
        tokens.push(END_OF_DOCUMENT);
        Ok(tokens)
    }
}
