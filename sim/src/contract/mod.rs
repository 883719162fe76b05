//! What the engine leans on in a storage, each property a function.
//!
//! - A property gets an empty directory of its own, and panics with a sentence if the storage doesn't keep
//!   it.
//! - What a filesystem may lack (hard links, NOREPLACE, mappings, copying inside) is skipped, and said so.
//! - Nothing here looks at a clock to judge, but that a wake has to come before its wait's timeout of a
//!   minute.

mod bytes;
mod doorbell;
mod names;
mod races;

use std::io;
use std::path::Path;

use batchweave::storage::{Access, Dir, File, Storage, read_exact_at, write_all_at};

use crate::errno;

/// How a property ended that didn't panic.
enum Verdict {
    Kept,
    Skipped(String),
}

type Property = (&'static str, fn(&Ground<'_>) -> Verdict);

/// Where a property is tried.
struct Ground<'a> {
    storage: &'a dyn Storage,
    dir: Dir,
}

/// Holds a storage to the contract, in `root`, which is made if it doesn't exist and should be empty. What
/// was tried is left there.
///
/// # Panics
/// If a property isn't kept, with what was done and what came of it.
pub fn check(storage: &dyn Storage, root: &Path) {
    match storage.make_root(root) {
        Ok(()) => {}
        Err(error) => expect_errno(&error, &[errno::EEXIST], "make_root of a root that may exist"),
    }
    let again = storage.make_root(root).expect_err("make_root made the same root twice");
    expect_errno(&again, &[errno::EEXIST], "make_root of a root that exists");
    let home = storage.open_root(root).expect("open_root of a root that exists");
    let properties = [names::PROPERTIES, bytes::PROPERTIES, doorbell::PROPERTIES, races::PROPERTIES].concat();
    for (name, property) in properties {
        storage
            .make_dir(&home, name)
            .unwrap_or_else(|error| panic!("can't make a directory for {name}: {error}"));
        let dir = storage
            .open_dir(&home, name)
            .unwrap_or_else(|error| panic!("can't open that for {name}: {error}"));
        if let Verdict::Skipped(why) = property(&Ground { storage, dir }) {
            crate::skipped(name, &why);
        }
    }
    names::roots(storage, root);
}

impl Ground<'_> {
    /// A new file of these bytes, closed.
    fn put(&self, name: &str, bytes: &[u8]) {
        let file = self.create(name);
        self.write(&file, bytes, 0);
        self.storage.close(file).expect("close of a file that was written to");
    }

    fn create(&self, name: &str) -> File {
        self.storage
            .create_exclusive(&self.dir, name)
            .unwrap_or_else(|error| panic!("create of {name}: {error}"))
    }

    fn open(&self, name: &str) -> File {
        self.storage
            .open(&self.dir, name, Access::Read)
            .unwrap_or_else(|error| panic!("open of {name}: {error}"))
    }

    fn write(&self, file: &File, bytes: &[u8], offset: u64) {
        write_all_at(self.storage, file, bytes, offset).expect("write");
    }

    /// A file's bytes, all of them.
    fn read(&self, file: &File) -> Vec<u8> {
        let size = self.storage.size(file).expect("size of an open file");
        let mut bytes = vec![0xee; size as usize];
        read_exact_at(self.storage, file, &mut bytes, 0).expect("read of as many bytes as the size says");
        bytes
    }

    fn read_name(&self, name: &str) -> Vec<u8> {
        self.read(&self.open(name))
    }

    fn subdir(&self, name: &str) -> Dir {
        self.storage.make_dir(&self.dir, name).unwrap_or_else(|error| panic!("make_dir of {name}: {error}"));
        self.storage.open_dir(&self.dir, name).unwrap_or_else(|error| panic!("open_dir of {name}: {error}"))
    }

    /// Nothing has the name, whichever call asks.
    fn expect_absent(&self, name: &str) {
        expect_fails(
            self.storage.open(&self.dir, name, Access::Read),
            &[errno::ENOENT],
            "open of an absent name",
        );
        expect_fails(self.storage.kind(&self.dir, name), &[errno::ENOENT], "kind of an absent name");
    }
}

/// Why this mount can't do what was tried, if the error is one of those that say so.
fn unsupported(error: &io::Error, errnos: &[i32]) -> Option<Verdict> {
    let number = error.raw_os_error().filter(|number| errnos.contains(number))?;
    let name = errno::name(number).unwrap_or("errno");
    Some(Verdict::Skipped(format!("this mount answers {name}")))
}

/// The value, or the reason to skip; any other error isn't allowed.
fn or_skip<T>(result: io::Result<T>, errnos: &[i32], what: &str) -> Result<T, Verdict> {
    result.map_err(|error| unsupported(&error, errnos).unwrap_or_else(|| panic!("{what}: {error}")))
}

fn expect_errno(error: &io::Error, errnos: &[i32], what: &str) {
    let allowed: Vec<&str> = errnos.iter().filter_map(|number| errno::name(*number)).collect();
    let found = error.raw_os_error().is_some_and(|number| errnos.contains(&number));
    assert!(found, "{what} has to fail with {}, but said: {error}", allowed.join(" or "));
}

fn expect_fails<T>(result: io::Result<T>, errnos: &[i32], what: &str) {
    match result {
        Ok(_) => panic!("{what} has to fail, but went well"),
        Err(error) => expect_errno(&error, errnos, what),
    }
}
