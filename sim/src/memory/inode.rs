//! Inodes by their numbers: what a client's cache goes by, of which no process knows.
//!
//! - A number is never used again, also after power cuts.

use std::io;
use std::sync::atomic::Ordering;

use batchweave::storage::{Access, Dir, File, Kind};

use super::Memory;
use super::tree::{Body, Id, Node};
use crate::errno::{self, error};

/// What is left of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It has a name.
    Named,
    /// Somebody still has it open.
    Held,
    /// Nothing.
    Gone,
}

impl Memory {
    /// Another number for each client, from 0.
    pub(crate) fn next_client(&self) -> u64 {
        self.shared.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts power cuts.
    pub(crate) fn epoch(&self) -> u64 {
        self.shared.state.lock().epoch
    }

    pub(crate) fn inode_of_dir(&self, dir: &Dir) -> io::Result<Id> {
        self.with_dir(dir).map(|(_, id)| id)
    }

    pub(crate) fn inode_of_file(&self, file: &File) -> io::Result<Id> {
        self.with_file(file).map(|(_, id)| id)
    }

    /// What has a name now.
    pub(crate) fn inode_at(&self, dir: &Dir, name: &str) -> io::Result<Option<Id>> {
        let (state, dir) = self.with_dir(dir)?;
        state.find(dir, name)
    }

    pub(crate) fn left_of(&self, id: Id) -> Left {
        match self.shared.state.lock().nodes.get(&id) {
            Some(node) if node.names > 0 => Left::Named,
            Some(node) if node.handles > 0 => Left::Held,
            _ => Left::Gone,
        }
    }

    pub(crate) fn names_of(&self, id: Id) -> usize {
        self.shared.state.lock().nodes.get(&id).map_or(0, |node| node.names)
    }

    /// What tells an inode from all others in whatever order they were made, and what a file holds.
    pub(crate) fn birth_of(&self, id: Id) -> (u64, u64) {
        match self.shared.state.lock().nodes.get(&id) {
            Some(Node { birth, body: Body::File(content), .. }) => (*birth, content.stamp),
            Some(node) => (node.birth, 0),
            None => (0, 0),
        }
    }

    /// What an inode is, also when it is removed.
    pub(crate) fn kind_of_inode(&self, id: Id) -> Kind {
        match self.shared.state.lock().nodes.get(&id).map(|node| &node.body) {
            Some(Body::Directory(_)) => Kind::Directory,
            _ => Kind::File,
        }
    }

    /// Opens an inode that is there: `ESTALE` if it isn't.
    pub(crate) fn open_inode(&self, id: Id, access: Access) -> io::Result<File> {
        let mut state = self.shared.state.lock();
        if state.nodes.get(&id).is_none_or(|node| node.names + node.handles == 0) {
            return Err(error(errno::ESTALE));
        }
        state.readable(id)?;
        let writable = access == Access::Update;
        if writable {
            state.file(id)?;
        }
        Ok(File::new(self.handle(&mut state, id, writable)))
    }

    /// The same for a directory, which has to have its name.
    pub(crate) fn open_inode_dir(&self, id: Id) -> io::Result<Dir> {
        let mut state = self.shared.state.lock();
        if state.nodes.get(&id).is_none_or(|node| node.names == 0) {
            return Err(error(errno::ESTALE));
        }
        state.directory(id)?;
        state.readable(id)?;
        Ok(Dir::new(self.handle(&mut state, id, false)))
    }
}
