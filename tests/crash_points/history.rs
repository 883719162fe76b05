//! Every call of a rewind, a skip and a repair of an index: the process stops there, before or after its
//! effect, and the power may go too. The effect is then whole or isn't there, and everybody goes on.

use std::sync::Arc;

use batchweave::storage::{Access, Storage, write_all_at};
use batchweave::{ErrorKind, RepairOptions, Result, RewindOptions, Settings, Step, Store};
use batchweave_sim::{Fault, Match, Memory, Plan, errno};

use crate::support::*;

/// A disk whose next version is `next`, with parts of "a" and "b".
fn prepared(next: u64) -> Memory {
    let disk = Memory::new();
    let store = create(Arc::new(disk.clone()), 1, options(), &Settings::new()).unwrap();
    let mut producers = [store.producer("a").unwrap(), store.producer("b").unwrap()];
    for version in 2..next {
        publish(&mut producers[usize::from(version % 3 == 1)]).unwrap();
    }
    disk
}

/// Stops a process at each call of `act` in turn; what is left is examined on what is live, and on what power
/// cuts leave. `done` says whether the effect is there, and checks that it isn't there by halves.
pub(super) fn stop_everywhere(
    disk: &Memory,
    act: impl Fn(&Store) -> Result<()>,
    done: impl Fn(&Memory, &str) -> bool,
) {
    let mut absent = 0;
    for call in 0.. {
        let fork = disk.fork();
        let process = Arc::new(Fault::new(Arc::new(fork.clone()), Plan::new().stop_at(call)));
        let acted = open_with(process.clone(), 2, &Settings::new()).and_then(|store| act(&store));
        for cut in 0..4u64 {
            let left = fork.fork();
            let mut drawn = call.wrapping_mul(4).wrapping_add(cut);
            match cut {
                0 => {}
                1 => left.power_cut(),
                _ => left.power_cut_keeping(|_| {
                    drawn = drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    drawn >> 40 & 1 == 1
                }),
            }
            let how = format!("stopped at call {call}, power cut {cut}");
            let was_done = done(&left, &how);
            assert!(was_done || acted.is_err(), "{how}: it was acknowledged, and isn't there");
            absent += usize::from(!was_done);
            // The same command, by another process, comes to the same end.
            act(&open(left.clone(), 3).unwrap()).unwrap_or_else(|error| panic!("{how}: {error}"));
            assert!(done(&left, &how), "{how}: the same command again");
            everybody_goes_on(&left);
            assert!(open(left, 5).unwrap().verify(|_| ()).unwrap().is_clean(), "{how}");
        }
        if acted.is_ok() {
            assert!(call > 8 && absent > 8, "only {call} calls, {absent} times absent");
            return;
        }
    }
}

fn everybody_goes_on(left: &Memory) {
    let store = open(left.clone(), 4).unwrap();
    if replay(store.inner()).state.history.skips.is_empty() {
        check_going_on(&store, &["a", "b"]);
        return;
    }
    let parts = replay(store.inner()).parts();
    for name in ["a", "b"] {
        publish(&mut reopen(&store, name, &parts)).unwrap();
    }
    let after = check_replay(&store).parts();
    assert_eq!(read_all(&store), [&after[..2], &after[5..]].concat());
}

/// As the next version of a segment, as its first and as its last.
const NEXT: [u64; 4] = [10, 31, 32, 33];

#[test]
fn rewinding_stops_anywhere() {
    for next in NEXT {
        let disk = prepared(next);
        let before = replay(open(disk.clone(), 6).unwrap().inner()).parts();
        for to in [3, next - 4] {
            let rewind = |store: &Store| store.rewind(Step::new(to), RewindOptions::new()).map(drop);
            stop_everywhere(&disk, rewind, |left, how| {
                let store = open(left.clone(), 7).unwrap();
                let replayed = check_replay(&store);
                let generation = store.info().unwrap().generation.get();
                let kept = if generation == 0 { before.len() } else { to as usize };
                assert_eq!(replayed.parts(), before[..kept], "{how}");
                for one in store.producers().unwrap() {
                    let name = one.name.as_str();
                    let count = before[..kept].iter().filter(|(who, _)| who == name).count() as u64;
                    let expected = count.checked_sub(1).map(|last| state(name, last)).unwrap_or_default();
                    assert_eq!((one.sequence.get(), one.state), (count, expected.into_bytes()), "{how}");
                    assert_eq!(one.incarnation.is_some(), generation == 0, "{how}");
                }
                generation > 0
            });
        }
    }
}

#[test]
fn skipping_stops_anywhere() {
    for next in NEXT {
        let disk = prepared(next);
        let skip = |store: &Store| store.skip(Step::new(2), Step::new(4), "why").map(drop);
        stop_everywhere(&disk, skip, |left, how| {
            let store = open(left.clone(), 7).unwrap();
            let parts = check_replay(&store).parts();
            let (generation, read) = (store.info().unwrap().generation.get(), read_all(&store));
            let expected = if generation == 0 { parts } else { [&parts[..2], &parts[5..]].concat() };
            assert_eq!(read, expected, "{how}");
            generation > 0
        });
    }
}

/// What becomes of an index.
fn damage(disk: &Memory, segment: &str, way: usize) {
    let indexes = disk.open_root(format!("{PATH}/index").as_ref()).unwrap();
    if way == 0 {
        return disk.remove(&indexes, segment).unwrap();
    }
    let file = disk.open(&indexes, segment, Access::Update).unwrap();
    // The header; a section; and one that is cut short.
    let at = [0, 100, 400][way - 1];
    write_all_at(disk, &file, &[0xa5; 7], at).unwrap();
    disk.sync_file(&file).unwrap();
}

fn bytes_of(disk: &Memory, segment: &str) -> Option<Vec<u8>> {
    let indexes = disk.open_root(format!("{PATH}/index").as_ref()).unwrap();
    let file = disk.open(&indexes, segment, Access::Read).ok()?;
    let mut bytes = vec![0; disk.size(&file).unwrap() as usize];
    assert_eq!(disk.read_at(&file, &mut bytes, 0).unwrap(), bytes.len());
    Some(bytes)
}

const SEGMENTS: [&str; 3] = ["000000000000", "000000000001", "000000000002"];

/// Over three boundaries, with a rewind before, over and after them.
fn indexed() -> Memory {
    let disk = prepared(30);
    let store = open(disk.clone(), 50).unwrap();
    store.rewind(Step::new(12), RewindOptions::new()).unwrap();
    let mut producer = store.producer("b").unwrap();
    for _ in 0..20 {
        publish(&mut producer).unwrap();
    }
    disk.write_back();
    disk
}

#[test]
fn repairing_an_index_stops_anywhere() {
    let disk = indexed();
    let whole: Vec<_> = SEGMENTS.iter().map(|segment| bytes_of(&disk, segment).unwrap()).collect();
    for way in 0..4 {
        let broken = disk.fork();
        damage(&broken, SEGMENTS[2], way);
        broken.write_back();
        let error = open(broken.clone(), 60).unwrap().info();
        // Of a section that nobody needs for opening nothing is known yet.
        assert!(error.is_err() || way == 3, "the newest index is needed");
        let repair = |store: &Store| {
            let report = store.repair(RepairOptions::new())?;
            assert!(report.left.is_empty(), "{report:?}");
            Ok(())
        };
        stop_everywhere(&broken, repair, |left, how| {
            let found = bytes_of(left, SEGMENTS[2]);
            let done = found.as_ref() == Some(&whole[2]);
            assert!(done || found == bytes_of(&broken, SEGMENTS[2]), "{how}: it is neither");
            done
        });
    }
}

#[test]
fn every_index_that_can_be_rebuilt_is() {
    let disk = indexed();
    let whole: Vec<_> = SEGMENTS.iter().map(|segment| bytes_of(&disk, segment).unwrap()).collect();
    for way in 0..4 {
        for broken in 1..8usize {
            let disk = disk.fork();
            let segments: Vec<_> = (0..3).filter(|segment| broken >> segment & 1 == 1).collect();
            segments.iter().for_each(|segment| damage(&disk, SEGMENTS[*segment], way));
            let store = open(disk.clone(), 60).unwrap();
            let would = store.repair(RepairOptions::new().dry_run(true)).unwrap();
            // Of several in a row only the first has its predecessor.
            let first =
                segments.iter().filter(|one| !segments.iter().any(|other| other + 1 == **one)).count();
            let told = (would.rebuilt.len(), would.left.len());
            assert_eq!(told, (first, segments.len() - first), "{would:?}");
            let did = store.repair(RepairOptions::new()).unwrap();
            assert_eq!((did.rebuilt.len(), did.left.len()), (segments.len(), 0), "{broken}: {did:?}");
            for (segment, whole) in SEGMENTS.iter().zip(&whole) {
                assert_eq!(bytes_of(&disk, segment).as_ref(), Some(whole), "the same bytes");
            }
            assert_eq!(store.repair(RepairOptions::new()).unwrap(), Default::default());
            let store = open(disk, 61).unwrap();
            check_replay(&store);
            assert!(store.verify(|_| ()).unwrap().is_clean());
        }
    }
}

#[test]
fn an_index_that_the_log_contradicts_is_left() {
    // Its header is whole and says another thing than the log: then it isn't the index that is wrong.
    let (disk, other) = (indexed(), prepared(50));
    damage(&disk, SEGMENTS[2], 3);
    let header = &bytes_of(&other, SEGMENTS[2]).unwrap()[..256];
    let indexes = disk.open_root(format!("{PATH}/index").as_ref()).unwrap();
    let before = bytes_of(&disk, SEGMENTS[2]).unwrap();
    let file = disk.open(&indexes, SEGMENTS[2], Access::Update).unwrap();
    write_all_at(&disk, &file, header, 0).unwrap();
    let report = open(disk.clone(), 60).unwrap().repair(RepairOptions::new()).unwrap();
    // Of another store it isn't this one's header at all, so the bytes are this store's again.
    assert_eq!((report.rebuilt.len(), report.left.len()), (1, 0), "{report:?}");
    assert_ne!(bytes_of(&disk, SEGMENTS[2]).unwrap(), before);
    // A commit that is gone: nothing is rebuilt without it.
    damage(&disk, SEGMENTS[2], 3);
    let segment = disk.open_root(format!("{PATH}/log/{}", SEGMENTS[2]).as_ref()).unwrap();
    disk.remove(&segment, "00000000000000000040").unwrap();
    let report = open(disk, 61).unwrap().repair(RepairOptions::new()).unwrap();
    assert_eq!((report.rebuilt.len(), report.left.len()), (0, 1), "{report:?}");
    assert!(report.left[0].what.contains("missing, likely purged (version 40"), "{report:?}");
}

#[test]
fn a_lost_reply_rewinds_once() {
    // Whatever is answered: by the nonce its writer knows its own (R2, R6).
    let disk = prepared(32);
    for errno in [errno::EEXIST, errno::EIO, errno::ETIMEDOUT] {
        for call in 1.. {
            let fork = disk.fork();
            let process = Arc::new(Fault::new(Arc::new(fork.clone()), Plan::new()));
            let store = open_with(process.clone(), 2, &Settings::new()).unwrap();
            store.info().unwrap();
            let before = process.calls();
            process.set_plan(Plan::new().lose_reply(Match::any().nth(call), errno));
            let rewound = store.rewind(Step::new(7), RewindOptions::new());
            let calls = process.calls() - before;
            let info = open(fork.clone(), 3).unwrap().info().unwrap();
            assert!(info.generation.get() <= 1, "call {call}: it was rewound twice");
            match rewound {
                Ok(report) => {
                    assert_eq!((info.generation.get(), info.next_step.get()), (1, 7));
                    assert_eq!(report.parts, 23);
                }
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Io), "call {call}: {error}"),
            }
            check_going_on(&open(fork, 4).unwrap(), &["a", "b"]);
            if calls < call {
                break;
            }
        }
    }
}
