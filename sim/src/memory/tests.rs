//! What survives a power cut, and what the calls answer.

use std::collections::BTreeSet;

use super::*;

pub(super) struct Disk {
    pub(super) memory: Memory,
    pub(super) root: Dir,
}

impl Disk {
    pub(super) fn new() -> Self {
        Self::of(Memory::new())
    }

    pub(super) fn of(memory: Memory) -> Self {
        let root = memory.open_root("/".as_ref()).unwrap();
        Self { memory, root }
    }

    /// The disk after a power cut, opened anew.
    pub(super) fn cut(self, keep: impl FnMut(&Unsynced) -> bool) -> Self {
        self.memory.power_cut_keeping(keep);
        Self::of(self.memory)
    }

    pub(super) fn put(&self, dir: &Dir, name: &str, bytes: &[u8]) -> File {
        let file = self.memory.create_exclusive(dir, name).unwrap();
        assert_eq!(self.memory.write_at(&file, bytes, 0).unwrap(), bytes.len());
        file
    }

    pub(super) fn dir(&self, name: &str) -> Dir {
        self.memory.make_dir(&self.root, name).unwrap();
        self.memory.open_dir(&self.root, name).unwrap()
    }

    pub(super) fn read(&self, path: &str) -> Vec<u8> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.memory.open_root(dir.as_ref()).unwrap();
        let file = self.memory.open(&dir, name, Access::Read).unwrap();
        let mut bytes = vec![0; self.memory.size(&file).unwrap() as usize];
        self.memory.read_at(&file, &mut bytes, 0).unwrap();
        bytes
    }
}

pub(super) fn errno_of<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Every outcome that a cut of the same history can have: the answers are counted through in binary.
pub(super) fn outcomes<T: Ord>(history: impl Fn(&Disk), look: impl Fn(&Disk) -> T) -> BTreeSet<T> {
    let mut found = BTreeSet::new();
    let mut answers: Vec<bool> = Vec::new();
    loop {
        let disk = Disk::new();
        history(&disk);
        let mut asked = 0;
        let disk = disk.cut(|_| {
            asked += 1;
            if asked > answers.len() {
                answers.push(false);
            }
            answers[asked - 1]
        });
        found.insert(look(&disk));
        answers.truncate(asked);
        while answers.last() == Some(&true) {
            answers.pop();
        }
        match answers.last_mut() {
            Some(last) => *last = true,
            None => return found,
        }
    }
}

pub(super) fn paths(disk: &Disk) -> String {
    disk.memory.paths().join(" ")
}

#[test]
fn a_publish_with_both_syncs_survives_and_with_one_does_not() {
    for (sync_file, sync_dir, found) in [
        (true, true, "log/ log/0 stage/: bytes"),
        (false, true, "log/ log/0 stage/: "),
        (true, false, "log/ stage/: "),
        (false, false, "log/ stage/: "),
    ] {
        let disk = Disk::new();
        let (stage, log) = (disk.dir("stage"), disk.dir("log"));
        disk.memory.sync_dir(&disk.root).unwrap();
        let file = disk.put(&stage, "x", b"bytes");
        if sync_file {
            disk.memory.sync_file(&file).unwrap();
        }
        disk.memory.link(&stage, "x", &log, "0").unwrap();
        if sync_dir {
            disk.memory.sync_dir(&log).unwrap();
        }
        let disk = disk.cut(|_| false);
        let bytes = if paths(&disk).contains("log/0") { disk.read("log/0") } else { Vec::new() };
        assert_eq!(format!("{}: {}", paths(&disk), String::from_utf8(bytes).unwrap()), found);
    }
}

#[test]
fn a_synced_directory_in_an_unsynced_one_is_lost() {
    let disk = Disk::new();
    let log = disk.dir("log");
    disk.put(&log, "0", b"");
    disk.memory.sync_dir(&log).unwrap();
    assert_eq!(paths(&disk.cut(|_| false)), "");
}

#[test]
fn bytes_fall_back_to_the_last_sync() {
    let disk = Disk::new();
    let file = disk.put(&disk.root, "HEAD", b"old");
    disk.memory.sync_file(&file).unwrap();
    disk.memory.sync_dir(&disk.root).unwrap();
    disk.memory.write_at(&file, b"newer", 0).unwrap();
    assert_eq!(disk.read("HEAD"), b"newer");
    assert_eq!(disk.cut(|_| false).read("HEAD"), b"old");
}

#[test]
fn an_unsynced_removal_is_undone() {
    let disk = Disk::new();
    disk.memory.sync_file(&disk.put(&disk.root, "f", b"bytes")).unwrap();
    disk.memory.sync_dir(&disk.root).unwrap();
    disk.memory.remove(&disk.root, "f").unwrap();
    disk.memory.make_dir(&disk.root, "f").unwrap();
    assert_eq!(paths(&disk), "f/");
    let disk = disk.cut(|_| false);
    assert_eq!(disk.read("f"), b"bytes");
}

#[test]
fn write_back_makes_all_durable() {
    let disk = Disk::new();
    let log = disk.dir("log");
    disk.put(&log, "0", b"bytes");
    disk.memory.write_back();
    let disk = disk.cut(|unsynced| panic!("asked for {unsynced}"));
    assert_eq!(disk.read("log/0"), b"bytes");
}

#[test]
fn handles_of_before_a_cut_are_dead() {
    let disk = Disk::new();
    let file = disk.put(&disk.root, "HEAD", &7_u32.to_le_bytes());
    let word = disk.memory.map_word(&file).unwrap();
    disk.memory.write_back();
    disk.memory.power_cut();
    let dead = Some(errno::ESTALE);
    assert_eq!(errno_of(disk.memory.list(&disk.root)), dead);
    assert_eq!(errno_of(disk.memory.size(&file)), dead);
    assert_eq!(errno_of(disk.memory.wait(&*word, 7, Duration::MAX)), dead);
    assert_eq!(errno_of(disk.memory.close(file)), dead);
    drop(word);
    let disk = Disk::of(disk.memory);
    assert_eq!(disk.memory.list(&disk.root).unwrap(), ["HEAD"]);
    assert_eq!(
        errno_of(Memory::new().list(&disk.root)),
        Some(errno::EBADF),
        "a handle of another filesystem"
    );
}

#[test]
fn every_cut_of_creations_is_reached() {
    let history = |disk: &Disk| {
        disk.put(&disk.root, "a", b"");
        disk.put(&disk.root, "b", b"");
    };
    assert_eq!(outcomes(history, paths), ["", "a", "a b"].map(str::to_owned).into(), "in their order");
}

#[test]
fn creations_in_two_directories_are_kept_in_any_order() {
    let history = |disk: &Disk| {
        let (a, b) = (disk.dir("a"), disk.dir("b"));
        disk.memory.write_back();
        disk.put(&a, "x", b"");
        disk.put(&b, "y", b"");
    };
    let found = ["a/ a/x b/", "a/ a/x b/ b/y", "a/ b/", "a/ b/ b/y"];
    assert_eq!(outcomes(history, paths), found.map(str::to_owned).into());
}

#[test]
fn changes_of_one_name_are_kept_in_order() {
    let history = |disk: &Disk| {
        disk.put(&disk.root, "a", b"");
        disk.memory.remove(&disk.root, "a").unwrap();
        disk.memory.make_dir(&disk.root, "a").unwrap();
    };
    assert_eq!(outcomes(history, paths), ["", "a", "a/"].map(str::to_owned).into());
}

#[test]
fn a_rename_is_never_half_there() {
    let history = |disk: &Disk| {
        let (a, b) = (disk.dir("a"), disk.dir("b"));
        disk.put(&a, "x", b"");
        disk.memory.write_back();
        disk.memory.rename(&a, "x", &b, "y").unwrap();
    };
    assert_eq!(outcomes(history, paths), ["a/ a/x b/", "a/ b/ b/y"].map(str::to_owned).into());
    for side in ["a", "b"] {
        let disk = Disk::new();
        history(&disk);
        let dir = disk.memory.open_dir(&disk.root, side).unwrap();
        disk.memory.sync_dir(&dir).unwrap();
        assert_eq!(paths(&disk.cut(|_| false)), "a/ b/ b/y", "after sync_dir of {side}");
    }
}

#[test]
fn what_moved_into_a_new_directory_is_somewhere() {
    let history = |disk: &Disk| {
        let a = disk.dir("a");
        disk.put(&a, "x", b"");
        disk.memory.write_back();
        let b = disk.dir("b");
        disk.memory.rename(&a, "x", &b, "x").unwrap();
        disk.memory.make_dir(&b, "d").unwrap();
    };
    let found = ["a/ a/x", "a/ a/x b/", "a/ b/ b/d/ b/x", "a/ b/ b/x"];
    assert_eq!(outcomes(history, paths), found.map(str::to_owned).into());
    let disk = Disk::new();
    history(&disk);
    let a = disk.memory.open_dir(&disk.root, "a").unwrap();
    disk.memory.sync_dir(&a).unwrap();
    assert_eq!(paths(&disk.cut(|_| false)), "a/ b/ b/x");
}

#[test]
fn growth_and_pages_are_torn_apart() {
    let history = |disk: &Disk| {
        let file = disk.put(&disk.root, "f", &[1; 10]);
        disk.memory.write_back();
        disk.memory.write_at(&file, &[2; PAGE_BYTES], 5).unwrap();
    };
    let length = PAGE_BYTES + 5;
    let head = |ones: usize, length: usize, twos: std::ops::Range<usize>| {
        let mut bytes = vec![0; length];
        bytes[..ones].fill(1);
        bytes[twos].fill(2);
        bytes
    };
    let expected = [
        head(10, 10, 0..0),
        head(5, 10, 5..10),
        head(10, length, 0..0),
        head(10, length, PAGE_BYTES..length),
        head(5, length, 5..PAGE_BYTES),
        head(5, length, 5..length),
    ];
    assert!(outcomes(history, |disk| disk.read("f")) == expected.into());
}

#[test]
fn what_is_unsynced_is_said_in_words() {
    let disk = Disk::new();
    let log = disk.dir("log");
    let file = disk.put(&disk.root, "x", b"bytes");
    disk.memory.link(&disk.root, "x", &log, "0").unwrap();
    drop(file);
    let mut words = Vec::new();
    disk.cut(|unsynced| {
        words.push(unsynced.to_string());
        true
    });
    let bytes = ["growth of x from 0 to 5 bytes", "page 0 of x"];
    let names = ["make_dir log", "create x", "link x -> log/0"];
    let either = words.iter().map(|word| word.replace("log/0 ", "x ").replace("of log/0", "of x"));
    assert_eq!(either.collect::<Vec<_>>(), [&names[..], &bytes[..]].concat());
}

#[test]
fn room_is_charged_and_given_back() {
    let disk = Disk::new();
    disk.memory.set_capacity(4 * PAGE_BYTES as u64);
    disk.memory.set_inodes(3);
    let free = |disk: &Disk| {
        let space = disk.memory.space(&disk.root).unwrap();
        (space.bytes_free / PAGE_BYTES as u64, space.inodes_free)
    };
    let file = disk.memory.create_exclusive(&disk.root, "f").unwrap();
    assert_eq!(disk.memory.write_at(&file, &[1; 5 * PAGE_BYTES], 0).unwrap(), 4 * PAGE_BYTES);
    assert_eq!(errno_of(disk.memory.write_at(&file, &[1], 4 * PAGE_BYTES as u64)), Some(errno::ENOSPC));
    assert_eq!(disk.memory.write_at(&file, &[2; 9], 0).unwrap(), 9, "what has its room is written over");
    let other = disk.memory.create_exclusive(&disk.root, "g").unwrap();
    assert_eq!(errno_of(disk.memory.make_dir(&disk.root, "d")), Some(errno::ENOSPC));
    assert_eq!(free(&disk), (0, 0));
    disk.memory.remove(&disk.root, "f").unwrap();
    assert_eq!(free(&disk), (0, 0), "it is still open");
    drop(file);
    assert_eq!(free(&disk), (4, 1));
    disk.memory.write_at(&other, &[1], 0).unwrap();
    let disk = disk.cut(|_| false);
    assert_eq!(free(&disk), (4, 2));
}

#[test]
fn what_nobody_can_reach_is_forgotten() {
    let disk = Disk::new();
    for _ in 0..10_000 {
        drop(disk.put(&disk.root, "f", b"bytes"));
        disk.memory.remove(&disk.root, "f").unwrap();
        disk.memory.write_back();
    }
    let nodes = disk.memory.shared.state.lock().nodes.len();
    assert!(nodes < 3000, "{nodes} nodes are kept");
}

#[test]
fn errnos_of_odd_renames() {
    let disk = Disk::new();
    let a = disk.dir("a");
    disk.memory.make_dir(&a, "b").unwrap();
    let b = disk.memory.open_dir(&a, "b").unwrap();
    disk.put(&b, "f", b"");
    let rename =
        |from: &Dir, name: &str, to: &Dir, to_name: &str| disk.memory.rename(from, name, to, to_name);
    assert_eq!(errno_of(rename(&disk.root, "a", &b, "x")), Some(errno::EINVAL), "into itself");
    assert_eq!(errno_of(rename(&b, "f", &disk.root, "a")), Some(errno::ENOTEMPTY), "onto what it is in");
    disk.memory.link(&b, "f", &b, "g").unwrap();
    rename(&b, "f", &b, "g").unwrap();
    assert_eq!(paths(&disk), "a/ a/b/ a/b/f a/b/g", "rename between two names of one file does nothing");
    assert_eq!(errno_of(disk.memory.rename_noreplace(&b, "f", &b, "f")), Some(errno::EEXIST));
    assert_eq!(
        errno_of(disk.memory.link(&disk.root, "a", &b, "x")),
        Some(errno::EPERM),
        "link of a directory"
    );
}

#[test]
fn a_synced_rename_takes_earlier_changes_of_its_names_along() {
    let disk = Disk::new();
    let (a, b) = (disk.dir("a"), disk.dir("b"));
    disk.put(&a, "y", b"");
    disk.put(&b, "x", b"");
    disk.memory.write_back();
    disk.memory.remove(&b, "x").unwrap();
    disk.memory.rename(&a, "y", &b, "x").unwrap();
    disk.memory.sync_dir(&a).unwrap();
    disk.memory.sync_dir(&b).unwrap();
    assert_eq!(paths(&disk.cut(|_| false)), "a/ b/ b/x", "the removal came after what replaced it");
}

#[test]
fn a_fork_goes_its_own_way_durable_and_not() {
    let disk = Disk::new();
    let dir = disk.dir("log");
    disk.memory.sync_dir(&disk.root).unwrap();
    let file = disk.put(&dir, "old", b"old");
    disk.memory.sync_file(&file).unwrap();
    disk.memory.sync_dir(&dir).unwrap();
    disk.put(&dir, "new", b"new");
    let fork = Disk::of(disk.memory.fork());
    disk.memory.remove(&dir, "old").unwrap();
    assert_eq!(fork.read("log/old"), b"old");
    assert_eq!(errno_of(fork.memory.list(&dir)), Some(errno::EBADF), "handles stay with their filesystem");
    let fork_dir = fork.memory.open_dir(&fork.root, "log").unwrap();
    fork.put(&fork_dir, "mine", b"mine");
    assert_eq!(disk.memory.paths(), ["log/", "log/new"]);
    let fork = fork.cut(|_| false);
    assert_eq!(fork.memory.paths(), ["log/", "log/old"]);
}

#[test]
fn a_fork_gives_back_the_room_of_what_only_a_handle_held() {
    let disk = Disk::new();
    let held = disk.put(&disk.root, "held", &[1; 4096]);
    disk.memory.remove(&disk.root, "held").unwrap();
    let fork = Disk::of(disk.memory.fork());
    let free = |disk: &Disk| disk.memory.space(&disk.root).unwrap().bytes_free;
    assert_eq!(free(&fork), free(&disk) + 4096);
    drop(held);
    assert_eq!(free(&fork), free(&disk));
}
