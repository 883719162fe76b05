//! Joining a run by its snapshot: the same view for every rank, for a handful of calls, and none that writes.

use batchweave::{ErrorKind, Next, Start, Step};
use batchweave_sim::{Fault, Plan};

use super::*;

/// A process that counts its calls and may not write.
fn joiner(disk: &Memory, seed: u64) -> (Arc<Fault>, Store) {
    let storage = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
    let store = open_with(storage.clone(), seed, &Settings::new()).unwrap();
    (storage, store)
}

#[test]
fn ranks_that_join_deliver_what_the_first_delivers() {
    // Deep in the log, in the middle of a segment, and behind the newest segments.
    let disk = prepared(200);
    for start in [0, 3, 150, 198, 200] {
        let opener = process(&disk, 2);
        let run = opener.group("g").unwrap().begin(Step::new(start)).unwrap();
        let snapshot = run.snapshot();
        let (_, store) = joiner(&disk, 3);
        let joined = store.join(&snapshot).unwrap();
        assert_eq!(joined.position(), run.position());
        assert_eq!(joined.group(), run.group());
        let left: Vec<_> = (start..200).collect();
        assert_eq!(deliver(&mut consumer(&joined), left.len()), left);
    }
}

#[test]
fn joining_costs_the_same_however_long_the_log() {
    let calls = |steps: u64| {
        let disk = prepared(steps);
        let snapshot = process(&disk, 2).group("g").unwrap().begin(Step::new(steps - 1)).unwrap().snapshot();
        let (_, store) = joiner(&disk, 3);
        let before = store.stats().calls;
        let run = store.join(&snapshot).unwrap();
        let joined = store.stats();
        assert_eq!(joined.calls.create_exclusive, before.create_exclusive, "it writes nothing");
        assert_eq!(deliver(&mut consumer(&run), 1), [steps - 1]);
        joined.metadata_calls
    };
    let few = calls(40);
    assert_eq!(few, calls(40 + 16 * 20), "at versions equal mod S");
    assert!(few <= 16, "{few} calls to open and join");
}

#[test]
fn a_view_is_that_of_the_rank_that_began_it() {
    let disk = prepared(20);
    let opener = process(&disk, 2);
    let run = opener.group("g").unwrap().begin(Start::Beginning).unwrap();
    let snapshot = run.snapshot();
    // Closed after the view: the end is on everybody's way. Reopened too: nobody of this view sees it.
    opener.close(false).unwrap();
    opener.reopen().unwrap();
    let mut producer = reopen(&opener, "a", &replay(opener.inner()).parts());
    publish(&mut producer).unwrap();
    let joined = process(&disk, 3).join(&snapshot).unwrap();
    // A snapshot that is taken later is still of that view, though its handle knows more by now.
    let joined_later = process(&disk, 5).join(&run.snapshot()).unwrap();
    let later = process(&disk, 4).run(Start::Beginning).unwrap();
    for (run, steps) in [(&run, 20), (&joined, 20), (&joined_later, 20), (&later, 21)] {
        let mut reader = consumer(run);
        deliver(&mut reader, steps);
        let end = reader.try_next().unwrap();
        assert_eq!(matches!(end, Next::Closed), steps == 20, "{end:?}");
    }
}

#[test]
fn a_snapshot_of_a_log_that_has_gone_on_is_as_good() {
    let disk = prepared(20);
    let opener = process(&disk, 2);
    let snapshot = opener.group("g").unwrap().begin(Step::new(18)).unwrap().snapshot();
    let mut producer = reopen(&opener, "a", &replay(opener.inner()).parts());
    for _ in 20..90 {
        publish(&mut producer).unwrap();
    }
    let joined = process(&disk, 3).join(&snapshot).unwrap();
    assert_eq!(deliver(&mut consumer(&joined), 72), (18..90).collect::<Vec<_>>());
}

#[test]
fn other_bytes_are_refused_by_name() {
    let disk = prepared(20);
    let store = process(&disk, 2);
    let snapshot = store.group("g").unwrap().begin(Start::Beginning).unwrap().snapshot();
    let refused = |bytes: &[u8]| store.join(bytes).map(drop).unwrap_err().kind();
    assert_eq!(refused(b""), ErrorKind::Invalid);
    for cut in [1, 8, 50, snapshot.len() - 1] {
        assert_eq!(refused(&snapshot[..cut]), ErrorKind::Invalid, "cut to {cut}");
    }
    for at in 0..snapshot.len() {
        let mut bytes = snapshot.clone();
        bytes[at] ^= 4;
        assert_eq!(refused(&bytes), ErrorKind::Invalid, "changed at {at}");
    }
    let other = Memory::new();
    let other = create(Arc::new(other), 77, options(), &Settings::new()).unwrap();
    let error = other.join(&snapshot).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("on host"), "{error}");
    // A log that ends before what the snapshot has seen: the newest commit is gone.
    let shorter = prepared(20);
    let error = process(&shorter, 3).join(&snapshot).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rewound, "{error}");
}

#[test]
fn a_store_can_be_opened_by_a_snapshot_for_fewer_calls() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store");
    let opener = Store::open_or_create(&path, options()).unwrap();
    let mut producer = opener.producer("a").unwrap();
    for _ in 0..30 {
        publish(&mut producer).unwrap();
    }
    let snapshot = opener.group("g").unwrap().begin(Step::new(20)).unwrap().snapshot();
    let whole = Store::open(&path).unwrap();
    assert_eq!(whole.info().unwrap().next_step, Step::new(30));
    let told = Store::open_from(&path, &snapshot).unwrap();
    assert_eq!(told.batch(Step::new(29)).unwrap().step(), Step::new(29));
    let (told, whole) = (told.stats().metadata_calls, whole.stats().metadata_calls);
    assert!(told < whole, "{told} calls with a snapshot, {whole} without");
    let joined = Run::join(&path, &snapshot).unwrap();
    assert_eq!(deliver(&mut consumer(&joined), 10), (20..30).collect::<Vec<_>>());
    assert_eq!(Store::open_from(&path, &snapshot[1..]).unwrap_err().kind(), ErrorKind::Invalid);
}
