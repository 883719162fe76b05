//! One store on the mounts, and what is asked of it whatever goes wrong there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use batchweave::{Error, ErrorKind, Next, Options, Producer, Share, Start, Step, Store};

use super::control::Control;
use crate::{Result, judge, part};

/// No space, no quota.
pub(super) const FULL: [i32; 2] = [28, 122];
/// EFAULT.
const FAULT: i32 = 14;
/// One call fails once, so whoever says the same again is soon done.
const ATTEMPTS_MAX: usize = 8;
pub(super) const NAME: &str = "tok";

/// The directory behind the mounts, the mounts, and what goes wrong there.
pub(super) struct Place {
    pub(super) source: PathBuf,
    pub(super) a: PathBuf,
    pub(super) b: PathBuf,
    pub(super) rules: Control,
    /// Whether every call fails in every way, of the longer works too.
    pub(super) thorough: bool,
    cases: AtomicU64,
}

pub(super) fn options() -> Options {
    part::options().allow_unknown_fuse(true)
}

impl Place {
    /// Mounts the source twice.
    pub(super) fn new(source: &Path, a: &Path, b: &Path, thorough: bool) -> Result<Self> {
        let rules = Control::start(source, a, b)?;
        let (source, a, b) = (source.to_owned(), a.to_owned(), b.to_owned());
        Ok(Self { source, a, b, rules, thorough, cases: AtomicU64::new(0) })
    }

    /// A name that no case had.
    pub(super) fn case(&self) -> Case<'_> {
        let number = self.cases.fetch_add(1, Ordering::Relaxed);
        let name = format!("case-{number:06}");
        Case { place: self, path: self.a.join(&name), truth: self.source.join(&name) }
    }

    /// A store of so many parts, made through the mount with nothing wrong.
    pub(super) fn template(&self, parts: u64) -> Result<Case<'_>> {
        self.rules.set(Vec::new())?;
        let case = self.case();
        let store = Store::create(&case.path, options())?;
        let mut producer = store.producer(NAME)?;
        for _ in 0..parts {
            part::publish(&mut producer)?;
        }
        Ok(case)
    }

    /// A case that begins as another is.
    pub(super) fn like(&self, template: &Case<'_>) -> Result<Case<'_>> {
        let case = self.case();
        copy(&template.truth, &case.truth)?;
        Ok(case)
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// A store, through mount A and as it is behind the mounts.
pub(super) struct Case<'a> {
    pub(super) place: &'a Place,
    pub(super) path: PathBuf,
    pub(super) truth: PathBuf,
}

impl Case<'_> {
    /// Its path through mount B.
    pub(super) fn at_b(&self) -> PathBuf {
        self.path
            .strip_prefix(&self.place.a)
            .map_or_else(|_| self.path.clone(), |name| self.place.b.join(name))
    }

    pub(super) fn open(&self) -> Result<Store> {
        self.insist("opening the store", || Store::open(&self.path))
    }

    /// Does it, again after each error, each of which has to be of a kind and with a place.
    pub(super) fn insist<T>(&self, what: &str, mut act: impl FnMut() -> Result<T, Error>) -> Result<T> {
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            match act() {
                Ok(value) => return Ok(value),
                Err(error) => {
                    self.check(&error)?;
                    last = Some(error);
                }
            }
        }
        Err(format!("{what} fails {ATTEMPTS_MAX} times, for one fault: {last:?}").into())
    }

    /// An error of the filesystem is one that says so: never damage, a zombie or a lost race.
    pub(super) fn check(&self, error: &Error) -> Result<()> {
        let wrong = |what: &str| Err(format!("{what}: {error:?}").into());
        let full = error.errno().is_some_and(|errno| FULL.contains(&errno));
        match error.kind() {
            // A mapping that can't be faulted in tells no more.
            ErrorKind::Corrupt if error.errno() == Some(FAULT) => Ok(()),
            ErrorKind::Io if full => wrong("a full disk is to be told as Full"),
            ErrorKind::Io | ErrorKind::Full | ErrorKind::Unsupported => match error.path() {
                Some(path) if path.starts_with(&self.place.a) || path.starts_with(&self.place.b) => Ok(()),
                _ => wrong("an error names no path"),
            },
            _ => wrong("a fault that passes is told as something else"),
        }
    }

    /// Publishes the next part the way the documentation says, whatever happens; gives the producer.
    pub(super) fn publish(&self, store: &Store, mut producer: Producer) -> Result<Producer> {
        let sequence = producer.next_sequence();
        let mut given_back = None;
        let mut broken = false;
        for _ in 0..ATTEMPTS_MAX {
            if producer.next_sequence() > sequence {
                self.place.rules.check_durable()?;
                return Ok(producer);
            }
            let draft = match given_back.take() {
                Some(draft) => draft,
                None => match part::draft(&mut producer) {
                    Ok(draft) => draft,
                    Err(error) => {
                        self.check(&error)?;
                        producer = self.producer(store, producer)?;
                        continue;
                    }
                },
            };
            let Err(failed) = producer.publish_now(draft, part::state(NAME, sequence.get())) else {
                continue;
            };
            // A draft that broke says so when it is tried again, and is written anew.
            let is_broken = broken && failed.error.kind() == ErrorKind::Invalid;
            if !is_broken {
                self.check(&failed.error)?;
            }
            broken = !is_broken && failed.draft.is_some();
            given_back = failed.draft.filter(|_| !is_broken).map(|draft| *draft);
            if given_back.is_none() && !is_broken {
                // Poisoned, or still unknown: replay knows.
                if let Err(error) = producer.flush() {
                    self.check(&error)?;
                    producer = self.producer(store, producer)?;
                }
            }
        }
        Err(format!("part {sequence} isn't in after {ATTEMPTS_MAX} attempts, for one fault").into())
    }

    /// The producer, opened anew: it is given the state of its last visible part (P3).
    pub(super) fn producer(&self, store: &Store, old: Producer) -> Result<Producer> {
        drop(old);
        let producer = self.insist("opening the producer", || store.producer(NAME))?;
        part::check_state(&producer)?;
        Ok(producer)
    }

    /// Behind the mount there are all parts, each once, and nothing that `verify` finds.
    pub(super) fn judge(&self, from: Step, parts: u64) -> Result<()> {
        self.place.rules.lift()?;
        let store = Store::open(&self.truth)?;
        let run = store.run(if from == Step::new(0) { Start::Beginning } else { from.into() })?;
        let mut consumer = run.consumer(Share::WHOLE)?;
        for sequence in from.get()..parts {
            let Next::Batch(batch) = consumer.try_next()? else {
                return Err(format!("LOST: step {sequence} isn't there").into());
            };
            let id = part::check(&batch)?;
            if !id.is(NAME, sequence) {
                return Err(format!("LOST or DOUBLED: step {sequence} holds {id}").into());
            }
        }
        if let Next::Batch(batch) = consumer.try_next()? {
            return Err(format!("step {} was never published", batch.step()).into());
        }
        judge::verify(&self.truth)
    }

    /// Removes it, so that the disk behind the mounts stays small.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.truth)?;
        let name = self.truth.file_name().unwrap_or_default().to_string_lossy();
        self.place.rules.let_go(&name)
    }
}
