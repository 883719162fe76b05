//! Threads of the command's own.

use std::io;

/// Starts one; nobody waits for its end.
#[expect(
    clippy::disallowed_methods,
    reason = "the command's own threads; the engine has none of their state"
)]
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}
