//! How a run ends: its exit code, and the one sentence that says why.
//!
//! - Every [`ErrorKind`] has an exit code of its own; the codes are part of the command's interface and
//!   never change.
//! - The sentence is one line, whatever bytes a path holds, and ends with the cause.
//! - A closed pipe is no failure: whoever reads has what they wanted.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use batchweave::ErrorKind;

use crate::output::one_line;

/// The table at the end of the command's help.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
   0  done; or whoever reads the output has closed it
   1  done, and the answer is no: verify found something wrong, repair has something left to
      mend, check found a bound broken, doctor found no way to put a store there, bench couldn't
      measure
   2  the command line is wrong
  10  io           the filesystem said no; what was acknowledged stands
  11  corrupt      bytes on disk aren't what was written, or something is missing: run verify
  12  fenced       a newer incarnation has taken over the name
  13  contended    others won every attempt: try again
  14  reclaimed    the step is below the floor
  15  rewound      history was changed under the reader
  16  unsupported  needs a newer batchweave, or another filesystem
  17  invalid      the store isn't there, or can't do what was asked; nothing was changed
  18  full         no room: bytes, inodes, quota or a bound of the store
  19  timeout      waited as long as was asked for
 130  doctor or bench was interrupted, and has removed what it had made

Example:
  batchweave init /lustre/run7/train --divisor 32
  batchweave info /lustre/run7/train";

/// How a run ended that did what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All is well.
    Yes,
    /// Something is wrong with what was looked at.
    No,
    /// Something failed on the way that has been said; this is its exit code.
    Said(u8),
}

impl From<Answer> for ExitCode {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Yes => Self::SUCCESS,
            Answer::No => Self::from(1),
            Answer::Said(code) => Self::from(code),
        }
    }
}

/// Why a run ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library's error.
    Store(batchweave::Error),
    /// The store, met where the library gives a plain I/O error: in a `Write`.
    Draft(io::Error),
    /// A file of the user's, or the output: never the store's own room or bytes.
    Own {
        /// A sentence without its full stop.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// What kept a figure from being measured.
    Bench(Box<dyn std::error::Error + Send + Sync>),
    /// Nobody reads the output any more.
    ClosedPipe,
}

impl Failure {
    /// A file of the user's that can't be read.
    pub(crate) fn of_file(path: &Path, source: io::Error) -> Self {
        Self::Own { what: format!("can't read {}", path.display()), source }
    }

    /// The output that can't be written.
    pub(crate) fn of_output(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return Self::ClosedPipe;
        }
        Self::Own { what: "can't write the output".to_owned(), source }
    }

    /// Says it on stderr, and gives the exit code.
    pub(crate) fn say(&self) -> u8 {
        if let Some(sentence) = self.sentence() {
            // Without a stderr the exit code has to do.
            let _ = io::Write::write_all(&mut io::stderr(), format!("batchweave: {sentence}\n").as_bytes());
        }
        self.code()
    }

    fn sentence(&self) -> Option<String> {
        let sentence = match self {
            Self::Store(error) => with_causes(error),
            Self::Bench(error) => with_causes(&**error),
            Self::Draft(source) => format!("can't write the draft: {source}"),
            Self::Own { what, source } => format!("{what}: {source}"),
            Self::ClosedPipe => return None,
        };
        Some(one_line(&sentence))
    }

    fn code(&self) -> u8 {
        match self {
            Self::Store(error) => code_of(error.kind()),
            Self::Draft(source) => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => code_of(ErrorKind::Full),
                _ => code_of(ErrorKind::Io),
            },
            Self::Own { .. } => code_of(ErrorKind::Io),
            Self::Bench(error) => {
                error.downcast_ref().map_or(1, |error: &batchweave::Error| code_of(error.kind()))
            }
            Self::ClosedPipe => 0,
        }
    }
}

impl From<batchweave::Error> for Failure {
    fn from(error: batchweave::Error) -> Self {
        Self::Store(error)
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for Failure {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::Bench(error)
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |sentence, cause| format!("{sentence}: {cause}"))
}

fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Io => 10,
        ErrorKind::Corrupt => 11,
        ErrorKind::Fenced => 12,
        ErrorKind::Contended => 13,
        ErrorKind::Reclaimed => 14,
        ErrorKind::Rewound => 15,
        ErrorKind::Unsupported => 16,
        ErrorKind::Invalid => 17,
        ErrorKind::Full => 18,
        ErrorKind::Timeout => 19,
        // A kind that is newer than this table: the least that can be said is that something is wrong.
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_code_of_its_own_and_a_line_in_the_help() {
        use ErrorKind::*;
        let kinds = [Io, Corrupt, Fenced, Contended, Reclaimed, Rewound, Unsupported, Invalid, Full, Timeout];
        for (code, kind) in (10..).zip(kinds) {
            assert_eq!(code_of(kind), code);
            assert!(EXIT_CODES.contains(&format!("\n  {code}  {kind:11}  ")), "{kind} isn't in the table");
        }
    }
}
