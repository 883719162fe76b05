//! Some processes, on one node or on several, that meet in a directory and do things in step.
//!
//! - Nothing but the directory connects them. A seat is taken by exclusive creation, which is fresh on every
//!   filesystem a store may live on; everything else is looked for in the directory opened anew.
//! - They go on by *meetings*: each leaves a word, and has those of all others. A word is written under
//!   another name first, so that none is read half.
//! - Each removes what it has made, and who gives up all that was tried with. Who waits in vain says where,
//!   and what to do.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Peers;
use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::PROBE_INTERVAL_MIN;
use crate::storage::{Access, Dir, Kind, Storage, absent_is_fine, read_exact_at, write_all_at};

/// One of them.
pub(super) struct Company<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) env: &'a dyn Env,
    parent: &'a Dir,
    pub(super) path: PathBuf,
    name: String,
    pub(super) seat: u32,
    pub(super) count: u32,
    timeout: Duration,
    stop: Arc<AtomicBool>,
    /// Meetings so far.
    met: u64,
}

impl<'a> Company<'a> {
    /// Takes a seat, and waits until all are taken.
    pub(super) fn join(
        storage: &'a dyn Storage,
        env: &'a dyn Env,
        parent: &'a Dir,
        path: &Path,
        peers: &Peers,
    ) -> Result<Self> {
        let invalid = |what: String| Error::new(ErrorKind::Invalid, what).at(path);
        if !(2..=Peers::MOST).contains(&peers.count) {
            return Err(invalid(format!("{} peers; it takes 2 to {}", peers.count, Peers::MOST)));
        }
        if !peers.room.starts_with('.') || peers.room.len() < 2 || peers.room.contains(['/', '\0']) {
            return Err(invalid(format!("{:?} is no name for a room: it begins with a dot", peers.room)));
        }
        let mut company = Self {
            storage,
            env,
            parent,
            path: path.join(&peers.room),
            name: peers.room.clone(),
            seat: 0,
            count: peers.count,
            timeout: peers.timeout,
            stop: Arc::clone(&peers.stop),
            met: 0,
        };
        let failed = |error| Error::io("can't take a seat", error).at(&company.path);
        match storage.make_dir(parent, &company.name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let room = company.room().map_err(failed)?;
        for seat in 0..company.count {
            match storage.create_exclusive(&room, &seat_name(seat)) {
                Ok(file) => {
                    storage.close(file).map_err(failed)?;
                    company.seat = seat;
                    if let Err(error) = company.meet(b"here") {
                        company.give_up();
                        return Err(error);
                    }
                    return Ok(company);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let room = company.path.display();
        Err(invalid(format!(
            "all {} seats are taken: if nobody else is at it, {room} was left by one that was killed, so \
            remove it",
            company.count
        )))
    }

    /// The room, opened anew: what makes look-ups in it fresh.
    pub(super) fn room(&self) -> io::Result<Dir> {
        self.storage.open_dir(self.parent, &self.name)
    }

    /// How long one waits for another.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What went wrong with a call.
    pub(super) fn failed(&self, error: io::Error) -> Error {
        Error::io("can't try the filesystem", error).at(&self.path)
    }

    /// Leaves a word for all, and has everybody's, in the order of the seats.
    ///
    /// # Errors
    /// `Timeout` when one doesn't come; `Io`.
    pub(super) fn meet(&mut self, word: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.leave_word(word).map_err(|error| self.failed(error))?;
        let until = self.env.now().saturating_add(self.timeout);
        let mut words = Vec::new();
        for seat in 0..self.count {
            let mut pause = PAUSE;
            words.push(loop {
                if let Some(word) = self.word_of(seat).map_err(|error| self.failed(error))? {
                    break word;
                }
                if self.is_over(until) {
                    return Err(self.nobody_came(seat));
                }
                self.env.sleep(pause);
                pause = pause.saturating_mul(2).min(PROBE_INTERVAL_MIN);
            });
        }
        // All are here, so all have read what was left at the meeting before.
        if let Some(before) = self.met.checked_sub(1) {
            self.remove(&word_name(before, self.seat)).map_err(|error| self.failed(error))?;
        }
        self.met = self.met.saturating_add(1);
        Ok(words)
    }

    /// Whether nobody is waited for any more.
    pub(super) fn is_over(&self, until: Duration) -> bool {
        self.stop.load(Ordering::Relaxed) || self.env.now() >= until
    }

    fn leave_word(&self, word: &[u8]) -> io::Result<()> {
        let room = self.room()?;
        let (written, name) = (format!("writing-{}", self.seat), word_name(self.met, self.seat));
        let file = self.storage.create_exclusive(&room, &written)?;
        let length = u64::try_from(word.len()).unwrap_or(u64::MAX);
        write_all_at(self.storage, &file, &length.to_le_bytes(), 0)?;
        write_all_at(self.storage, &file, word, WORD_AT)?;
        self.storage.close(file)?;
        self.storage.rename(&room, &written, &room, &name)
    }

    fn word_of(&self, seat: u32) -> io::Result<Option<Vec<u8>>> {
        let file = match self.storage.open(&self.room()?, &word_name(self.met, seat), Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut length = [0; WORD_AT as usize];
        read_exact_at(self.storage, &file, &mut length, 0)?;
        let length = u64::from_le_bytes(length).min(WORD_BYTES_MAX);
        let mut word = vec![0; usize::try_from(length).unwrap_or(0)];
        read_exact_at(self.storage, &file, &mut word, WORD_AT)?;
        Ok(Some(word))
    }

    /// Removes a name of the room, if it is there.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        absent_is_fine(self.storage.remove(&self.room()?, name))
    }

    /// Ends it: the first seat removes the room. What has failed before goes first.
    pub(super) fn leave<T>(mut self, report: Result<T>) -> Result<T> {
        let parted = report.and_then(|report| self.meet(b"done").map(|_| report));
        let report = match parted {
            Ok(report) => report,
            Err(error) => {
                self.give_up();
                return Err(error);
            }
        };
        match self.close() {
            Ok(true) => Ok(report),
            Ok(false) => {
                self.give_up();
                Err(self.nobody_came(1))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Leaves the seat, which says that the last words were read; the first one waits for that of all others.
    /// False if it was stopped meanwhile.
    fn close(&self) -> io::Result<bool> {
        if self.seat != 0 {
            self.remove(&seat_name(self.seat))?;
            // Where the first one has gone, this may be the last.
            let _ = self.storage.remove_dir(self.parent, &self.name);
            return Ok(true);
        }
        let until = self.env.now().saturating_add(self.timeout);
        let last = self.met.saturating_sub(1);
        for seat in 1..self.count {
            while is_there(self.storage, &self.room()?, &seat_name(seat))? && !self.is_over(until) {
                self.env.sleep(PAUSE);
            }
        }
        if self.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        for seat in 0..self.count {
            self.remove(&word_name(last, seat))?;
        }
        self.remove(&seat_name(0))?;
        absent_is_fine(self.storage.remove_dir(self.parent, &self.name)).map(|()| true)
    }

    /// Removes all but what the others meet by, as far as that goes: without this one they come to nothing
    /// more, and an error is on its way already.
    fn give_up(&self) {
        if let Err(error) = self.empty().and_then(|()| self.storage.remove_dir(self.parent, &self.name)) {
            tracing::debug!(%error, room = %self.path.display(), "left behind");
        }
    }

    fn empty(&self) -> io::Result<()> {
        let room = self.room()?;
        for name in self.storage.list(&room)?.iter().filter_map(OsStr::to_str) {
            let is_meeting = ["seat-", "word-", "writing-"].iter().any(|kind| name.starts_with(kind));
            if is_meeting && !name.ends_with(&format!("-{}", self.seat)) {
                continue;
            }
            if self.storage.kind(&room, name)? == Kind::Directory {
                let within = self.storage.open_dir(&room, name)?;
                for held in self.storage.list(&within)?.iter().filter_map(OsStr::to_str) {
                    absent_is_fine(self.storage.remove(&within, held))?;
                }
                absent_is_fine(self.storage.remove_dir(&room, name))?;
            } else {
                absent_is_fine(self.storage.remove(&room, name))?;
            }
        }
        Ok(())
    }

    pub(super) fn nobody_came(&self, seat: u32) -> Error {
        let (seconds, number) = (self.timeout.as_secs(), seat.saturating_add(1));
        let what = if self.stop.load(Ordering::Relaxed) {
            format!("stopped while it waited for number {number} of {}", self.count)
        } else if self.met == 0 {
            format!(
                "waited {seconds} s for {} in all, and number {number} didn't come: start it on each node at \
                 about the same time, with the same directory",
                self.count
            )
        } else {
            format!(
                "number {number} of {} hasn't gone on for {seconds} s: if it isn't running any more, {} was \
                 left by one that was killed, so remove it",
                self.count,
                self.path.display()
            )
        };
        Error::new(ErrorKind::Timeout, what).at(&self.path)
    }
}

/// Whether a file is found by opening it.
pub(super) fn is_there(storage: &dyn Storage, dir: &Dir, name: &str) -> io::Result<bool> {
    match storage.open(dir, name, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        opened => opened.map(|_| true),
    }
}

/// Between two looks for another, at first.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
const WORD_AT: u64 = 8;
const WORD_BYTES_MAX: u64 = 64 << 10;

fn word_name(meeting: u64, seat: u32) -> String {
    format!("word-{meeting}-{seat}")
}

fn seat_name(seat: u32) -> String {
    format!("seat-{seat}")
}
