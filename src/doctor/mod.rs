//! What a mount really does, what it costs, and what its options mean: before a store is made on it, and when
//! one is slow.
//!
//! - Alone ([`doctor`]): what one process can find out. In company ([`doctor_with_peers`]): races, and how
//!   soon one node sees what another has done, across two nodes or by some processes of one.
//! - It writes nothing outside a private directory, and leaves nothing.

mod advice;
mod company;
mod costs;
mod trials;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;

pub use advice::{Advice, Weight};
pub use costs::Costs;
pub use trials::{Freshness, PeerReport, Race};

use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::storage::{Dir, Report, Storage, probe};
use crate::store::system;
use company::Company;

/// What one process finds out about a directory's mount; see [`doctor`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What the mount is and does, and whether a store may live there.
    #[serde(flatten)]
    pub report: Report,
    /// What its options mean for a store.
    pub advice: Vec<Advice>,
    /// What a commit costs there; none where no store may live.
    pub costs: Option<Costs>,
}

impl Diagnosis {
    /// Whether a store may live there.
    pub fn is_fit(&self) -> bool {
        self.report.refusal.is_none() && self.report.chosen.is_some()
    }
}

/// Who else looks at the same directory at the same time; see [`doctor_with_peers`].
#[derive(Clone, Debug)]
pub struct Peers {
    count: u32,
    timeout: Duration,
    room: String,
    stop: Arc<AtomicBool>,
}

impl Peers {
    /// The most that may take part.
    pub const MOST: u32 = 64;

    /// So many in all, this one among them: 2 for two nodes.
    pub fn new(count: u32) -> Self {
        let (timeout, room) = (Duration::from_secs(60), ".doctor-peers".to_owned());
        Self { count, timeout, room, stop: Arc::default() }
    }

    /// How long each waits for another (default 60 s).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What ends the waits for others before their time once it is true, for a handler of Ctrl-C: the call
    /// removes what it has made, and fails by `Timeout`.
    pub fn stop(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
    }

    /// The directory in which they meet, under the one that is looked at (default `.doctor-peers`): another
    /// one for each company that meets there at the same time.
    pub fn room(mut self, name: impl Into<String>) -> Self {
        self.room = name.into();
        self
    }
}

/// Looks at the mount of a directory: what it can do, what it is like, what it costs, whether a store may
/// live there.
///
/// Everything happens in private directories inside, which are removed again.
///
/// # Errors
/// `Invalid` when there is no such directory; `Full`, `Io`.
pub fn doctor(directory: impl AsRef<Path>, options: &Options) -> Result<Diagnosis> {
    let path = directory.as_ref();
    let (seams, _) = system();
    let dir = open(&*seams.storage, path)?;
    let report = probe(&*seams.storage, &*seams.env, &dir, path, options)?;
    let advice = advice::on(&report.mount);
    let mut diagnosis = Diagnosis { report, advice, costs: None };
    if let (true, Some(primitive)) = (diagnosis.is_fit(), diagnosis.report.chosen) {
        diagnosis.costs = Some(costs::measure(&*seams.storage, &*seams.env, &dir, path, primitive)?);
    }
    Ok(diagnosis)
}

/// Looks at a directory together with others that call the same at the same time, on other nodes or in other
/// processes: whether exactly one wins each race for a name, and how soon one sees what another has done.
///
/// All get the same verdict. They meet in a private directory inside, which the last one removes.
///
/// # Errors
/// `Invalid` for a number of peers outside 2..=[`Peers::MOST`], a room's name that isn't one, no such
/// directory, or when all seats are taken; `Timeout` when another doesn't come or doesn't go on, or by
/// [`Peers::stop`]; `Full`, `Io`.
pub fn doctor_with_peers(directory: impl AsRef<Path>, peers: &Peers) -> Result<PeerReport> {
    let path = directory.as_ref();
    let (seams, _) = system();
    with_peers(&*seams.storage, &*seams.env, path, peers)
}

fn with_peers(storage: &dyn Storage, env: &dyn Env, path: &Path, peers: &Peers) -> Result<PeerReport> {
    let dir = open(storage, path)?;
    let mut company = Company::join(storage, env, &dir, path, peers)?;
    let report = trials::make(&mut company);
    company.leave(report)
}

fn open(storage: &dyn Storage, path: &Path) -> Result<Dir> {
    storage.open_root(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Error::new(ErrorKind::Invalid, "there is no such directory").caused_by(error).at(path)
        }
        _ => Error::io("can't open the directory", error).at(path),
    })
}

#[cfg(test)]
mod tests;
