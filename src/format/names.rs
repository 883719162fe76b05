//! The names in a store's directory, made and read in one place. All are relative, ASCII and of a fixed
//! width, so that they sort as their numbers do.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::id::{Incarnation, Nonce, Segment, Sequence, Version};
use crate::name::Name;

/// Identity and fixed choices; put last at creation.
pub const STORE: &str = "STORE";
/// The directory of segment directories.
pub const LOG: &str = "log";
/// The directory of indexes.
pub const INDEX: &str = "index";
/// The directory of marks.
pub const MARKS: &str = "marks";
/// The directory of files being written.
pub const STAGE: &str = "stage";
/// The doorbell.
pub const HEAD: &str = "HEAD";
/// The directory of progress hints.
pub const GROUPS: &str = "groups";
/// What is given up when a control record meets a full disk.
pub const BALLAST: &str = "ballast";
/// The directories of a store, in the order they are made.
pub const DIRECTORIES: [&str; 5] = [LOG, INDEX, MARKS, STAGE, GROUPS];

const SEGMENT_DIGITS: usize = 12;
const VERSION_DIGITS: usize = 20;

/// The name of a segment's directory, index and mark.
pub fn segment(segment: Segment) -> String {
    padded(segment.get(), SEGMENT_DIGITS)
}

/// The segment of such a name; none for any other.
pub fn parse_segment(name: &OsStr) -> Option<Segment> {
    parse(name, SEGMENT_DIGITS).map(Segment::new)
}

/// The name of a commit in its segment's directory.
pub fn version(version: Version) -> String {
    padded(version.get(), VERSION_DIGITS)
}

/// The version of such a name; none for any other, dot names among them.
pub fn parse_version(name: &OsStr) -> Option<Version> {
    parse(name, VERSION_DIGITS).map(Version::new)
}

/// A number with zeros before it up to `digits`.
fn padded(number: u64, digits: usize) -> String {
    let mut name = String::with_capacity(digits.max(DIGITS_MAX));
    push_digits(&mut name, number, digits);
    name
}

const HEX: &[u8; 16] = b"0123456789abcdef";
/// Of a 64-bit number.
const DIGITS_MAX: usize = 20;

/// Names are made several times a commit: digit by digit takes a third of what formatting does.
fn push_digits(name: &mut String, number: u64, digits: usize) {
    let mut ascii = [b'0'; DIGITS_MAX];
    let (mut left, mut count) = (number, 0);
    for (digit, place) in (1..).zip(ascii.iter_mut().rev()) {
        *place = b'0'.saturating_add(u8::try_from(left % 10).unwrap_or(0));
        left /= 10;
        count = digit;
        if left == 0 {
            break;
        }
    }
    let from = DIGITS_MAX.saturating_sub(count.max(digits));
    name.push_str(ascii.get(from..).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default());
}

/// A number of at least `digits` digits, and of more only where it needs them.
fn parse(name: &OsStr, digits: usize) -> Option<u64> {
    let bytes = name.as_bytes();
    if bytes.len() < digits || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let long_for_a_reason = text.len() == digits || (text.len() > digits && !text.starts_with('0'));
    text.parse().ok().filter(|_| long_for_a_reason)
}

/// A staged draft's name: whose it is can be told without opening it.
pub fn staged_draft(producer: &Name, incarnation: Incarnation, first: Sequence, nonce: Nonce) -> String {
    let mut name = String::with_capacity(128);
    name.push_str(producer.as_str());
    for number in [incarnation.get(), first.get()] {
        name.push('.');
        push_digits(&mut name, number, 1);
    }
    name.push('.');
    for byte in nonce.bytes() {
        for half in [byte >> 4, byte & 15] {
            name.push(char::from(*HEX.get(usize::from(half)).unwrap_or(&b'0')));
        }
    }
    name
}

/// A staged control record's or index's name. No producer's name begins with `-`.
pub fn staged_control(kind: &str, nonce: Nonce) -> String {
    format!("-{kind}.{nonce}")
}

/// Whether a staged name is a control record's or an index's.
pub fn is_staged_control(staged: &str) -> bool {
    staged.starts_with('-')
}

/// The name that a staged file has for a moment beside its place, in a segment, in index/ or in the root
/// (R9): its nonce, which ends its staged name too.
pub fn beside(staged: &str) -> String {
    let nonce = staged.rsplit_once('.').map_or(staged, |(_, nonce)| nonce);
    format!(".{nonce}")
}

/// The nonce of a file that was left beside its place.
pub fn parse_beside(name: &OsStr) -> Option<Nonce> {
    let nonce: Nonce = name.to_str()?.strip_prefix('.')?.parse().ok()?;
    (beside(&staged_control("", nonce)) == *name.to_str()?).then_some(nonce)
}

/// What a staged name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Staged {
    /// A draft.
    Draft {
        /// The producer that writes it.
        producer: Name,
        /// The incarnation that writes it.
        incarnation: Incarnation,
        /// Not below the sequence that it is published with.
        first: Sequence,
        /// Its nonce.
        nonce: Nonce,
    },
    /// A control record or an index.
    Control {
        /// What for.
        kind: String,
        /// Its nonce.
        nonce: Nonce,
    },
}

/// Reads a staged name; none for any other.
pub fn parse_staged(name: &OsStr) -> Option<Staged> {
    let text = name.to_str()?;
    let (rest, nonce) = text.rsplit_once('.')?;
    let nonce = nonce.parse().ok()?;
    let (staged, again) = if let Some(kind) = rest.strip_prefix('-') {
        (Staged::Control { kind: kind.to_owned(), nonce }, staged_control(kind, nonce))
    } else {
        let (rest, first) = rest.rsplit_once('.')?;
        let (producer, incarnation) = rest.rsplit_once('.')?;
        let (producer, incarnation): (Name, Incarnation) =
            (producer.parse().ok()?, incarnation.parse().ok()?);
        let first = first.parse().ok()?;
        let again = staged_draft(&producer, incarnation, first, nonce);
        (Staged::Draft { producer, incarnation, first, nonce }, again)
    };
    // Numbers parse with a sign, leading zeros or in capitals too; only names made here are ours to clean up.
    (again == text).then_some(staged)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_name_is_refused_or_made_the_same(text in "[-+.0-9a-fx]{0,40}", number in any::<u64>()) {
            for text in [text, number.to_string()] {
                if let Some(read) = parse_segment(text.as_ref()) {
                    prop_assert_eq!(segment(read), &*text);
                }
                if let Some(read) = parse_version(text.as_ref()) {
                    prop_assert_eq!(version(read), &*text);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn digits_are_a_formats(number in any::<u64>(), fewer in 0u32..64, bytes in any::<[u8; 16]>()) {
            for number in [number, number >> fewer] {
                prop_assert_eq!(segment(Segment::new(number)), format!("{number:012}"));
                prop_assert_eq!(version(Version::new(number)), format!("{number:020}"));
                let (nonce, producer) = (Nonce::new(bytes), "p-1".parse::<Name>().unwrap());
                let name = staged_draft(&producer, Incarnation::new(number), Sequence::new(number), nonce);
                prop_assert_eq!(name, format!("p-1.{number}.{number}.{nonce}"));
            }
        }
    }

    #[test]
    fn names_are_read_back() {
        for number in [0, 1, 999_999_999_999, 1_000_000_000_000, u64::MAX] {
            assert_eq!(parse_segment(segment(Segment::new(number)).as_ref()), Some(Segment::new(number)));
            assert_eq!(parse_version(version(Version::new(number)).as_ref()), Some(Version::new(number)));
        }
        let nonce = Nonce::new([0xab; 16]);
        let producer: Name = "a.b-1.2".parse().unwrap();
        let staged = staged_draft(&producer, Incarnation::new(7), Sequence::new(9), nonce);
        let read =
            Staged::Draft { producer, incarnation: Incarnation::new(7), first: Sequence::new(9), nonce };
        assert_eq!(parse_staged(staged.as_ref()), Some(read));
        let control = Staged::Control { kind: "open".into(), nonce };
        assert_eq!(parse_staged(staged_control("open", nonce).as_ref()), Some(control));
        for name in [beside(&staged), beside(&staged_control("open", nonce))] {
            assert_eq!(parse_beside(name.as_ref()), Some(nonce));
            assert_eq!((parse_version(name.as_ref()), parse_segment(name.as_ref())), (None, None));
        }
        assert_eq!(parse_beside(staged.as_ref()), None);
    }

    #[test]
    fn other_names_are_not() {
        for name in
            ["", ".", "..", "1", "00000000001", "0000000000001", "+00000000001", "00000000000x", ".probe"]
        {
            assert_eq!(parse_segment(name.as_ref()), None, "{name:?}");
        }
        assert_eq!(parse_version("000000000001".as_ref()), None);
        assert_eq!(parse_version("99999999999999999999".as_ref()), None, "beyond 64 bits");
        for name in ["a.1.2", "a.1.2.xyz", "-open", ".a.1.2.00000000000000000000000000000000"] {
            assert_eq!(parse_staged(name.as_ref()), None, "{name:?}");
        }
        let nonce = "000000000000000000000000000000ab";
        assert!(parse_staged(format!("a.1.2.{nonce}").as_ref()).is_some());
        for name in [
            format!("a.+1.2.{nonce}"),
            format!("a.1.02.{nonce}"),
            format!("a.1.2.{}", nonce.to_uppercase()),
            format!("-open.+{}", &nonce[1..]),
        ] {
            assert_eq!(parse_staged(name.as_ref()), None, "{name:?}");
        }
    }
}
