//! What a command that is interrupted leaves behind: nothing of its own.
//!
//! - SIGINT, SIGTERM and SIGHUP remove what [`directory`] has made, and end the command.
//! - Before there is anything they only say so by [`stop`], and who waits ends by itself; a second one ends
//!   the command at once.
//! - One that whoever has started the command had it ignore stays ignored (nohup, a shell's background).

use std::io;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

/// As a shell has it for SIGINT.
pub(crate) const EXIT_CODE: u8 = 130;
/// A directory may be written into while it is removed, though not for long: what is looked for is gone.
const REMOVALS_MAX: usize = 100;

static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static MADE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on signals are heard.
pub(crate) fn watch() -> io::Result<()> {
    let ignored = ignored()?;
    let heard = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(heard)?;
    let wait = move || signals.forever().for_each(|_| interrupted());
    #[expect(
        clippy::disallowed_methods,
        reason = "the command's own thread; the engine has none of its state"
    )]
    std::thread::Builder::new().name("watch-signals".to_owned()).spawn(wait).map(drop)
}

/// The signals that this process was started to ignore, a bit each from signal 1 on.
fn ignored() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).map_err(io::Error::other)
}

/// Whether there was a signal, for who waits.
pub(crate) fn stop() -> Arc<AtomicBool> {
    Arc::clone(&STOP)
}

/// Makes a directory of this command's own in another one; it goes when it is dropped, or by a signal.
pub(crate) fn directory(prefix: &str, within: &Path) -> io::Result<TempDir> {
    // Held while it is made, so that a signal finds it.
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if STOP.load(Ordering::Relaxed) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(within)?;
    made.push(directory.path().to_owned());
    Ok(directory)
}

fn interrupted() {
    let again = STOP.swap(true, Ordering::Relaxed);
    let made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.iter().for_each(|directory| remove(directory));
    if again || !made.is_empty() {
        exit(EXIT_CODE.into());
    }
}

fn remove(directory: &Path) {
    let mut removed = Ok(());
    for _ in 0..REMOVALS_MAX {
        removed = std::fs::remove_dir_all(directory);
        match &removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {}
            _ => return,
        }
    }
    if let Err(error) = removed {
        tracing::error!(%error, path = %directory.display(), "left behind");
    }
}
