//! Opening a store: STORE read and checked, the mount classed, nothing written.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::doorbell::Doorbell;
use super::enclosed::{self, Enclosed};
use super::index::Indexes;
use super::patience::{Outage, default_of, may_pass};
use super::tail::Tail;
use super::{Held, Log};
use crate::env::{Env, Exclusive};
use crate::error::{Error, ErrorKind, Result};
use crate::format::commit::People;
use crate::format::names;
use crate::format::store::{Identity, STORE_BYTES};
use crate::options::{MountClass, Primitive, ReadMode, Settings};
use crate::storage::{Access, Dir, ForkMark, Storage, class_of, read_exact_at};

/// What was found where a store was looked for.
#[derive(Debug)]
pub enum Found {
    /// A store.
    Store(Box<Log>),
    /// A directory without STORE: empty, half created, or something else.
    NoStore(Dir),
    /// Nothing.
    Nothing,
}

/// Looks for a store, outlasting errors that may pass.
///
/// # Errors
/// `Corrupt` or `Unsupported` when STORE isn't right, `Invalid` when the path isn't a directory, `Io`.
pub fn look(path: &Path, storage: Arc<dyn Storage>, env: Arc<dyn Env>, settings: &Settings) -> Result<Found> {
    let began = env.now();
    let mut outage = Outage::new(&*env, "opening a store");
    let mut patience = None;
    loop {
        match look_once(path, &storage, &env, settings) {
            Ok(found) => {
                outage.over();
                return Ok(found);
            }
            Err(error) => {
                if may_pass(&error) {
                    patience.get_or_insert_with(|| patience_with(path, &*storage, settings));
                }
                outage.outlast(error, began.saturating_add(patience.unwrap_or_default()))?;
            }
        }
    }
}

/// How patient to be with a mount on which a store can't be opened. One that can't even be asked what it is
/// counts as remote, as does one that nobody has heard of.
fn patience_with(path: &Path, storage: &dyn Storage, settings: &Settings) -> Duration {
    let class = || {
        let mount = storage.open_root(path).and_then(|root| storage.mount(&root)).ok()?;
        class_of(&mount).ok()
    };
    let by_class = || default_of(settings.mount_class.or_else(class).unwrap_or(MountClass::CloseToOpen));
    settings.io_patience.unwrap_or_else(by_class)
}

fn look_once(
    path: &Path,
    storage: &Arc<dyn Storage>,
    env: &Arc<dyn Env>,
    settings: &Settings,
) -> Result<Found> {
    let root = match storage.open_root(path) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(Error::new(ErrorKind::Invalid, "a store is a directory, this isn't one").at(path));
        }
        Err(error) => return Err(Error::io("can't open the store's directory", error).at(path)),
    };
    let Some(identity) = read_store(&**storage, &root).map_err(|error| error.at(path.join(names::STORE)))?
    else {
        return Ok(Found::NoStore(root));
    };
    open(path, Arc::clone(storage), Arc::clone(env), settings, root, identity)
        .map(|log| Found::Store(Box::new(log)))
}

/// The storage by which a store's files are found, and its root by that.
pub fn storage_of(identity: &Identity, storage: Arc<dyn Storage>, root: Dir) -> (Arc<dyn Storage>, Dir) {
    match identity.primitive {
        Primitive::RenameDirectory => (Arc::new(Enclosed::new(storage)), Enclosed::root(root)),
        Primitive::Link | Primitive::RenameNoreplace => (storage, root),
    }
}

/// Reads STORE, which says how the others are enclosed: itself, it may be either way. None if there is none.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `Io`.
pub fn read_store(storage: &dyn Storage, root: &Dir) -> Result<Option<Identity>> {
    let mut bytes = [0; STORE_BYTES];
    let mut read = |dir: &Dir, name: &str| {
        let file = storage.open(dir, name, Access::Read)?;
        read_exact_at(storage, &file, &mut bytes, 0)
    };
    let found = match read(root, names::STORE) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            storage.open_dir(root, names::STORE).and_then(|dir| read(&dir, enclosed::CONTENT))
        }
        found => found,
    };
    match found {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(super::read::short(error)),
        Err(error) => return Err(Error::io("can't read STORE", error)),
    }
    Identity::decode(&bytes).map(Some)
}

fn open(
    path: &Path,
    outside: Arc<dyn Storage>,
    env: Arc<dyn Env>,
    settings: &Settings,
    root: Dir,
    identity: Identity,
) -> Result<Log> {
    let (storage, root) = storage_of(&identity, Arc::clone(&outside), root);
    let class = match settings.mount_class {
        Some(class) => class,
        None => {
            let mount =
                storage.mount(&root).map_err(|error| Error::io("can't ask for the mount", error).at(path))?;
            class_of(&mount).map_err(|error| error.at(path))?
        }
    };
    let default_mode = if class == MountClass::Local { ReadMode::Map } else { ReadMode::Copy };
    let log = storage
        .open_dir(&root, names::LOG)
        .map_err(|error| Error::io("can't open the log", error).at(path.join(names::LOG)))?;
    let doorbell =
        if class == MountClass::Local { Doorbell::open(&*storage, &root) } else { Doorbell::none() };
    Ok(Log {
        path: path.to_path_buf(),
        identity,
        class,
        mode: settings.read_mode.unwrap_or(default_mode),
        io_patience: settings.io_patience.unwrap_or_else(|| default_of(class)),
        tail: Exclusive::new(&*env, Tail::unloaded(identity.options.parts_per_step)),
        indexes: Indexes::default(),
        doorbell,
        pool: Arc::default(),
        segment_dir: parking_lot::Mutex::new(None),
        secured: AtomicBool::new(false),
        ballast_given: AtomicBool::new(false),
        puts_beside: AtomicBool::new(false),
        people: people(&*env),
        mark: ForkMark::default(),
        held: parking_lot::Mutex::new(Held { root, log, mounts: 0 }),
        held_is_old: AtomicBool::new(false),
        storage,
        outside,
        env,
    })
}

impl Log {
    /// The directories that this handle holds, opened by the store's path once more if they have outlived
    /// their mount: one that was unmounted and mounted again. If what is there isn't this store, the old ones
    /// stay.
    pub fn look_after_held(&self) {
        if !self.held_is_old.swap(false, Ordering::AcqRel) {
            return;
        }
        match self.find_held() {
            Ok(held) => *self.held.lock() = held,
            Err(error) => tracing::debug!(%error, "the store can't be found by its path now"),
        }
    }

    fn find_held(&self) -> Result<Held> {
        let failed = |error| Error::io("can't open the store's directories", error).at(&self.path);
        let storage = &*self.storage;
        let Held { root: old, mounts, .. } = self.held.lock().clone();
        if let Ok(log) = storage.open_dir(&old, names::LOG) {
            return Ok(Held { root: old, log, mounts });
        }
        let root = storage.open_root(&self.path).map_err(failed)?;
        if read_store(storage, &root)? != Some(self.identity) {
            return Err(Error::new(ErrorKind::Invalid, "the store isn't there").at(&self.path));
        }
        let log = storage.open_dir(&root, names::LOG).map_err(failed)?;
        Ok(Held { root, log, mounts: mounts.saturating_add(1) })
    }
}

/// The people's fields, but the time.
fn people(env: &dyn Env) -> People {
    let who = env.who();
    let library = format!("batchweave {}", env!("CARGO_PKG_VERSION"));
    People { wall_us: 0, pid: who.pid, host: who.host, job: who.job, library }
}

/// The error of a directory without STORE: it says which of the reasons it is, and on which host.
pub fn no_store(path: &Path, storage: &dyn Storage, env: &dyn Env, root: &Dir) -> Error {
    let held = storage.list(root).unwrap_or_default();
    let begun = names::DIRECTORIES.iter().any(|name| held.iter().any(|held| held == *name));
    let what = if begun {
        "the store is half created: it has no STORE yet. Creating it again goes on, unless someone is at it"
    } else if held.is_empty() {
        "the directory is empty, so it is no store"
    } else {
        "the directory is no store: it has no STORE"
    };
    Error::new(ErrorKind::Invalid, format!("{what} (as host {} sees it)", env.who().host)).at(path)
}

/// The error of no directory at all.
pub fn nothing(path: &Path, env: &dyn Env) -> Error {
    let host = env.who().host;
    let what = format!(
        "there is no such directory on host {host}: not created yet, or a path that only another host has"
    );
    Error::new(ErrorKind::Invalid, what).at(path)
}
