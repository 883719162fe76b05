//! Counts storage calls by kind: what a metadata server is asked for, and what the budgets are held against.
//!
//! - Each call is one relaxed addition; a failed call counts like any other.
//! - Whether a method is a metadata call is said once, by the list it stands in below.
//! - Changes no argument, no result and no handle.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::{Access, Dir, File, Kind, Mapping, Mount, Names, Space, Storage, Word};

macro_rules! calls {
    (metadata: $($metadata:ident)*; bytes: $($bytes:ident)*;) => {
        calls! { every: $($metadata)* $($bytes)*; metadata: $($metadata)*; }
    };
    (every: $($call:ident)*; metadata: $($metadata:ident)*;) => {
        /// How often each method of [`Storage`] was called.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct Calls {
            $(#[doc = concat!("Calls of [`Storage::", stringify!($call), "`].")] pub $call: u64,)*
        }

        impl Calls {
            /// Each method's name and count, metadata calls first.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($call), self.$call)),*].into_iter()
            }

            /// The metadata calls: what every budget counts.
            pub fn metadata(&self) -> u64 {
                0 $(+ self.$metadata)*
            }

            /// The calls made since an earlier count of the same storage.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($call: self.$call.saturating_sub(earlier.$call),)* }
            }
        }

        #[derive(Default)]
        struct Counters {
            $($call: AtomicU64,)*
        }

        impl Counters {
            fn read(&self) -> Calls {
                Calls { $($call: self.$call.load(Ordering::Relaxed),)* }
            }
        }
    };
}

calls! {
    metadata:
        open_root make_root rename_root open_dir create_exclusive open size kind sync_file link rename
        rename_noreplace list make_dir remove_dir sync_dir remove space mount;
    bytes:
        close read_at write_at copy_range map populate map_word wait wake;
}

/// A storage that counts what is asked of another.
pub struct Counting {
    inner: Arc<dyn Storage>,
    counters: Counters,
}

impl Counting {
    /// Counts the calls to `inner`, from zero.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, counters: Counters::default() }
    }

    /// The counts so far. Calls that are under way may or may not be in.
    pub fn calls(&self) -> Calls {
        self.counters.read()
    }
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counting").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The storage behind, once the call is counted.
macro_rules! counted {
    ($self:ident.$call:ident($($argument:expr),*)) => {{
        $self.counters.$call.fetch_add(1, Ordering::Relaxed);
        $self.inner.$call($($argument),*)
    }};
}

#[deny(clippy::missing_trait_methods)]
impl Storage for Counting {
    fn open_root(&self, path: &Path) -> io::Result<Dir> {
        counted!(self.open_root(path))
    }

    fn make_root(&self, path: &Path) -> io::Result<()> {
        counted!(self.make_root(path))
    }

    fn rename_root(&self, from: &Path, to: &Path) -> io::Result<()> {
        counted!(self.rename_root(from, to))
    }

    fn open_dir(&self, parent: &Dir, name: &str) -> io::Result<Dir> {
        counted!(self.open_dir(parent, name))
    }

    fn create_exclusive(&self, dir: &Dir, name: &str) -> io::Result<File> {
        counted!(self.create_exclusive(dir, name))
    }

    fn open(&self, dir: &Dir, name: &str, access: Access) -> io::Result<File> {
        counted!(self.open(dir, name, access))
    }

    fn close(&self, file: File) -> io::Result<()> {
        counted!(self.close(file))
    }

    fn size(&self, file: &File) -> io::Result<u64> {
        counted!(self.size(file))
    }

    fn kind(&self, dir: &Dir, name: &str) -> io::Result<Kind> {
        counted!(self.kind(dir, name))
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        counted!(self.read_at(file, buffer, offset))
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        counted!(self.write_at(file, bytes, offset))
    }

    fn copy_range(
        &self,
        from: &File,
        from_offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        counted!(self.copy_range(from, from_offset, to, to_offset, length))
    }

    fn map(&self, file: &File, length: u64) -> io::Result<Mapping> {
        counted!(self.map(file, length))
    }

    fn populate(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        counted!(self.populate(mapping, range))
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        counted!(self.sync_file(file))
    }

    fn link(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        counted!(self.link(from, from_name, to, to_name))
    }

    fn rename(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        counted!(self.rename(from, from_name, to, to_name))
    }

    fn rename_noreplace(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        counted!(self.rename_noreplace(from, from_name, to, to_name))
    }

    fn list(&self, dir: &Dir) -> io::Result<Names> {
        counted!(self.list(dir))
    }

    fn make_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        counted!(self.make_dir(parent, name))
    }

    fn remove_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        counted!(self.remove_dir(parent, name))
    }

    fn sync_dir(&self, dir: &Dir) -> io::Result<()> {
        counted!(self.sync_dir(dir))
    }

    fn remove(&self, dir: &Dir, name: &str) -> io::Result<()> {
        counted!(self.remove(dir, name))
    }

    fn space(&self, dir: &Dir) -> io::Result<Space> {
        counted!(self.space(dir))
    }

    fn mount(&self, dir: &Dir) -> io::Result<Mount> {
        counted!(self.mount(dir))
    }

    fn map_word(&self, file: &File) -> io::Result<Arc<dyn Word>> {
        counted!(self.map_word(file))
    }

    fn wait(&self, word: &dyn Word, seen: u32, timeout: Duration) -> io::Result<()> {
        counted!(self.wait(word, seen, timeout))
    }

    fn wake(&self, word: &dyn Word) -> io::Result<()> {
        counted!(self.wake(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Posix;

    #[test]
    fn every_call_is_counted_under_its_own_name_and_failed_ones_too() {
        let home = tempfile::tempdir().expect("a directory");
        let storage = Counting::new(Arc::new(Posix::new()));
        let root = storage.open_root(home.path()).expect("the root opens");
        let before = storage.calls();
        let file = storage.create_exclusive(&root, "a").expect("a is free");
        storage.create_exclusive(&root, "a").expect_err("a is taken");
        storage.write_at(&file, b"12345678", 0).expect("written");
        let word = storage.map_word(&file).expect("mapped");
        storage.wait(&*word, 0, Duration::ZERO).expect("the word differs");
        storage.wake(&*word).expect("woken");
        storage.close(file).expect("closed");
        storage.link(&root, "a", &root, "b").expect("b is free");
        let calls = storage.calls().since(&before);
        let counted: Vec<_> = calls.iter().filter(|(_, count)| *count > 0).collect();
        let expected = [
            ("create_exclusive", 2),
            ("link", 1),
            ("close", 1),
            ("write_at", 1),
            ("map_word", 1),
            ("wait", 1),
            ("wake", 1),
        ];
        assert_eq!(counted, expected);
        assert_eq!(calls.metadata(), 3, "two creates and a link");
    }

    #[test]
    fn counts_serialise_as_a_map_by_name() {
        let calls = Calls { link: 3, ..Calls::default() };
        let json = serde_json::to_value(calls).expect("plain numbers");
        assert_eq!((&json["link"], &json["wake"]), (&3.into(), &0.into()));
        assert_eq!(json.as_object().map(serde_json::Map::len), Some(calls.iter().count()));
    }
}
