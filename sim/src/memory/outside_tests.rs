//! Syncs that fail, disks that break, files that others delete, and the look at the whole.

use std::collections::BTreeSet;

use super::tests::{Disk, errno_of, outcomes, paths};
use super::*;

#[test]
fn a_sync_after_a_failed_one_goes_well_without_its_bytes() {
    let history = |disk: &Disk| {
        let file = disk.put(&disk.root, "f", &[1; 2 * PAGE_BYTES]);
        disk.memory.write_back();
        disk.memory.write_at(&file, &[2; PAGE_BYTES], 0).unwrap();
        disk.memory.fail_sync_file(&file).unwrap();
        disk.memory.write_at(&file, &[3], PAGE_BYTES as u64).unwrap();
        disk.memory.sync_file(&file).unwrap();
    };
    let disk = Disk::new();
    history(&disk);
    assert_eq!(disk.read("f")[..1], [2], "it is still in the cache");
    let ends = |disk: &Disk| [disk.read("f")[0], disk.read("f")[PAGE_BYTES]];
    assert_eq!(ends(&disk.cut(|_| false)), [1, 3], "what was written since is durable, the rest is not");
    assert_eq!(outcomes(history, ends), [[1, 3], [2, 3]].into(), "but the disk may have got it");
}

#[test]
fn growth_that_a_failed_sync_gave_up_is_not_synced_later() {
    let disk = Disk::new();
    let file = disk.put(&disk.root, "f", b"bytes");
    disk.memory.write_back();
    disk.memory.write_at(&file, b" more", 5).unwrap();
    disk.memory.fail_sync_file(&file).unwrap();
    disk.memory.write_back();
    disk.memory.sync_file(&file).unwrap();
    let again = Disk::of(disk.memory.fork());
    assert_eq!(disk.cut(|_| false).read("f"), b"bytes");
    let file = again.memory.open(&again.root, "f", Access::Update).unwrap();
    again.memory.write_at(&file, b"bytes more", 0).unwrap();
    again.memory.sync_file(&file).unwrap();
    assert_eq!(again.cut(|_| false).read("f"), b"bytes more", "what is written anew is dirty again");
}

#[test]
fn names_that_a_failed_sync_gave_up_are_not_synced_later() {
    let history = |disk: &Disk| {
        disk.put(&disk.root, "a", b"");
        disk.memory.fail_sync_dir(&disk.root).unwrap();
        disk.put(&disk.root, "b", b"");
        disk.memory.rename(&disk.root, "a", &disk.root, "c").unwrap();
        disk.memory.sync_dir(&disk.root).unwrap();
        disk.memory.write_back();
    };
    // "c" needs that "a" was made.
    assert_eq!(outcomes(history, paths), ["a b", "b", "b c"].map(str::to_owned).into());
    let disk = Disk::new();
    history(&disk);
    assert_eq!(paths(&disk.cut(|_| false)), "b");
}

#[test]
fn a_failed_sync_is_told_once_through_each_handle_and_one_opened_later_syncs_all() {
    let disk = Disk::new();
    let (dir, other) = (disk.dir("d"), disk.memory.open_dir(&disk.root, "d").unwrap());
    disk.memory.write_back();
    disk.put(&dir, "a", b"");
    disk.memory.fail_sync_dir(&dir).unwrap();
    disk.memory.sync_dir(&dir).expect("it was told by the failed sync itself");
    assert_eq!(errno_of(disk.memory.sync_dir(&other)), Some(errno::EIO), "open then, not told yet");
    disk.memory.sync_dir(&other).expect("told once");
    let copy = disk.memory.fork();
    copy.power_cut();
    assert_eq!(copy.paths(), ["d/"], "and nothing was made durable");
    let afresh = disk.memory.open_dir(&disk.root, "d").unwrap();
    disk.memory.sync_dir(&afresh).unwrap();
    assert_eq!(paths(&disk.cut(|_| false)), "d/ d/a");
}

#[test]
fn nothing_is_renamed_into_a_directory_that_is_lost() {
    let disk = Disk::new();
    let a = disk.dir("a");
    disk.put(&a, "x", b"");
    disk.memory.write_back();
    let b = disk.dir("b");
    disk.memory.fail_sync_dir(&disk.root).unwrap();
    disk.memory.rename(&a, "x", &b, "x").unwrap();
    disk.memory.sync_dir(&a).unwrap();
    assert_eq!(paths(&disk.cut(|_| false)), "a/ a/x", "the file has to be somewhere");
}

#[test]
fn what_is_unreadable_is_so_under_every_name_and_after_a_cut() {
    let disk = Disk::new();
    let dir = disk.dir("d");
    let file = disk.put(&dir, "f", b"bytes");
    disk.memory.link(&dir, "f", &disk.root, "g").unwrap();
    disk.memory.write_back();
    let eio = Some(errno::EIO);
    assert!(disk.memory.unreadable("d/f", true) && !disk.memory.unreadable("d/absent", true));
    assert_eq!(errno_of(disk.memory.read_at(&file, &mut [0], 0)), eio);
    assert_eq!(errno_of(disk.memory.map(&file, 1)), eio);
    assert_eq!(errno_of(disk.memory.copy_range(&file, 0, &file, 9, 1)), eio);
    let disk = disk.cut(|_| false);
    assert_eq!(errno_of(disk.memory.open(&disk.root, "g", Access::Read)), eio);
    assert!(disk.memory.unreadable("g", false));
    assert_eq!(disk.read("d/f"), b"bytes");
    let dir = disk.memory.open_dir(&disk.root, "d").unwrap();
    assert!(disk.memory.unreadable("d", true));
    assert_eq!(errno_of(disk.memory.list(&dir)), eio);
    assert_eq!(errno_of(disk.memory.open_dir(&disk.root, "d")), eio);
}

#[test]
fn what_is_purged_does_not_come_back() {
    let history = |disk: &Disk| {
        let (a, b) = (disk.dir("a"), disk.dir("b"));
        disk.put(&a, "x", b"");
        disk.memory.write_back();
        disk.put(&a, "y", b"");
        disk.memory.fail_sync_dir(&a).unwrap();
        disk.memory.rename(&a, "x", &b, "x").unwrap();
        assert!(disk.memory.purge("b/x") && disk.memory.purge("/a/y"));
        assert!(!disk.memory.purge("b/x") && !disk.memory.purge("b") && !disk.memory.purge("/"));
    };
    assert_eq!(outcomes(history, paths), BTreeSet::from(["a/ b/".to_owned()]));
}

#[test]
fn a_fingerprint_is_of_names_and_bytes_alone() {
    let one = Disk::new();
    one.put(&one.root, "a", b"a");
    one.put(&one.root, "b", b"b");
    let other = Disk::new();
    other.put(&other.root, "b", b"b");
    other.put(&other.root, "x", b"a");
    other.memory.rename(&other.root, "x", &other.root, "a").unwrap();
    let print = one.memory.fingerprint();
    assert_eq!(print, other.memory.fingerprint());
    assert_eq!(print, one.memory.fork().fingerprint());
    let differs = |what: &str, change: &dyn Fn(&Disk)| {
        let fork = Disk::of(one.memory.fork());
        change(&fork);
        assert_ne!(print, fork.memory.fingerprint(), "{what}");
    };
    differs("a name more", &|disk| disk.memory.link(&disk.root, "a", &disk.root, "c").unwrap());
    let other = Disk::of(one.memory.fork());
    one.memory.link(&one.root, "a", &one.root, "c").unwrap();
    other.put(&other.root, "c", b"a");
    assert_ne!(one.memory.fingerprint(), other.memory.fingerprint(), "a second name isn't a second file");
    one.memory.remove(&one.root, "c").unwrap();
    differs("a name less", &|disk| disk.memory.remove(&disk.root, "a").unwrap());
    differs("a directory", &|disk| {
        disk.memory.remove(&disk.root, "a").unwrap();
        disk.memory.make_dir(&disk.root, "a").unwrap();
    });
    differs("other bytes", &|disk| {
        let file = disk.memory.open(&disk.root, "a", Access::Update).unwrap();
        disk.memory.write_at(&file, b"c", 0).unwrap();
    });
    differs("nothing left", &|disk| disk.memory.power_cut());
    differs("unreadable", &|disk| assert!(disk.memory.unreadable("a", true)));
}

#[test]
fn the_durable_fingerprint_is_of_what_a_cut_leaves() {
    let disk = Disk::new();
    let file = disk.put(&disk.root, "f", b"old");
    let empty = Memory::new().durable_fingerprint();
    assert_eq!(disk.memory.durable_fingerprint(), empty);
    disk.memory.sync_dir(&disk.root).unwrap();
    let named = disk.memory.durable_fingerprint();
    assert_ne!(named, empty);
    disk.memory.fail_sync_file(&file).unwrap();
    disk.memory.sync_file(&file).unwrap();
    disk.memory.write_at(&file, b"new", 0).unwrap();
    disk.memory.sync_file(&file).unwrap();
    assert_ne!(disk.memory.durable_fingerprint(), named);
    disk.memory.power_cut();
    let disk = Disk::of(disk.memory);
    let file = disk.memory.open(&disk.root, "f", Access::Update).unwrap();
    disk.memory.write_at(&file, b"newest", 0).unwrap();
    disk.memory.sync_file(&file).unwrap();
    let synced = disk.memory.durable_fingerprint();
    disk.memory.write_at(&file, b"newer", 0).unwrap();
    assert_eq!(disk.memory.durable_fingerprint(), synced);
    disk.memory.power_cut();
    assert_eq!(disk.memory.durable_fingerprint(), synced);
}
