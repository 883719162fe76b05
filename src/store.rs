//! The facade: a store, by its path.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::consumer::{Batch, Reader, Want};
use crate::env::{Env, System};
use crate::error::{Error, ErrorKind, Result};
use crate::format::store::Identity;
use crate::id::{Generation, Incarnation, Sequence, Step, StoreUuid, Version};
use crate::lifecycle::create::{self, Seams};
use crate::lifecycle::stream;
use crate::limits::{LOOK_AGAIN_PAUSE, PROBE_INTERVAL_MAX};
use crate::log::open::{self, Found};
use crate::log::state::ProducerState;
use crate::log::{Log, build};
use crate::name::Name;
use crate::options::{MountClass, Options, Primitive, ReadMode, Settings};
use crate::producer::Producer;
use crate::run::{Run, Start};
use crate::share::Share;
use crate::stats::Stats;
use crate::storage::{Counting, Posix, Storage};

/// A store: one root directory, one ordered stream of global batches.
///
/// Cheap to clone; clones share one tail, one poller, one pool of buffers and one cache of open commits, so
/// give the threads of a process clones of one handle.
///
/// A fork doesn't take a handle along, nor anything that was made by one. In the child every call that reads,
/// writes or waits is `Invalid` at once, and what is dropped there stays as it is for the parent. Of the
/// calls that give no error make none there: they may wait for a thread that isn't there. The child opens the
/// store by itself.
#[derive(Clone, Debug)]
pub struct Store {
    reader: Arc<Reader>,
    counting: Arc<Counting>,
}

/// What a store is and holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Info {
    /// Its identity.
    pub uuid: StoreUuid,
    /// The store that it was copied from; none if it is no copy.
    pub origin: Option<StoreUuid>,
    /// The version of its format.
    pub format: u16,
    /// The fixed choices.
    #[serde(flatten)]
    pub options: Options,
    /// How a commit gets its name.
    pub primitive: Primitive,
    /// What the mount is like.
    pub mount_class: MountClass,
    /// How this handle reads.
    pub read_mode: ReadMode,
    /// The newest commit; none in an empty store.
    pub head_version: Option<Version>,
    /// The next step: the number of visible ones.
    pub next_step: Step,
    /// The first step that is still retained.
    pub floor: Step,
    /// The generation.
    pub generation: Generation,
    /// The step at which the stream ends; none while it goes on.
    pub closed: Option<Step>,
    /// Bytes of all retained parts.
    pub retained_bytes: u64,
    /// How many producers it knows.
    pub producers: usize,
    /// How many groups it knows.
    pub groups: usize,
    /// Whose turn it is to publish; none where producers don't take turns.
    pub turn: Option<Name>,
}

/// What a store knows of a producer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducerInfo {
    /// Its name.
    pub name: Name,
    /// The incarnation that may publish; none once retired.
    pub incarnation: Option<Incarnation>,
    /// How many parts it has published.
    pub sequence: Sequence,
    /// The step of its last part; none before the first.
    pub last_step: Option<Step>,
    /// Its newest commit.
    pub last_version: Version,
    /// Whether it has retired.
    pub finished: bool,
    /// The state committed with its last part.
    pub state: Vec<u8>,
}

impl Store {
    /// Creates a store in a directory that is empty or doesn't exist (its parent does).
    ///
    /// The mount is probed first; what can't keep the promises is refused.
    ///
    /// # Errors
    /// `Invalid` when there is a store, or anything else, or an option is out of bounds; `Unsupported` when
    /// no store may live on that mount; `Full`, `Io`.
    pub fn create(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let (seams, counting) = system();
        let log = create::create(path.as_ref(), &options, &seams, &Settings::default())?;
        Ok(Self::new(log, counting))
    }

    /// Opens a store, or creates it. Any number of processes may race: one creates it, all open it.
    ///
    /// # Errors
    /// As [`Store::create`] and [`Store::open`]; `Invalid` when the store has other options, which are
    /// listed.
    pub fn open_or_create(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_or_create_with(path, options, &Settings::default())
    }

    /// As [`Store::open_or_create`], with settings for this handle.
    ///
    /// # Errors
    /// As [`Store::open_or_create`].
    pub fn open_or_create_with(
        path: impl AsRef<Path>,
        options: Options,
        settings: &Settings,
    ) -> Result<Self> {
        let (seams, counting) = system();
        let (log, _) = create::open_or_create(path.as_ref(), &options, &seams, settings)?;
        Ok(Self::new(log, counting))
    }

    /// Opens a store. It writes nothing, so a read-only mount will do.
    ///
    /// # Errors
    /// `Invalid` when there is no store, naming this host; `Unsupported` when a newer library made it;
    /// `Corrupt`, `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &Settings::default())
    }

    /// As [`Store::open`], with settings for this handle.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(path: impl AsRef<Path>, settings: &Settings) -> Result<Self> {
        let (seams, counting) = system();
        Self::look(path.as_ref(), &seams, counting, settings)
    }

    /// Opens a store, waiting for it to be created, and saying so. A mount that is away has its own patience,
    /// [`Settings::io_patience`].
    ///
    /// # Errors
    /// As [`Store::open`]; `Timeout` when there is none in time.
    pub fn open_wait(path: impl AsRef<Path>, timeout: Duration) -> Result<Self> {
        let (path, (seams, counting)) = (path.as_ref(), system());
        let began = seams.env.now();
        let mut pause = LOOK_AGAIN_PAUSE;
        let mut said = false;
        loop {
            let waiting = match Self::look(path, &seams, Arc::clone(&counting), &Settings::default()) {
                Err(error) if error.kind() == ErrorKind::Invalid => error,
                other => return other,
            };
            let waited = seams.env.now().saturating_sub(began);
            if waited >= timeout {
                let what = format!("waited {} s: {waiting}", timeout.as_secs_f64());
                return Err(Error::new(ErrorKind::Timeout, what));
            }
            if !said && waited >= Duration::from_secs(1) {
                tracing::warn!(path = %path.display(), %waiting, "waiting for a store to be created");
                said = true;
            }
            seams.env.sleep(pause.min(timeout.saturating_sub(waited)));
            pause = pause.saturating_mul(2).min(PROBE_INTERVAL_MAX);
        }
    }

    fn look(path: &Path, seams: &Seams, counting: Arc<Counting>, settings: &Settings) -> Result<Self> {
        match open::look(path, Arc::clone(&seams.storage), Arc::clone(&seams.env), settings)? {
            Found::Store(log) => Ok(Self::new(*log, counting)),
            Found::NoStore(root) => Err(open::no_store(path, &*seams.storage, &*seams.env, &root)),
            Found::Nothing => Err(open::nothing(path, &*seams.env)),
        }
    }

    fn new(log: Log, counting: Arc<Counting>) -> Self {
        Self { reader: Arc::new(Reader::new(Arc::new(log))), counting }
    }

    /// Opens a store over another storage and environment, as simulators and fault tests do.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[cfg(feature = "internals")]
    pub fn open_on(
        path: &Path,
        storage: Arc<dyn Storage>,
        env: Arc<dyn Env>,
        settings: &Settings,
    ) -> Result<Self> {
        let (seams, counting) = counted(storage, env);
        Self::look(path, &seams, counting, settings)
    }

    /// Opens or creates a store over another storage and environment.
    ///
    /// # Errors
    /// As [`Store::open_or_create`].
    #[cfg(feature = "internals")]
    pub fn open_or_create_on(
        path: &Path,
        storage: Arc<dyn Storage>,
        env: Arc<dyn Env>,
        options: Options,
        settings: &Settings,
    ) -> Result<Self> {
        let (seams, counting) = counted(storage, env);
        let (log, _) = create::open_or_create(path, &options, &seams, settings)?;
        Ok(Self::new(log, counting))
    }

    /// The log of this handle, for what looks below the surface.
    #[cfg(feature = "internals")]
    pub fn inner(&self) -> &Arc<Log> {
        self.log()
    }

    /// What consumers of this handle share.
    pub(crate) fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// The log of this handle.
    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.reader.log
    }

    /// Its directory, as it was given.
    pub fn path(&self) -> &Path {
        &self.reader.log.path
    }

    /// Its identity.
    pub fn uuid(&self) -> StoreUuid {
        self.reader.log.identity.uuid
    }

    /// The fixed choices that it was made with.
    pub fn options(&self) -> &Options {
        &self.reader.log.identity.options
    }

    /// What it is and holds, as of now.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Io`.
    pub fn info(&self) -> Result<Info> {
        let log = &self.reader.log;
        let tail = log.current()?;
        let state = &tail.state;
        Ok(Info {
            uuid: log.identity.uuid,
            origin: Some(log.identity.origin).filter(|origin| *origin != Identity::NO_ORIGIN),
            format: crate::format::FORMAT_VERSION,
            options: log.identity.options,
            primitive: log.identity.primitive,
            mount_class: log.class,
            read_mode: log.mode,
            head_version: tail.newest(),
            next_step: state.next_step(),
            floor: state.floor,
            generation: state.generation,
            closed: state.closed,
            retained_bytes: state.bytes_written.saturating_sub(state.bytes_reclaimed),
            producers: state.producers.len(),
            groups: state.groups.len(),
            turn: state.turn().map(|(_, name, _)| name.clone()),
        })
    }

    /// The producers that it knows, by name, as of now.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Io`.
    pub fn producers(&self) -> Result<Vec<ProducerInfo>> {
        let log = &self.reader.log;
        let read = |_| {
            let mut tail = log.current_at_once()?;
            let states = tail.read(log, |tail| build::producer_states(log, tail))?;
            Ok((tail, states))
        };
        let (tail, mut states) = log.outlast("reading the producers", log.patient_until(), read)?;
        let mut info = |(name, known): (&Name, &ProducerState)| ProducerInfo {
            name: name.clone(),
            incarnation: known.incarnation,
            sequence: known.next,
            last_step: known.last_part.map(|part| part.step(log.parts_per_step())),
            last_version: known.last_version,
            finished: known.finished,
            state: states.remove(name).unwrap_or_default(),
        };
        Ok(tail.state.producers.iter().map(&mut info).collect())
    }

    /// Opens a producer's name, fencing its older incarnations; it goes on after the last visible part of
    /// that name.
    ///
    /// The name is that of a partition of the source, never of a job or a host.
    ///
    /// # Errors
    /// `Invalid` for a bad name or a closed stream; `Full`, `Contended`, `Io`.
    pub fn producer(&self, name: &str) -> Result<Producer> {
        self.log().once(|| Producer::open(Arc::clone(self.log()), Name::new(name)?))
    }

    /// A run: a view of the store, from the beginning, a step or a saved position.
    ///
    /// # Errors
    /// `Reclaimed` for a step below the floor; `Invalid` for one beyond the end or a position of another
    /// store; `Rewound` when the store no longer has the position's history; `Corrupt`, `Io`.
    pub fn run(&self, start: impl Into<Start>) -> Result<Run> {
        Run::begin(Arc::clone(&self.reader), start.into())
    }

    /// The whole global batch of a visible step. Its slices are read when they are asked for.
    ///
    /// # Errors
    /// `Invalid` when the step isn't published, `Reclaimed` when it is below the floor; `Corrupt`, `Io`.
    pub fn batch(&self, step: Step) -> Result<Batch> {
        let until = self.reader.log.patient_until();
        let load = || self.reader.load(step, Share::WHOLE, self.reader.holding(step)?, Want::Parts, until);
        match load() {
            // Between the two looks; it isn't about a run that would have to begin again.
            Err(error) if error.kind() == ErrorKind::Rewound => load(),
            loaded => loaded,
        }
    }

    /// The whole global batches of a range of visible steps, in order.
    ///
    /// An item is an error where [`Store::batch`] would give one.
    pub fn batches(&self, steps: Range<Step>) -> impl Iterator<Item = Result<Batch>> + '_ {
        (steps.start.get()..steps.end.get()).map(|step| self.batch(Step::new(step)))
    }

    /// Retires a producer on behalf of whoever ran it. False if it was finished already.
    ///
    /// One that a rewind has set back and nobody has opened since is opened for that.
    ///
    /// # Errors
    /// `Invalid` when there is no such producer, or when it has to be opened and the stream is closed;
    /// `Full`, `Contended`, `Io`.
    pub fn retire(&self, producer: &str) -> Result<bool> {
        self.log().once(|| stream::retire(self.log(), &Name::new(producer)?))
    }

    /// Ends the stream at the next step: consumers end there, on every rank. False if it was closed already.
    ///
    /// With `open_step`, parts of an incomplete step may stay behind; they count again after a
    /// [`Store::reopen`].
    ///
    /// A skip that comes between doesn't matter; a rewind does, since the stream would end elsewhere.
    ///
    /// # Errors
    /// `Invalid` when a step is incomplete, unless `open_step`; `Rewound` when another has rewound the store
    /// meanwhile: look at what is left, and decide anew; `Full`, `Contended`, `Io`.
    pub fn close(&self, open_step: bool) -> Result<bool> {
        self.log().once(|| stream::close(self.log(), open_step))
    }

    /// Goes on after an end. Runs that began before don't see it. False if the stream was open.
    ///
    /// A rewind that comes between has opened it already, so that is false; a skip doesn't matter.
    ///
    /// # Errors
    /// `Full`, `Contended`, `Io`.
    pub fn reopen(&self) -> Result<bool> {
        self.log().once(|| stream::reopen(self.log()))
    }

    /// What this handle has asked of the filesystem so far.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.counting, &self.reader.log.pool)
    }
}

/// The real filesystem, clock and threads.
pub(crate) fn system() -> (Seams, Arc<Counting>) {
    counted(Arc::new(Posix::new()), Arc::new(System::new()))
}

fn counted(storage: Arc<dyn Storage>, env: Arc<dyn Env>) -> (Seams, Arc<Counting>) {
    let counting = Arc::new(Counting::new(storage));
    (Seams { storage: Arc::clone(&counting) as Arc<dyn Storage>, env }, counting)
}
