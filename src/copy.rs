//! A copy of a store: another store that holds the same steps, numbered from 0.
//!
//! - It is read and published like any other data: every byte is verified on the way, every rule holds in it.
//! - It is made beside its place, in a directory with `.partial` behind the name, and gets its name when it
//!   is whole: an interrupted copy is never found where a whole one is looked for.
//! - It is of one history: if that is changed, or what it needs is reclaimed meanwhile, it is given up.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::consumer::{Batch, WholePart};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Generation, Step, StoreUuid};
use crate::lifecycle::create::{self, Seams};
use crate::lifecycle::destroy::{self, DestroyOptions};
use crate::lifecycle::stream;
use crate::log::Log;
use crate::log::history::{Skipped, past};
use crate::log::open::{self, Found};
use crate::name::Name;
use crate::options::{Durability, Settings};
use crate::producer::{Compression, Producer};
use crate::store::Store;

/// The level at which what was compressed is compressed again: zstd's own default. The one that was used
/// isn't recorded.
const ZSTD_LEVEL: i32 = 3;

/// What is copied, and whereto it may be; see [`Store::copy_to`].
///
/// ```
/// use batchweave::{CopyOptions, Step};
/// let newest = CopyOptions::new().steps(Step::new(1000)..Step::new(2000));
/// # assert_eq!(newest.steps.unwrap().start, Step::new(1000));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyOptions {
    /// The steps (default: all that are retained).
    pub steps: Option<Range<Step>>,
    /// As [`Options::allow_unknown_fuse`](crate::Options::allow_unknown_fuse), for where the copy is made
    /// (default false).
    pub allow_unknown_fuse: bool,
}

impl CopyOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`CopyOptions::steps`].
    #[must_use]
    pub fn steps(mut self, steps: Range<Step>) -> Self {
        self.steps = Some(steps);
        self
    }

    /// Sets [`CopyOptions::allow_unknown_fuse`].
    #[must_use]
    pub fn allow_unknown_fuse(mut self, allow: bool) -> Self {
        self.allow_unknown_fuse = allow;
        self
    }
}

/// What a copy holds; see [`Store::copy_to`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Copied {
    /// The copy's identity.
    pub uuid: StoreUuid,
    /// The store that it is of.
    pub origin: StoreUuid,
    /// The source's step that is step 0 of the copy, unless that one is left out.
    pub first: Step,
    /// How many steps it holds.
    pub steps: u64,
    /// Bytes of their slices, as they were given.
    pub bytes: u64,
    /// The source's steps that are left out, since a skip passes over them.
    pub left_out: Vec<RangeInclusive<Step>>,
    /// How many producers have parts in it.
    pub producers: usize,
    /// Whether it ends where the source does, which is closed.
    pub closed: bool,
}

impl Store {
    /// Copies steps into a new store, which has the same options as this one, an identity of its own, and the
    /// source's as its [origin](crate::Info::origin); its first step is 0.
    ///
    /// - Slices, their counts, attachments, metadata and producers' states are the same, byte for byte, and
    ///   so is the order of parts. Steps that are [skipped](Store::skip) are left out.
    /// - A producer goes on after its last part in the copy, with the state that was committed with that, and
    ///   has finished if it had and has no part after the range. Groups and checkpoints aren't copied; a
    ///   position belongs to one store.
    /// - The copy is closed if it reaches to the end of a source that is.
    ///
    /// `dest` doesn't exist or is an empty directory. Until the copy is whole it is in a directory beside
    /// that, with `.partial` behind the name. One that an interrupted call has left is destroyed first, by
    /// [`destroy`](crate::destroy): it may also be another call's that is under way.
    ///
    /// # Errors
    /// `Invalid` when there is something at `dest`, or an unfinished copy, or a step isn't published, or the
    /// range holds none. `Reclaimed` for a step below the floor, or if it came below it meanwhile; `Rewound`
    /// when history was changed meanwhile; `Unsupported` when no store may live there; `Corrupt`, `Full`,
    /// `Io`.
    ///
    /// ```
    /// use batchweave::{CopyOptions, Counts, Options, Step, Store};
    /// # fn main() -> batchweave::Result<()> {
    /// # let directory = tempfile::tempdir()?;
    /// # let root = directory.path().join("train");
    /// let store = Store::open_or_create(&root, Options::new())?;
    /// let mut producer = store.producer("tok-017")?;
    /// for byte in 0..5 {
    ///     let mut draft = producer.draft()?;
    ///     draft.add_slice(&[byte; 100], Counts::default())?;
    ///     producer.publish_now(draft, [byte])?;
    /// }
    /// let dest = directory.path().join("some");
    /// store.copy_to(&dest, CopyOptions::new().steps(Step::new(2)..Step::new(4)))?;
    ///
    /// let copy = Store::open(&dest)?;
    /// assert_eq!(copy.info()?.origin, Some(store.uuid()));
    /// assert_eq!(*copy.batch(Step::new(0))?.slice(0)?, [2; 100]);
    /// assert_eq!(copy.producer("tok-017")?.state(), [3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn copy_to(&self, dest: impl AsRef<Path>, options: CopyOptions) -> Result<Copied> {
        let (log, dest) = (self.log(), dest.as_ref());
        let made_as = self.options().allow_unknown_fuse(options.allow_unknown_fuse);
        let plan = Plan::of(log, options.steps)?;
        let seams = Seams { storage: Arc::clone(&log.outside), env: Arc::clone(&log.env) };
        check_free(dest, &seams, self.uuid())?;
        let partial = partial_of(dest)?;
        let found = look(&partial, &seams)?;
        if let Found::Store(_) = found {
            let what = "there is an unfinished copy: one was interrupted, or another one is under way";
            return Err(Error::new(ErrorKind::Invalid, what).at(partial));
        }
        let refused = |_: &Error| {
            if matches!(found, Found::Nothing) {
                remove_empty(&partial, &seams);
            }
        };
        let settings = Settings::default();
        let made =
            create::create_of(&partial, &made_as, &seams, &settings, self.uuid()).inspect_err(refused)?;
        let uuid = made.identity.uuid;
        let copied = fill(self, &plan, Arc::new(made)).and_then(|copied| {
            move_in(&partial, dest, &seams, uuid, self.options().durability)?;
            Ok(copied)
        });
        if copied.is_err() {
            discard(&partial, &seams, uuid);
        }
        copied
    }
}

/// What is to be copied, of one history.
#[derive(Debug)]
struct Plan {
    generation: Generation,
    steps: Range<Step>,
    skips: Vec<Skipped>,
    closed: bool,
}

impl Plan {
    fn of(log: &Log, steps: Option<Range<Step>>) -> Result<Self> {
        let tail = log.current()?;
        let state = &tail.state;
        let next = state.next_step();
        let invalid = |step, what: String| Err(Error::new(ErrorKind::Invalid, what).step(step).at(&log.path));
        if let Some(asked) = &steps {
            if asked.start >= asked.end {
                let what = format!("there are no steps in {}..{}", asked.start, asked.end);
                return invalid(asked.start, what);
            }
            if asked.start < state.floor {
                return Err(log.reclaimed(asked.start, &tail));
            }
            if asked.end > next {
                let what = format!("only published steps can be copied, and the next one is {next}");
                return invalid(asked.end, what);
            }
        }
        let steps = steps.unwrap_or(state.floor..next);
        let closed = state.closed == Some(steps.end);
        Ok(Self { generation: state.generation, steps, skips: state.history.skips.clone(), closed })
    }
}

/// A copy that is being made.
struct Copy {
    log: Arc<Log>,
    producers: BTreeMap<Name, Producer>,
    /// One write buffer for all producers, however many there are.
    buffer: Vec<u8>,
    copied: Copied,
}

/// Publishes all that is to be copied.
fn fill(source: &Store, plan: &Plan, log: Arc<Log>) -> Result<Copied> {
    let copied = Copied {
        uuid: log.identity.uuid,
        origin: source.uuid(),
        first: plan.steps.start,
        steps: 0,
        bytes: 0,
        left_out: Vec::new(),
        producers: 0,
        closed: plan.closed,
    };
    let mut copy = Copy { log, producers: BTreeMap::new(), buffer: Vec::new(), copied };
    let mut step = plan.steps.start;
    while step < plan.steps.end {
        let after = past(&plan.skips, step).min(plan.steps.end);
        if after > step {
            let last = Step::new(after.get().saturating_sub(1));
            copy.copied.left_out.push(step..=last);
            step = after;
            continue;
        }
        let batch = source.batch(step)?;
        if batch.position().generation != plan.generation {
            let what = "history was changed while it was copied: nothing is left of the copy";
            return Err(Error::new(ErrorKind::Rewound, what).step(step).at(source.path()));
        }
        copy.step(&batch)?;
        step = step.next();
    }
    copy.finish(source, plan)
}

impl Copy {
    fn step(&mut self, batch: &Batch) -> Result<()> {
        for part in batch.whole_parts()? {
            self.part(batch, &part)?;
        }
        self.copied.steps = self.copied.steps.saturating_add(1);
        Ok(())
    }

    fn part(&mut self, batch: &Batch, part: &WholePart) -> Result<()> {
        if !self.producers.contains_key(&part.producer) {
            let opened = Producer::open(Arc::clone(&self.log), part.producer.clone())?;
            self.producers.insert(part.producer.clone(), opened);
        }
        let missing = || Error::new(ErrorKind::Invalid, "the copy's producer isn't there");
        let producer = self.producers.get_mut(&part.producer).ok_or_else(missing)?;
        producer.set_compression(if part.packed { Compression::Zstd(ZSTD_LEVEL) } else { Compression::None });
        producer.swap_spare(&mut self.buffer);
        let mut draft = producer.draft()?;
        for number in part.slices.clone() {
            let slice = batch.slice(usize::try_from(number).unwrap_or(usize::MAX))?;
            draft.add_slice(&slice, slice.counts())?;
            self.copied.bytes = self.copied.bytes.saturating_add(slice.len() as u64);
        }
        if !part.attachment.is_empty() {
            draft.attach(&part.attachment)?;
        }
        draft.metadata(&part.metadata)?;
        producer.publish_now(draft, &part.state)?;
        producer.swap_spare(&mut self.buffer);
        Ok(())
    }

    /// Who had finished has, if it has no part after the range; and the end is the end.
    fn finish(mut self, source: &Store, plan: &Plan) -> Result<Copied> {
        self.copied.producers = self.producers.len();
        for known in source.producers()? {
            let whole = known.last_step.is_none_or(|last| last < plan.steps.end);
            let Some(producer) = self.producers.remove(&known.name) else { continue };
            if known.finished && whole {
                producer.finish()?;
            }
        }
        if plan.closed {
            stream::close(&self.log, false)?;
        }
        Ok(self.copied)
    }
}

fn look(path: &Path, seams: &Seams) -> Result<Found> {
    open::look(path, Arc::clone(&seams.storage), Arc::clone(&seams.env), &Settings::default())
}

/// Refuses a place at which there is anything but an empty directory.
fn check_free(dest: &Path, seams: &Seams, source: StoreUuid) -> Result<()> {
    let refuse = |what: String| Err(Error::new(ErrorKind::Invalid, what).at(dest));
    match look(dest, seams)? {
        Found::Store(found) if found.identity.origin == source => {
            refuse("there is a copy of this store already".to_owned())
        }
        Found::Store(_) => refuse("there is a store already".to_owned()),
        Found::Nothing => Ok(()),
        Found::NoStore(root) => {
            let failed = |error| Error::io("can't look into the directory", error).at(dest);
            match seams.storage.list(&root).map_err(failed)?.iter().next() {
                Some(name) => refuse(format!("the directory holds {name:?}, so no copy is made in it")),
                None => Ok(()),
            }
        }
    }
}

/// Where a copy is made.
fn partial_of(dest: &Path) -> Result<PathBuf> {
    let unnamed = || Error::new(ErrorKind::Invalid, "a copy needs a path that ends in a name").at(dest);
    let mut name = OsString::from(dest.file_name().ok_or_else(unnamed)?);
    name.push(".partial");
    Ok(dest.with_file_name(name))
}

/// Gives the whole copy its name.
fn move_in(
    partial: &Path,
    dest: &Path,
    seams: &Seams,
    uuid: StoreUuid,
    durability: Durability,
) -> Result<()> {
    let failed = |error| Error::io("can't give the copy its name", error).at(dest);
    let renamed = seams.storage.rename_root(partial, dest);
    // An error isn't a failure: the reply may be what was lost (R2).
    match look(dest, seams)? {
        Found::Store(found) if found.identity.uuid == uuid => {}
        _ => {
            renamed.map_err(failed)?;
            return Err(Error::new(ErrorKind::Invalid, "another has taken the copy's name").at(dest));
        }
    }
    if durability == Durability::Synced {
        let parent = dest.parent().filter(|parent| !parent.as_os_str().is_empty());
        let open = || seams.storage.open_root(parent.unwrap_or(Path::new("."))).map_err(failed);
        seams.storage.sync_dir(&open()?).map_err(failed)?;
        // A dead disk may say that it has synced a directory, but it opens none (XFS, once it has shut down).
        open()?;
    }
    Ok(())
}

/// Removes a copy that won't be finished; what can't be removed is litter in a place of its own.
fn discard(partial: &Path, seams: &Seams, uuid: StoreUuid) {
    let own = matches!(look(partial, seams), Ok(Found::Store(found)) if found.identity.uuid == uuid);
    if own && destroy::destroy(partial, &seams.storage, DestroyOptions::new()).is_ok() {
        remove_empty(partial, seams);
    }
}

/// Removes the directory of a copy that holds nothing.
fn remove_empty(partial: &Path, seams: &Seams) {
    let parent = partial.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(name) = partial.file_name().and_then(|name| name.to_str())
        && let Ok(parent) = seams.storage.open_root(parent.unwrap_or(Path::new(".")))
    {
        let _ = seams.storage.remove_dir(&parent, name);
    }
}
