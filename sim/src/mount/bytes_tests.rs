//! Bytes on a close-to-open mount: who sees what when, and what is lost.

use batchweave::storage::{Access, Storage};

use super::tests::{Node, errno_of};
use super::*;

fn read(node: &Node, name: &str) -> Vec<u8> {
    let file = node.open(name).unwrap();
    let mut bytes = vec![0; node.mount.size(&file).unwrap() as usize];
    let length = node.mount.read_at(&file, &mut bytes, 0).unwrap();
    assert_eq!(length, bytes.len());
    bytes
}

fn create(node: &Node, name: &str, bytes: &[u8]) -> File {
    let file = node.mount.create_exclusive(&node.root, name).unwrap();
    node.mount.write_at(&file, bytes, 0).unwrap();
    file
}

#[test]
fn what_is_written_is_seen_elsewhere_once_it_is_synced_or_closed() {
    let (a, b) = Node::two();
    let (closed, synced, dropped) =
        (create(&a, "closed", b"bytes"), create(&a, "synced", b"bytes"), create(&a, "dropped", b"bytes"));
    for name in ["closed", "synced", "dropped"] {
        assert_eq!(read(&b, name), b"", "{name}");
        assert_eq!(read(&a, name), b"bytes", "its own node sees {name}");
    }
    a.mount.close(closed).unwrap();
    a.mount.sync_file(&a.open("synced").unwrap()).unwrap();
    drop(dropped);
    for name in ["closed", "synced", "dropped"] {
        assert_eq!(read(&b, name), b"bytes", "{name}");
    }
    a.mount.write_at(&synced, b" more", 5).unwrap();
    assert_eq!(read(&b, "synced"), b"bytes");
}

#[test]
fn a_node_reads_what_it_wrote_over_what_is_there() {
    let (a, _) = Node::two();
    a.put("f", b"0123456789");
    let file = a.mount.open(&a.root, "f", Access::Update).unwrap();
    a.mount.write_at(&file, b"ab", 2).unwrap();
    a.mount.write_at(&file, b"c", 3).unwrap();
    a.mount.write_at(&file, b"end", 12).unwrap();
    let expected = b"01ac456789\0\0end";
    assert_eq!(read(&a, "f"), expected);
    let mut middle = [0; 4];
    assert_eq!(a.mount.read_at(&file, &mut middle, 1).unwrap(), 4);
    assert_eq!(&middle, b"1ac4");
    assert_eq!(a.mount.map(&file, 100).unwrap()[..], expected[..]);
    let copy = a.mount.create_exclusive(&a.root, "copy").unwrap();
    assert_eq!(a.mount.copy_range(&file, 0, &copy, 0, 100).unwrap(), 15);
    assert_eq!(read(&a, "copy"), expected);
    a.mount.close(file).unwrap();
    assert_eq!(read(&a, "f"), expected);
}

#[test]
fn a_node_that_dies_loses_what_it_had_not_flushed() {
    let (mut a, b) = Node::two();
    let file = create(&a, "f", b"bytes");
    a.mount.sync_file(&file).unwrap();
    a.mount.write_at(&file, b" more", 5).unwrap();
    a.mount.crash();
    drop(file);
    a.afresh();
    assert_eq!(read(&a, "f"), b"bytes");
    assert_eq!(read(&b, "f"), b"bytes");
}

#[test]
fn what_is_flushed_is_not_yet_durable() {
    let (a, _) = Node::two();
    let file = create(&a, "synced", b"bytes");
    a.mount.sync_file(&file).unwrap();
    a.mount.sync_dir(&a.root).unwrap();
    a.put("closed", b"bytes");
    a.mount.sync_dir(&a.root).unwrap();
    let memory = &a.mount.shared.memory;
    memory.power_cut();
    let after = Node::of(memory, Class::CloseToOpen, 0);
    assert_eq!((read(&after, "synced"), read(&after, "closed")), (b"bytes".to_vec(), Vec::new()));
}

#[test]
fn a_power_cut_takes_what_was_not_flushed() {
    let (mut a, _) = Node::two();
    a.put("f", b"bytes");
    let memory = a.mount.shared.memory.clone();
    memory.write_back();
    let file = a.mount.open(&a.root, "f", Access::Update).unwrap();
    a.mount.write_at(&file, b"other", 0).unwrap();
    memory.power_cut();
    a.afresh();
    assert_eq!(read(&a, "f"), b"bytes");
    drop(file);
    assert_eq!(read(&a, "f"), b"bytes");
}

#[test]
fn growth_elsewhere_is_seen_by_opening_again() {
    let (a, b) = Node::two();
    let written = create(&a, "f", b"bytes");
    a.mount.sync_file(&written).unwrap();
    let old = b.open("f").unwrap();
    a.mount.write_at(&written, b" more", 5).unwrap();
    a.mount.sync_file(&written).unwrap();
    let mut bytes = [0; 20];
    assert_eq!(b.mount.size(&old).unwrap(), 5);
    assert_eq!(b.mount.read_at(&old, &mut bytes, 0).unwrap(), 5);
    assert_eq!(b.mount.map(&old, 10).unwrap().len(), 5);
    let new = b.open("f").unwrap();
    assert_eq!(b.mount.size(&new).unwrap(), 10);
    assert_eq!(b.mount.size(&old).unwrap(), 10, "the node knows now");
    a.mount.write_at(&written, b"!", 10).unwrap();
    a.mount.sync_file(&written).unwrap();
    let tame = Node::of(&a.mount.shared.memory, Class::CloseToOpen, 0);
    assert_eq!(tame.mount.size(&tame.open("f").unwrap()).unwrap(), 11);
}

#[test]
fn a_full_disk_may_be_said_at_close_and_only_once() {
    let (a, _) = Node::two();
    a.mount.shared.memory.set_capacity(4096);
    let file = create(&a, "f", &[1; 4096]);
    a.mount.write_at(&file, &[1; 4096], 4096).expect("nobody has asked the server yet");
    let other = file.clone();
    assert_eq!(errno_of(a.mount.sync_file(&file)), Some(errno::ENOSPC));
    a.mount.sync_file(&file).expect("errors come once");
    drop(file);
    a.mount.write_at(&other, &[1; 4096], 4096).unwrap();
    a.mount.write_at(&other, &[2; 4096], 0).unwrap();
    assert_eq!(errno_of(a.mount.close(other)), Some(errno::ENOSPC));
    assert_eq!(read(&a, "f"), [1; 4096], "all that was written since is given up");
}

#[test]
fn a_failed_sync_gives_up_its_bytes_on_every_class() {
    for class in [Class::Local, Class::Coherent { bricks: 1 }, Class::CloseToOpen] {
        let memory = Memory::new();
        let node = Node::of(&memory, class, 0);
        let file = create(&node, "f", b"bytes");
        node.mount.fail_next_sync(errno::EIO);
        assert_eq!(errno_of(node.mount.sync_file(&file)), Some(errno::EIO));
        node.mount.sync_file(&file).unwrap();
        node.mount.sync_dir(&node.root).unwrap();
        let lost = create(&node, "lost", b"");
        node.mount.fail_next_sync(errno::EIO);
        assert_eq!(errno_of(node.mount.sync_dir(&node.root)), Some(errno::EIO));
        node.mount.sync_dir(&node.root).unwrap();
        drop((file, lost));
        memory.power_cut();
        let after = Node::of(&memory, class, 0);
        assert_eq!((after.names(), read(&after, "f")), (vec!["f".to_owned()], Vec::new()), "{class:?}");
    }
}

#[test]
fn handles_for_reading_do_not_write_and_offsets_end() {
    let (a, _) = Node::two();
    a.put("f", b"bytes");
    assert_eq!(errno_of(a.mount.write_at(&a.open("f").unwrap(), b"x", 0)), Some(errno::EBADF));
    let file = a.mount.open(&a.root, "f", Access::Update).unwrap();
    for offset in [u64::MAX, i64::MAX as u64] {
        assert_eq!(errno_of(a.mount.write_at(&file, b"x", offset)), Some(errno::EFBIG));
    }
    assert_eq!(read(&a, "f"), b"bytes");
}
