//! Files of a store in memory, by their paths: read, written, taken away.

use std::path::Path;

use batchweave::storage::{Access, Dir, Storage, read_exact_at, write_all_at};
use batchweave_sim::Memory;

/// Where stores lie.
pub const ROOT: &str = "/store";

fn parent<'p>(memory: &Memory, path: &'p str) -> Option<(Dir, &'p str)> {
    let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
    let dir = memory.open_root(&Path::new(ROOT).join(parents)).ok()?;
    Some((dir, name))
}

/// Paths of all files, relative to the store, sorted.
pub fn all(memory: &Memory) -> Vec<String> {
    let inside = |path: String| {
        let path = path.trim_start_matches('/').strip_prefix("store/")?.to_owned();
        (!path.is_empty() && !path.ends_with('/')).then_some(path)
    };
    memory.paths().into_iter().filter_map(inside).collect()
}

/// A file's bytes; none if it isn't there.
pub fn read(memory: &Memory, path: &str) -> Option<Vec<u8>> {
    let (dir, name) = parent(memory, path)?;
    let file = memory.open(&dir, name, Access::Read).ok()?;
    let mut bytes = vec![0; memory.size(&file).ok()? as usize];
    read_exact_at(memory, &file, &mut bytes, 0).ok()?;
    Some(bytes)
}

/// Takes a file, or an empty directory, away.
pub fn remove(memory: &Memory, path: &str) {
    if let Some((dir, name)) = parent(memory, path) {
        let _ = memory.remove(&dir, name).or_else(|_| memory.remove_dir(&dir, name));
    }
}

/// Makes a directory, and those above it.
pub fn make_dir(memory: &Memory, path: &str) {
    if let Some((above, _)) = path.rsplit_once('/') {
        make_dir(memory, above);
    }
    if let Some((dir, name)) = parent(memory, path) {
        let _ = memory.make_dir(&dir, name);
    }
}

/// Puts a file in the place of whatever is there.
pub fn write(memory: &Memory, path: &str, bytes: &[u8]) {
    remove(memory, path);
    if let Some((above, _)) = path.rsplit_once('/') {
        make_dir(memory, above);
    }
    if let Some((dir, name)) = parent(memory, path)
        && let Ok(file) = memory.create_exclusive(&dir, name)
    {
        write_all_at(memory, &file, bytes, 0).expect("room in memory");
    }
}
