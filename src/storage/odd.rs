//! The running system's storage, but odd: mounts that refuse, lie, hide names or break down at any call.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Access, Dir, File, Kind, Mapping, Mount, Names, Posix, Space, Storage, Word};

/// What a call that publishes does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does {
    Right,
    Fail(i32),
    Replace,
    ClaimToWin,
    MakeADirectory,
}

/// The running system's storage, but odd.
#[derive(Debug)]
pub(crate) struct Odd {
    pub(crate) kind: &'static str,
    pub(crate) link: Does,
    pub(crate) noreplace: Does,
    pub(crate) rename: Does,
    /// No listing shows a name that begins with "mark", ...
    pub(crate) hides_marks: bool,
    /// ... and none is found by opening it to read.
    pub(crate) loses_marks: bool,
    /// The breakable call that fails with EIO, by its number from 1; 0 is none.
    pub(crate) breaks_at: u64,
    pub(crate) calls: AtomicU64,
}

impl Odd {
    pub(crate) fn new() -> Self {
        let right = Does::Right;
        let calls = AtomicU64::new(0);
        Self {
            kind: "ext4",
            link: right,
            noreplace: right,
            rename: right,
            hides_marks: false,
            loses_marks: false,
            breaks_at: 0,
            calls,
        }
    }

    fn call(&self) -> io::Result<()> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if number == self.breaks_at { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    fn act(&self, does: Does, right: impl Fn() -> io::Result<()>, to: &Dir, name: &str) -> io::Result<()> {
        self.call()?;
        match does {
            Does::Right => right(),
            Does::Fail(errno) => Err(io::Error::from_raw_os_error(errno)),
            Does::Replace => Posix.remove(to, name).or(Ok(())).and_then(|()| right()),
            Does::ClaimToWin => right().or(Ok(())),
            Does::MakeADirectory => Posix.make_dir(to, name),
        }
    }
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> io::Result<$out> {
            Posix.$name($($argument),*)
        })*
    };
}

macro_rules! breakable {
    ($($name:ident($($argument:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> io::Result<$out> {
            self.call()?;
            Posix.$name($($argument),*)
        })*
    };
}

impl Storage for Odd {
    // Those that the cleaning needs don't break: what a broken one leaves can't be removed by anyone.
    forward! {
        open_root(path: &Path) -> Dir;
        make_root(path: &Path) -> ();
        rename_root(from: &Path, to: &Path) -> ();
        open_dir(parent: &Dir, name: &str) -> Dir;
        size(file: &File) -> u64;
        kind(dir: &Dir, name: &str) -> Kind;
        copy_range(from: &File, from_offset: u64, to: &File, to_offset: u64, length: u64) -> u64;
        map(file: &File, length: u64) -> Mapping;
        populate(mapping: &Mapping, range: Range<u64>) -> ();
        sync_file(file: &File) -> ();
        remove_dir(parent: &Dir, name: &str) -> ();
        sync_dir(dir: &Dir) -> ();
        remove(dir: &Dir, name: &str) -> ();
        space(dir: &Dir) -> Space;
        map_word(file: &File) -> Arc<dyn Word>;
        wait(word: &dyn Word, seen: u32, timeout: Duration) -> ();
        wake(word: &dyn Word) -> ();
    }

    breakable! {
        create_exclusive(dir: &Dir, name: &str) -> File;
        close(file: File) -> ();
        read_at(file: &File, buffer: &mut [u8], offset: u64) -> usize;
        write_at(file: &File, bytes: &[u8], offset: u64) -> usize;
        make_dir(parent: &Dir, name: &str) -> ();
    }

    fn open(&self, dir: &Dir, name: &str, access: Access) -> io::Result<File> {
        self.call()?;
        if self.loses_marks && name.starts_with("mark") {
            return Err(io::ErrorKind::NotFound.into());
        }
        Posix.open(dir, name, access)
    }

    fn link(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        self.act(self.link, || Posix.link(from, from_name, to, to_name), to, to_name)
    }

    fn rename(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        self.act(self.rename, || Posix.rename(from, from_name, to, to_name), to, to_name)
    }

    fn rename_noreplace(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        self.act(self.noreplace, || Posix.rename_noreplace(from, from_name, to, to_name), to, to_name)
    }

    fn list(&self, dir: &Dir) -> io::Result<Names> {
        self.call()?;
        let names = Posix.list(dir)?;
        Ok(names
            .iter()
            .filter(|name| !self.hides_marks || !name.as_encoded_bytes().starts_with(b"mark"))
            .collect())
    }

    fn mount(&self, _dir: &Dir) -> io::Result<Mount> {
        let (options, point) = (String::new(), OsString::from("/data"));
        Ok(Mount { kind: self.kind.to_owned(), magic: 0, options, point })
    }
}
