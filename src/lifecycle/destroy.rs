//! Destroying a store: STORE goes first, then the rest, name by name.
//!
//! - Without STORE nobody opens it, and nobody creates another one over its commits: so a destroy that was
//!   stopped has left no store, and the next one goes on with the rest.
//! - Only names that a store gives are removed. Anything else is left and named, and the directories that
//!   hold it with it; the store's directory itself stays too, empty or not.
//! - What has no STORE is taken for the rest of a store only if it holds nothing but a store's own names.
//! - Where a file is a directory with one file (primitive 3), a stop may have left it empty: it is no file
//!   any more, and STORE no store, but a name that has to go.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::create::known;
use super::reclaimed::Freed;
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::limits::LOOK_AGAIN_MAX;
use crate::log::enclosed::Enclosed;
use crate::log::open::read_store;
use crate::name::Name;
use crate::options::Durability;
use crate::storage::{Access, Dir, Kind, Names, PROBE_PREFIX, Storage, is_not_empty};

/// How a store is destroyed; see [`destroy`](crate::destroy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DestroyOptions {
    /// Say what would be removed, and remove nothing (default: remove it).
    pub dry_run: bool,
}

impl DestroyOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`DestroyOptions::dry_run`].
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
}

/// What a destroy has removed, or would remove; see [`destroy`](crate::destroy).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Destroyed {
    /// Whether nothing was removed.
    pub dry_run: bool,
    /// Whether it went on with the rest of a store, which had no STORE any more.
    pub resumed: bool,
    /// The commits.
    pub commits: Freed,
    /// All other files: STORE, indexes, marks, staged files, ...
    pub others: Freed,
    /// What isn't a store's own and so was left, relative to the store's directory.
    #[serde(serialize_with = "lossy")]
    pub left: Vec<PathBuf>,
}

/// A report has to be readable whatever bytes a stranger's name has.
fn lossy<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

/// Destroys the store in a directory, or goes on with what is left of one.
///
/// # Errors
/// `Invalid` when there is neither, `Io`.
pub(crate) fn destroy(path: &Path, storage: &Arc<dyn Storage>, options: DestroyOptions) -> Result<Destroyed> {
    let mut storage = Arc::clone(storage);
    let mut root = storage.open_root(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Error::new(ErrorKind::Invalid, "there is no such directory").caused_by(error).at(path)
        }
        _ => Error::io("can't open the store's directory", error).at(path),
    })?;
    let listed = storage.list(&root).map_err(|error| Error::io("can't list the store", error).at(path))?;
    if encloses(&*storage, &root) {
        (storage, root) = (Arc::new(Enclosed::new(storage)), Enclosed::root(root));
    }
    let storage = &*storage;
    let named = listed.iter().any(|name| name == OsStr::new(names::STORE));
    let resumed = !named || is_gone(&storage.kind(&root, names::STORE));
    if resumed {
        check_rest(path, &listed)?;
    }
    let done = Destroyed { dry_run: options.dry_run, resumed, ..Destroyed::default() };
    let mut sweep = Sweep { storage, path, done };
    // One that can't be read is destroyed all the same.
    let unsynced = |durability| durability == Durability::Unsynced;
    let store = read_store(storage, &root).ok().flatten();
    let synced = !store.is_some_and(|store| unsynced(store.options.durability));
    sweep.file(&root, Path::new(""), names::STORE, What::Other)?;
    if synced && !options.dry_run {
        // Before anything else goes: after a power cut there is no store rather than half of one. Whoever was
        // stopped before may not have come to this.
        let failed = |error| Error::io("can't sync the store's directory", error).at(path);
        storage.sync_dir(&root).map_err(failed)?;
    }
    for name in names::DIRECTORIES {
        sweep.directory(&root, Path::new(""), name, own_names(name))?;
    }
    for name in [names::HEAD, names::BALLAST] {
        sweep.file(&root, Path::new(""), name, What::Other)?;
    }
    for name in listed.iter().filter(|name| beside(name).is_some()).filter_map(OsStr::to_str) {
        sweep.file(&root, Path::new(""), name, What::Other)?;
    }
    sweep.done.left.extend(listed.iter().filter(|name| is_strange(name)).map(PathBuf::from));
    sweep.done.left.sort();
    sweep.done.left.dedup();
    if !options.dry_run {
        let commits = sweep.done.commits.count;
        tracing::info!(path = %path.display(), resumed, commits, "destroyed a store");
    }
    Ok(sweep.done)
}

fn is_gone<T>(found: &io::Result<T>) -> bool {
    found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Whether the store's files are enclosed in directories: STORE, or if that is gone, what is left.
fn encloses(storage: &dyn Storage, root: &Dir) -> bool {
    let is_directory =
        |dir: &Dir, name: &str| storage.kind(dir, name).is_ok_and(|kind| kind == Kind::Directory);
    let holds_one = |dir: io::Result<Dir>| {
        let Ok(dir) = dir else { return false };
        let listed = storage.list(&dir).unwrap_or_default();
        let names = listed.iter().filter_map(OsStr::to_str);
        names.filter(|name| !name.starts_with(PROBE_PREFIX)).any(|name| is_directory(&dir, name))
    };
    if storage.kind(root, names::STORE).is_ok() {
        return is_directory(root, names::STORE);
    }
    let within = [names::STAGE, names::INDEX].map(|name| storage.open_dir(root, name));
    let log = storage.open_dir(root, names::LOG);
    let segments = log.and_then(|log| Ok((storage.list(&log)?, log)));
    within.into_iter().any(holds_one)
        || segments.is_ok_and(|(listed, log)| {
            listed.iter().filter_map(OsStr::to_str).any(|name| holds_one(storage.open_dir(&log, name)))
        })
}

/// Whether a directory without STORE is the rest of a store.
fn check_rest(path: &Path, listed: &Names) -> Result<()> {
    let refuse = |what: String| Err(Error::new(ErrorKind::Invalid, what).at(path));
    if let Some(stranger) = listed.iter().find(|name| is_strange(name)) {
        return refuse(format!(
            "the directory has no STORE, and with {stranger:?} in it, it isn't taken for the rest of a store"
        ));
    }
    if listed.is_empty() {
        return refuse("the directory is empty: there is no store, nor the rest of one".to_owned());
    }
    Ok(())
}

/// What a name in a store's directory stands for.
#[derive(Clone, Copy)]
enum What {
    /// A commit.
    Commit,
    /// Another file.
    Other,
    /// A segment, or the room of a probe that was interrupted: with files whose names are told likewise.
    Directory(OwnNames),
    /// What a probe was trying to publish: a file, or a directory with one.
    Tried,
}

/// What a name is, if the store gives such ones in a directory.
type OwnNames = fn(&OsStr) -> Option<What>;

fn own_names(directory: &str) -> OwnNames {
    match directory {
        names::LOG => |name| names::parse_segment(name).map(|_| What::Directory(commits)),
        names::GROUPS => |name| Name::new(name.to_str()?).is_ok().then_some(What::Other),
        names::STAGE => staged,
        _ => |name| names::parse_segment(name).map(|_| What::Other).or_else(|| beside(name)),
    }
}

/// Whether the store gives no such name in its root.
fn is_strange(name: &OsStr) -> bool {
    known(name).is_none() && beside(name).is_none()
}

/// A staged file that was left beside its place (R9).
fn beside(name: &OsStr) -> Option<What> {
    names::parse_beside(name).map(|_| What::Other)
}

fn commits(name: &OsStr) -> Option<What> {
    names::parse_version(name).map(|_| What::Commit).or_else(|| beside(name))
}

fn staged(name: &OsStr) -> Option<What> {
    if name.to_str()?.starts_with(PROBE_PREFIX) {
        return Some(What::Directory(|_| Some(What::Tried)));
    }
    names::parse_staged(name).map(|_| What::Other)
}

/// Removes names, or counts what would go.
struct Sweep<'s> {
    storage: &'s dyn Storage,
    path: &'s Path,
    done: Destroyed,
}

impl Sweep<'_> {
    fn failed(&self, at: &Path) -> impl FnOnce(io::Error) -> Error {
        let at = self.path.join(at);
        move |error| Error::io("can't remove what is left of the store", error).at(at)
    }

    fn leave(&mut self, at: PathBuf) {
        self.done.left.push(at);
    }

    /// What a name stands for; none if it is gone.
    fn kind(&self, dir: &Dir, at: &Path, name: &str) -> Result<Option<Kind>> {
        match self.storage.kind(dir, name) {
            Ok(kind) => Ok(Some(kind)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(at)(error)),
        }
    }

    fn file(&mut self, dir: &Dir, within: &Path, name: &str, what: What) -> Result<()> {
        let at = within.join(name);
        match self.kind(dir, &at, name)? {
            // A dry run can't tell it from what has been there.
            None if self.done.dry_run => return Ok(()),
            // What is no file any more may still have its name.
            None | Some(Kind::File) => {}
            Some(_) => {
                self.leave(at);
                return Ok(());
            }
        }
        // One whose size can't be asked for goes all the same.
        let opened = self.storage.open(dir, name, Access::Read);
        let bytes = opened.and_then(|file| self.storage.size(&file)).unwrap_or(0);
        let removed = if self.done.dry_run { Ok(()) } else { self.storage.remove(dir, name) };
        match removed {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // Where a file is a directory, a client may keep what somebody has open in it.
            Err(error) if is_not_empty(&error) => {
                self.leave(at);
                return Ok(());
            }
            Err(error) => return Err(self.failed(&at)(error)),
        }
        let freed = if matches!(what, What::Commit) { &mut self.done.commits } else { &mut self.done.others };
        freed.add(Freed { count: 1, bytes });
        Ok(())
    }

    /// A directory of the store's own, with what in it is the store's own.
    fn directory(&mut self, parent: &Dir, within: &Path, name: &str, own: OwnNames) -> Result<()> {
        let at = within.join(name);
        match self.kind(parent, &at, name)? {
            None => return Ok(()),
            Some(Kind::Directory) => {}
            Some(_) => {
                self.leave(at);
                return Ok(());
            }
        }
        for _ in 0..LOOK_AGAIN_MAX {
            let before = self.done.left.len();
            let dir = self.storage.open_dir(parent, name).map_err(self.failed(&at))?;
            let listed = self.storage.list(&dir).map_err(self.failed(&at))?;
            for held in listed.iter() {
                match held.to_str().zip(own(held)) {
                    Some((held, What::Directory(own))) => self.directory(&dir, &at, held, own)?,
                    Some((held, What::Tried))
                        if self.kind(&dir, &at.join(held), held)? == Some(Kind::Directory) =>
                    {
                        self.directory(&dir, &at, held, |_| Some(What::Other))?;
                    }
                    Some((held, what)) => self.file(&dir, &at, held, what)?,
                    None => self.leave(at.join(held)),
                }
            }
            if self.done.dry_run || self.done.left.len() > before {
                return Ok(());
            }
            match self.storage.remove_dir(parent, name) {
                // Somebody who doesn't know yet has put something into it, or the listing was old.
                Err(error) if is_not_empty(&error) => {}
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.failed(&at)(error)),
                _ => return Ok(()),
            }
        }
        self.leave(at);
        Ok(())
    }
}
