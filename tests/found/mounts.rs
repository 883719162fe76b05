//! What a mount says in passing, what it refuses, and a sync that it couldn't do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use batchweave::{ErrorKind, Primitive, Settings, Store};
use batchweave_sim::{
    Alone, Choices, Class, Fault, Links, Match, Memory, Method, Mount, Pause, Plan, Traits, errno,
};

use crate::support::{create, open, open_with, options, publish};

fn mounted(disk: &Memory, class: Class) -> Mount {
    Mount::new(disk.clone(), class, Choices::replay(Vec::new()), Arc::new(Alone))
}

fn created(plan: Plan, seed: u64, disk: &Memory) -> batchweave::Result<Store> {
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), plan));
    create(process, seed, options(), &Settings::new())
}

/// What a store was published by for good, or whether it was refused, was decided by an error that passed.
#[test]
fn an_error_that_passes_chooses_no_primitive() {
    let passing = [errno::EIO, errno::ESTALE, errno::ETIMEDOUT, errno::EINTR, errno::ENOSPC, errno::EDQUOT];
    for errno in passing {
        // The first link onto a free name, the one onto a taken one.
        for call in 1..=2 {
            let disk = Memory::new();
            let plan = Plan::new().fail(Match::method(Method::Link).named("probe").nth(call), errno);
            let error = created(plan, 1, &disk).expect_err("a probe that found nothing out");
            assert_eq!(
                (error.kind() == ErrorKind::Unsupported, error.errno()),
                (false, Some(errno)),
                "{error}"
            );
            let store = created(Plan::new(), 2, &disk).unwrap();
            assert_eq!(store.inner().identity.primitive, Primitive::Link);
        }
    }
}

/// The probe's own link, sent twice, said EEXIST: the mount was taken for one that can't link.
#[test]
fn a_probe_that_was_sent_twice_has_won() {
    let plan = Plan::new().lose_reply(Match::method(Method::Link).nth(1), errno::EEXIST);
    let store = created(plan, 1, &Memory::new()).unwrap();
    assert_eq!(store.inner().identity.primitive, Primitive::Link);
}

/// An sshfs client answers who comes second with EPERM, whatever he makes: a producer failed at the boundary
/// whose segment another had begun.
#[test]
fn a_segment_that_another_has_begun_is_begun_whatever_the_error_says() {
    for (method, place) in [(Method::MakeDir, "log"), (Method::CreateExclusive, "marks")] {
        let disk = Memory::new();
        let made = Match::method(method).named(place).when(|on| on.ends_with("000000000001"));
        let process = Arc::new(Fault::new(Arc::new(disk), Plan::new().lose_reply(made, errno::EPERM)));
        let store = create(process, 1, options(), &Settings::new()).unwrap();
        let mut producer = store.producer("a").unwrap();
        for _ in 0..20 {
            publish(&mut producer).unwrap();
        }
        assert!(store.verify(|_| ()).unwrap().is_clean());
    }
}

/// A directory that was open when its sync failed syncs well afterwards, and that proves nothing: a producer
/// opened anew on the same handle acknowledged by it what a power cut took.
#[test]
fn what_was_open_when_a_sync_failed_is_not_synced_through() {
    for (failing, parts) in
        [("log/000000000000", 3), ("log/000000000000", 15), ("index", 15), ("log", 15), ("marks", 15)]
    {
        let disk = Memory::new();
        let mount = mounted(&disk, Class::Local);
        let process = Arc::new(Fault::new(Arc::new(mount.clone()), Plan::new()));
        let store = create(process.clone(), 1, options(), &Settings::new()).unwrap();
        let mut producer = store.producer("a").unwrap();
        for _ in 1..parts {
            publish(&mut producer).unwrap();
        }
        let last = failing.to_owned();
        let sync = Match::method(Method::SyncDir).when(move |on| on.ends_with(&last)).nth(1);
        process.set_plan(Plan::new().meanwhile(sync, move || mount.fail_next_sync(errno::EIO)));
        // Up to the boundary, and over it.
        let failed = (0..3).find_map(|_| publish(&mut producer).err());
        let failed = failed.unwrap_or_else(|| panic!("{failing} isn't synced"));
        assert_eq!((failed.kind(), failed.errno()), (ErrorKind::Io, Some(errno::EIO)), "{failed}");
        drop(producer);
        let mut producer = store.producer("a").unwrap();
        let published = publish(&mut producer).unwrap();
        disk.power_cut();
        let store = open(disk, 2).unwrap();
        assert!(
            store.info().unwrap().head_version >= Some(published.version),
            "{failing}: acknowledged, and lost"
        );
    }
}

/// The same of the store's own directory, before the first write through a handle.
#[test]
fn a_root_whose_sync_failed_is_opened_anew_to_sync_it() {
    let mut tried = 0;
    for call in 0.. {
        let disk = Memory::new();
        // STORE may have its name already when its creator dies, and nobody has synced it.
        let created = created(Plan::new().stop_at(call), 1, &disk).is_ok();
        let mount = mounted(&disk, Class::Local);
        if let Ok(store) = open_with(Arc::new(mount.clone()), 2, &Settings::new()) {
            tried += 1;
            mount.fail_next_sync(errno::EIO);
            assert_eq!(store.producer("a").unwrap_err().errno(), Some(errno::EIO));
            publish(&mut store.producer("a").unwrap()).unwrap();
            disk.power_cut();
            let store =
                open(disk, 3).unwrap_or_else(|error| panic!("creator stopped at call {call}: {error}"));
            assert_eq!(store.info().unwrap().next_step.get(), 1);
        }
        if created {
            break;
        }
    }
    assert!(tried > 1);
}

/// That a mount refuses to link between two directories was said of commits only, not of STORE or an index.
/// By now it is done in one (R9), and said only where that is refused too.
#[test]
fn a_link_refused_between_directories_is_made_in_one_whatever_it_is_for() {
    let within = Traits { links: Links::WithinDirectory, ..Class::CloseToOpen.traits() };
    let mount = Mount::with_traits(
        Memory::new(),
        Class::CloseToOpen,
        within,
        Choices::replay(vec![]),
        Arc::new(Alone),
    );
    let store = create(Arc::new(mount), 1, options(), &Settings::new()).unwrap();
    let mut producer = store.producer("a").unwrap();
    while publish(&mut producer).unwrap().version.get() < 17 {}
    assert_eq!(store.info().unwrap().next_step.get(), 17);
    let report = store.verify(|_| ()).unwrap();
    assert!(report.is_clean() && report.litter.is_empty(), "{report:?}");
    for errno in [errno::EXDEV, errno::EPERM] {
        for target in ["-> log/", "-> index/"] {
            let process = Arc::new(Fault::new(Arc::new(Memory::new()), Plan::new()));
            let store = create(process.clone(), 1, options(), &Settings::new()).unwrap();
            let mut producer = store.producer("a").unwrap();
            for _ in 1..16 {
                publish(&mut producer).unwrap();
            }
            let refused = Match::method(Method::Link).named(target);
            process.set_plan(Plan::new().fail(refused, errno));
            let error = publish(&mut producer).unwrap_err();
            assert_eq!(
                (error.kind(), error.errno()),
                (ErrorKind::Unsupported, Some(errno)),
                "{target} {error}"
            );
        }
    }
}

/// Others publish so many steps between two servers' pieces of one listing.
#[derive(Debug)]
struct Between {
    pieces_before: AtomicU32,
    disk: Memory,
    steps: u32,
}

impl Pause for Between {
    fn pause(&self, _seen: u64) {
        if self.pieces_before.fetch_sub(1, Ordering::Relaxed) == 0 {
            let mut producer = open(self.disk.clone(), 7).unwrap().producer("b").unwrap();
            for _ in 0..self.steps {
                publish(&mut producer).unwrap();
            }
        }
    }

    fn wait_on(&self, _key: u64, _timeout: Duration) {}

    fn wake(&self, _key: u64) {}
}

/// A listing that is put together from several servers' pieces lacked a segment that was begun meanwhile, and
/// had a later one: verify called it purged.
#[test]
fn what_is_begun_in_the_middle_of_a_listing_is_not_called_purged() {
    let mut listings = 0;
    for pieces in 0..20 {
        for steps in [20, 40, 60, 80] {
            let disk = Memory::new();
            let store = create(Arc::new(disk.clone()), 1, options(), &Settings::new()).unwrap();
            let mut producer = store.producer("a").unwrap();
            for _ in 0..10 {
                publish(&mut producer).unwrap();
            }
            let between = Between { pieces_before: AtomicU32::new(pieces), disk: disk.clone(), steps };
            let between = Arc::new(between);
            let class = Class::Coherent { bricks: 3 };
            let mount = Mount::new(disk, class, Choices::replay(Vec::new()), between.clone());
            let report = open(mount, 2).unwrap().verify(|_| ()).unwrap();
            assert!(report.findings.is_empty(), "{pieces} pieces, {steps} steps: {:?}", report.findings);
            // It has gone below zero if it came to that.
            listings += u32::from(between.pieces_before.load(Ordering::Relaxed) > pieces);
        }
    }
    assert!(listings > 20, "{listings} of 80 were in the middle of a listing");
}
