//! What the simulated processes do: the engine's users, each as a careful user would be.
//!
//! - Everything they are told goes to the [`Ledger`].
//! - An error that the run's fates allow makes them begin again, as a restarted job does; any other is
//!   trouble.

mod consume;
mod control;
mod disturb;
mod look;
mod operate;
mod peek;
mod produce;
mod train;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use batchweave::{Error, ErrorKind, Options, Settings, Store};

pub use consume::{Consuming, consume};
pub use disturb::{await_open, close, inspect, pass_segments, watch};
pub use operate::{Operating, Running, Word, operate};
pub use peek::{ask, peek};
pub use produce::{Meets, Producing, produce};
pub use train::{Saved, Training, join, train};

use crate::errno;
use crate::oracle::{Annals, Ledger, Truth, truth, truth_at};
use crate::{Coverage, Memory, Process};

/// What all actors of a run know.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Where the store is.
    pub path: PathBuf,
    /// What it is made with, if it isn't there.
    pub options: Options,
    /// How handles are set.
    pub settings: Settings,
    /// What is true.
    pub ledger: Arc<Ledger>,
    /// The filesystem itself, for looking at it unseen.
    pub memory: Memory,
    /// What may go wrong for a careful user.
    pub allowed: Allowed,
    /// Where to count what was met.
    pub coverage: Arc<Coverage>,
}

/// Which errors the fates of a run can cause.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed {
    /// Calls fail: `Io`, `Full`, and what follows from these.
    pub failures: bool,
    /// Files vanish or can't be read: `Corrupt`.
    pub damage: bool,
    /// The stream is closed under its producers: `Invalid`.
    pub closes: bool,
    /// Who has stood still for longer than his patience lasts may be told that what others have removed
    /// meanwhile is stale: `Io`.
    pub stale: bool,
}

/// How often an actor begins again before it gives up; less often where what it needs may be damaged.
const TRIES: u32 = 40;
const TRIES_DAMAGED: u32 = 4;
/// How long it waits before: longer each time, as a job scheduler does.
const PAUSE: Duration = Duration::from_millis(500);

impl Stage {
    /// Opens the store, or creates it.
    fn open_or_create(&self, process: &Process) -> batchweave::Result<Store> {
        Store::open_or_create_on(self.path(), process.storage(), process.env(), self.options, &self.settings)
    }

    /// Opens the store for reading, waiting for it to be created; none if it never is.
    fn open_existing(&self, process: &Process) -> batchweave::Result<Option<Store>> {
        for _ in 0..TRIES {
            match Store::open_on(self.path(), process.storage(), process.env(), &self.settings) {
                Err(error) if error.kind() == ErrorKind::Invalid && !process.is_dead() => {
                    process.env().sleep(PAUSE);
                }
                opened => return opened.map(Some),
            }
        }
        Ok(None)
    }

    /// What was told of a store whose history changes.
    fn annals(&self) -> &Annals {
        self.ledger.annals().expect("a run of the lifecycle has annals")
    }

    /// What is true of such a store now.
    fn truth(&self) -> Result<Truth, String> {
        truth(&self.memory, &self.path)?.ok_or_else(|| "P6: there is no store".to_owned())
    }

    /// What was true of it when it had so many versions.
    fn truth_at(&self, versions: u64) -> Result<Truth, String> {
        truth_at(&self.memory, &self.path, versions)?.ok_or_else(|| "P6: there is no store".to_owned())
    }

    /// How many versions there are, by a look at the names that is cheap; fewer at a boundary.
    fn versions(&self) -> u64 {
        self.newest_version() + 1
    }

    /// Whether an error says that the stream was closed at some moment since there were so many versions, and
    /// it was.
    fn is_closed_out(&self, error: &Error, since: u64) -> Result<bool, String> {
        if error.kind() != ErrorKind::Invalid || self.ledger.annals().is_none() {
            return Ok(false);
        }
        Ok(self.truth()?.model.stream.closed_since(since).is_some())
    }

    /// The newest version that has a name, of a store that was made with segments of the set-up's size.
    fn newest_version(&self) -> u64 {
        let numbers =
            |names: Vec<String>| names.into_iter().filter_map(|name| name.parse::<u64>().ok()).max();
        let log = self.path.join("log");
        let newest = numbers(self.memory.names_in(&log));
        let newest = newest.and_then(|k| numbers(self.memory.names_in(log.join(format!("{k:012}")))));
        newest.unwrap_or(0)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Does `act` until it is done, beginning again after errors that may be.
    fn persist(&self, process: &Process, mut act: impl FnMut() -> Result<(), Trouble>) -> Result<(), String> {
        let tries = if self.allowed.damage { TRIES_DAMAGED } else { TRIES };
        for number in 0..tries {
            match act() {
                Ok(()) => return Ok(()),
                Err(Trouble::Broken(what)) => return Err(what),
                Err(Trouble::Over) => return Ok(()),
                Err(Trouble::Again) => {}
                Err(Trouble::Told(_)) if process.is_dead() => return Ok(()),
                // The stream is closed, or the mount doesn't let anybody publish: nothing is left to do.
                Err(Trouble::Told(error)) if self.allowed.ends(&error) => return Ok(()),
                Err(Trouble::Told(error)) => {
                    if !self.allowed.covers(&error) {
                        return Err(format!("an error that nothing has caused: {error}"));
                    }
                    process.world.say(format!("{} begins again after: {error}", process.name));
                }
            }
            if process.is_dead() {
                return Ok(());
            }
            process.env().sleep(PAUSE * (number + 1));
        }
        // Damage that lasts is allowed to stop whoever needs what is damaged.
        if self.allowed.damage { Ok(()) } else { Err(format!("P7: still not done after {TRIES} tries")) }
    }
}

impl Allowed {
    fn covers(self, error: &Error) -> bool {
        match error.kind() {
            // Races that others have won fairly.
            ErrorKind::Contended => true,
            ErrorKind::Io if self.stale && is_stale(error) => true,
            ErrorKind::Io | ErrorKind::Full | ErrorKind::Timeout => self.failures || self.damage,
            ErrorKind::Corrupt => self.damage,
            _ => self.ends(error),
        }
    }

    /// Whether it is an error after which nothing is left to do.
    fn ends(self, error: &Error) -> bool {
        error.kind() == ErrorKind::Invalid && self.closes
    }
}

/// Whether an error comes from a file that is gone from its server.
fn is_stale(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| cause.raw_os_error() == Some(errno::ESTALE))
}

/// What ends an actor's attempt.
enum Trouble {
    /// The engine said so.
    Told(Error),
    /// A promise is broken.
    Broken(String),
    /// It is late, and begins again.
    Again,
    /// It is late, and done.
    Over,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl From<String> for Trouble {
    fn from(what: String) -> Self {
        Self::Broken(what)
    }
}
