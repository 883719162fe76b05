//! Commits that are lost at the log's end, and every call of the repair that drops what comes after them:
//! until it is done the store says `Corrupt`, and never opens as if nothing had been lost.

use std::sync::Arc;

use batchweave::storage::{Access, Storage, write_all_at};
use batchweave::{ErrorKind, Next, RepairOptions, Settings, Share, Step, Store, Version};
use batchweave_sim::{Fault, Match, Memory, Method, Plan, errno};

use super::history::stop_everywhere;
use crate::support::*;

/// A part, by producer and sequence, and the version that holds it.
type Held = ((String, u64), u64);

/// A disk with commits up to `next`, and the version of each part; `boundary` leaves the last segment as who
/// dies before the next mark does.
fn prepared(m: u32, next: u64, boundary: bool) -> (Memory, Vec<Held>) {
    let disk = Memory::new();
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let options = options().parts_per_step(m);
    let store = create(process.clone(), 1, options, &Settings::new()).unwrap();
    let mut producers = [store.producer("a").unwrap(), store.producer("b").unwrap()];
    for version in 2..next {
        publish(&mut producers[usize::from(version % 3 == 1)]).unwrap();
    }
    if boundary {
        let mark = Match::method(Method::CreateExclusive).named("marks/");
        process.set_plan(Plan::new().fail(mark, errno::EIO));
        publish(&mut producers[0]).unwrap_err();
    }
    let holders = replay(store.inner()).holders;
    (disk, holders.into_iter().map(|(name, sequence, version)| ((name, sequence), version.get())).collect())
}

fn path_of(version: u64) -> (String, String) {
    (format!("{PATH}/log/{:012}", version / 16), format!("{version:020}"))
}

/// What happens to a commit: it is gone, overwritten, or cut short.
fn lose(disk: &Memory, version: u64, way: usize) {
    let (segment, name) = path_of(version);
    let dir = disk.open_root(segment.as_ref()).unwrap();
    if way == 1 {
        let file = disk.open(&dir, &name, Access::Update).unwrap();
        write_all_at(disk, &file, &[0xa5; 100], 300).unwrap();
        disk.sync_file(&file).unwrap();
    } else {
        disk.remove(&dir, &name).unwrap();
    }
    if way == 2 {
        let file = disk.create_exclusive(&dir, &name).unwrap();
        write_all_at(disk, &file, &[0x5a; 100], 0).unwrap();
        disk.sync_file(&file).unwrap();
    }
    disk.write_back();
}

fn confirmed(store: &Store) -> batchweave::Result<()> {
    store.repair(RepairOptions::new().confirm(true)).map(drop)
}

#[test]
fn dropping_what_is_lost_stops_anywhere() {
    // (Commits, the one that is lost, whether the segment's end was reached): in the middle, the last but
    // one, a segment's first.
    let cases = [(12, 7, false), (27, 25, false), (36, 32, false), (32, 20, true), (16, 14, true)];
    for (case, (next, lost, boundary)) in cases.into_iter().enumerate() {
        for m in [1, 2] {
            let (disk, holders) = prepared(m, next, boundary);
            let way = (case + m as usize) % 3;
            lose(&disk, lost, way);
            let kept: Vec<_> =
                holders.iter().filter(|(_, version)| *version < lost).map(|(part, _)| part.clone()).collect();
            let kept = &kept[..kept.len() / m as usize * m as usize];
            stop_everywhere(&disk, confirmed, |left, how| {
                let store = open(left.clone(), 7).unwrap();
                match store.info() {
                    Ok(info) => {
                        assert!(info.generation.get() > 0, "{how}: it opens as if nothing had been lost");
                        assert_eq!(check_replay(&store).parts(), kept, "{how}");
                        true
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{how}: {error}");
                        assert_eq!(error.commit_version(), Some(Version::new(lost)), "{how}: {error}");
                        assert!(open(left.clone(), 8).unwrap().producer("a").is_err(), "{how}");
                        false
                    }
                }
            });
        }
    }
}

#[test]
fn what_would_be_lost_is_said_first() {
    let (disk, holders) = prepared(2, 28, false);
    lose(&disk, 20, 0);
    let before = disk.whole_fingerprint();
    for options in [RepairOptions::new(), RepairOptions::new().confirm(true).dry_run(true)] {
        let report = open(disk.clone(), 40).unwrap().repair(options).unwrap();
        assert_eq!(disk.whole_fingerprint(), before, "nothing was changed");
        let lost = report.lost.unwrap();
        let (first, last) = (lost.version.get(), lost.last.get());
        assert!(!report.dropped && (first, last) == (20, 27), "{lost:?}");
        // 18 parts before it, in 9 steps; 7 beyond it can be read.
        assert_eq!((lost.step.get(), lost.parts), (9, 7));
        assert!(lost.what.contains("missing"), "{lost:?}");
        let kept = holders.iter().filter(|((name, _), version)| name == "b" && *version < 20).count();
        let b = lost.producers.iter().find(|(name, _)| name.as_str() == "b").unwrap();
        assert_eq!(b.1.get(), kept as u64);
    }
    let report = open(disk.clone(), 41).unwrap().repair(RepairOptions::new().confirm(true)).unwrap();
    assert!(report.dropped && report.lost.is_some());
    let moved = disk.paths().iter().filter(|path| path.contains("/stage/-lost.")).count();
    assert_eq!(moved, 7, "what could be read isn't deleted");
    assert_eq!(open(disk, 42).unwrap().repair(RepairOptions::new()).unwrap(), Default::default());
}

#[test]
fn positions_beyond_what_is_lost_are_told_and_others_go_on() {
    let (disk, _) = prepared(1, 30, false);
    let store = open(disk.clone(), 40).unwrap();
    let at = |step: u64| store.run(Step::new(step)).unwrap().position();
    let (good, end, beyond) = (at(10), at(20), at(25));
    lose(&disk, 22, 1);
    confirmed(&open(disk.clone(), 41).unwrap()).unwrap();
    let store = open(disk.clone(), 42).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 0..30 {
        publish(&mut producer).unwrap();
    }
    for position in [good, end] {
        let mut consumer = store.run(position).unwrap().consumer(Share::WHOLE).unwrap();
        assert!(matches!(consumer.try_next().unwrap(), Next::Batch(batch) if batch.step() == position.step));
    }
    assert_eq!(store.run(beyond).unwrap_err().kind(), ErrorKind::Rewound);
    assert!(store.verify(|_| ()).unwrap().is_clean());
}

#[test]
fn what_cannot_be_read_now_is_not_given_up() {
    let (disk, _) = prepared(1, 12, false);
    let (segment, name) = path_of(7);
    assert!(disk.unreadable(format!("{segment}/{name}"), true));
    let before = disk.whole_fingerprint();
    let error = confirmed(&open(disk.clone(), 40).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!((error.commit_version(), disk.whole_fingerprint()), (Some(Version::new(7)), before));
    disk.unreadable(format!("{segment}/{name}"), false);
    assert_eq!(open(disk, 41).unwrap().repair(RepairOptions::new()).unwrap(), Default::default());
}
