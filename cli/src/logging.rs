//! What the library logs, on stderr: warnings, unless asked for more or less.
//!
//! - The command line goes before BATCHWEAVE_LOG, which goes before the default.
//! - A variable that can't be read is said, and never keeps the command from its work.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::Verbosity;

const VARIABLE: &str = "BATCHWEAVE_LOG";

/// Starts it, once.
pub(crate) fn start(verbosity: &Verbosity) {
    let (filter, wrong) = match by_flags(verbosity) {
        Some(level) => (Targets::new().with_default(level), None),
        None => by_variable(),
    };
    let lines =
        tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    tracing_subscriber::registry().with(lines).with(filter).init();
    if let Some(wrong) = wrong {
        tracing::warn!("{VARIABLE} is {wrong:?}, which is no filter such as \"info\"; passed over");
    }
}

fn by_flags(verbosity: &Verbosity) -> Option<LevelFilter> {
    match (verbosity.quiet, verbosity.verbose) {
        (0, 0) => None,
        (0, 1) => Some(LevelFilter::INFO),
        (0, 2) => Some(LevelFilter::DEBUG),
        (0, _) => Some(LevelFilter::TRACE),
        (1, _) => Some(LevelFilter::ERROR),
        (_, _) => Some(LevelFilter::OFF),
    }
}

fn by_variable() -> (Targets, Option<std::ffi::OsString>) {
    let default = Targets::new().with_default(LevelFilter::WARN);
    match std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
        None => (default, None),
        Some(text) => match text.to_str().and_then(filter) {
            Some(filter) => (filter, None),
            None => (default, Some(text)),
        },
    }
}

/// A level for all, or a list such as `info,batchweave::log=debug`. A bare word is no target: a level that
/// is misspelt would silence everything.
fn filter(text: &str) -> Option<Targets> {
    if text.contains('=') {
        return text.parse().ok();
    }
    text.parse::<LevelFilter>().ok().map(|level| Targets::new().with_default(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_level_is_no_filter() {
        assert!(filter("wran").is_none());
        assert_eq!(filter("debug"), Some(Targets::new().with_default(LevelFilter::DEBUG)));
        let both =
            Targets::new().with_default(LevelFilter::INFO).with_target("batchweave::log", LevelFilter::DEBUG);
        assert_eq!(filter("info,batchweave::log=debug"), Some(both));
    }
}
