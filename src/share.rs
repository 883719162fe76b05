//! A [`Share`]: which slices of every global batch one reader takes.
//!
//! Invariant: `index < count`. For any number of slices that `count` divides, the shares `0..count` cover
//! every slice once, in order.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// Share `index` of `count`: slices `index * T / count .. (index + 1) * T / count` of a batch of `T`.
///
/// `count` is the *data-parallel* size, not the number of processes: tensor-, pipeline- and
/// context-parallel peers have the same share.
///
/// ```
/// use batchweave::Share;
/// let share = Share::new(1, 4)?;
/// assert_eq!(share.range(8), Some(2..4));
/// assert_eq!(share.range(6), None); // 4 doesn't divide 6
/// # Ok::<(), batchweave::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32)", into = "(u32, u32)")]
pub struct Share {
    index: u32,
    count: u32,
}

impl Share {
    /// The whole of every batch.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Share `index` of `count`.
    ///
    /// # Errors
    /// `Invalid` when `index` isn't below `count`.
    pub fn new(index: u32, count: u32) -> Result<Self> {
        if index < count {
            return Ok(Self { index, count });
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format!("share {index} of {count}: the index has to be below the count"),
        ))
    }

    /// Which one this is, from 0.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Into how many shares every batch is divided.
    pub fn count(self) -> u32 {
        self.count
    }

    /// This share's slices of a batch of `slices`; none when the count doesn't divide them.
    pub fn range(self, slices: u64) -> Option<Range<u64>> {
        let count = u64::from(self.count);
        let each = slices.checked_div(count).filter(|_| slices.is_multiple_of(count))?;
        let start = u64::from(self.index).checked_mul(each)?;
        Some(start..start.checked_add(each)?)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl FromStr for Share {
    type Err = Error;

    /// Reads `I/N`.
    fn from_str(text: &str) -> Result<Self> {
        let numbers =
            text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        let (index, count) = numbers.ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                format!("the share {text:?} isn't of the form INDEX/COUNT, such as 0/8"),
            )
        })?;
        Self::new(index, count)
    }
}

impl TryFrom<(u32, u32)> for Share {
    type Error = Error;

    fn try_from((index, count): (u32, u32)) -> Result<Self> {
        Self::new(index, count)
    }
}

impl From<Share> for (u32, u32) {
    fn from(share: Share) -> Self {
        (share.index, share.count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_cover_every_slice_once_in_order(count in 1u32..300, each in 0u64..1000) {
            let slices = u64::from(count) * each;
            let mut next = 0;
            for index in 0..count {
                let range = Share::new(index, count).unwrap().range(slices).unwrap();
                prop_assert_eq!(range.start, next);
                prop_assert_eq!(range.end - range.start, each);
                next = range.end;
            }
            prop_assert_eq!(next, slices);
        }

        #[test]
        fn a_count_that_does_not_divide_is_no_share(
            count in 2u32..300, each in 0u64..1000, rest in 1u64..300,
        ) {
            prop_assume!(rest < u64::from(count));
            prop_assert_eq!(Share::new(0, count).unwrap().range(u64::from(count) * each + rest), None);
        }
    }

    #[test]
    fn an_index_outside_is_refused() {
        assert!(Share::new(4, 4).is_err());
        assert!(Share::new(0, 0).is_err());
        assert!("1/4".parse::<Share>().is_ok());
        for text in ["", "1", "4/4", "a/b", "1/", "-1/4"] {
            assert!(text.parse::<Share>().is_err(), "{text:?}");
        }
    }
}
