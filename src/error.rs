//! The one error type: what the caller can do about it, and a sentence for whoever gets paged.
//!
//! - [`ErrorKind`] says what the *caller* does; the sentence says what happened, to which path, version or
//!   step.
//! - The cause is chained as [`std::error::Error::source`], and only its errno is repeated in the sentence.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::id::{Step, Version};

/// What the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The filesystem said no. What was acknowledged stands; try again when it is well.
    Io,
    /// Bytes on disk aren't what was written, or something is missing. Run `verify`.
    Corrupt,
    /// A newer incarnation has taken over this name. Stop.
    Fenced,
    /// Others won every attempt. Try again.
    Contended,
    /// The step is below the floor, or its files are gone.
    Reclaimed,
    /// History was changed under this run. Start again from a checkpoint.
    Rewound,
    /// Needs a newer library, a feature of the build, or another filesystem.
    Unsupported,
    /// The call or its arguments are wrong; nothing was changed.
    Invalid,
    /// No room: bytes, inodes, quota or a bound of the store.
    Full,
    /// Waited as long as was asked for.
    Timeout,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Io => "io",
            Self::Corrupt => "corrupt",
            Self::Fenced => "fenced",
            Self::Contended => "contended",
            Self::Reclaimed => "reclaimed",
            Self::Rewound => "rewound",
            Self::Unsupported => "unsupported",
            Self::Invalid => "invalid",
            Self::Full => "full",
            Self::Timeout => "timeout",
        })
    }
}

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate; see [`ErrorKind`] for what to do about it.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    what: String,
    path: Option<PathBuf>,
    version: Option<Version>,
    step: Option<Step>,
    source: Option<io::Error>,
}

impl Error {
    /// An error that says `what` happened: a sentence without its full stop.
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        let what = what.into();
        Self(Box::new(Inner { kind, what, path: None, version: None, step: None, source: None }))
    }

    /// An I/O error met while doing `what`; no space, no inodes and no quota are `Full`.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        let full = matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let mut error = Self::new(if full { ErrorKind::Full } else { ErrorKind::Io }, what);
        error.0.source = Some(source);
        error
    }

    /// Adds the path it is about, unless a more exact one is there already.
    pub(crate) fn at(mut self, path: impl AsRef<Path>) -> Self {
        self.0.path.get_or_insert_with(|| path.as_ref().to_path_buf());
        self
    }

    /// Adds the commit version it is about, unless one is there already.
    pub(crate) fn version(mut self, version: Version) -> Self {
        self.0.version.get_or_insert(version);
        self
    }

    /// Adds the step it is about, unless one is there already.
    pub(crate) fn step(mut self, step: Step) -> Self {
        self.0.step.get_or_insert(step);
        self
    }

    /// Chains the cause.
    pub(crate) fn caused_by(mut self, source: io::Error) -> Self {
        self.0.source.get_or_insert(source);
        self
    }

    /// The same error once more, for another who waits for the same thing.
    pub(crate) fn again(&self) -> Self {
        let source = self.0.source.as_ref().map(|source| match source.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(source.kind(), source.to_string()),
        });
        let Inner { kind, version, step, .. } = *self.0;
        let (what, path) = (self.0.what.clone(), self.0.path.clone());
        Self(Box::new(Inner { kind, what, path, version, step, source }))
    }

    /// What happened, without the place: for a report that names the place beside it.
    pub(crate) fn sentence(&self) -> String {
        match self.errno() {
            Some(errno) => format!("{} (errno {errno})", self.0.what),
            None => self.0.what.clone(),
        }
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file or directory it is about.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The commit version it is about.
    pub fn commit_version(&self) -> Option<Version> {
        self.0.version
    }

    /// The step it is about.
    pub fn about_step(&self) -> Option<Step> {
        self.0.step
    }

    /// The system's error number, where a system call was the cause.
    pub fn errno(&self) -> Option<i32> {
        self.0.source.as_ref().and_then(io::Error::raw_os_error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        f.write_str(&inner.what)?;
        let mut open = false;
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let lead = if open { ", " } else { " (" };
            open = true;
            write!(f, "{lead}{text}")
        };
        if let Some(step) = inner.step {
            part(f, format_args!("step {step}"))?;
        }
        if let Some(version) = inner.version {
            part(f, format_args!("version {version}"))?;
        }
        if let Some(path) = &inner.path {
            part(f, format_args!("at {}", path.display()))?;
        }
        if let Some(errno) = self.errno() {
            part(f, format_args!("errno {errno}"))?;
        }
        if open { f.write_str(")") } else { Ok(()) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

impl From<io::Error> for Error {
    /// For `?` on a slice's [`std::io::Write`] and the like.
    fn from(source: io::Error) -> Self {
        Self::io("an I/O operation failed", source)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    const KINDS: [ErrorKind; 10] = [
        ErrorKind::Io,
        ErrorKind::Corrupt,
        ErrorKind::Fenced,
        ErrorKind::Contended,
        ErrorKind::Reclaimed,
        ErrorKind::Rewound,
        ErrorKind::Unsupported,
        ErrorKind::Invalid,
        ErrorKind::Full,
        ErrorKind::Timeout,
    ];

    #[test]
    fn every_error_is_a_sentence_with_its_place_and_errno() {
        for kind in KINDS {
            let error = Error::new(kind, "the commit can't be read")
                .at("/lustre/run7/log")
                .version(Version::new(17))
                .step(Step::new(9))
                .caused_by(io::Error::from_raw_os_error(5));
            let text = error.to_string();
            println!("{kind}: {text}");
            assert_eq!(text, "the commit can't be read (step 9, version 17, at /lustre/run7/log, errno 5)");
            let source = error.source().expect("the cause is chained").to_string();
            assert!(!text.contains(&source), "the cause is chained, not repeated");
            assert_eq!((error.kind(), error.errno()), (kind, Some(5)));
        }
    }

    #[test]
    fn an_error_without_a_place_has_no_empty_brackets() {
        assert_eq!(Error::new(ErrorKind::Invalid, "the count is zero").to_string(), "the count is zero");
    }

    #[test]
    fn no_space_no_quota_are_full() {
        for errno in [28, 122] {
            let error = Error::io("can't write", io::Error::from_raw_os_error(errno));
            assert_eq!(error.kind(), ErrorKind::Full, "errno {errno}");
        }
        assert_eq!(Error::io("can't write", io::Error::from_raw_os_error(5)).kind(), ErrorKind::Io);
    }
}
