//! Creating a store: any number may race, one STORE wins, everyone opens that one.
//!
//! - The mount is probed before anything else is made; an unsafe one is refused by name (docs/design.md,
//!   section 5).
//! - STORE is put last, so a store is whole or isn't there. Without it, creation goes on over a store's own
//!   empty directories only: any commit, index or higher mark is half of a destroyed store, and refused.
//! - A slow creator can't harm a store that was made meanwhile: old marks and an empty segment directory
//!   mean nothing.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::commit::ballast;
use crate::commit::publish::is_refusal;
use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::format::store::Identity;
use crate::id::{Nonce, Segment, StoreUuid};
use crate::log::Log;
use crate::log::doorbell::DOORBELL_BYTES;
use crate::log::open::{self, Found};
use crate::options::{Durability, MountClass, Options, Primitive, Settings};
use crate::storage::{Dir, Storage, probe, put, write_all_at};

/// What a handle is made from.
#[derive(Clone, Debug)]
pub(crate) struct Seams {
    /// The calls.
    pub(crate) storage: Arc<dyn Storage>,
    /// Clock, entropy, threads.
    pub(crate) env: Arc<dyn Env>,
}

/// Creates a store that isn't there.
///
/// # Errors
/// `Invalid` when there is one or the directory holds anything else, `Unsupported` for a mount that can't
/// have one.
pub(crate) fn create(path: &Path, options: &Options, seams: &Seams, settings: &Settings) -> Result<Log> {
    create_of(path, options, seams, settings, Identity::NO_ORIGIN)
}

/// As [`create`], for a copy of the store `origin`.
///
/// # Errors
/// As [`create`].
pub(crate) fn create_of(
    path: &Path,
    options: &Options,
    seams: &Seams,
    settings: &Settings,
    origin: StoreUuid,
) -> Result<Log> {
    let (log, created) = open_or_create_of(path, options, seams, settings, origin)?;
    if created {
        return Ok(log);
    }
    Err(Error::new(ErrorKind::Invalid, "there is a store already").at(path))
}

/// Opens a store, or creates it. True if this call created it.
///
/// # Errors
/// As [`create`]; `Invalid` when the store has other options, listing them.
pub(crate) fn open_or_create(
    path: &Path,
    options: &Options,
    seams: &Seams,
    settings: &Settings,
) -> Result<(Log, bool)> {
    open_or_create_of(path, options, seams, settings, Identity::NO_ORIGIN)
}

fn open_or_create_of(
    path: &Path,
    options: &Options,
    seams: &Seams,
    settings: &Settings,
    origin: StoreUuid,
) -> Result<(Log, bool)> {
    options.check()?;
    let look = || open::look(path, Arc::clone(&seams.storage), Arc::clone(&seams.env), settings);
    let root = match look()? {
        Found::Store(log) => return same_options(*log, options).map(|log| (log, false)),
        Found::NoStore(root) => root,
        Found::Nothing => make_root(path, seams)?,
    };
    let mut uuid = [0; 16];
    let no_entropy = |error| Error::io("can't draw the store's identity", error).at(path);
    seams.env.entropy(&mut uuid).map_err(no_entropy)?;
    let uuid = StoreUuid::new(uuid);
    let made = make(path, options, seams, &root, Whose { uuid, origin });
    // Whatever was said, only STORE decides (R2): this creator's, or another's that came in its way.
    match (look()?, made) {
        (Found::Store(log), _) => {
            log.secure()?;
            let created = log.identity.uuid == uuid;
            same_options(*log, options).map(|log| (log, created))
        }
        (_, Err(error)) => Err(error),
        (Found::NoStore(root), Ok(())) => Err(open::no_store(path, &*seams.storage, &*seams.env, &root)),
        (Found::Nothing, Ok(())) => Err(open::nothing(path, &*seams.env)),
    }
}

/// Who a new store is, and what it is a copy of.
#[derive(Clone, Copy)]
struct Whose {
    uuid: StoreUuid,
    origin: StoreUuid,
}

fn same_options(log: Log, options: &Options) -> Result<Log> {
    let differences = options.differences(&log.identity.options);
    if differences.is_empty() {
        return Ok(log);
    }
    let what = format!("the store was made with other options: {}", differences.join(", "));
    Err(Error::new(ErrorKind::Invalid, what).at(&log.path))
}

fn make_root(path: &Path, seams: &Seams) -> Result<Dir> {
    let failed = |error| Error::io("can't make the store's directory", error).at(path);
    match seams.storage.make_root(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    seams.storage.open_root(path).map_err(failed)
}

/// Makes everything, STORE last.
fn make(path: &Path, options: &Options, seams: &Seams, root: &Dir, whose: Whose) -> Result<()> {
    let storage = &*seams.storage;
    examine(path, storage, root)?;
    let failed = |error| Error::io("can't create the store", error).at(path);
    make_dir(storage, root, names::STAGE).map_err(failed)?;
    let stage = storage.open_dir(root, names::STAGE).map_err(failed)?;
    let report = probe(storage, &*seams.env, &stage, path, options)?;
    let (class, primitive) = match report.accept() {
        Ok(accepted) => accepted,
        Err(refusal) => {
            // Nothing is left on a mount that can't have a store; another creator's stage isn't empty and
            // stays.
            let _ = storage.remove_dir(root, names::STAGE);
            return Err(refusal);
        }
    };
    let Whose { uuid, origin } = whose;
    let identity = Identity { uuid, origin, options: *options, primitive };
    let synced = options.durability == Durability::Synced;
    let (storage, root) = open::storage_of(&identity, Arc::clone(&seams.storage), root.clone());
    furnish(&*storage, &root, class, synced).map_err(failed)?;
    put_store(path, &Seams { storage, env: Arc::clone(&seams.env) }, &root, &identity)
}

fn make_dir(storage: &dyn Storage, parent: &Dir, name: &str) -> io::Result<()> {
    match storage.make_dir(parent, name) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn make_file(storage: &dyn Storage, parent: &Dir, name: &str, bytes: &[u8]) -> io::Result<()> {
    let file = match storage.create_exclusive(parent, name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(error),
    };
    write_all_at(storage, &file, bytes, 0)?;
    storage.close(file)
}

/// Everything but STORE, durable if the store is to be.
fn furnish(storage: &dyn Storage, root: &Dir, class: MountClass, synced: bool) -> io::Result<()> {
    for name in names::DIRECTORIES {
        make_dir(storage, root, name)?;
    }
    let first = names::segment(Segment::ZERO);
    let log = storage.open_dir(root, names::LOG)?;
    make_dir(storage, &log, &first)?;
    let marks = storage.open_dir(root, names::MARKS)?;
    make_file(storage, &marks, &first, &[])?;
    if class == MountClass::Local {
        make_file(storage, root, names::HEAD, &[0; DOORBELL_BYTES as usize])?;
    }
    ballast::make(storage, root)?;
    if synced {
        [&log, &marks, root].into_iter().try_for_each(|dir| storage.sync_dir(dir))?;
    }
    Ok(())
}

fn put_store(path: &Path, seams: &Seams, root: &Dir, identity: &Identity) -> Result<()> {
    let storage = &*seams.storage;
    let failed = |error| Error::io("can't put STORE", error).at(path.join(names::STORE));
    let mut nonce = [0; 16];
    seams.env.entropy(&mut nonce).map_err(failed)?;
    let staged = names::staged_control("store", Nonce::new(nonce));
    let stage = &storage.open_dir(root, names::STAGE).map_err(failed)?;
    let file = storage.create_exclusive(stage, &staged).map_err(failed)?;
    let synced = identity.options.durability == Durability::Synced;
    let written = write_all_at(storage, &file, &identity.encode(), 0)
        .and_then(|()| if synced { storage.sync_file(&file) } else { Ok(()) });
    let closed = storage.close(file);
    written.and(closed).map_err(failed)?;
    let put = match put::put(storage, identity.primitive, stage, &staged, root, names::STORE) {
        Err(error) if put::is_refused(&error) => {
            let (from, to) = ((stage, staged.as_str()), (root, names::STORE));
            put::put_beside(storage, identity.primitive, from, to, &names::beside(&staged))
        }
        put => put,
    };
    put.map_err(|error| {
        if is_refusal(identity.primitive, &error) {
            refused(identity.primitive, error).at(path.join(names::STORE))
        } else {
            failed(error)
        }
    })?;
    put::unstage(storage, identity.primitive, stage, &staged).map_err(failed)
}

/// What a mount has just done when it was probed.
fn refused(primitive: Primitive, error: io::Error) -> Error {
    let what = format!(
        "can't put STORE; the mount did the {primitive} when it was probed, and refuses it now: try again, \
         or use another filesystem"
    );
    Error::new(ErrorKind::Unsupported, what).caused_by(error)
}

/// Refuses a directory that holds anything but a store's own empty directories.
fn examine(path: &Path, storage: &dyn Storage, root: &Dir) -> Result<()> {
    let failed = |error| Error::io("can't look into the directory", error).at(path);
    for name in storage.list(root).map_err(failed)? {
        if names::parse_beside(&name).is_some() {
            // STORE on its way, by a creator that died (R9).
            continue;
        }
        let Some(name) = known(&name) else {
            let what = format!("the directory holds {name:?}, so no store is created in it");
            return Err(Error::new(ErrorKind::Invalid, what).at(path));
        };
        let allowed = match name {
            names::LOG | names::MARKS => Some(names::segment(Segment::ZERO)),
            names::INDEX | names::GROUPS => None,
            _ => continue,
        };
        let dir = storage.open_dir(root, name).map_err(failed)?;
        let mut held: Vec<_> = storage.list(&dir).map_err(failed)?.into_iter().collect();
        held.retain(|held| allowed.as_deref().map(OsStr::new) != Some(held));
        if name == names::LOG && allowed_is_there(storage, &dir).map_err(failed)? {
            let first = storage.open_dir(&dir, &names::segment(Segment::ZERO)).map_err(failed)?;
            held.extend(storage.list(&first).map_err(failed)?);
        }
        if let Some(held) = held.first() {
            let what = format!(
                "the directory is half of a destroyed store: it has no STORE, but {held:?} in {name}/"
            );
            return Err(Error::new(ErrorKind::Invalid, what).at(path));
        }
    }
    Ok(())
}

fn allowed_is_there(storage: &dyn Storage, log: &Dir) -> io::Result<bool> {
    match storage.kind(log, &names::segment(Segment::ZERO)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A name that a store's directory may hold; while it is created, STORE itself may have just come.
pub(super) fn known(name: &OsStr) -> Option<&'static str> {
    let mut all = names::DIRECTORIES.into_iter().chain([names::HEAD, names::BALLAST, names::STORE]);
    all.find(|known| name == OsStr::new(known))
}
