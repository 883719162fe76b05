//! What the command can do: a file for each verb, or for a few that belong together.
//!
//! - A verb is its arguments, with its help, and `run`.
//! - A verb that reads opens the store and writes nothing.
//! - A verb that takes something away says what, and does it only when that is confirmed.

pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod copy;
pub(crate) mod debug;
pub(crate) mod destroy;
pub(crate) mod doctor;
pub(crate) mod follow;
pub(crate) mod groups;
pub(crate) mod history;
pub(crate) mod info;
pub(crate) mod init;
pub(crate) mod log;
pub(crate) mod producers;
pub(crate) mod reclaim;
pub(crate) mod repair;
pub(crate) mod stream;
pub(crate) mod turns;
pub(crate) mod verify;

use std::fmt;

/// Whether something is done, or only told.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Confirm {
    /// Do it; without this it is only said what would be done
    #[arg(long)]
    confirm: bool,
}

impl Confirm {
    fn dry_run(self) -> bool {
        !self.confirm
    }
}

/// What a fact of a dry run ends with.
struct Unconfirmed(bool);

impl fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 { f.write_str("\nnothing was changed: --confirm does it") } else { Ok(()) }
    }
}

/// `is` of what is done, `would be` of what is only told.
fn is(dry_run: bool) -> &'static str {
    if dry_run { "would be" } else { "is" }
}
