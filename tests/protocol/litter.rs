//! Litter: what lies about and nobody needs goes with a reclaim, and nothing that anybody may need.

use std::path::Path;
use std::sync::Arc;

use batchweave::format::names::{self, staged_control, staged_draft};
use batchweave::storage::Storage;
use batchweave::{Incarnation, Nonce, Primitive, ReclaimOptions, Sequence, Settings};
use batchweave_sim::{Fault, Match, Memory, Method, Plan, errno};

use super::{dir_path, read_file, segment_path, sleeper, write_file};
use crate::groups::*;
use crate::reclaim::{check, disk_with, keep};
use crate::reclaim_races::to_be_reclaimed;
use crate::support::*;

#[test]
fn only_dead_drafts_are_litter() {
    let disk = disk_with(20);
    let stage = dir_path(&[names::STAGE]);
    let (process, store, mut live) = sleeper(&disk, "b");
    publish(&mut live).unwrap();
    let open_draft = live.draft().unwrap();
    let incarnation = live.incarnation();
    let put = |producer: &str, incarnation: Incarnation, first: u64, nonce: u8| {
        let producer = producer.parse().unwrap();
        let name = staged_draft(&producer, incarnation, Sequence::new(first), Nonce::new([nonce; 16]));
        write_file(&disk, &stage, &name, b"bytes");
        name
    };
    let dead = [
        put("b", incarnation, 0, 1),
        put("b", Incarnation::new(0), 5, 2),
        put("unknown", Incarnation::new(3), 0, 3),
        put("a", Incarnation::new(7), 20, 4),
    ];
    let alive = [put("b", incarnation, 1, 5), put("b", Incarnation::new(1000), 0, 6)];
    let strange = "not one of ours";
    write_file(&disk, &stage, strange, b"");
    let report = store.reclaim(&ReclaimOptions::new()).unwrap();
    let mut expected = dead.map(|name| format!("stage/{name}"));
    expected.sort();
    assert_eq!((report.litter_names, report.litter.bytes), (expected.to_vec(), 20));
    let staged: Vec<_> = disk.paths().into_iter().filter(|path| path.contains("/stage/")).collect();
    let stays = |name: &str| staged.iter().any(|path| path.ends_with(name));
    assert!(alive.iter().all(|name| stays(name)) && stays(strange), "{staged:?}");
    // Beside stage/ itself and the draft that is being written.
    assert_eq!(staged.len(), alive.len() + 3, "{staged:?}");
    // What may yet come in: one whose outcome is unknown (R2).
    drop(open_draft);
    let lost = Match::method(Method::Link);
    process.set_plan(Plan::new().fail(lost, errno::EIO));
    let draft = draft(&mut live, 1).unwrap();
    let failed = live.publish_now(draft, state("b", 1)).unwrap_err();
    assert!(failed.draft.is_none(), "its outcome is unknown");
    process.set_plan(Plan::new());
    open(disk.clone(), 60).unwrap().reclaim(&ReclaimOptions::new()).unwrap();
    live.flush().unwrap();
    assert_eq!(live.next_sequence().get(), 2);
}

#[test]
fn a_draft_that_is_in_the_log_is_litter_and_its_bytes_stay() {
    let disk = disk_with(20);
    let (process, store, mut live) = sleeper(&disk, "b");
    process.set_plan(Plan::new().fail(Match::method(Method::Remove), errno::EIO));
    publish(&mut live).unwrap();
    process.set_plan(Plan::new());
    let report = store.reclaim(&ReclaimOptions::new()).unwrap();
    assert_eq!((report.litter.count, report.litter.bytes), (1, 0));
    assert_eq!(parse(&store.batch(20.into()).unwrap().slice(0).unwrap()), ("b".to_owned(), 0));
}

#[test]
fn a_draft_opened_since_the_names_were_listed_is_alive() {
    // Its producer's Open is newer than any view from before the listing.
    let disk = disk_with(20);
    for call in 1..12 {
        let disk = disk.fork();
        let (process, store, old) = sleeper(&disk, "b");
        drop(old);
        let elsewhere = disk.clone();
        let held = Arc::new(parking_lot::Mutex::new(None));
        let holder = held.clone();
        process.set_plan(Plan::new().meanwhile(Match::any().nth(call), move || {
            let mut producer = open(elsewhere.clone(), 60).unwrap().producer("b").unwrap();
            let draft = draft(&mut producer, 1).unwrap();
            *holder.lock() = Some((producer, draft));
        }));
        assert_eq!(store.reclaim(&ReclaimOptions::new()).unwrap().litter.count, 0);
        let (mut producer, draft) = held.lock().take().unwrap();
        producer.publish_now(draft, "state").unwrap();
    }
}

#[test]
fn control_files_are_litter_when_seen_twice() {
    let disk = disk_with(20);
    let name = staged_control("floor", Nonce::new([7; 16]));
    write_file(&disk, &dir_path(&[names::STAGE]), &name, b"1234");
    let store = open(disk.clone(), 50).unwrap();
    let first = store.reclaim(&ReclaimOptions::new()).unwrap();
    assert_eq!((first.litter.count, &first.control_seen), (0, &vec![name.clone()]));
    let unrelated = store.reclaim(&ReclaimOptions::new()).unwrap();
    assert_eq!(unrelated.litter.count, 0, "who doesn't say what he has seen hasn't seen it");
    let second = store.reclaim(&ReclaimOptions::new().control_seen(first.control_seen)).unwrap();
    assert_eq!((second.litter.count, second.litter.bytes), (1, 4));
    assert_eq!((second.litter_names, second.control_seen), (vec![format!("stage/{name}")], vec![]));
}

/// Removes every control file in stage/, as a reclaim that sees them a second time does.
fn take_control_files(disk: &Memory) {
    let store = open(disk.clone(), 60).unwrap();
    let seen = store.reclaim(&ReclaimOptions::new()).unwrap().control_seen;
    assert!(!seen.is_empty(), "there is none to take");
    let report = store.reclaim(&ReclaimOptions::new().control_seen(seen)).unwrap();
    assert!(report.litter.count > 0);
}

#[test]
fn whoever_lives_and_loses_a_control_file_stages_it_again() {
    for primitive in [Primitive::Link, Primitive::RenameNoreplace, Primitive::RenameDirectory] {
        let fails = || mount_with(primitive);
        let method = match primitive {
            Primitive::Link => Method::Link,
            Primitive::RenameNoreplace => Method::RenameNoreplace,
            _ => Method::Rename,
        };
        // The Open of a name, and an index at a boundary.
        for (versions, target) in [(5, "log/"), (15, "index/")] {
            let disk = Memory::new();
            let process = Arc::new(Fault::new(Arc::new(disk.clone()), fails()));
            let store = create(process.clone(), 1, options(), &Settings::new()).unwrap();
            assert_eq!(store.info().unwrap().primitive, primitive);
            let mut producer = store.producer("a").unwrap();
            for _ in 1..versions {
                publish(&mut producer).unwrap();
            }
            let elsewhere = disk.clone();
            let wake = Match::method(method).named(&format!("-> {target}")).nth(1);
            let wake_staged = wake.when(move |on| on.contains("stage/-") && on.contains(target));
            process.set_plan(fails().meanwhile(wake_staged, move || take_control_files(&elsewhere)));
            if target == "log/" {
                store.producer("b").unwrap();
            } else {
                while publish(&mut producer).unwrap().version.get() < 17 {}
            }
            check_clean(&open(disk, 70).unwrap());
        }
    }
}

#[test]
fn names_that_the_store_does_not_give_stay() {
    let disk = to_be_reclaimed();
    write_file(&disk, &segment_path(20), ".nfs0000000000000001", b"an open file of another client");
    let store = open(disk.clone(), 50).unwrap();
    let report = store.reclaim(&keep(1)).unwrap();
    assert_eq!(segments(&disk, "log")[..2], [1, 4]);
    assert_eq!(report.segments.count, 3);
    let dir = disk.open_root(Path::new(&segment_path(20))).unwrap();
    assert_eq!(disk.list(&dir).unwrap(), [".nfs0000000000000001"]);
    disk.remove(&dir, ".nfs0000000000000001").unwrap();
    assert_eq!(store.reclaim(&keep(1)).unwrap().litter_names, ["log/000000000001"]);
    check(&disk, 70, 110);
}

#[test]
fn what_a_death_has_left_beside_its_place_goes_back_to_stage_and_is_judged_there() {
    let disk = to_be_reclaimed();
    let beside = |nonce: u8| names::beside(&staged_control("x", Nonce::new([nonce; 16])));
    let (segment, index) = (segment_path(1), dir_path(&[names::INDEX]));
    // The Open of "a", a part of its, and an index, each as one who died between two calls has left it.
    let open_record = read_file(&disk, &segment, &names::version(0.into()));
    let part = read_file(&disk, &segment, &names::version(5.into()));
    write_file(&disk, &segment, &beside(1), &open_record);
    write_file(&disk, &segment, &beside(2), &part);
    write_file(&disk, &index, &beside(3), b"an index");
    check_clean(&open(disk.clone(), 60).unwrap());
    let staged = |suffix: u8| {
        let nonce = Nonce::new([suffix; 16]).to_string();
        let names = disk.paths().into_iter().filter(move |path| path.ends_with(&nonce));
        names.map(|path| path.trim_start_matches("store/stage/").to_owned()).collect::<Vec<_>>()
    };
    let store = open(disk.clone(), 61).unwrap();
    let dry = store.reclaim(&keep(1).dry_run(true)).unwrap();
    assert!(dry.segments.count > 0 && staged(1).iter().all(|name| name.contains("log/")), "{:?}", staged(1));
    let first = store.reclaim(&keep(1)).unwrap();
    assert!(first.segments.count > 0, "the segment is removed all the same");
    let nonce = |suffix: u8| Nonce::new([suffix; 16]);
    let part_name = staged_draft(&"a".parse().unwrap(), Incarnation::ZERO, Sequence::new(3), nonce(2));
    assert_eq!(staged(1), [staged_control("open", nonce(1))]);
    assert_eq!(staged(2), [part_name]);
    assert_eq!(staged(3), [staged_control("index", nonce(3))]);
    // Control files have been seen once now; the part's sequence is in.
    let second = store.reclaim(&keep(1).control_seen(first.control_seen)).unwrap();
    assert_eq!(second.litter.count, 3, "{:?}", second.litter_names);
    check_clean(&store);
}
