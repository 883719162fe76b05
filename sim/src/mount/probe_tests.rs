//! The engine's own probe on each class of mount: what a store there publishes by, or why there is none.

use batchweave::storage::{Report, probe};
use batchweave::{MountClass, Options, Primitive};

use super::tests::{Node, TAME, WILD};
use super::*;
use crate::env::Seeded;

fn probed(class: Class, traits: Traits) -> batchweave::Result<Report> {
    let memory = Memory::new();
    let choices = Choices::replay(Vec::new());
    let node = Node::drawing(&memory, class, traits, choices, Arc::new(Alone));
    let report = probe(&node.mount, &Seeded::new(7), &node.root, "/".as_ref(), &Options::default());
    assert!(memory.paths().is_empty(), "the probe left {:?}", memory.paths());
    report
}

#[test]
fn the_probe_accepts_each_class_with_links_also_at_its_wildest() {
    for (class, expected) in [
        (Class::Local, MountClass::Local),
        (Class::Coherent { bricks: 1 }, MountClass::Coherent),
        (Class::Coherent { bricks: 3 }, MountClass::Coherent),
        (Class::CloseToOpen, MountClass::CloseToOpen),
    ] {
        for wild_one_in in [TAME, WILD] {
            // That links can't cross directories shows at the first publish only (R9).
            for links in [Links::Everywhere, Links::WithinDirectory] {
                let report = probed(class, Traits { wild_one_in, links, ..class.traits() }).unwrap();
                assert_eq!(report.accept().unwrap(), (expected, Primitive::Link));
            }
        }
    }
}

#[test]
fn without_links_it_takes_noreplace_where_that_works_and_else_directories() {
    let without = |class: Class| probed(class, Traits { links: Links::Nowhere, ..class.traits() }).unwrap();
    let exfat = without(Class::Local).accept().unwrap();
    assert_eq!(exfat, (MountClass::Local, Primitive::RenameNoreplace));
    for class in [Class::Coherent { bricks: 1 }, Class::CloseToOpen] {
        assert_eq!(without(class).accept().unwrap().1, Primitive::RenameDirectory, "{class:?}");
    }
}

#[test]
fn a_mount_for_reading_can_not_be_probed() {
    let error = probed(Class::Local, Traits { read_only: true, ..Class::Local.traits() }).unwrap_err();
    assert!(error.to_string().contains("can't make a directory for the probe"), "{error}");
}

#[test]
fn the_probe_sees_that_noreplace_is_unknown() {
    for class in [Class::Local, Class::Coherent { bricks: 2 }, Class::CloseToOpen] {
        let report = probed(class, class.traits()).unwrap();
        let works =
            |primitive| report.attempts.iter().any(|tried| tried.primitive == primitive && tried.works());
        assert_eq!(works(Primitive::RenameNoreplace), class == Class::Local, "{:?}", report.attempts);
        assert!(works(Primitive::RenameDirectory));
    }
}
