//! A disk that dies, and lies about directories from then on: XFS, once it has shut down, answers every call
//! by EIO but the sync of a directory, which finds nothing that it could still write, and says that all is
//! well. The method: it dies in each call of an operation in turn, and then the power goes; what was
//! acknowledged has to be there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use batchweave::{Position, Result, Settings, Start, Store};
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
    for call in 1.. {
        let disk = disk.fork();
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let store = open_with(process.clone(), 2, &Settings::new()).unwrap();
        let before = process.calls();
        process.set_plan(dying_in(call));
        let acted = act(&store);
        let calls = process.calls() - before;
        disk.power_cut();
        let is_done = is_done(&open(disk, 3).unwrap());
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
    let act = |store: &Store| store.copy_to(copy, None).map(drop);
    dies_in_each_call(&disk, act, |store| {
        // Through this store's disk, on which the copy is.
        let disk = store.inner().outside.clone();
        Store::open_on(copy, disk, Arc::new(Seeded::new(7)), &Settings::new()).is_ok()
    });
}
