//! Names on a close-to-open mount: what stays stale, and what makes it fresh.

use batchweave::storage::{Access, Kind, Storage};

use super::tests::{Meanwhile, Node, WILD, errno_of};
use super::*;

const ENOENT: Option<i32> = Some(errno::ENOENT);
const ESTALE: Option<i32> = Some(errno::ESTALE);
const EEXIST: Option<i32> = Some(errno::EEXIST);

#[test]
fn a_no_is_remembered_until_the_directory_is_opened_afresh() {
    let (a, mut b) = Node::two();
    assert_eq!(errno_of(b.open("f")), ENOENT);
    assert_eq!(errno_of(b.mount.open_dir(&b.root, "d")), ENOENT);
    a.put("f", b"");
    let d = a.subdir("d");
    assert_eq!(errno_of(b.open("f")), ENOENT);
    assert_eq!(errno_of(b.mount.kind(&b.root, "f")), ENOENT);
    assert_eq!(errno_of(b.mount.open_dir(&b.root, "d")), ENOENT, "its own name is its parent's affair");
    a.mount.create_exclusive(&d, "x").unwrap();
    let old = b.root.clone();
    b.afresh();
    b.mount.open(&old, "f", Access::Read).expect("one of this node's handles opened afresh will do");
    assert_eq!(b.mount.kind(&b.root, "f").unwrap(), Kind::File);
    let d = b.mount.open_dir(&b.root, "d").unwrap();
    b.mount.open(&d, "x", Access::Read).unwrap();
}

#[test]
fn a_no_that_nobody_asked_for_is_not_remembered_and_clones_remember_together() {
    let (a, b) = Node::two();
    let clone = b.mount.clone();
    assert_eq!(errno_of(clone.open(&b.root, "f", Access::Read)), ENOENT);
    a.put("f", b"");
    a.put("g", b"");
    assert_eq!(errno_of(b.open("f")), ENOENT);
    b.open("g").unwrap();
}

#[test]
fn a_stale_answer_is_a_choice_each_time_and_only_where_it_differs() {
    let memory = Memory::new();
    let class = Class::CloseToOpen;
    let choices = Choices::replay(vec![1, 0]);
    let b = Node::drawing(&memory, class, class.traits(), choices.clone(), Arc::new(Alone));
    let a = Node::of(&memory, class, 0);
    assert_eq!(errno_of(b.open("f")), ENOENT);
    assert_eq!(errno_of(b.open("f")), ENOENT);
    assert!(choices.taken().is_empty(), "nothing is there, however fresh the answer");
    a.put("f", b"");
    assert_eq!(errno_of(b.open("f")), ENOENT);
    b.open("f").unwrap();
    b.open("f").unwrap();
    assert_eq!(choices.taken().len(), 2, "once it has asked, it knows");
}

#[test]
fn what_makes_a_name_is_fresh_and_the_maker_knows_it() {
    let (a, b) = Node::two();
    let names = ["f", "g", "h", "i", "mine"];
    for name in names {
        assert_eq!(errno_of(b.open(name)), ENOENT);
    }
    for name in &names[..4] {
        a.put(name, b"");
    }
    b.put("source", b"");
    assert_eq!(errno_of(b.mount.create_exclusive(&b.root, "f")), EEXIST);
    assert_eq!(errno_of(b.mount.make_dir(&b.root, "g")), EEXIST);
    assert_eq!(errno_of(b.mount.link(&b.root, "source", &b.root, "h")), EEXIST);
    assert_eq!(errno_of(b.open("h")), ENOENT, "after losing it, the name may still seem free");
    b.mount.rename(&b.root, "source", &b.root, "i").unwrap();
    b.open("i").unwrap();
    assert_eq!(errno_of(b.open("source")), ENOENT);
    b.mount.link(&b.root, "i", &b.root, "mine").unwrap();
    b.open("mine").unwrap();
}

#[test]
fn a_name_removed_elsewhere_may_still_be_there() {
    let (a, mut b) = Node::two();
    for name in ["closed", "held", "kept"] {
        a.put(name, b"bytes");
        b.open(name).unwrap();
    }
    let c = Node::of(&a.mount.shared.memory, Class::Local, WILD);
    let held = c.open("held").unwrap();
    a.mount.link(&a.root, "kept", &a.root, "other").unwrap();
    for name in ["closed", "held", "kept"] {
        a.mount.remove(&a.root, name).unwrap();
    }
    assert_eq!(errno_of(b.open("closed")), ESTALE);
    assert_eq!(b.mount.kind(&b.root, "kept").unwrap(), Kind::File);
    let kept = b.open("kept").expect("what has another name is found under its old one");
    assert_eq!(b.mount.size(&kept).unwrap(), 5);
    assert_eq!(errno_of(b.open("held")), ESTALE);
    drop(held);
    b.afresh();
    assert_eq!(errno_of(b.open("closed")), ENOENT);
}

#[test]
fn what_others_hold_open_may_be_opened_after_its_removal() {
    let memory = Memory::new();
    let class = Class::CloseToOpen;
    let traits = Traits { wild_one_in: WILD, ..class.traits() };
    let b = Node::drawing(&memory, class, traits, Choices::replay(vec![1, 0]), Arc::new(Alone));
    let a = Node::of(&memory, Class::Local, 0);
    a.put("f", b"bytes");
    let held = a.open("f").unwrap();
    drop(b.open("f").unwrap());
    a.mount.remove(&a.root, "f").unwrap();
    let file = b.open("f").expect("the second choice");
    assert_eq!(errno_of(b.mount.size(&file)), ESTALE, "the server may not know it any more");
    assert_eq!(errno_of(b.mount.read_at(&file, &mut [0], 0)), ESTALE);
    assert_eq!(errno_of(b.open("f")), ESTALE, "the first choice");
    assert_eq!(a.mount.size(&held).unwrap(), 5);
}

#[test]
fn a_name_replaced_elsewhere_may_be_absent_or_stale() {
    let memory = Memory::new();
    let class = Class::CloseToOpen;
    let traits = Traits { wild_one_in: WILD, ..class.traits() };
    let mut b = Node::drawing(&memory, class, traits, Choices::replay(vec![0, 1]), Arc::new(Alone));
    let a = Node::of(&memory, class, 0);
    a.put("f", b"old");
    drop(b.open("f").unwrap());
    a.put("new", b"newer");
    a.mount.rename(&a.root, "new", &a.root, "f").unwrap();
    assert_eq!(errno_of(b.open("f")), ESTALE);
    assert_eq!(errno_of(b.open("f")), ENOENT);
    b.afresh();
    assert_eq!(b.mount.size(&b.open("f").unwrap()).unwrap(), 5);
}

#[test]
fn a_directory_made_anew_elsewhere_may_still_be_the_old_one() {
    let (a, mut b) = Node::two();
    a.subdir("d");
    let old = b.mount.open_dir(&b.root, "d").unwrap();
    a.mount.remove_dir(&a.root, "d").unwrap();
    let new = a.subdir("d");
    a.mount.create_exclusive(&new, "x").unwrap();
    assert_eq!(errno_of(b.mount.open_dir(&b.root, "d")), ESTALE);
    assert_eq!(errno_of(b.mount.open(&old, "x", Access::Read)), ESTALE);
    assert_eq!(errno_of(b.mount.link(&b.root, "f", &old, "f")), ESTALE);
    b.afresh();
    let new = b.mount.open_dir(&b.root, "d").unwrap();
    b.mount.open(&new, "x", Access::Read).unwrap();
    assert_eq!(errno_of(b.mount.list(&old)), ESTALE, "a handle doesn't follow its name");
}

#[test]
fn a_handle_that_has_listed_may_list_the_same_again() {
    let (a, mut b) = Node::two();
    a.put("one", b"");
    assert_eq!(b.names(), ["one"]);
    a.put("two", b"");
    assert_eq!(b.names(), ["one"]);
    b.put("mine", b"");
    assert_eq!(b.names(), ["mine", "one", "two"], "its own change makes a node look again");
    a.put("three", b"");
    assert_eq!(b.names().len(), 3);
    b.afresh();
    assert_eq!(b.names().len(), 4);
}

#[test]
fn the_last_name_of_an_open_file_stays_until_it_is_closed() {
    let (a, b) = Node::two();
    let dir = a.subdir("d");
    let file = a.mount.create_exclusive(&dir, "f").unwrap();
    a.mount.write_at(&file, b"bytes", 0).unwrap();
    a.mount.remove(&dir, "f").unwrap();
    assert_eq!(errno_of(a.mount.open(&dir, "f", Access::Read)), ENOENT);
    let hidden = a.mount.list(&dir).unwrap().into_iter().next().unwrap();
    assert!(hidden.to_string_lossy().starts_with(".nfs"), "{hidden:?}");
    assert_eq!(errno_of(a.mount.remove_dir(&a.root, "d")), Some(errno::ENOTEMPTY));
    assert_eq!(errno_of(a.mount.remove(&dir, hidden.to_str().unwrap())), Some(errno::EBUSY));
    assert_eq!(a.mount.size(&file).unwrap(), 5);
    let there = b.mount.open_dir(&b.root, "d").unwrap();
    assert_eq!(b.mount.list(&there).unwrap().len(), 1, "other nodes see it too");
    a.mount.close(file).unwrap();
    a.mount.remove_dir(&a.root, "d").unwrap();
}

#[test]
fn a_node_that_dies_leaves_the_hidden_names_of_its_open_files() {
    let (mut a, _) = Node::two();
    a.put("f", b"");
    let file = a.open("f").unwrap();
    a.mount.remove(&a.root, "f").unwrap();
    a.mount.crash();
    drop(file);
    a.afresh();
    assert!(a.names()[0].starts_with(".nfs"));
}

#[test]
fn a_file_with_two_names_loses_one_while_it_is_open() {
    let (a, _) = Node::two();
    a.put("f", b"");
    a.mount.link(&a.root, "f", &a.root, "g").unwrap();
    let _held = a.open("f").unwrap();
    a.mount.remove(&a.root, "f").unwrap();
    assert_eq!(a.names(), ["g"]);
}

#[test]
fn what_replaces_an_open_file_leaves_a_moment_without_the_name() {
    let memory = Memory::new();
    let other = Node::of(&memory, Class::CloseToOpen, 0);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let saw = Arc::clone(&seen);
    let meanwhile = Meanwhile::does(move || saw.lock().push(errno_of(other.open("f"))));
    let class = Class::CloseToOpen;
    let a = Node::drawing(&memory, class, class.traits(), Choices::replay(Vec::new()), meanwhile);
    a.put("f", b"old");
    a.put("new", b"new");
    let held = a.open("f").unwrap();
    a.mount.rename(&a.root, "new", &a.root, "f").unwrap();
    assert_eq!(*seen.lock(), [ENOENT]);
    let mut bytes = [0; 3];
    a.mount.read_at(&held, &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"old");
    drop(held);
    assert_eq!(a.names(), ["f"]);
}
