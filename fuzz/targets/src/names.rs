//! Names on disk: a name that is read is made again just so, and a name that is made is read back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use batchweave::format::names::{self, Staged};
use batchweave::{Incarnation, Name, Nonce, Segment, Sequence, Version};

use crate::input::Input;

/// The input as a name, then as what names are made of.
pub fn names(data: &[u8]) {
    let name = OsStr::from_bytes(data);
    if let Some(segment) = names::parse_segment(name) {
        assert_eq!(OsStr::new(&names::segment(segment)), name);
    }
    if let Some(version) = names::parse_version(name) {
        assert_eq!(OsStr::new(&names::version(version)), name);
    }
    if let Some(staged) = names::parse_staged(name) {
        assert_eq!(OsStr::new(&make(&staged)), name);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(name) = Name::new(text)
    {
        assert_eq!(name.as_str(), text);
        let first = text.as_bytes()[0];
        assert!(text.len() <= 100 && first != b'.' && first != b'-', "a name that isn't one");
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)));
    }
    made(data);
}

fn make(staged: &Staged) -> String {
    match staged {
        Staged::Draft { producer, incarnation, first, nonce } => {
            names::staged_draft(producer, *incarnation, *first, *nonce)
        }
        Staged::Control { kind, nonce } => names::staged_control(kind, *nonce),
    }
}

fn made(data: &[u8]) {
    let mut input = Input::new(data);
    let (one, other) = (input.number(0), input.number(0));
    let mut bytes = [0; 16];
    let taken = input.take(16);
    bytes[..taken.len()].copy_from_slice(taken);
    let nonce = Nonce::new(bytes);
    let segment = names::segment(Segment::new(one));
    assert_eq!(names::parse_segment(OsStr::new(&segment)), Some(Segment::new(one)));
    let version = names::version(Version::new(other));
    assert_eq!(names::parse_version(OsStr::new(&version)), Some(Version::new(other)));
    let Ok(text) = std::str::from_utf8(input.rest()) else { return };
    if let Ok(producer) = Name::new(text) {
        let (incarnation, first) = (Incarnation::new(one), Sequence::new(other));
        let staged = names::staged_draft(&producer, incarnation, first, nonce);
        let read = Staged::Draft { producer, incarnation, first, nonce };
        assert_eq!(names::parse_staged(OsStr::new(&staged)), Some(read));
    }
    if !text.contains('/') {
        let staged = names::staged_control(text, nonce);
        let read = Staged::Control { kind: text.to_owned(), nonce };
        assert_eq!(names::parse_staged(OsStr::new(&staged)), Some(read));
    }
}
