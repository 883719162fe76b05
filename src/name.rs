//! Names of producers, groups and checkpoints: valid by construction, so that they can be part of a file's
//! name.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, ErrorKind};

/// The name of a producer, a group or a checkpoint: 1..=100 bytes of `[A-Za-z0-9._-]`, not beginning with `.`
/// or `-`.
///
/// ```
/// # use batchweave::Name;
/// assert!("tok-017".parse::<Name>().is_ok());
/// assert!("../etc".parse::<Name>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Name(Box<str>);

impl Name {
    /// The longest name, in bytes; it has to fit into a staged file's name beside numbers and a nonce.
    pub const BYTES_MAX: usize = 100;

    /// Checks and wraps a name.
    ///
    /// # Errors
    /// `Invalid`, which says what is wrong with the name.
    pub fn new(text: &str) -> Result<Self, Error> {
        let wrong = if text.is_empty() {
            "is empty"
        } else if text.len() > Self::BYTES_MAX {
            "is longer than 100 bytes"
        } else if text.starts_with(['.', '-']) {
            "begins with '.' or '-'"
        } else if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            "has characters other than A-Z a-z 0-9 . _ -"
        } else {
            return Ok(Self(text.into()));
        };
        Err(Error::new(ErrorKind::Invalid, format!("the name {text:?} {wrong}")))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
