//! What a command that is interrupted leaves behind: nothing of its own.
//!
//! - The first SIGINT, SIGTERM or SIGHUP removes what [`directory`] has made, and ends the command; before
//!   there is anything it only says so by [`stop`], and who waits ends by itself.
//! - The third ends it at once: a mount may hang. The second may be the same one, which `timeout` and
//!   launchers send to a process and to its group.
//! - One that whoever has started the command had it ignore stays ignored (nohup, a shell's background).

use std::io;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use crate::thread;

/// As a shell has it for SIGINT.
pub(crate) const EXIT_CODE: u8 = 130;
/// A directory may be written into while it is removed, though not for long: what is looked for is gone.
const REMOVALS_MAX: usize = 100;

static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static MADE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on signals are heard.
pub(crate) fn watch() -> io::Result<()> {
    let ignored = ignored();
    let heard = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(heard)?;
    let wait = move || {
        for (before, _) in signals.forever().enumerate() {
            match before {
                0 => drop(thread::spawn("remove", interrupted)),
                1 => {}
                _ => exit(EXIT_CODE.into()),
            }
        }
    };
    thread::spawn("watch-signals", wait)
}

/// The signals that this process was started to ignore, a bit each from signal 1 on.
fn ignored() -> u64 {
    // Without /proc there are none.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).unwrap_or(0)
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
    STOP.store(true, Ordering::Relaxed);
    let made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.iter().for_each(|directory| remove(directory));
    if !made.is_empty() {
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
