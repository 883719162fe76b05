//! Tries what a mount really does, before a store is made on it.
//!
//! - Everything happens in a directory of the probe's own, which is removed afterwards, whatever was found.
//! - A primitive is trusted if it publishes on a free name *and* refuses a taken one without touching it: on
//!   a taken name the kernel says EEXIST even where the filesystem can't do the call at all, so the free one
//!   goes first.
//! - What is found is a value; an error is what kept the probe from finding out.
//! - All names lie in one directory: a mount that can't link across directories is served by R9.
//! - One node can't see whether another's creation is exclusive, so the filesystem's type is judged as well.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::class::{self, Known};
use super::{Access, Dir, File, Kind, Mount, Storage, absent_is_fine, put, read_exact_at, write_all_at};
use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Nonce;
use crate::options::{MountClass, Options, Primitive};

/// How the names of directories begin in which mounts are tried.
pub const PROBE_PREFIX: &str = ".probe-";

/// In the order in which they are preferred.
const PRIMITIVES: [Primitive; 3] = [Primitive::Link, Primitive::RenameNoreplace, Primitive::RenameDirectory];

/// What is to be published, and what already has a taken name: of one length, so that contents alone tell.
const STAGED: &[u8; 6] = b"staged";
const WINNER: &[u8; 6] = b"winner";

/// The names inside the probe's directory, and the file inside a published directory.
pub(crate) const FROM: &str = "from";
pub(crate) const FREE: &str = "free";
const TAKEN: &str = "taken";
const MARK: &str = "mark";
const CONTENT: &str = "c";

/// One thing tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Finding {
    /// As it has to be.
    Good,
    /// The call failed.
    Failed {
        /// The system's error number.
        errno: Option<i32>,
        /// The error in the system's words.
        message: String,
    },
    /// The call did something else than it has to: what it did.
    Wrong(&'static str),
    /// Not tried, for what was found before.
    Untried,
}

impl Finding {
    fn failed(error: &io::Error) -> Self {
        Self::Failed { errno: error.raw_os_error(), message: error.to_string() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => f.write_str("works"),
            Self::Failed { message, .. } => write!(f, "failed: {message}"),
            Self::Wrong(what) => f.write_str(what),
            Self::Untried => f.write_str("wasn't tried"),
        }
    }
}

/// What one primitive does here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Attempt {
    /// The primitive.
    pub primitive: Primitive,
    /// On a free name: the file has to be there afterwards, whole.
    pub free: Finding,
    /// On a taken name: it has to say so, and leave what is there alone.
    pub taken: Finding,
}

impl Attempt {
    /// Whether the primitive can be published by.
    pub fn works(&self) -> bool {
        self.free == Finding::Good && self.taken == Finding::Good
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { primitive, free, taken } = self;
        match (free, taken) {
            (Finding::Good, Finding::Good) => write!(f, "{primitive} works"),
            (Finding::Good, taken) => write!(f, "{primitive} onto a taken name {taken}"),
            (free, _) => write!(f, "{primitive} {free}"),
        }
    }
}

/// What a directory's filesystem is, what it does, and whether a store can live on it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The directory.
    #[serde(serialize_with = "super::lossy")]
    pub path: PathBuf,
    /// Its mount.
    pub mount: Mount,
    /// What the mount is like for readers on other nodes.
    pub class: MountClass,
    /// Every primitive in order of preference; none where the mount is refused for what it is.
    pub attempts: Vec<Attempt>,
    /// Whether a new name shows in a directory opened afresh (R6).
    pub listing: Finding,
    /// The primitive to publish by.
    pub chosen: Option<Primitive>,
    /// Why no store can be made here, and what to do about it.
    pub refusal: Option<String>,
}

impl Report {
    /// What a store here is made with.
    ///
    /// # Errors
    /// `Unsupported` with the refusal.
    pub fn accept(self) -> Result<(MountClass, Primitive)> {
        let refusal = match (self.refusal, self.chosen) {
            (None, Some(primitive)) => return Ok((self.class, primitive)),
            (refusal, _) => refusal.unwrap_or_else(|| "the probe found no way to publish here".to_owned()),
        };
        Err(Error::new(ErrorKind::Unsupported, refusal).at(self.path))
    }
}

/// Probes the directory `dir`, which has the path `path`.
///
/// # Errors
/// `Io` or `Full` if the probe's own files can't be made, read or removed. A filesystem that won't do is no
/// error.
pub fn probe(
    storage: &dyn Storage,
    env: &dyn Env,
    dir: &Dir,
    path: &Path,
    options: &Options,
) -> Result<Report> {
    let mount = storage.mount(dir).map_err(|error| Error::io("can't tell the mount", error).at(path))?;
    let mut report = Report {
        path: path.to_owned(),
        class: MountClass::CloseToOpen,
        mount,
        attempts: Vec::new(),
        listing: Finding::Untried,
        chosen: None,
        refusal: None,
    };
    match class::known(&report.mount) {
        Known::As(class) => report.class = class,
        Known::UnknownFuse if options.allow_unknown_fuse => {}
        Known::UnknownFuse => report.refusal = Some(class::unknown_fuse(&report.mount)),
        Known::BreaksExclusivity => {
            report.refusal = Some(class::breaks_exclusivity(&report.mount));
            return Ok(report);
        }
    }
    (report.attempts, report.listing) = Room::with(storage, env, dir, path, |room| {
        let attempts = PRIMITIVES.map(|primitive| room.attempt(primitive));
        let attempts = attempts.into_iter().collect::<io::Result<_>>()?;
        Ok((attempts, room.listing()?))
    })?;
    match choose(&report) {
        Ok(primitive) => report.chosen = Some(primitive),
        // Goes before the type's refusal: allowing the type wouldn't help.
        Err(refusal) => report.refusal = Some(refusal),
    }
    Ok(report)
}

/// The first primitive that works; else why not.
fn choose(report: &Report) -> Result<Primitive, String> {
    let mount = class::describe(&report.mount);
    if report.listing != Finding::Good {
        return Err(format!(
            "on {mount} a listing {}, so a reclaimed name could be won again; put the store on another \
             filesystem",
            report.listing,
        ));
    }
    let working = report.attempts.iter().find(|attempt| attempt.works()).map(|attempt| attempt.primitive);
    let tried = || {
        let tried: Vec<_> =
            report.attempts.iter().filter(|attempt| !attempt.works()).map(Attempt::to_string).collect();
        tried.join(", ")
    };
    match working {
        Some(primitive) => Ok(primitive),
        None => Err(format!(
            "{mount} has no way to give a file a name exclusively ({}); put the store on another filesystem",
            tried(),
        )),
    }
}

/// A directory to try things in, which leaves nothing.
pub(crate) struct Room<'a> {
    storage: &'a dyn Storage,
    parent: &'a Dir,
    name: String,
    pub(crate) dir: Dir,
}

impl<'a> Room<'a> {
    /// Makes the directory, works in it and removes it, also when the work fails.
    pub(crate) fn with<T>(
        storage: &'a dyn Storage,
        env: &dyn Env,
        parent: &'a Dir,
        path: &Path,
        work: impl FnOnce(&Self) -> io::Result<T>,
    ) -> Result<T> {
        let mut nonce = [0; 16];
        env.entropy(&mut nonce).map_err(|error| Error::io("can't draw random bytes", error))?;
        let name = format!("{PROBE_PREFIX}{}", Nonce::new(nonce));
        let at = path.join(&name);
        let failed = |what: &str, error| Error::io(what, error).at(&at);
        storage
            .make_dir(parent, &name)
            .map_err(|error| failed("can't make a directory for the probe", error))?;
        let worked = storage.open_dir(parent, &name).and_then(|dir| {
            let room = Self { storage, parent, name: name.clone(), dir };
            let worked = work(&room);
            let cleared = room.clear();
            let value = worked?;
            cleared.map(|()| value)
        });
        let removed = storage.remove_dir(parent, &name);
        let value = worked.map_err(|error| failed("can't probe the filesystem", error))?;
        removed.map_err(|error| failed("can't remove the probe's directory", error))?;
        Ok(value)
    }

    /// Removes what an attempt may have left: by name, because a listing may be stale. One that stays doesn't
    /// save the others.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let mut cleared = Ok(());
        for name in [FROM, FREE, TAKEN, MARK] {
            let this = self.clear_name(name);
            cleared = cleared.and(this);
        }
        cleared
    }

    fn clear_name(&self, name: &str) -> io::Result<()> {
        match self.storage.kind(&self.dir, name) {
            Ok(Kind::Directory) => {
                let inner = self.storage.open_dir(&self.dir, name)?;
                absent_is_fine(self.storage.remove(&inner, CONTENT))?;
                absent_is_fine(self.storage.remove_dir(&self.dir, name))
            }
            Ok(Kind::File | Kind::Other) => absent_is_fine(self.storage.remove(&self.dir, name)),
            Err(error) => absent_is_fine(Err(error)),
        }
    }

    /// Tries a primitive on a free name, then on a taken one.
    fn attempt(&self, primitive: Primitive) -> io::Result<Attempt> {
        let free = self.on_free(primitive)?;
        let taken = if free == Finding::Good { self.on_taken(primitive)? } else { Finding::Untried };
        Ok(Attempt { primitive, free, taken })
    }

    fn on_free(&self, primitive: Primitive) -> io::Result<Finding> {
        self.clear()?;
        self.make(primitive, FROM, STAGED)?;
        match self.publish(primitive, FREE) {
            Ok(()) => {}
            // Nobody else is here: the name is taken by this very call, sent twice (R2).
            Err(error) if is_taken(primitive, &error) && self.storage.kind(&self.dir, FREE).is_ok() => {}
            Err(error) => return finding_of(error),
        }
        // A filesystem may make a symbolic link where a hard one was asked for, and say that all is well.
        let is_right = match self.storage.kind(&self.dir, FREE) {
            Ok(kind) => kind == Self::kind_of(primitive),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !is_right {
            return Ok(Finding::Wrong("succeeded, but made something else than the file"));
        }
        put::unstage(self.storage, primitive, &self.dir, FROM)?;
        if self.content(primitive, FREE)? != *STAGED {
            return Ok(Finding::Wrong("succeeded, but other bytes have the name"));
        }
        Ok(Finding::Good)
    }

    fn on_taken(&self, primitive: Primitive) -> io::Result<Finding> {
        self.clear()?;
        self.make(primitive, FROM, STAGED)?;
        self.make(primitive, TAKEN, WINNER)?;
        let said = self.publish(primitive, TAKEN);
        if self.content(primitive, TAKEN)? != *WINNER {
            return Ok(Finding::Wrong("replaces what has the name"));
        }
        Ok(match said {
            Ok(()) => Finding::Wrong("says that it won"),
            Err(error) if is_taken(primitive, &error) => Finding::Good,
            Err(error) => finding_of(error)?,
        })
    }

    /// Creates a file to be published: for a rename of directories, in one.
    pub(crate) fn create(&self, primitive: Primitive, name: &str) -> io::Result<File> {
        if primitive != Primitive::RenameDirectory {
            return self.storage.create_exclusive(&self.dir, name);
        }
        self.storage.make_dir(&self.dir, name)?;
        self.storage.create_exclusive(&self.storage.open_dir(&self.dir, name)?, CONTENT)
    }

    /// Makes a finished file, or a directory that holds one.
    fn make(&self, primitive: Primitive, name: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.create(primitive, name)?;
        let written = write_all_at(self.storage, &file, bytes, 0);
        // Closed before it is removed: NFS keeps an open file's inode under a name of its own in the
        // directory.
        written.and(self.storage.close(file))
    }

    /// Gives what was made as [`FROM`] another name.
    pub(crate) fn publish(&self, primitive: Primitive, to: &str) -> io::Result<()> {
        match primitive {
            Primitive::RenameDirectory => self.storage.rename(&self.dir, FROM, &self.dir, to),
            _ => put::put(self.storage, primitive, &self.dir, FROM, &self.dir, to),
        }
    }

    /// The bytes behind a published name; zeros for a file that is shorter than what was staged.
    fn content(&self, primitive: Primitive, name: &str) -> io::Result<[u8; 6]> {
        if primitive != Primitive::RenameDirectory {
            return self.read(&self.dir, name);
        }
        self.read(&self.storage.open_dir(&self.dir, name)?, CONTENT)
    }

    fn read(&self, dir: &Dir, name: &str) -> io::Result<[u8; 6]> {
        let file = self.storage.open(dir, name, Access::Read)?;
        let mut bytes = [0; 6];
        let read = read_exact_at(self.storage, &file, &mut bytes, 0);
        self.storage.close(file)?;
        match read {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok([0; 6]),
            read => read.map(|()| bytes),
        }
    }

    fn kind_of(primitive: Primitive) -> Kind {
        if primitive == Primitive::RenameDirectory { Kind::Directory } else { Kind::File }
    }

    /// Its directory, opened anew.
    pub(crate) fn afresh(&self) -> io::Result<Dir> {
        self.storage.open_dir(self.parent, &self.name)
    }

    /// Makes a mark in a directory that was listed before, and looks for it in one opened afresh.
    fn listing(&self) -> io::Result<Finding> {
        self.clear()?;
        self.storage.list(&self.dir)?;
        self.make(Primitive::Link, MARK, b"")?;
        let names = self.storage.list(&self.afresh()?)?;
        let shows = names.iter().any(|name| name == MARK);
        Ok(if shows { Finding::Good } else { Finding::Wrong("opened afresh doesn't show a new name") })
    }
}

/// Whether the error is the primitive's way to say that the name is taken.
fn is_taken(primitive: Primitive, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
        || primitive == Primitive::RenameDirectory && error.kind() == io::ErrorKind::DirectoryNotEmpty
}

/// What an error says of a filesystem. One that may pass says nothing: what a store is published by is chosen
/// once, and for good.
fn finding_of(error: io::Error) -> io::Result<Finding> {
    const PASSING: [i32; 14] = [
        4,   // EINTR
        5,   // EIO
        11,  // EAGAIN
        12,  // ENOMEM
        16,  // EBUSY
        23,  // ENFILE
        24,  // EMFILE
        28,  // ENOSPC
        107, // ENOTCONN
        108, // ESHUTDOWN
        110, // ETIMEDOUT
        116, // ESTALE
        121, // EREMOTEIO
        122, // EDQUOT
    ];
    if error.raw_os_error().is_some_and(|errno| PASSING.contains(&errno)) {
        return Err(error);
    }
    Ok(Finding::failed(&error))
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
