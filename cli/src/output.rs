//! What goes to stdout: facts, each a line of text or a JSON object.
//!
//! - A fact is both: `Display` for people, `Serialize` for programs, which get exact numbers.
//! - What comes out of a store is escaped in text, so that a line stays a line under any locale.
//! - An output that nobody reads any more is [`Failure::ClosedPipe`].

use std::fmt::{self, Display};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;

use crate::failure::Failure;
use crate::thread;

/// How facts are printed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Format {
    /// Print JSON: one object, or one a line where there are several
    #[arg(long, display_order = 1000)]
    json: bool,
}

/// The standard output.
#[derive(Debug)]
pub(crate) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    /// Takes it for the rest of the run.
    pub(crate) fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    /// Prints a fact, with `format`.
    pub(crate) fn fact(&mut self, fact: &(impl Serialize + Display), format: Format) -> Result<(), Failure> {
        if !format.json {
            return writeln!(self.0, "{fact}").map_err(Failure::of_output);
        }
        serde_json::to_writer(&mut self.0, fact).map_err(|error| Failure::of_output(error.into()))?;
        self.0.write_all(b"\n").map_err(Failure::of_output)
    }

    /// Prints the fact that the exit code sums up, which a closed pipe mustn't change.
    pub(crate) fn verdict(fact: &(impl Serialize + Display), format: Format) -> Result<(), Failure> {
        match print(fact, format) {
            Err(Failure::ClosedPipe) => Ok(()),
            other => other,
        }
    }

    /// Prints a line of text that JSON has no use for.
    fn heading(&mut self, text: impl Display, format: Format) -> Result<(), Failure> {
        if format.json {
            return Ok(());
        }
        writeln!(self.0, "{text}").map_err(Failure::of_output)
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(Failure::of_output)
    }

    /// Sees to it that everything is out.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(Failure::of_output)
    }
}

/// Prints facts as the rows of a table, under the heads of its columns; nothing if there are none.
pub(crate) fn table(
    heading: impl Display,
    rows: impl ExactSizeIterator<Item = impl Serialize + Display>,
    format: Format,
) -> Result<(), Failure> {
    let mut output = Output::new();
    if rows.len() > 0 {
        output.heading(heading, format)?;
    }
    for row in rows {
        output.fact(&row, format)?;
    }
    output.flush()
}

/// Prints the only fact of a run.
pub(crate) fn print(fact: &(impl Serialize + Display), format: Format) -> Result<(), Failure> {
    let mut output = Output::new();
    output.fact(fact, format)?;
    output.flush()
}

/// Ends the process as soon as nobody reads its output any more, though there may be nothing to write for
/// hours.
///
/// For verbs that only read: the process ends wherever it is.
pub(crate) fn end_when_closed() -> io::Result<()> {
    let wait = || {
        // No event is asked for, so only a broken pipe or terminal wakes it; a plain file never does.
        let stdout = io::stdout();
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        loop {
            match poll(&mut watched, None) {
                Ok(_) if watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => {
                    std::process::exit(0)
                }
                Err(rustix::io::Errno::INTR) => {}
                // It can't be watched; the next write will tell.
                Ok(_) | Err(_) => return,
            }
        }
    };
    thread::spawn("watch-output", wait)
}

/// A number of bytes for people: exact below 1 KiB, else rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes(pub(crate) u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let power = (self.0.max(1).ilog2() / 10) as usize;
        let text = match power.checked_sub(1).and_then(|unit| UNITS.get(unit)) {
            None => format!("{} B", self.0),
            Some(unit) => format!("{:.1} {unit}", self.0 as f64 / 1024_f64.powi(power as i32)),
        };
        f.pad(&text)
    }
}

/// A number and its noun: `1 slice`, `2 slices`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Microseconds since 1970 as ISO 8601 in UTC; a number that no calendar knows stays one.
pub(crate) fn time(us: u64) -> String {
    let time = i64::try_from(us).ok().and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
    time.map_or_else(|| format!("{us} us"), |time| format!("{time:.6}"))
}

/// A path for JSON and for text; what isn't UTF-8 in it is replaced.
pub(crate) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Text with its control characters escaped, so that it stays on its line.
pub(crate) fn one_line(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_rounded_for_people() {
        let cases =
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_572_864, "1.5 MiB"), (u64::MAX, "16.0 EiB")];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>8}|", Bytes(1)), "     1 B|");
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(time(1_700_000_000_123_456), "2023-11-14T22:13:20.123456Z");
        assert_eq!(time(u64::MAX), format!("{} us", u64::MAX));
    }

    #[test]
    fn a_line_stays_a_line() {
        assert_eq!(one_line("a\nb\tc\u{1b}é"), "a\\nb\\tc\\u{1b}é");
    }
}
