//! A filesystem that passes everything on to a directory, except for what the rules say goes wrong.
//!
//! - Nothing is remembered by the kernel: entries and attributes live for no time, so that each operation of
//!   the engine is asked for here.
//! - A file whose sync or close failed has lost what was written into it (zeros), as a page cache loses it:
//!   so who publishes it all the same is found out by whoever reads.
//! - One thread serves a mount, one request after the other.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, WriteFlags,
};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};

use super::nodes::{Nodes, ROOT};
use super::rules::{Operation, Rules, What};

const NOT_FOUND: i32 = 2;
const INVALID: i32 = 22;
/// How long the kernel remembers anything.
const NOT_AT_ALL: Duration = Duration::ZERO;

/// A mount; it ends when this is dropped.
pub(super) struct Mounted {
    nodes: Arc<Mutex<Nodes>>,
    _session: BackgroundSession,
}

impl Mounted {
    /// What is below a directory of the root is gone: the kernel, which may remember it for long, isn't
    /// waited for.
    pub(super) fn let_go(&self, directory: &str) {
        self.nodes.lock().let_go(directory);
    }
}

/// What a mount is like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// A FUSE filesystem that nobody knows, each of whose reads is asked for here.
    Unknown,
    /// It says that it is of a type that the engine knows, and is read through the kernel's page cache, so
    /// that it can be mapped.
    Known,
}

/// Mounts what is in `source` at `point`.
pub(super) fn mount(source: &Path, point: &Path, rules: &Arc<Rules>, manner: Manner) -> io::Result<Mounted> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(source, flags, Mode::empty())?;
    let nodes = Arc::new(Mutex::new(Nodes::new(root)));
    let faulty = Faulty {
        nodes: Arc::clone(&nodes),
        number: rules.mount(),
        rules: Arc::clone(rules),
        open_flags: match manner {
            Manner::Unknown => FopenFlags::FOPEN_DIRECT_IO,
            Manner::Known => FopenFlags::empty(),
        },
    };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("faults".to_owned())];
    if manner == Manner::Known {
        config.mount_options.push(MountOption::CUSTOM("subtype=mfs".to_owned()));
    }
    Ok(Mounted { nodes, _session: Session::new(faulty, point, &config)?.spawn()? })
}

struct Faulty {
    nodes: Arc<Mutex<Nodes>>,
    number: usize,
    rules: Arc<Rules>,
    open_flags: FopenFlags,
}

impl Faulty {
    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        let mut nodes = self.nodes.lock();
        nodes.restarted(self.rules.restarts());
        nodes
    }

    /// Does it, unless the rules say otherwise.
    fn answer<T>(
        &self,
        operation: Operation,
        path: &str,
        act: impl FnOnce(usize) -> io::Result<T>,
    ) -> Result<T, Errno> {
        match self.rules.ask(operation, path) {
            None => Ok(act(usize::MAX)?),
            Some(What::Short(bytes)) => Ok(act(bytes)?),
            Some(What::Restart) => Ok(act(usize::MAX)?),
            Some(What::Fail(errno)) => Err(Errno::from_i32(errno)),
            Some(What::LoseReply(errno)) => {
                act(usize::MAX).map_err(Errno::from).and(Err(Errno::from_i32(errno)))
            }
        }
    }

    fn name_path(&self, parent: INodeNo, name: &OsStr) -> (String, String) {
        let name = name.to_string_lossy().into_owned();
        let path = self.nodes().path(parent.0, &name);
        (name, path)
    }

    /// What the kernel is told of a name that is there.
    fn entry(&self, parent: INodeNo, name: &str) -> io::Result<FileAttr> {
        let (number, stat) = self.nodes().find(parent.0, name)?;
        Ok(attributes(number, &stat))
    }

    fn open_node(&self, node: INodeNo, flags: OFlags) -> io::Result<FileHandle> {
        let mut nodes = self.nodes();
        let found = nodes.node(node.0)?;
        let file = File::from(rustix::fs::open(found.reopened(), flags | OFlags::CLOEXEC, Mode::empty())?);
        let path = found.path.clone();
        Ok(FileHandle(nodes.open(file, path, self.rules.now())?))
    }

    /// The handle's path, for the rules.
    fn path_of(&self, handle: FileHandle) -> String {
        self.nodes().handle(handle.0).map(|open| open.path.clone()).unwrap_or_default()
    }

    /// A sync, or a close: on an error what was written is lost.
    fn sync(&self, operation: Operation, handle: FileHandle) -> Result<(), Errno> {
        let path = self.path_of(handle);
        let synced = self.answer(operation, &path, |_| {
            let mut nodes = self.nodes();
            let open = nodes.handle(handle.0)?;
            if operation == Operation::Fsync {
                open.file.sync_data()?;
                self.rules.synced(open.inode);
            }
            Ok(())
        });
        if synced.is_err()
            && let Ok(open) = self.nodes().handle(handle.0)
            && open.writable
        {
            let length = open.file.metadata().map_or(0, |found| found.len());
            let lost = open.file.set_len(0).and_then(|()| open.file.set_len(length));
            lost.unwrap_or_else(|error| eprintln!("can't lose {path}: {error}"));
        }
        synced
    }
}

fn attributes(number: u64, stat: &Stat) -> FileAttr {
    let directory = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    FileAttr {
        ino: INodeNo(number),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if directory { FileType::Directory } else { FileType::RegularFile },
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Answers with nothing but whether it was done.
fn done(reply: ReplyEmpty, answer: Result<(), Errno>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn entered(reply: ReplyEntry, answer: Result<FileAttr, Errno>) {
    match answer {
        Ok(found) => reply.entry(&NOT_AT_ALL, &found, Generation(0)),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Faulty {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (name, path) = self.name_path(parent, name);
        let found = self.answer(Operation::Lookup, &path, |_| {
            if self.rules.hides(self.number, &path) {
                return Err(io::Error::from_raw_os_error(NOT_FOUND));
            }
            self.entry(parent, &name)
        });
        entered(reply, found);
    }

    fn forget(&self, _: &Request, node: INodeNo, lookups: u64) {
        self.nodes().forget(node.0, lookups);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let path = self.nodes().place(node.0);
        let found = self.answer(Operation::Getattr, &path, |_| self.nodes().stat(node.0));
        match found {
            Ok(stat) => reply.attr(&NOT_AT_ALL, &attributes(node.0, &stat)),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (name, path) = self.name_path(parent, name);
        let made = self.answer(Operation::Mkdir, &path, |_| {
            let mode = Mode::from_raw_mode(mode & !umask);
            rustix::fs::mkdirat(&self.nodes().node(parent.0)?.descriptor, &name, mode)?;
            self.rules.made(self.number, &path, None);
            self.entry(parent, &name)
        });
        entered(reply, made);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, path) = self.name_path(parent, name);
        let removed = self.answer(Operation::Unlink, &path, |_| {
            let nodes = self.nodes();
            Ok(rustix::fs::unlinkat(&nodes.node(parent.0)?.descriptor, &name, AtFlags::empty())?)
        });
        done(reply, removed);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, path) = self.name_path(parent, name);
        let removed = self.answer(Operation::Rmdir, &path, |_| {
            let nodes = self.nodes();
            Ok(rustix::fs::unlinkat(&nodes.node(parent.0)?.descriptor, &name, AtFlags::REMOVEDIR)?)
        });
        done(reply, removed);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let ((name, _), (to_name, path)) = (self.name_path(parent, name), self.name_path(to, to_name));
        // Only the plain rename: so the engine publishes by links here.
        if !flags.is_empty() {
            return reply.error(Errno::from_i32(INVALID));
        }
        let renamed = self.answer(Operation::Rename, &path, |_| {
            let nodes = self.nodes();
            let (from, to) = (&nodes.node(parent.0)?.descriptor, &nodes.node(to.0)?.descriptor);
            rustix::fs::renameat(from, &name, to, &to_name)?;
            let inode = rustix::fs::statat(to, &to_name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino;
            self.rules.made(self.number, &path, Some(inode));
            Ok(())
        });
        done(reply, renamed);
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (name, path) = self.name_path(parent, name);
        // What is about a link knows both names.
        let both = format!("{} -> {path}", self.nodes().place(node.0));
        let linked = self.answer(Operation::Link, &both, |_| {
            {
                let nodes = self.nodes();
                let (from, to) = (nodes.node(node.0)?, nodes.node(parent.0)?);
                rustix::fs::linkat(CWD, from.reopened(), &to.descriptor, &name, AtFlags::SYMLINK_FOLLOW)?;
                let inode = rustix::fs::fstat(&from.descriptor)?.st_ino;
                self.rules.made(self.number, &path, Some(inode));
            }
            self.entry(parent, &name)
        });
        entered(reply, linked);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (name, path) = self.name_path(parent, name);
        let created = self.answer(Operation::Create, &path, |_| {
            let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CREATE | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(mode & !umask);
            let file = rustix::fs::openat(&self.nodes().node(parent.0)?.descriptor, &name, flags, mode)?;
            self.rules.made(self.number, &path, None);
            let found = self.entry(parent, &name)?;
            let handle = self.nodes().open(File::from(file), path.clone(), self.rules.now())?;
            Ok((found, FileHandle(handle)))
        });
        match created {
            Ok((found, handle)) => reply.created(&NOT_AT_ALL, &found, Generation(0), handle, self.open_flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let path = self.nodes().place(node.0);
        let flags = OFlags::from_bits_retain(flags.0 as u32) & OFlags::ACCMODE;
        match self.answer(Operation::Open, &path, |_| self.open_node(node, flags)) {
            Ok(handle) => reply.opened(handle, self.open_flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.answer(Operation::Read, &self.path_of(handle), |most| {
            let mut nodes = self.nodes();
            let mut buffer = vec![0; most.min(size as usize)];
            let file = &nodes.handle(handle.0)?.file;
            let mut length = 0;
            while length < buffer.len() {
                match file.read_at(&mut buffer[length..], offset + length as u64)? {
                    0 => break,
                    more => length += more,
                }
            }
            buffer.truncate(length);
            Ok(buffer)
        });
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.answer(Operation::Write, &self.path_of(handle), |most| {
            let mut nodes = self.nodes();
            let open = nodes.handle(handle.0)?;
            let bytes = &data[..most.min(data.len())];
            open.file.write_all_at(bytes, offset)?;
            self.rules.wrote(open.inode);
            Ok(bytes.len() as u32)
        });
        match written {
            Ok(length) => reply.written(length),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        done(reply, self.sync(Operation::Flush, handle));
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        done(reply, self.sync(Operation::Fsync, handle));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.nodes().release(handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let path = self.nodes().place(node.0);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match self.answer(Operation::Opendir, &path, |_| self.open_node(node, flags)) {
            Ok(handle) => {
                self.rules.opened(self.number, &path);
                reply.opened(handle, FopenFlags::empty());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.answer(Operation::Readdir, &self.path_of(handle), |_| {
            let mut nodes = self.nodes();
            let open = nodes.handle(handle.0)?;
            if offset == 0 {
                open.entries = entries(&open.file)?;
            }
            for (at, (inode, kind, name)) in open.entries.iter().enumerate().skip(offset as usize) {
                if reply.add(INodeNo(*inode), at as u64 + 1, *kind, name) {
                    break;
                }
            }
            Ok(())
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let path = self.path_of(handle);
        let synced = self.answer(Operation::Fsyncdir, &path, |_| {
            Ok(rustix::fs::fsync(&self.nodes().handle(handle.0)?.file)?)
        });
        if let Ok(open) = self.nodes().handle(handle.0) {
            self.rules.synced_directory(&path, open.opened, synced.is_ok());
        }
        done(reply, synced);
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.nodes().release(handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let found = self.answer(Operation::Statfs, "", |_| {
            Ok(rustix::fs::fstatvfs(&self.nodes().node(ROOT)?.descriptor)?)
        });
        match found {
            Ok(of) => {
                let (size, unit) = (of.f_bsize as u32, of.f_frsize as u32);
                reply.statfs(of.f_blocks, of.f_bfree, of.f_bavail, of.f_files, of.f_ffree, size, 255, unit);
            }
            Err(errno) => reply.error(errno),
        }
    }
}

/// The names in a directory.
fn entries(directory: &File) -> io::Result<Vec<(u64, FileType, std::ffi::OsString)>> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let kind = if entry.file_type().is_dir() { FileType::Directory } else { FileType::RegularFile };
        let name = std::os::unix::ffi::OsStrExt::from_bytes(entry.file_name().to_bytes());
        found.push((entry.ino(), kind, OsStr::to_owned(name)));
    }
    Ok(found)
}
