//! The error of a process that its plan stopped, and how to know it behind others.

use std::error::Error;
use std::fmt;
use std::io;

/// Why a call of a stopped process failed.
#[derive(Clone, Copy, Debug)]
pub struct Stopped;

impl Stopped {
    /// Whether an error, or one of its sources, comes from a stopped process.
    pub fn caused(error: &(dyn Error + 'static)) -> bool {
        let mut at = Some(error);
        while let Some(error) = at {
            // The source of an `io::Error` is what is below the error that it wraps, so look inside by hand.
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            if error.is::<Self>() || inner.is_some_and(|inner| inner.is::<Self>()) {
                return true;
            }
            at = error.source();
        }
        false
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the plan stopped this process")
    }
}

impl Error for Stopped {}
