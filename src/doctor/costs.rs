//! What the calls of a durable commit cost on a mount, each for itself.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::env::Env;
use crate::error::{Error, Result};
use crate::id::Nonce;
use crate::options::Primitive;
use crate::storage::{Access, Dir, PROBE_PREFIX, Storage, put, write_all_at};

/// How often each call is made.
const ROUNDS: usize = 16;
/// The bytes of a small commit.
const BYTES: [u8; 4096] = [0; 4096];
const CONTENT: &str = "c";

/// Medians in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Costs {
    /// To create a file and write 4 KiB.
    pub write_us: u64,
    /// To make them durable.
    pub sync_us: u64,
    /// To give the file its name by the chosen primitive, and to drop the staged one.
    pub publish_us: u64,
    /// To make the name durable.
    pub sync_dir_us: u64,
    /// To open a directory anew, list it, and look for a name that isn't there: what a commit's look at the
    /// marks takes, and a waiting consumer's probe.
    pub look_us: u64,
    /// All of these: one producer makes a million divided by this many commits a second, at most.
    pub commit_us: u64,
}

/// Measures them in a directory of its own.
pub(super) fn measure(
    storage: &dyn Storage,
    env: &dyn Env,
    parent: &Dir,
    path: &Path,
    primitive: Primitive,
) -> Result<Costs> {
    let mut nonce = [0; 16];
    env.entropy(&mut nonce).map_err(|error| Error::io("can't draw random bytes", error))?;
    let name = format!("{PROBE_PREFIX}{}", Nonce::new(nonce));
    let at = path.join(&name);
    let failed = |what: &'static str| {
        let at = at.clone();
        move |error| Error::io(what, error).at(at)
    };
    storage.make_dir(parent, &name).map_err(failed("can't make a directory to measure in"))?;
    let measured = rounds(storage, env, parent, &name, primitive);
    let cleared = storage.open_dir(parent, &name).and_then(|dir| clear(storage, &dir));
    let removed = cleared.and_then(|()| storage.remove_dir(parent, &name));
    let costs = measured.map_err(failed("can't measure what a commit costs"))?;
    removed.map_err(failed("can't remove the directory that was measured in"))?;
    Ok(costs)
}

fn rounds(
    storage: &dyn Storage,
    env: &dyn Env,
    parent: &Dir,
    name: &str,
    primitive: Primitive,
) -> io::Result<Costs> {
    let mut took: [Vec<Duration>; 6] = Default::default();
    for round in 0..ROUNDS {
        let dir = storage.open_dir(parent, name)?;
        let (from, to) = (format!("from-{round}"), format!("to-{round}"));
        let mut at = env.now();
        let began = at;
        let mut lap = |place: usize| {
            let now = env.now();
            if let Some(took) = took.get_mut(place) {
                took.push(now.saturating_sub(at));
            }
            at = now;
        };
        let file = if primitive == Primitive::RenameDirectory {
            storage.make_dir(&dir, &from)?;
            storage.create_exclusive(&storage.open_dir(&dir, &from)?, CONTENT)?
        } else {
            storage.create_exclusive(&dir, &from)?
        };
        write_all_at(storage, &file, &BYTES, 0)?;
        lap(0);
        storage.sync_file(&file)?;
        storage.close(file)?;
        lap(1);
        match primitive {
            Primitive::RenameDirectory => storage.rename(&dir, &from, &dir, &to)?,
            _ => put::put(storage, primitive, &dir, &from, &dir, &to)?,
        }
        put::unstage(storage, primitive, &dir, &from)?;
        lap(2);
        storage.sync_dir(&dir)?;
        lap(3);
        let afresh = storage.open_dir(parent, name)?;
        storage.list(&afresh)?;
        match storage.open(&afresh, "none", Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map(drop)?,
        }
        lap(4);
        if let Some(took) = took.last_mut() {
            took.push(env.now().saturating_sub(began));
        }
    }
    let [write_us, sync_us, publish_us, sync_dir_us, look_us, commit_us] = took.map(median_us);
    Ok(Costs { write_us, sync_us, publish_us, sync_dir_us, look_us, commit_us })
}

fn median_us(mut took: Vec<Duration>) -> u64 {
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    u64::try_from(median.as_micros()).unwrap_or(u64::MAX)
}

fn clear(storage: &dyn Storage, dir: &Dir) -> io::Result<()> {
    for round in 0..ROUNDS {
        for name in [format!("from-{round}"), format!("to-{round}")] {
            if let Ok(inner) = storage.open_dir(dir, &name) {
                absent_is_fine(storage.remove(&inner, CONTENT))?;
                absent_is_fine(storage.remove_dir(dir, &name))?;
            } else {
                absent_is_fine(storage.remove(dir, &name))?;
            }
        }
    }
    Ok(())
}

fn absent_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
