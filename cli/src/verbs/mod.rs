//! What the command can do: a file for each verb, or for a few that belong together.
//!
//! - A verb is its arguments, with its help, and `run`.
//! - A verb that reads opens the store and writes nothing.

pub(crate) mod cat;
pub(crate) mod debug;
pub(crate) mod doctor;
pub(crate) mod follow;
pub(crate) mod info;
pub(crate) mod init;
pub(crate) mod log;
pub(crate) mod producers;
pub(crate) mod stream;
pub(crate) mod verify;
