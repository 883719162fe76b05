//! A disk that dies, and lies about directories from then on: XFS, once it has shut down, answers every call
//! by EIO but the sync of a directory, which finds nothing that it could still write, and says that all is
//! well. The method: it dies in each call of an operation in turn, and then the power goes; what was
//! acknowledged has to be there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use batchweave::storage::{Access, Storage, write_all_at};
use batchweave::{CopyOptions, Position, RepairOptions, Result, Settings, Start, Store};
use batchweave_sim::{Fault, Match, Memory, Method, Plan, Seeded, errno};

use crate::support::*;

/// The last call that has an effect is this one.
fn dying_in(call: u64) -> Plan {
    let dead = Arc::new(AtomicBool::new(false));
    let dies = Arc::clone(&dead);
    let plan = Plan::new().meanwhile(Match::any().nth(call), move || dies.store(true, Ordering::Relaxed));
    Method::ALL.iter().fold(plan, |plan, method| {
        let dead = Arc::clone(&dead);
        let calls = Match::method(*method).when(move |_| dead.load(Ordering::Relaxed));
        match method {
            Method::SyncDir => plan.cut(calls, 0),
            _ => plan.fail(calls, errno::EIO),
        }
    })
}

fn dies_in_each_call(disk: &Memory, act: impl Fn(&Store) -> Result<()>, is_done: impl Fn(&Store) -> bool) {
    let open_it = |process: Arc<Fault>| open_with(process, 2, &Settings::new()).unwrap();
    dies_in_each_call_of(disk, open_it, |store, _| act(store), |disk| is_done(&open(disk, 3).unwrap()));
}

/// As [`dies_in_each_call`], of a process that has begun with something, which may be nothing at all.
fn dies_in_each_call_of<B>(
    disk: &Memory,
    begin: impl Fn(Arc<Fault>) -> B,
    act: impl Fn(&B, Arc<Fault>) -> Result<()>,
    is_done: impl Fn(Memory) -> bool,
) {
    for call in 1.. {
        let disk = disk.fork();
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let begun = begin(process.clone());
        let before = process.calls();
        process.set_plan(dying_in(call));
        let acted = act(&begun, process.clone());
        let calls = process.calls() - before;
        disk.power_cut();
        let is_done = is_done(disk);
        let last = || process.trace()[(before + call - 1) as usize].to_string();
        assert!(is_done || acted.is_err(), "acknowledged and lost: the disk died in call {call}, {}", last());
        if calls < call {
            assert!(is_done && call > 3, "{acted:?} after {calls} calls");
            return;
        }
    }
}

/// A disk with a store of three parts, and a process that never heard of it.
fn prepared() -> (Memory, Arc<Fault>, Store) {
    let (disk, _) = super::prepared(4, Plan::new());
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process.clone(), 5, &Settings::new()).unwrap();
    (disk, process, store)
}

#[test]
fn a_store_is_said_to_be_created_by_a_living_disk_only() {
    let create_it = |(): &(), process: Arc<Fault>| create(process, 1, options(), &Settings::new()).map(drop);
    dies_in_each_call_of(&Memory::new(), drop, create_it, |disk| open(disk, 3).is_ok());
}

#[test]
fn a_part_is_acknowledged_by_a_living_disk_only() {
    let (disk, _, store) = prepared();
    let parts = store.info().unwrap().next_step.get();
    let act = |store: &Store| publish(&mut store.producer("a")?).map(drop);
    dies_in_each_call(&disk, act, |store| store.info().unwrap().next_step.get() > parts);
}

#[test]
fn a_checkpoint_is_acknowledged_by_a_living_disk_only() {
    let (disk, _, store) = prepared();
    let position: Position = store.position(2.into()).unwrap();
    store.group("job").unwrap().begin(Start::Beginning).unwrap();
    let act = |store: &Store| store.group("job")?.checkpoint(position, "two", &Default::default()).map(drop);
    dies_in_each_call(&disk, act, |store| !store.groups().unwrap()[0].checkpoints.is_empty());
}

#[test]
fn what_is_there_already_is_acknowledged_by_a_living_disk_only() {
    // Somebody has closed the stream, but not made that durable.
    let (disk, process, store) = prepared();
    process.set_plan(Plan::new().fail(Match::method(Method::SyncDir).named("log/0"), errno::EIO));
    store.close(false).unwrap_err();
    let act = |store: &Store| store.close(false).map(|closes| assert!(!closes));
    dies_in_each_call(&disk, act, |store| store.info().unwrap().closed.is_some());
}

#[test]
fn a_copy_is_acknowledged_by_a_living_disk_only() {
    let (disk, _, store) = prepared();
    drop(store);
    let copy = Path::new("/copy");
    let act = |store: &Store| store.copy_to(copy, CopyOptions::new()).map(drop);
    dies_in_each_call(&disk, act, |store| {
        // Through this store's disk, on which the copy is.
        let disk = store.inner().outside.clone();
        Store::open_on(copy, disk, Arc::new(Seeded::new(7)), &Settings::new()).is_ok()
    });
}

/// Overwrites a file's first bytes, for good.
fn damage(disk: &Memory, directory: &str, name: &str) {
    let directory = disk.open_root(format!("{PATH}/{directory}").as_ref()).unwrap();
    let file = disk.open(&directory, name, Access::Update).unwrap();
    write_all_at(disk, &file, &[0xa5; 7], 0).unwrap();
    disk.write_back();
}

#[test]
fn a_repair_is_acknowledged_by_a_living_disk_only() {
    let (disk, _) = super::prepared(40, Plan::new());
    let repair = |store: &Store| store.repair(RepairOptions::new().confirm(true)).map(drop);
    for (directory, name) in [("index", "000000000001"), ("log/000000000002", "00000000000000000039")] {
        let broken = disk.fork();
        damage(&broken, directory, name);
        dies_in_each_call(&broken, repair, |store| store.info().is_ok());
    }
}
