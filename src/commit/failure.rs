//! Why a commit isn't acknowledged, and so what may be done with its staged file.

use crate::error::Error;

/// Why a commit isn't acknowledged.
#[derive(Debug)]
pub enum Failure {
    /// Replay says that it isn't in and can't be any more.
    Never(Error),
    /// This call has given it no name that counts; the staged file may be tried again.
    Not(Error),
    /// It isn't in, and its staged file is gone: it has to be staged anew.
    Gone(Error),
    /// Whether it is in, or will be, can't be told: the same staged file is to be tried again, or replay
    /// asked (R2).
    Unknown(Error),
    /// Its directory's sync failed: it may be in, and may vanish (R3). No retry can tell.
    Poisoned(Error),
}

impl Failure {
    /// What happened, borrowed.
    pub fn error(&self) -> &Error {
        match self {
            Self::Never(error)
            | Self::Not(error)
            | Self::Gone(error)
            | Self::Unknown(error)
            | Self::Poisoned(error) => error,
        }
    }

    /// What happened.
    pub fn into_error(self) -> Error {
        match self {
            Self::Never(error)
            | Self::Not(error)
            | Self::Gone(error)
            | Self::Unknown(error)
            | Self::Poisoned(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Not(error)
    }
}
