//! The names in a directory, in one piece of memory: the marks are listed with every commit.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The names in a directory, in no order.
#[derive(Clone, Default)]
pub struct Names {
    bytes: Vec<u8>,
    /// Where each name ends.
    ends: Vec<usize>,
}

impl Names {
    /// None yet, with room for a few.
    pub fn new() -> Self {
        Self { bytes: Vec::with_capacity(2048), ends: Vec::with_capacity(128) }
    }

    /// One more.
    pub fn push(&mut self, name: &OsStr) {
        self.bytes.extend_from_slice(name.as_bytes());
        self.ends.push(self.bytes.len());
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &OsStr> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let name = |(start, end): (usize, &usize)| self.bytes.get(start..*end).unwrap_or_default();
        starts.zip(&self.ends).map(name).map(OsStr::from_bytes)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl IntoIterator for Names {
    type Item = OsString;
    type IntoIter = std::vec::IntoIter<OsString>;

    fn into_iter(self) -> Self::IntoIter {
        let names: Vec<OsString> =
            self.iter().map(|name| OsString::from_vec(name.as_bytes().to_vec())).collect();
        names.into_iter()
    }
}

impl<N: AsRef<OsStr>> FromIterator<N> for Names {
    fn from_iter<I: IntoIterator<Item = N>>(names: I) -> Self {
        let mut all = Self::new();
        names.into_iter().for_each(|name| all.push(name.as_ref()));
        all
    }
}

impl<N: AsRef<OsStr>, const COUNT: usize> PartialEq<[N; COUNT]> for Names {
    fn eq(&self, names: &[N; COUNT]) -> bool {
        self.iter().eq(names.iter().map(AsRef::as_ref))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_out_as_they_went_in() {
        let names = ["a", "", "a longer one", "ü"];
        let listed: Names = names.iter().collect();
        assert_eq!(listed, names);
        assert_eq!((listed.len(), listed.is_empty()), (4, false));
        assert_eq!(listed.into_iter().collect::<Vec<_>>(), names);
        assert!(Names::new().is_empty());
    }
}
