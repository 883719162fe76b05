//! What each class of mount says, allows and lets others see.

use std::sync::Weak;
use std::time::Duration;

use batchweave::MountClass;
use batchweave::storage::{Access, Kind, Storage, Word, class_of};

use super::*;

/// A node, and its root directory.
pub(super) struct Node {
    pub(super) mount: Mount,
    pub(super) root: Dir,
}

/// Never stale.
pub(super) const TAME: u32 = 0;
/// Stale whenever it can be.
pub(super) const WILD: u32 = 1;

impl Node {
    pub(super) fn of(memory: &Memory, class: Class, wild_one_in: u32) -> Self {
        Self::with(memory, class, Traits { wild_one_in, ..class.traits() }, Arc::new(Alone))
    }

    fn with(memory: &Memory, class: Class, traits: Traits, pause: Arc<dyn Pause>) -> Self {
        Self::drawing(memory, class, traits, Choices::replay(Vec::new()), pause)
    }

    pub(super) fn drawing(
        memory: &Memory,
        class: Class,
        traits: Traits,
        choices: Choices,
        pause: Arc<dyn Pause>,
    ) -> Self {
        let mount = Mount::with_traits(memory.clone(), class, traits, choices, pause);
        let root = mount.open_root("/".as_ref()).unwrap();
        Self { mount, root }
    }

    /// Two nodes of close-to-open, the second stale whenever it can be.
    pub(super) fn two() -> (Self, Self) {
        let memory = Memory::new();
        (Self::of(&memory, Class::CloseToOpen, TAME), Self::of(&memory, Class::CloseToOpen, WILD))
    }

    pub(super) fn put(&self, name: &str, bytes: &[u8]) {
        let file = self.mount.create_exclusive(&self.root, name).unwrap();
        self.mount.write_at(&file, bytes, 0).unwrap();
        self.mount.close(file).unwrap();
    }

    pub(super) fn open(&self, name: &str) -> io::Result<File> {
        self.mount.open(&self.root, name, Access::Read)
    }

    pub(super) fn subdir(&self, name: &str) -> Dir {
        self.mount.make_dir(&self.root, name).unwrap();
        self.mount.open_dir(&self.root, name).unwrap()
    }

    /// The root opened afresh.
    pub(super) fn afresh(&mut self) {
        self.root = self.mount.open_root("/".as_ref()).unwrap();
    }

    pub(super) fn names(&self) -> Vec<String> {
        let names = self.mount.list(&self.root).unwrap().into_iter();
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(super) fn errno_of<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Does something where others are let go on, and hears who sleeps and wakes.
#[derive(Default)]
pub(super) struct Meanwhile {
    act: Mutex<Option<Box<dyn FnMut() + Send>>>,
    heard: Mutex<Vec<(&'static str, u64)>>,
}

impl Meanwhile {
    pub(super) fn does(act: impl FnMut() + Send + 'static) -> Arc<Self> {
        Arc::new(Self { act: Mutex::new(Some(Box::new(act))), heard: Mutex::default() })
    }
}

impl Pause for Meanwhile {
    fn pause(&self, _seen: u64) {
        if let Some(act) = &mut *self.act.lock() {
            act();
        }
    }

    fn wait_on(&self, key: u64, _timeout: Duration) {
        self.heard.lock().push(("waits", key));
    }

    fn wake(&self, key: u64) {
        self.heard.lock().push(("wakes", key));
    }
}

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

#[test]
fn the_engine_takes_each_class_for_what_it_is() {
    for (class, links, kind, expected) in [
        (Class::Local, Links::Everywhere, "ext4", MountClass::Local),
        (Class::Local, Links::Nowhere, "exfat", MountClass::Local),
        (Class::Coherent { bricks: 1 }, Links::Everywhere, "lustre", MountClass::Coherent),
        (Class::Coherent { bricks: 2 }, Links::Everywhere, "fuse.glusterfs", MountClass::Coherent),
        (Class::CloseToOpen, Links::Everywhere, "nfs4", MountClass::CloseToOpen),
    ] {
        let node = Node::with(&Memory::new(), class, Traits { links, ..class.traits() }, Arc::new(Alone));
        let mount = node.mount.mount(&node.root).unwrap();
        assert_eq!((mount.kind.as_str(), class_of(&mount).unwrap()), (kind, expected));
    }
}

#[test]
fn a_listing_over_bricks_misses_a_name_and_shows_a_later_one() {
    let memory = Memory::new();
    let other = Node::of(&memory, Class::Local, TAME);
    let names: Vec<String> = (0..16).map(|n| n.to_string()).collect();
    let made = names.clone();
    let mut made = made.into_iter();
    let meanwhile = Meanwhile::does(move || made.by_ref().for_each(|name| other.put(&name, b"")));
    let class = Class::Coherent { bricks: 2 };
    let node = Node::with(&memory, class, Traits { wild_one_in: TAME, ..class.traits() }, meanwhile);
    let seen = node.names();
    assert!(!seen.is_empty() && seen.len() < names.len(), "{seen:?}");
    assert_eq!(node.names().len(), names.len());
}

#[test]
fn on_remote_mounts_a_removed_directory_is_stale_also_in_the_middle_of_a_listing() {
    for (class, expected) in [
        (Class::Local, errno::ENOENT),
        (Class::Coherent { bricks: 3 }, errno::ESTALE),
        (Class::CloseToOpen, errno::ESTALE),
    ] {
        let memory = Memory::new();
        let node = Node::of(&memory, class, TAME);
        let dir = node.subdir("d");
        let other = Node::of(&memory, Class::Local, TAME);
        other.mount.remove_dir(&other.root, "d").unwrap();
        for result in [
            node.mount.list(&dir).map(drop),
            node.mount.create_exclusive(&dir, "f").map(drop),
            node.mount.rename(&node.root, "f", &dir, "f"),
        ] {
            assert_eq!(errno_of(result), Some(expected), "{class:?}");
        }
    }
    let memory = Memory::new();
    let other = Node::of(&memory, Class::Local, TAME);
    other.mount.make_dir(&other.root, "d").unwrap();
    let meanwhile = Meanwhile::does(move || other.mount.remove_dir(&other.root, "d").unwrap());
    let class = Class::Coherent { bricks: 2 };
    let node = Node::with(&memory, class, class.traits(), meanwhile);
    let dir = node.mount.open_dir(&node.root, "d").unwrap();
    assert_eq!(errno_of(node.mount.list(&dir)), Some(errno::ESTALE));
}

#[test]
fn no_order_is_promised() {
    let memory = Memory::new();
    let node = Node::of(&memory, Class::Local, WILD);
    for name in ["a", "b", "c"] {
        node.put(name, b"");
    }
    assert_eq!(node.mount.list(&node.root).unwrap(), ["b", "c", "a"]);
}

#[test]
fn links_are_made_where_the_mount_makes_them() {
    let link = |links, class: Class| {
        let node = Node::with(&Memory::new(), class, Traits { links, ..class.traits() }, Arc::new(Alone));
        node.put("f", b"");
        let dir = node.subdir("d");
        let within = node.mount.link(&node.root, "f", &node.root, "g");
        (errno_of(within), errno_of(node.mount.link(&node.root, "f", &dir, "f")))
    };
    assert_eq!(link(Links::Everywhere, Class::CloseToOpen), (None, None));
    let crosses = Some(errno::EXDEV);
    assert_eq!(link(Links::WithinDirectory, Class::Coherent { bricks: 1 }), (None, crosses));
    let never = Some(errno::EPERM);
    assert_eq!(link(Links::Nowhere, Class::Local), (never, never));
}

#[test]
fn remote_mounts_do_not_know_noreplace() {
    for class in [Class::Coherent { bricks: 1 }, Class::Coherent { bricks: 2 }, Class::CloseToOpen] {
        let node = Node::of(&Memory::new(), class, TAME);
        node.put("f", b"");
        node.put("taken", b"");
        let rename = |from, to| errno_of(node.mount.rename_noreplace(&node.root, from, &node.root, to));
        assert_eq!(rename("f", "free"), Some(errno::EINVAL));
        assert_eq!(rename("f", "taken"), Some(errno::EEXIST), "the kernel says so");
        assert_eq!(rename("absent", "free"), Some(errno::ENOENT));
        assert_eq!(node.names(), ["f", "taken"]);
    }
}

#[test]
fn nothing_changes_through_a_mount_for_reading() {
    let memory = Memory::new();
    let writer = Node::of(&memory, Class::CloseToOpen, TAME);
    writer.put("f", b"bytes");
    writer.subdir("d");
    let traits = Traits { read_only: true, ..Class::CloseToOpen.traits() };
    let reader = Node::with(&memory, Class::CloseToOpen, traits, Arc::new(Alone));
    let (mount, root) = (&reader.mount, &reader.root);
    for (number, result) in [
        mount.make_root("/new".as_ref()),
        mount.create_exclusive(root, "new").map(drop),
        mount.open(root, "f", Access::Update).map(drop),
        mount.link(root, "f", root, "new"),
        mount.rename(root, "f", root, "new"),
        mount.rename_noreplace(root, "f", root, "new"),
        mount.make_dir(root, "new"),
        mount.remove_dir(root, "d"),
        mount.remove(root, "f"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(errno_of(result), Some(errno::EROFS), "call {number}");
    }
    assert_eq!(errno_of(mount.make_root("/d".as_ref())), Some(errno::EEXIST));
    assert_eq!(errno_of(mount.make_dir(root, "f")), Some(errno::EEXIST));
    assert_eq!(mount.size(&reader.open("f").unwrap()).unwrap(), 5);
    assert_eq!(mount.kind(root, "d").unwrap(), Kind::Directory);
    assert_eq!(memory.paths(), ["d/", "f"]);
}

#[test]
fn a_doorbell_is_heard_on_its_own_node_only() {
    let memory = Memory::new();
    let pause = Arc::new(Meanwhile::default());
    let node = || Node::with(&memory, Class::Local, Class::Local.traits(), Arc::clone(&pause) as _);
    let (here, there) = (node(), node());
    here.put("HEAD", &7_u32.to_le_bytes());
    here.put("other", &7_u32.to_le_bytes());
    let word = |node: &Node, name| node.mount.map_word(&node.open(name).unwrap()).unwrap();
    let ring = |node: &Node, word: &dyn Word| node.mount.wake(word).unwrap();
    let head = word(&here, "HEAD");
    here.mount.wait(&*head, 8, Duration::MAX).unwrap();
    assert!(pause.heard.lock().is_empty(), "it slept although the word differs");
    here.mount.wait(&*head, 7, Duration::MAX).unwrap();
    ring(&here, &*word(&here, "HEAD"));
    ring(&here, &*word(&here, "other"));
    ring(&there, &*word(&there, "HEAD"));
    let heard = pause.heard.lock().clone();
    let [("waits", key), ("wakes", same), ("wakes", other), ("wakes", elsewhere)] = heard[..] else {
        panic!("{heard:?}");
    };
    assert_eq!(key, same);
    assert!(key != other && key != elsewhere && other != elsewhere);
    assert_eq!(errno_of(there.mount.wake(&*head)), Some(errno::EBADF), "another node's word");
    memory.power_cut();
    assert_eq!(head.load(), 0);
    assert_eq!(errno_of(here.mount.wait(&*head, 0, Duration::MAX)), Some(errno::ESTALE));
}

#[test]
fn handles_of_a_crashed_node_and_of_before_a_power_cut_are_dead() {
    let memory = Memory::new();
    let mut node = Node::of(&memory, Class::Local, TAME);
    let mut dead = Vec::new();
    for round in 0..2 {
        node.put(&round.to_string(), b"");
        let file = node.open(&round.to_string()).unwrap();
        dead.push((node.root.clone(), file));
        if round == 0 {
            node.mount.crash();
        } else {
            memory.power_cut();
        }
        for (dir, file) in &dead {
            assert_eq!(errno_of(node.mount.list(dir)), Some(errno::ESTALE));
            assert_eq!(errno_of(node.mount.size(file)), Some(errno::ESTALE));
        }
        node.afresh();
    }
    assert!(node.names().is_empty(), "the crash of a client loses nothing on the server, the cut does");
}

#[test]
fn a_mount_that_nobody_has_any_more_is_gone() {
    let node = Node::of(&Memory::new(), Class::CloseToOpen, TAME);
    let shared: Weak<Shared> = Arc::downgrade(&node.mount.shared);
    let file = node.mount.create_exclusive(&node.root, "f").unwrap();
    node.mount.write_at(&file, b"bytes", 0).unwrap();
    node.mount.remove(&node.root, "f").unwrap();
    drop((node, file));
    assert_eq!(shared.strong_count(), 0, "handles and the mount hold each other");
}
