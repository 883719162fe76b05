//! What the simulation of the lifecycle found: reclaim, rewind and verify, and whoever is late for them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave::storage::Storage;
use batchweave::{
    CheckpointOptions, ErrorKind, MountClass, ReclaimOptions, RewindOptions, Settings, Start, Step, Store,
};
use batchweave_sim::{
    Alone, Choices, Class, Fault, Links, Match, Memory, Method, Mount, Plan, Traits, errno,
};

use crate::support::{PATH, create, open, open_with, options, publish};

/// A disk with a log of so many versions, the first of them the Open of "a".
fn disk_with(versions: u64) -> Memory {
    let disk = Memory::new();
    let store = create(Arc::new(disk.clone()), 1, options(), &Settings::new()).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 1..versions {
        publish(&mut producer).unwrap();
    }
    disk
}

/// Others publish two segments and more, and reclaim up to the end, or what a group needs.
fn pass_and_reclaim(disk: &Memory) {
    assert!(freed_by_passing(disk) > 0);
}

fn freed_by_passing(disk: &Memory) -> u64 {
    let store = open(disk.clone(), 60).unwrap();
    let mut producer = store.producer("b").unwrap();
    for _ in 0..50 {
        publish(&mut producer).unwrap();
    }
    let head = store.info().unwrap().next_step;
    store.reclaim(&ReclaimOptions::new().up_to(head)).unwrap().segments.count
}

fn check_clean(store: &Store) {
    let report = store.verify(|_| ()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn a_reader_whose_own_segment_is_gone_is_told_that_its_step_is() {
    let disk = disk_with(5);
    let store = open(disk.clone(), 2).unwrap();
    assert_eq!(store.info().unwrap().next_step, Step::new(4), "it looks at the log in that segment");
    pass_and_reclaim(&disk);
    assert_eq!(store.batch(Step::new(0)).unwrap_err().kind(), ErrorKind::Reclaimed);
}

#[test]
fn who_retires_while_a_rewind_is_staged_stays_retired_if_nothing_of_it_is_dropped() {
    let disk = disk_with(5);
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process.clone(), 2, &Settings::new()).unwrap();
    let elsewhere = disk.clone();
    process.set_plan(Plan::new().meanwhile(
        Match::method(Method::Link).named("-rewind.").nth(1),
        move || {
            assert!(open(elsewhere.clone(), 3).unwrap().retire("a").unwrap());
        },
    ));
    let head = store.info().unwrap().next_step;
    assert_eq!(store.rewind(head, RewindOptions::new()).unwrap().parts, 0);
    let producers = open(disk, 4).unwrap().producers().unwrap();
    assert!(producers[0].finished, "{producers:?}");
}

#[test]
fn who_begins_again_and_finishes_while_a_rewind_is_staged_is_set_back_to_unfinished() {
    let disk = disk_with(5);
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process.clone(), 2, &Settings::new()).unwrap();
    assert!(store.retire("a").unwrap());
    let elsewhere = disk.clone();
    process.set_plan(Plan::new().meanwhile(
        Match::method(Method::Link).named("-rewind.").nth(1),
        move || {
            let mut again = open(elsewhere.clone(), 3).unwrap().producer("a").unwrap();
            publish(&mut again).unwrap();
            again.finish().unwrap();
        },
    ));
    let head = store.info().unwrap().next_step;
    assert_eq!(store.rewind(head, RewindOptions::new()).unwrap().parts, 1);
    // Right before the part that is dropped it had begun again.
    let producers = open(disk, 4).unwrap().producers().unwrap();
    assert!(!producers[0].finished, "{producers:?}");
}

#[test]
fn an_index_put_again_after_it_was_removed_makes_nothing_look_missing() {
    let disk = disk_with(40);
    let root = disk.open_root(Path::new(PATH)).unwrap();
    let indexes = disk.open_dir(&root, "index").unwrap();
    disk.make_dir(&root, "aside").unwrap();
    let aside = disk.open_dir(&root, "aside").unwrap();
    disk.link(&indexes, "000000000000", &aside, "kept").unwrap();
    pass_and_reclaim(&disk);
    disk.link(&aside, "kept", &indexes, "000000000000").unwrap();
    disk.remove(&aside, "kept").unwrap();
    disk.remove_dir(&root, "aside").unwrap();
    // What a sleeper leaves who begins the next segment again.
    let log = disk.open_dir(&root, "log").unwrap();
    disk.make_dir(&log, "000000000001").unwrap();
    let store = open(disk.clone(), 5).unwrap();
    check_clean(&store);
    store.reclaim(&ReclaimOptions::new()).unwrap();
    assert!(disk.open_dir(&log, "000000000001").is_err(), "it is litter, and goes");
    check_clean(&store);
}

#[test]
fn what_a_client_keeps_of_a_removed_file_is_no_fault() {
    let disk = disk_with(20);
    let indexes = disk.open_root(&Path::new(PATH).join("index")).unwrap();
    // NFS clients have the one name for it, FUSE ones (bindfs, sshfs) the other.
    let kept = [".nfs00000000000000630000000a", ".fuse_hidden000006960000000a"];
    for name in kept {
        drop(disk.create_exclusive(&indexes, name).unwrap());
    }
    let report = open(disk.clone(), 2).unwrap().verify(|_| ()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let litter = report.litter.iter().filter(|litter| litter.path.starts_with("index"));
    assert_eq!(litter.count(), kept.len(), "{:?}", report.litter);
    drop(disk.create_exclusive(&indexes, "notes").unwrap());
    assert_eq!(open(disk, 3).unwrap().verify(|_| ()).unwrap().findings.len(), 1, "a stranger's is one");
}

/// A file that is a directory with one file kept what a reader had open under another name in it (exfat-fuse,
/// NFS): the directory stayed in its place, and was called a purged commit.
#[test]
fn what_a_reader_has_open_is_moved_out_of_its_place_where_it_is_kept_in_a_directory() {
    let disk = Memory::new();
    let traits = Traits { links: Links::Nowhere, noreplace: false, ..Class::CloseToOpen.traits() };
    let choices = Choices::replay(Vec::new());
    let mount = Mount::with_traits(disk.clone(), Class::CloseToOpen, traits, choices, Arc::new(Alone));
    let node: Arc<dyn Storage> = Arc::new(mount);
    let store = create(node.clone(), 1, options(), &Settings::new()).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 0..70 {
        publish(&mut producer).unwrap();
    }
    let reading = open_with(node.clone(), 2, &Settings::new()).unwrap();
    let held: Vec<_> = (0..20).map(|step| reading.batch(Step::new(step)).unwrap()).collect();
    let kept = |what: &str| {
        let root = disk.open_root(Path::new(PATH)).unwrap();
        disk.list(&disk.open_dir(&root, what).unwrap()).unwrap().len()
    };
    let segments = kept("log");
    let options = ReclaimOptions::new().up_to(store.info().unwrap().next_step);
    store.reclaim(&options).unwrap();
    assert!(kept("log") < segments, "segments are gone, whoever reads them");
    let kept_for_it = kept("stage");
    assert!(kept_for_it > 0, "the test has lost its teeth: nothing was open");
    check_clean(&store);
    let told = store.verify(|_| ()).unwrap().litter;
    assert_eq!(told.len(), kept_for_it, "{told:?}");
    assert!(told.iter().all(|one| one.why.contains("kept for a reader")), "{told:?}");
    // As long as that has it open it can't go, and nothing is said to have been freed.
    assert_eq!(store.reclaim(&options).unwrap().litter.count, 0);
    assert_eq!(kept("stage"), kept_for_it);
    drop((held, reading));
    // By a process that knows of no earlier reclaim, like the command.
    let removed = store.reclaim(&options).unwrap().litter;
    assert_eq!((kept("stage"), removed.count), (0, kept_for_it as u64));
    check_clean(&store);
    assert!(store.verify(|_| ()).unwrap().litter.is_empty());
}

/// A mount that doesn't let it be moved either keeps it in its place, and it isn't counted as freed.
#[test]
fn what_a_reader_has_open_and_cannot_be_moved_is_not_freed() {
    let disk = Memory::new();
    let traits = Traits { links: Links::Nowhere, noreplace: false, ..Class::CloseToOpen.traits() };
    let choices = Choices::replay(Vec::new());
    let mount = Mount::with_traits(disk.clone(), Class::CloseToOpen, traits, choices, Arc::new(Alone));
    let process = Arc::new(Fault::new(Arc::new(mount), Plan::new()));
    let store = create(process.clone(), 1, options(), &Settings::new()).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 0..70 {
        publish(&mut producer).unwrap();
    }
    // A stranger's name in an index keeps it as a client's own would.
    let held = disk.open_root(&Path::new(PATH).join("index/000000000000")).unwrap();
    disk.create_exclusive(&held, ".fuse_hidden01").unwrap();
    process.set_plan(Plan::new().fail(Match::method(Method::Rename).named("-removed."), errno::EBUSY));
    let options = ReclaimOptions::new().up_to(store.info().unwrap().next_step);
    let freed = store.reclaim(&options).unwrap();
    assert_eq!((freed.segments.count, freed.indexes.count), (3, 1), "one of two stays");
    process.set_plan(Plan::new());
    assert_eq!(store.reclaim(&options).unwrap().indexes.count, 1, "it is moved now");
    check_clean(&store);
}

/// A dry run tells of what is there.
#[test]
fn a_dry_run_does_not_count_what_another_has_removed_meanwhile() {
    let disk = disk_with(5);
    let stage = disk.open_root(&Path::new(PATH).join("stage")).unwrap();
    let names: Vec<_> = (1..3).map(|number| format!("-removed.{number:032x}")).collect();
    for name in &names {
        disk.create_exclusive(&stage, name).unwrap();
    }
    let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(process.clone(), 2, &Settings::new()).unwrap();
    let (gone, elsewhere) = (names[0].clone(), disk.clone());
    let look = Match::method(Method::Open).named(&names[0]).nth(1);
    process.set_plan(Plan::new().meanwhile(look, move || elsewhere.remove(&stage, &gone).unwrap()));
    let report = store.reclaim(&ReclaimOptions::new().dry_run(true)).unwrap();
    assert_eq!((report.litter.count, report.litter_names), (1, vec![format!("stage/{}", names[1])]));
}

/// A control file that a reclaim has seen twice is litter: where a server removes what others have open, its
/// owner is told so while it writes.
#[test]
fn a_control_file_that_is_removed_while_it_is_written_is_staged_anew() {
    for (method, file) in
        [(Method::WriteAt, "-group."), (Method::SyncFile, "-group."), (Method::WriteAt, "-index.")]
    {
        let disk = disk_with(15);
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let settings = Settings::new().mount_class(MountClass::CloseToOpen);
        let store = open_with(process.clone(), 2, &settings).unwrap();
        let mut producer = store.producer("b").unwrap();
        let gone = Match::method(method).named(file).nth(1);
        process.set_plan(Plan::new().fail(gone, errno::ESTALE));
        if file == "-index." {
            publish(&mut producer).unwrap();
        } else {
            store.group("g").unwrap().begin(Start::Beginning).unwrap();
        }
        let store = open(disk, 3).unwrap();
        assert_eq!(store.groups().unwrap().len(), usize::from(file != "-index."));
        check_clean(&store);
    }
}

/// Does `act` on a fork of the disk once for each of its calls; in that one `meanwhile` happens to the disk.
fn meanwhile_in_each_call<T>(
    versions: u64,
    prepare: impl Fn(Store, &Memory) -> T,
    meanwhile: fn(&Memory),
    act: impl Fn(&T) -> batchweave::Result<()>,
) {
    let base = disk_with(versions);
    for (class, wild_one_in) in [(Class::Local, 0), (Class::CloseToOpen, 0), (Class::CloseToOpen, 1)] {
        for call in 1.. {
            let disk = base.fork();
            let traits = Traits { wild_one_in, ..class.traits() };
            let choices = Choices::replay(Vec::new());
            let mount = Mount::with_traits(disk.clone(), class, traits, choices, Arc::new(Alone));
            let process = Arc::new(Fault::new(Arc::new(mount), Plan::new()));
            let settings = Settings::new().io_patience(Duration::ZERO);
            let prepared = prepare(open_with(process.clone(), 50, &settings).unwrap(), &disk);
            let (before, elsewhere) = (process.calls(), disk.clone());
            process.set_plan(Plan::new().meanwhile(Match::any().nth(call), move || meanwhile(&elsewhere)));
            act(&prepared)
                .unwrap_or_else(|error| panic!("{class:?} {wild_one_in}, in call {call}: {error:?}"));
            let made = process.calls() - before;
            if made < call {
                break;
            }
            check_clean(&open(disk, 70).unwrap());
        }
    }
}

/// The index before the snapshot's commits was opened once they were found, and removed by then.
#[test]
fn who_joins_by_a_snapshot_whose_index_is_removed_begins_from_a_newer_one() {
    let join = |(store, snapshot): &(Store, Vec<u8>)| store.join(snapshot).map(drop);
    for versions in [20, 33] {
        let begin = |store: Store, _: &Memory| {
            let snapshot = store.run(Start::Beginning).unwrap().snapshot();
            (store, snapshot)
        };
        meanwhile_in_each_call(versions, begin, pass_and_reclaim, join);
    }
}

/// Others drop all but the first steps by a rewind, and what they have dropped is reclaimed: no floor rises.
fn rewind_and_reclaim(disk: &Memory) {
    let store = open(disk.clone(), 60).unwrap();
    store.rewind(Step::new(5), RewindOptions::new()).unwrap();
    let mut producer = store.producer("b").unwrap();
    for _ in 0..10 {
        publish(&mut producer).unwrap();
    }
    assert!(store.reclaim(&ReclaimOptions::new()).unwrap().segments.count > 0);
}

/// Whoever is late for a change of history is told so, and nothing else.
fn late<T>(done: batchweave::Result<T>) -> batchweave::Result<()> {
    match done {
        Err(error) if matches!(error.kind(), ErrorKind::Rewound | ErrorKind::Reclaimed) => Ok(()),
        done => done.map(drop),
    }
}

/// What a rewind reads of the past may be removed because another rewind has dropped it: no Floor says so.
#[test]
fn who_rewinds_to_what_another_has_dropped_is_told_so() {
    let rewind = |store: &Store| match store.rewind(Step::new(30), RewindOptions::new()) {
        Err(error) if matches!(error.kind(), ErrorKind::Rewound | ErrorKind::Invalid) => Ok(()),
        rewound => rewound.map(drop),
    };
    meanwhile_in_each_call(60, |store, _| store, rewind_and_reclaim, rewind);
}

/// Where a run begins is found by indexes, which may be removed as well.
#[test]
fn who_begins_or_checkpoints_where_the_log_is_removed_is_told_so() {
    let saved = |store: Store, disk: &Memory| {
        // Not by the same handle, which would have that index open.
        let elsewhere = open(disk.clone(), 51).unwrap();
        let position = elsewhere.run(Start::Step(Step::new(30))).unwrap().position();
        (store, position)
    };
    // Once the group is there, it keeps what it needs.
    let pass = |disk: &Memory| _ = freed_by_passing(disk);
    for meanwhile in [rewind_and_reclaim, pass] {
        meanwhile_in_each_call(60, saved, meanwhile, |(store, at)| late(store.run(*at)));
        meanwhile_in_each_call(60, saved, meanwhile, |(store, at)| {
            late(store.group("g").unwrap().begin(*at))
        });
        meanwhile_in_each_call(60, saved, meanwhile, |(store, at)| {
            let group = store.group("g").unwrap();
            late(group.checkpoint(*at, "kept", &CheckpointOptions::new()))
        });
        meanwhile_in_each_call(60, saved, meanwhile, |(store, at)| match store.batch(at.step) {
            // Who looks after the rewind finds that step unpublished.
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(()),
            read => late(read),
        });
    }
}

/// A step was called missing when the look that would have shown that it was freed had failed itself.
#[test]
fn who_cannot_look_at_the_floor_calls_nothing_damaged() {
    for errno in [errno::EINTR, errno::EIO, errno::EACCES] {
        let (mut kept_from, mut told) = (0, 0);
        for call in 1.. {
            let disk = disk_with(5);
            let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
            let settings = Settings::new().mount_class(MountClass::Coherent).io_patience(Duration::ZERO);
            let store = open_with(process.clone(), 2, &settings).unwrap();
            store.batch(Step::new(1)).unwrap();
            pass_and_reclaim(&disk);
            let before = process.calls();
            process.set_plan(Plan::new().fail(Match::any().nth(call), errno));
            let error = store.batch(Step::new(0)).unwrap_err();
            match error.kind() {
                ErrorKind::Reclaimed => told += 1,
                ErrorKind::Io => kept_from += 1,
                _ => panic!("errno {errno} of call {call}: {error}"),
            }
            if process.calls() - before < call {
                break;
            }
        }
        assert!(told > 0, "{kept_from} times kept from it, never told");
    }
}

/// The directory that is linked into, and the index before it, were found by their names and gone by then.
#[test]
fn who_writes_where_a_segment_is_begun_already_is_late_and_no_more() {
    let begun = |store: Store, disk: &Memory| {
        // Somebody has crossed into the next segment, and died before his link.
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let crossing = open_with(process.clone(), 40, &Settings::new()).unwrap();
        process.set_plan(Plan::new().fail(Match::method(Method::Link).named("-> log/"), errno::EIO));
        crossing.producer("a").unwrap_err();
        store
    };
    let open_producer = |store: &Store| store.producer("c").map(drop);
    for versions in [16, 32] {
        meanwhile_in_each_call(versions, begun, pass_and_reclaim, open_producer);
    }
}

fn verify(store: &Store) -> batchweave::Result<()> {
    let report = store.verify(|_| ())?;
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    Ok(())
}

#[test]
fn what_is_dropped_and_removed_while_it_is_verified_is_no_fault() {
    meanwhile_in_each_call(60, |store, _| store, rewind_and_reclaim, verify);
}

/// Others begin the second segment from here, and reclaim what that allows: the first one, but not its index.
fn pass_and_reclaim_one(disk: &Memory) {
    let store = open(disk.clone(), 60).unwrap();
    let mut producer = store.producer("b").unwrap();
    for _ in 0..28 {
        publish(&mut producer).unwrap();
    }
    let head = store.info().unwrap().next_step;
    store.reclaim(&ReclaimOptions::new().up_to(head)).unwrap();
}

/// Others reclaim, and are still about it, or died in it: of a segment some commits are removed.
fn reclaim_half(disk: &Memory) {
    let reclaimer = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(reclaimer.clone(), 60, &Settings::new()).unwrap();
    let head = store.info().unwrap().next_step;
    let later = Match::method(Method::Remove).named("log/").from_nth(9);
    reclaimer.set_plan(Plan::new().fail(later, errno::EIO));
    store.reclaim(&ReclaimOptions::new().up_to(head)).unwrap_err();
}

/// Sleepers who were about to begin these segments do so, though they are removed.
fn begin_again(disk: &Memory) {
    let root = disk.open_root(Path::new(PATH)).unwrap();
    let log = disk.open_dir(&root, "log").unwrap();
    for segment in 0..2 {
        let _ = disk.make_dir(&log, &format!("{segment:012}"));
    }
}

/// Where a sleeper keeps an index that it is about to put.
const ASIDE: &str = "aside";

fn set_aside(disk: &Memory, index: &str) {
    let root = disk.open_root(Path::new("/")).unwrap();
    disk.make_dir(&root, ASIDE).unwrap();
    let store = disk.open_root(Path::new(PATH)).unwrap();
    let indexes = disk.open_dir(&store, "index").unwrap();
    disk.link(&indexes, index, &disk.open_dir(&root, ASIDE).unwrap(), index).unwrap();
}

/// It puts the index, though it is removed.
fn put_again(disk: &Memory) {
    let root = disk.open_root(Path::new("/")).unwrap();
    let aside = disk.open_dir(&root, ASIDE).unwrap();
    let store = disk.open_root(Path::new(PATH)).unwrap();
    let indexes = disk.open_dir(&store, "index").unwrap();
    for index in disk.list(&aside).unwrap().iter().filter_map(|name| name.to_str()) {
        let _ = disk.link(&aside, index, &indexes, index);
    }
}

/// Verifies a log again and again: `first` happens in one of its listings, `then` in that
/// call or a later one: in every third, which are others for each listing.
fn verify_while(base: &Memory, first: fn(&Memory), then: fn(&Memory)) {
    let process_on = |disk: &Memory| {
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let store = open_with(process.clone(), 50, &Settings::new()).unwrap();
        (process, store)
    };
    let (process, store) = process_on(base);
    let before = process.calls();
    verify(&store).unwrap();
    let calls = process.trace().into_iter().skip_while(|call| call.number < before).zip(1..);
    for (_, listing) in calls.filter(|(call, _)| call.method == Method::List) {
        for call in (listing..).step_by(3) {
            let disk = base.fork();
            let (process, store) = process_on(&disk);
            let before = process.calls();
            let (here, there) = (disk.clone(), disk.clone());
            let plan = Plan::new().meanwhile(Match::any().nth(listing), move || first(&here));
            process.set_plan(plan.meanwhile(Match::any().nth(call), move || then(&there)));
            verify(&store).unwrap_or_else(|error| panic!("in calls {listing} and {call}: {error:?}"));
            if process.calls() - before < call {
                break;
            }
        }
    }
}

#[test]
fn what_is_removed_half_while_it_is_verified_is_no_fault() {
    meanwhile_in_each_call(40, |store, _| store, reclaim_half, verify);
}

/// A segment that was the newest has an index that wasn't there when it was begun with.
#[test]
fn a_segment_that_is_complete_and_removed_while_it_is_verified_is_no_fault() {
    meanwhile_in_each_call(10, |store, _| store, pass_and_reclaim_one, verify);
}

#[test]
fn a_removed_segment_that_a_sleeper_begins_again_while_it_is_verified_is_no_fault() {
    verify_while(&disk_with(20), pass_and_reclaim, begin_again);
}

/// With the indexes that are left it is one row without a gap.
#[test]
fn an_index_that_is_put_again_while_it_is_verified_is_no_fault() {
    let disk = disk_with(49);
    set_aside(&disk, "000000000001");
    verify_while(&disk, pass_and_reclaim_one, put_again);
}

/// Between the look at the indexes and that at the log's end all that was looked at may be removed; and a
/// mark's segment, too.
#[test]
fn a_log_that_passes_by_twice_while_it_is_verified_is_no_fault() {
    verify_while(&disk_with(20), pass_and_reclaim, pass_and_reclaim);
}

/// Whatever is done where others pass by and reclaim: it is done, or late and told so.
#[test]
fn nothing_that_is_removed_meanwhile_makes_an_error_of_another_kind() {
    type Act = fn(&Store) -> batchweave::Result<()>;
    let acts: [(&str, Act); 13] = [
        ("open a producer", |store| store.producer("c").map(drop)),
        ("open a producer again", |store| store.producer("a").map(drop)),
        ("publish", |store| {
            let mut producer = store.producer("c")?;
            publish(&mut producer).map(drop)
        }),
        ("begin a group", |store| store.group("g")?.begin(Start::Beginning).map(drop)),
        ("checkpoint", |store| {
            let head = store.info()?.next_step;
            let position = store.position(head)?;
            store.group("g")?.checkpoint(position, "kept", &CheckpointOptions::new()).map(drop)
        }),
        ("retire", |store| store.retire("a").map(drop)),
        ("skip", |store| store.skip(Step::new(3), Step::new(4), "bad").map(drop)),
        ("rewind", |store| {
            let head = store.info()?.next_step;
            store.rewind(head, RewindOptions::new()).map(drop)
        }),
        ("reclaim", |store| {
            // Never late: what another has freed is free.
            store.reclaim(&ReclaimOptions::new().up_to(Step::new(5))).unwrap();
            Ok(())
        }),
        ("read", |store| store.batch(Step::new(3)).map(drop)),
        ("list", |store| {
            store.info()?;
            store.groups()?;
            store.producers().map(drop)
        }),
        ("take a snapshot", |store| {
            let head = store.info()?.next_step;
            store.run(store.position(head)?).map(drop)
        }),
        ("verify", verify),
    ];
    let pass = |disk: &Memory| _ = freed_by_passing(disk);
    for (what, act) in acts {
        for versions in [16, 17] {
            println!("{what}, {versions} versions");
            meanwhile_in_each_call(versions, |store, _| store, pass, |store| late(act(store)));
        }
    }
}
