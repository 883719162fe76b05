//! What the calls of a durable commit cost on a mount, each for itself.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::company::is_there;
use crate::env::Env;
use crate::error::Result;
use crate::options::Primitive;
use crate::storage::probe::{FREE, FROM, Room};
use crate::storage::{Dir, Storage, put, write_all_at};

/// How often each call is made.
const ROUNDS: usize = 16;
/// The bytes of a small commit.
const BYTES: [u8; 4096] = [0; 4096];

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
    Room::with(storage, env, parent, path, |room| {
        let mut took: [Vec<Duration>; 6] = Default::default();
        for _ in 0..ROUNDS {
            room.clear()?;
            round(storage, env, room, primitive, &mut took)?;
        }
        let [write_us, sync_us, publish_us, sync_dir_us, look_us, commit_us] = took.map(median_us);
        Ok(Costs { write_us, sync_us, publish_us, sync_dir_us, look_us, commit_us })
    })
}

/// One commit, call by call; the last of what is noted is all of it.
fn round(
    storage: &dyn Storage,
    env: &dyn Env,
    room: &Room<'_>,
    primitive: Primitive,
    took: &mut [Vec<Duration>; 6],
) -> io::Result<()> {
    let began = env.now();
    let mut at = began;
    let [write, sync, publish, sync_dir, look, commit] = took;
    let mut lap = |took: &mut Vec<Duration>| {
        let now = env.now();
        took.push(now.saturating_sub(at));
        at = now;
    };
    let file = room.create(primitive, FROM)?;
    write_all_at(storage, &file, &BYTES, 0)?;
    lap(write);
    storage.sync_file(&file)?;
    storage.close(file)?;
    lap(sync);
    room.publish(primitive, FREE)?;
    put::unstage(storage, primitive, &room.dir, FROM)?;
    lap(publish);
    storage.sync_dir(&room.dir)?;
    lap(sync_dir);
    let afresh = room.afresh()?;
    storage.list(&afresh)?;
    is_there(storage, &afresh, "none")?;
    lap(look);
    commit.push(env.now().saturating_sub(began));
    Ok(())
}

fn median_us(mut took: Vec<Duration>) -> u64 {
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    u64::try_from(median.as_micros()).unwrap_or(u64::MAX)
}
