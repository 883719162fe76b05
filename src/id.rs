//! Identities and places: one newtype for each, so that a step is never taken for a version.
//!
//! - Numbers are dense `u64`s; [`Version`], [`Step`], [`Part`] and [`Sequence`] count from 0.
//! - Nothing here does I/O or knows the layout on disk.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The first one.
            pub const ZERO: Self = Self(0);

            /// Wraps a plain number.
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The plain number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The one after this; stays at the largest number, which no log can reach.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl From<u64> for $name {
            fn from(number: u64) -> Self {
                Self(number)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

number! {
    /// A commit's dense place in the log (the *commit version*).
    Version
}
number! {
    /// A global batch's dense place in the order that every rank sees.
    Step
}
number! {
    /// A part's dense place in the stream; part `p` belongs to step `p / parts_per_step`.
    Part
}
number! {
    /// A run of `segment_size` consecutive versions: one directory, and once complete one index.
    Segment
}
number! {
    /// A producer's own dense part counter, over all its incarnations.
    Sequence
}
number! {
    /// Counts changes of history: rewinds, and skips of published steps.
    Generation
}
number! {
    /// The version of a producer's Open or a group's Group record: unique for ever, fences older ones (P4).
    Incarnation
}

impl Version {
    /// The segment that holds this version in a store of `segment_size` versions a segment.
    pub const fn segment(self, segment_size: u32) -> Segment {
        match self.0.checked_div(segment_size as u64) {
            Some(segment) => Segment(segment),
            None => Segment(0),
        }
    }

    /// This version's place inside its segment.
    pub const fn slot(self, segment_size: u32) -> u64 {
        match self.0.checked_rem(segment_size as u64) {
            Some(slot) => slot,
            None => 0,
        }
    }

    /// The incarnation that the Open or Group record at this version begins.
    pub const fn incarnation(self) -> Incarnation {
        Incarnation(self.0)
    }
}

impl Segment {
    /// The first version of this segment.
    pub const fn first_version(self, segment_size: u32) -> Version {
        Version(self.0.saturating_mul(segment_size as u64))
    }

    /// The segment before this one; none before the first.
    pub const fn previous(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

impl Part {
    /// The step that this part belongs to.
    pub const fn step(self, parts_per_step: u32) -> Step {
        match self.0.checked_div(parts_per_step as u64) {
            Some(step) => Step(step),
            None => Step(0),
        }
    }
}

impl Step {
    /// The first part of this step.
    pub const fn first_part(self, parts_per_step: u32) -> Part {
        Part(self.0.saturating_mul(parts_per_step as u64))
    }
}

/// XXH3-64 of what its context says.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Checksum(u64);

impl Checksum {
    /// The checksum of nothing: the lineage of step 0.
    pub const ZERO: Self = Self(0);

    /// Wraps a plain number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text isn't 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseIdError;

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an identity is 32 lower-case hexadecimal digits")
    }
}

impl std::error::Error for ParseIdError {}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Wraps 16 bytes.
            pub const fn new(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The 16 bytes.
            pub const fn bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            /// Reads what `Display` writes: 32 lower-case hexadecimal digits, nothing else.
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                let canonical = text.len() == 32 && text.bytes().all(is_digit);
                let number = u128::from_str_radix(text, 16).ok().filter(|_| canonical);
                number.map(|number| Self(number.to_be_bytes())).ok_or(ParseIdError)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hex_id! {
    /// Identifies a store; drawn at creation.
    StoreUuid
}
hex_id! {
    /// 128 random bits that tell one commit from every other (R2).
    Nonce
}

impl Serialize for Checksum {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}
