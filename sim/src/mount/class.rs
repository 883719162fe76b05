//! What a node's mount is like: what it says of itself, and what it can't do.

use std::ffi::OsString;

use batchweave::storage::Mount as Facts;

/// How fresh names and bytes of other nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A disk of this host: nothing is ever stale. Says it is ext4; exfat where there are no links.
    Local,
    /// A remote filesystem that keeps its clients' caches coherent: names are fresh.
    Coherent {
        /// Servers over which the names of one directory are spread, and which a listing asks one after the
        /// other. One says it is Lustre, more say Gluster.
        bricks: u32,
    },
    /// NFS: what was looked up is remembered, until its directory is opened afresh.
    CloseToOpen,
}

/// Where a mount makes hard links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Everywhere.
    Everywhere,
    /// Within one directory; across two it answers EXDEV, as with quotas by directory or BeeGFS.
    WithinDirectory,
    /// Nowhere: EPERM, as exfat.
    Nowhere,
}

/// What a mount can't do, and how often it is at its worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Where it makes hard links.
    pub links: Links,
    /// Whether it knows RENAME_NOREPLACE. Where it doesn't, a free name is EINVAL, a taken one still EEXIST.
    pub noreplace: bool,
    /// Whether it is mounted for reading only: what would change it is EROFS.
    pub read_only: bool,
    /// Whether the order of a listing is a matter of chance too.
    pub reorders: bool,
    /// Of so many times that it may answer from a stale cache, or list in another order, it does so once;
    /// never when 0. It is a decision only where that makes a difference.
    pub wild_one_in: u32,
}

impl Class {
    /// Its usual traits: links everywhere; RENAME_NOREPLACE on local disks only, for Lustre, Gluster and NFS
    /// answer EINVAL to it.
    pub fn traits(self) -> Traits {
        Traits {
            links: Links::Everywhere,
            noreplace: self == Self::Local,
            read_only: false,
            reorders: true,
            wild_one_in: 2,
        }
    }

    /// What statfs and the mount table say.
    pub(super) fn facts(self, traits: Traits) -> Facts {
        let (kind, magic) = match self {
            Self::Local if traits.links == Links::Nowhere => ("exfat", 0x2011_bab0),
            Self::Local => ("ext4", 0xef53),
            Self::Coherent { bricks: 0 | 1 } => ("lustre", 0x0bd0_0bd0),
            Self::Coherent { .. } => ("fuse.glusterfs", 0x6573_5546),
            Self::CloseToOpen => ("nfs4", 0x6969),
        };
        let options = if traits.read_only { "ro,relatime" } else { "rw,relatime" };
        let point = OsString::from("/");
        Facts { kind: kind.to_owned(), magic, options: options.to_owned(), point }
    }
}
