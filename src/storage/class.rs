//! Which filesystems are known, and what they are like for readers on other nodes.
//!
//! - Pure: judged by the mount table's type; the magic of statfs stands in where there is none.
//! - A wrong guess must be a slow one: what isn't known is taken for close-to-open.
//! - Exclusive creation can't be seen from one node, so FUSE filesystems that nobody has tried aren't trusted
//!   with it.

use super::Mount;
use crate::error::{Error, ErrorKind, Result};
use crate::options::MountClass;

/// What is known of a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It keeps creation exclusive, and is of this class.
    As(MountClass),
    /// A FUSE filesystem that isn't known to keep creation exclusive, or to show what other nodes make.
    UnknownFuse,
    /// Two writers both win the same name there.
    BreaksExclusivity,
}

/// The class of a mount on which a store is already: whether to trust it was decided when that was made.
///
/// # Errors
/// `Unsupported` for a mount that is known to let two writers win the same name.
pub fn class_of(mount: &Mount) -> Result<MountClass> {
    match known(mount) {
        Known::As(class) => Ok(class),
        Known::UnknownFuse => Ok(MountClass::CloseToOpen),
        Known::BreaksExclusivity => Err(Error::new(ErrorKind::Unsupported, breaks_exclusivity(mount))),
    }
}

/// The sentence for a mount that is refused whatever anyone says.
pub(super) fn breaks_exclusivity(mount: &Mount) -> String {
    format!(
        "{} lets two writers create the same name, so commits would overwrite each other; use the filesystem \
         behind it directly",
        describe(mount),
    )
}

/// The sentence for a mount that has to be vouched for.
pub(super) fn unknown_fuse(mount: &Mount) -> String {
    let doubt = match mount.kind.as_str() {
        // Its options aren't in the mount table, and a node sees its own changes at once.
        "fuse.sshfs" => {
            "hides what other nodes make for 20 s unless each mounts it with -o dir_cache=no, which can't be \
             told from here"
        }
        _ => "is FUSE, and isn't known to let only one writer create a name",
    };
    format!(
        "{} {doubt}; put the store on another filesystem, or, if you know that it will do, allow it \
         (Options::allow_unknown_fuse)",
        describe(mount),
    )
}

/// Names a mount in a sentence: where, and of what type.
pub(super) fn describe(mount: &Mount) -> String {
    let kind = match mount.kind.as_str() {
        "" => format!("filesystem of magic {:#x}", mount.magic),
        kind => format!("{kind} filesystem"),
    };
    match mount.point.display().to_string().as_str() {
        "" => format!("the {kind} here"),
        point => format!("the {kind} mounted at {point}"),
    }
}

/// Judges a mount.
pub(super) fn known(mount: &Mount) -> Known {
    match mount.kind.as_str() {
        "" => by_magic(mount.magic),
        "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "bcachefs" | "f2fs" | "jfs" | "reiserfs" | "nilfs2"
        | "zfs" | "tmpfs" | "ramfs" | "overlay" | "exfat" | "vfat" | "msdos" | "ntfs" | "ntfs3" => {
            Known::As(MountClass::Local)
        }
        "lustre" | "gpfs" | "ceph" | "fuse.ceph" | "fuse.ceph-fuse" | "beegfs" | "gfs2" | "ocfs2"
        | "fuse.glusterfs" | "fuse.mfs" | "fuse.moosefs" => Known::As(MountClass::Coherent),
        "fuse.rclone" => Known::BreaksExclusivity,
        kind if is_fuse(kind) => Known::UnknownFuse,
        // nfs, nfs4, cifs, smb3, 9p, virtiofs, ..., and what nobody here has heard of: the careful class.
        _ => Known::As(MountClass::CloseToOpen),
    }
}

fn is_fuse(kind: &str) -> bool {
    matches!(kind, "fuse" | "fuseblk") || kind.starts_with("fuse.") || kind.starts_with("fuseblk.")
}

fn by_magic(magic: u64) -> Known {
    match magic {
        0xef53           // ext2, ext3, ext4
        | 0x5846_5342    // xfs
        | 0x9123_683e    // btrfs
        | 0xca45_1a4e    // bcachefs
        | 0xf2f5_2010    // f2fs
        | 0x2fc1_2fc1    // zfs
        | 0x0102_1994    // tmpfs
        | 0x8584_58f6    // ramfs
        | 0x794c_7630    // overlay
        | 0x2011_bab0    // exfat
        | 0x4d44         // vfat
        | 0x7366_746e    // ntfs3
            => Known::As(MountClass::Local),
        0x0bd0_0bd0      // lustre
        | 0x4750_4653    // gpfs
        | 0x00c3_6400    // ceph
        | 0x1983_0326    // beegfs
            => Known::As(MountClass::Coherent),
        0x6573_5546 => Known::UnknownFuse,
        _ => Known::As(MountClass::CloseToOpen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    const FUSE: u64 = 0x6573_5546;

    fn mount(kind: &str, magic: u64) -> Mount {
        Mount { kind: kind.to_owned(), magic, options: "rw".to_owned(), point: OsString::from("/data") }
    }

    #[test]
    fn the_type_decides_and_the_magic_only_without_one() {
        for (kind, magic, expected) in [
            ("ext4", 0xef53, Known::As(MountClass::Local)),
            ("tmpfs", 0x0102_1994, Known::As(MountClass::Local)),
            ("lustre", 0x0bd0_0bd0, Known::As(MountClass::Coherent)),
            ("fuse.glusterfs", FUSE, Known::As(MountClass::Coherent)),
            ("fuse.mfs", FUSE, Known::As(MountClass::Coherent)),
            ("fuse.sshfs", FUSE, Known::UnknownFuse),
            ("nfs4", 0x6969, Known::As(MountClass::CloseToOpen)),
            ("virtiofs", FUSE, Known::As(MountClass::CloseToOpen)),
            ("fancyfs", 0xef53, Known::As(MountClass::CloseToOpen)),
            ("fuse.rclone", FUSE, Known::BreaksExclusivity),
            ("fuse", FUSE, Known::UnknownFuse),
            ("fuseblk", FUSE, Known::UnknownFuse),
            ("fuse.bindfs", FUSE, Known::UnknownFuse),
            ("", 0xef53, Known::As(MountClass::Local)),
            ("", 0x4750_4653, Known::As(MountClass::Coherent)),
            ("", 0x6969, Known::As(MountClass::CloseToOpen)),
            ("", FUSE, Known::UnknownFuse),
        ] {
            assert_eq!(known(&mount(kind, magic)), expected, "{kind:?} {magic:#x}");
        }
    }

    #[test]
    fn a_store_on_an_unknown_fuse_opens_carefully_and_behind_rclone_not_at_all() {
        assert_eq!(class_of(&mount("fuse.bindfs", FUSE)).expect("opted in"), MountClass::CloseToOpen);
        let error = class_of(&mount("fuse.rclone", FUSE)).expect_err("never");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.starts_with("the fuse.rclone filesystem mounted at /data lets two writers"), "{text}");
    }

    #[test]
    fn a_mount_that_no_table_shows_is_named_by_its_magic() {
        let nowhere = Mount { point: OsString::new(), ..mount("", 0x6969) };
        assert_eq!(describe(&nowhere), "the filesystem of magic 0x6969 here");
    }
}
