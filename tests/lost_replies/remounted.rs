//! Handles that have outlived their mount: a server was restarted, or the filesystem mounted anew. All that
//! was opened before answers with an error for ever, and whoever writes has to open it anew, and to see
//! whether what was replayed is still there (R10).

use std::sync::atomic::Ordering;

use batchweave::storage::Storage;
use batchweave::{Error, ErrorKind, Primitive, ReclaimOptions, Start, Step, Store};
use batchweave_sim::{Memory, Plan, errno};

use super::patience::{Process, all_fail, remote};
use super::support::*;
use super::{prepared, see_through};

/// What an old handle answers.
const OUTLIVED: [i32; 2] = [errno::EIO, errno::ESTALE];
const PRIMITIVES: [Primitive; 3] = [Primitive::Link, Primitive::RenameNoreplace, Primitive::RenameDirectory];

#[test]
fn who_writes_goes_on_too_after_a_mount_was_mounted_anew() {
    type Word = fn(&Store) -> Result<(), Error>;
    let words: [(&str, Word); 6] = [
        ("producer", |store| store.producer("b").map(drop)),
        ("reclaim", |store| store.reclaim(&ReclaimOptions::new().up_to(Step::new(9))).map(drop)),
        ("group", |store| store.group("job")?.begin(Start::Beginning).map(drop)),
        ("close", |store| store.close(false).map(drop)),
        ("retire", |store| store.retire("a").map(drop)),
        ("skip", |store| store.skip(Step::new(1), Step::new(1), "bad").map(drop)),
    ];
    let disk = Process::new().disk;
    for (errno, (word, say)) in OUTLIVED.into_iter().flat_map(|errno| words.map(|word| (errno, word))) {
        // After each of its calls: a handle is held then, or looked up anew.
        for calls in 0.. {
            let process = Process::over(disk.fork());
            let store = process.open(&remote());
            let before = process.mount.calls();
            process.mount.remount_after(calls, errno);
            let said: Vec<_> = (0..3).map(|_| say(&store)).collect();
            let is_done = said.iter().any(Result::is_ok);
            assert!(is_done, "{word}, mounted anew after {calls} calls: {said:?}");
            if process.mount.calls() - before < calls {
                break;
            }
        }
    }
}

#[test]
fn a_publish_across_a_boundary_goes_on_after_a_mount_was_mounted_anew() {
    for (errno, primitive) in OUTLIVED.into_iter().flat_map(|errno| PRIMITIVES.map(|way| (errno, way))) {
        // Its producer's Open is the segment's last version.
        let disk = prepared(15, mount_with(primitive)).0;
        for calls in 0.. {
            let process = Process::over(disk.fork());
            let store = process.open(&remote());
            let producer = store.producer("a").unwrap();
            let (sequence, before) = (producer.next_sequence().get(), process.mount.calls());
            process.mount.remount_after(calls, errno);
            let producer = see_through(&store, producer, sequence);
            let needed = process.mount.calls() - before;
            see_through(&store, producer, sequence + 1);
            let parts = check_replay(&open(process.disk.clone(), 7).unwrap()).parts();
            let how = format!("{primitive}, mounted anew after {calls} calls");
            assert_eq!(check_dense(&parts)["a"], sequence + 2, "{how}");
            assert!(!store.inner().puts_beside.load(Ordering::Relaxed), "{how}: taken for a refusal (R9)");
            if needed < calls {
                break;
            }
        }
    }
}

/// A reader of the same handle has found the store on the new mount, and the producer still held stage/ of
/// the old one: between two mounts every link and rename is EXDEV, which isn't the mount's own refusal.
#[test]
fn a_producer_goes_on_where_a_reader_has_found_the_store_on_another_mount() {
    for (errno, primitive) in OUTLIVED.into_iter().flat_map(|errno| PRIMITIVES.map(|way| (errno, way))) {
        let process = Process::over(prepared(3, mount_with(primitive)).0);
        let store = process.open(&remote());
        let mut producer = store.producer("a").unwrap();
        let sequence = producer.next_sequence().get();
        process.mount.set_plan(all_fail(errno::ENOTCONN));
        producer.draft().unwrap_err();
        process.mount.set_plan(Plan::new());
        process.mount.remount(errno);
        store.info().unwrap();
        for sequence in sequence..sequence + 2 {
            let draft = draft(&mut producer, 1).unwrap();
            producer.publish_now(draft, state("a", sequence)).unwrap();
        }
        assert!(!store.inner().puts_beside.load(Ordering::Relaxed), "{primitive}: taken for a refusal (R9)");
    }
}

/// A server that comes back with an older state of the disk, which has the same STORE.
#[test]
fn what_a_server_has_lost_is_told_before_anything_is_written() {
    type Word = fn(&Store) -> Result<(), Error>;
    let words: [(&str, Word); 4] = [
        ("producer", |store| store.producer("b").map(drop)),
        ("group", |store| store.group("job")?.begin(Start::Beginning).map(drop)),
        ("close", |store| store.close(false).map(drop)),
        ("reclaim", |store| store.reclaim(&ReclaimOptions::new().up_to(Step::new(1))).map(drop)),
    ];
    for (errno, (word, say)) in OUTLIVED.into_iter().flat_map(|errno| words.map(|word| (errno, word))) {
        for looks_first in [false, true] {
            let process = Process::over(prepared(12, mount_with(Primitive::Link)).0);
            let store = process.open(&remote().io_patience(std::time::Duration::ZERO));
            let head = store.info().unwrap().head_version.unwrap().get();
            lose(&process.disk, head - 2..=head);
            process.mount.remount(errno);
            if looks_first {
                assert_eq!(store.info().unwrap_err().kind(), ErrorKind::Io);
            }
            // It is told before anything is written, and what is written then goes on from what is there.
            let said: Vec<_> = (0..4).map(|_| say(&store).map_err(|error| error.kind())).collect();
            let told = said.iter().position(|said| *said == Err(ErrorKind::Rewound));
            let told = told.unwrap_or_else(|| panic!("{word}: nobody is told: {said:?}"));
            assert!(said[..told].iter().all(|said| *said == Err(ErrorKind::Io)), "{word}: {said:?}");
            let fresh = open(process.disk.clone(), 7).unwrap();
            let report = fresh.verify(|_| ()).unwrap();
            assert!(report.findings.is_empty(), "{word}: {said:?}: {:?}", report.findings);
        }
    }
}

/// The newest commits were never written, as far as the server knows.
fn lose(disk: &Memory, versions: std::ops::RangeInclusive<u64>) {
    let segment = disk.open_root(&std::path::Path::new(PATH).join("log/000000000000")).unwrap();
    for version in versions {
        disk.remove(&segment, &format!("{version:020}")).unwrap();
    }
}
