//! What readers get. The method: properties over the public API, on a real filesystem in map and in copy
//! mode, with the storage's own counters for what reading costs, virtual time for waiting, and hostile
//! files for what can't be trusted.
//!
//! - Shares: for every count that divides, the shares' union is the batch, in order (P1).
//! - Positions are delivered steps only; a saved one resumes at exactly the next step (P2).
//! - Hostile bytes are typed errors that name path and step: never a panic, a signal, or other bytes.
//! - Calls per publish, open and step don't grow with the log (P9), and keep to the budgets.

#[path = "reading/crowd.rs"]
mod crowd;
#[path = "reading/golden.rs"]
mod golden;
#[path = "reading/mounts.rs"]
mod mounts;
#[expect(dead_code, reason = "what examines crashes isn't needed here")]
mod support;
#[path = "reading/together.rs"]
mod together;
#[path = "reading/waited.rs"]
mod waited;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use batchweave::env::System;
use batchweave::storage::Posix;
use batchweave::{
    Batch, Compression, Consumer, ConsumerOptions, Counts, ErrorKind, MountClass, Next, Options, Producer,
    ReadMode, Result, Settings, Share, Start, Step, Store,
};
use batchweave_sim::{Fault, Memory, Outcome, Plan, Seeded, SkipZeros};
use support::{PAUSE, publish};

const MODES: [ReadMode; 2] = [ReadMode::Map, ReadMode::Copy];

fn unsynced() -> Options {
    support::options().durability(batchweave::Durability::Unsynced)
}

/// A store in a directory of its own, which goes with it.
struct Home {
    directory: tempfile::TempDir,
    options: Options,
}

impl Home {
    fn new(options: Options) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), options }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    fn open(&self, mode: ReadMode) -> Store {
        let settings = Settings::new().read_mode(mode);
        Store::open_or_create_with(self.path(), self.options, &settings).unwrap()
    }
}

fn add(producer: &mut Producer, slices: &[Vec<u8>]) {
    let mut draft = producer.draft().unwrap();
    for (index, slice) in slices.iter().enumerate() {
        draft.add_slice(slice, Counts { samples: 1, tokens: index as u64 }).unwrap();
    }
    draft.metadata(&[slices.len() as u8]).unwrap();
    draft.attach(&vec![7; slices.len() * 10]).unwrap();
    producer.publish_now(draft, "state").unwrap();
}

/// Slices of differing lengths, empty ones among them; `seed` tells steps apart.
fn slices(count: usize, seed: usize) -> Vec<Vec<u8>> {
    let length = |index: usize| if index % 5 == 3 { 0 } else { (index * 4099 + seed * 977) % 20_000 + 1 };
    (0..count).map(|index| vec![(index * 31 + seed) as u8; length(index)]).collect()
}

fn bytes_of(batch: &Batch) -> Vec<Vec<u8>> {
    batch.slices().map(|slice| slice.unwrap().to_vec()).collect()
}

fn quiet() -> ConsumerOptions {
    ConsumerOptions::new().window_steps(0)
}

fn consumer(store: &Store, share: Share) -> Consumer {
    store.run(Start::Beginning).unwrap().consumer_with(share, quiet()).unwrap()
}

/// The next batch, which is published: a look that isn't due yet is waited for, in virtual time where there
/// is one.
fn next(consumer: &mut Consumer) -> Batch {
    let at = Consumer::position(consumer);
    let found = consumer.next_batch_timeout(Duration::from_secs(10)).unwrap();
    found.unwrap_or_else(|| panic!("closed at {at:?}"))
}

#[test]
fn the_union_of_all_shares_is_the_batch() {
    for mode in MODES {
        for compression in [Compression::None, Compression::Zstd(1)] {
            // Three parts a step, over segments of 16, so steps lie in two segments.
            let home = Home::new(unsynced().parts_per_step(3).divisor(4));
            let store = home.open(mode);
            let mut producer = store.producer("a").unwrap();
            producer.set_compression(compression);
            let mut expected = Vec::new();
            for step in 0..9 {
                let counts = [[8, 16, 32], [8, 8, 8], [0, 12, 0], [4, 4, 0]][step % 4];
                let parts: Vec<_> = counts.iter().map(|count| slices(*count, step)).collect();
                parts.iter().for_each(|part| add(&mut producer, part));
                expected.push(parts.concat());
            }
            for count in 1..=57 {
                for (step, whole) in (0u64..).zip(&expected) {
                    let read = |index| {
                        let run = store.run(Step::new(step)).unwrap();
                        run.consumer_with(Share::new(index, count).unwrap(), quiet()).unwrap()
                    };
                    if !whole.len().is_multiple_of(count as usize) {
                        continue;
                    }
                    let mut union = Vec::new();
                    for index in 0..count {
                        let batch = next(&mut read(index));
                        assert_eq!(batch.slices_in_step(), whole.len() as u64);
                        union.extend(bytes_of(&batch));
                    }
                    assert_eq!(&union, whole, "{mode:?}, {count} shares, step {step}");
                }
            }
        }
    }
}

#[test]
fn a_count_that_does_not_divide_is_refused_in_words_and_the_position_stays() {
    for mode in MODES {
        let home = Home::new(unsynced());
        let store = home.open(mode);
        let mut producer = store.producer("a").unwrap();
        add(&mut producer, &slices(16, 0));
        add(&mut producer, &slices(12, 1));
        add(&mut producer, &slices(32, 2));
        for options in [quiet(), ConsumerOptions::new()] {
            let run = store.run(Start::Beginning).unwrap();
            let mut eight = run.consumer_with(Share::new(3, 8).unwrap(), options).unwrap();
            assert_eq!(next(&mut eight).len(), 2);
            for _ in 0..3 {
                let error = eight.next_batch().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert_eq!(error.about_step(), Some(Step::new(1)));
                let said = error.to_string();
                assert!(said.contains("8 shares") && said.contains("12 slices"), "{said}");
                assert_eq!(eight.position().step, Step::new(1), "the position doesn't move");
            }
            // Asked with a count that divides, from the same position, it goes on.
            let run = store.run(eight.position()).unwrap();
            let mut four = run.consumer_with(Share::new(0, 4).unwrap(), options).unwrap();
            assert_eq!((next(&mut four).len(), next(&mut four).len()), (3, 8));
        }
    }
}

#[test]
fn empty_slices_empty_batches_and_batches_of_no_slices() {
    for mode in MODES {
        for compression in [Compression::None, Compression::Zstd(3)] {
            let home = Home::new(unsynced());
            let store = home.open(mode);
            let mut producer = store.producer("a").unwrap();
            producer.set_compression(compression);
            let batches = [vec![], vec![vec![]; 8], vec![vec![], vec![1], vec![]], vec![vec![2; 1 << 20]; 2]];
            batches.iter().for_each(|batch| add(&mut producer, batch));
            let mut consumer = consumer(&store, Share::WHOLE);
            for expected in &batches {
                let batch = next(&mut consumer);
                assert_eq!(&bytes_of(&batch), expected);
                assert_eq!(batch.is_empty(), expected.is_empty());
                assert_eq!(batch.metadata().unwrap(), [[expected.len() as u8]]);
                assert_eq!(batch.attachments().unwrap(), [vec![7; expected.len() * 10]]);
                assert_eq!(batch.slice(expected.len()).unwrap_err().kind(), ErrorKind::Invalid);
            }
            assert!(matches!(consumer.try_next().unwrap(), Next::Pending));
        }
    }
}

#[test]
fn ranges_copies_and_locations() {
    const MIB: u64 = 1 << 20;
    let long: Vec<u8> = (0..3 * MIB + 5).map(|at| ((at * 31) >> 7) as u8).collect();
    for mode in MODES {
        for compression in [Compression::None, Compression::Zstd(1)] {
            let home = Home::new(unsynced());
            let store = home.open(mode);
            let mut producer = store.producer("a").unwrap();
            producer.set_compression(compression);
            add(&mut producer, &[vec![1; 10], long.clone(), vec![2; MIB as usize]]);
            let batch = store.batch(Step::ZERO).unwrap();
            let length = long.len() as u64;
            for range in [
                0..0,
                0..1,
                0..MIB,
                MIB - 1..MIB + 1,
                MIB..2 * MIB,
                length - 1..length,
                length..length,
                0..length,
            ] {
                let found = batch.range(1, range.clone()).unwrap();
                assert!(found[..] == long[range.start as usize..range.end as usize], "{mode:?} {range:?}");
            }
            for bad in [0..length + 1, length + 1..length + 1, 0..u64::MAX] {
                assert_eq!(batch.range(1, bad).unwrap_err().kind(), ErrorKind::Invalid);
            }
            let slice = batch.slice(1).unwrap();
            let mut copy = vec![0; long.len()];
            slice.read_into(&mut copy).unwrap();
            assert!(copy == long && slice.checksum() == batch.slice(1).unwrap().checksum());
            assert_eq!(slice.read_into(&mut copy[1..]).unwrap_err().kind(), ErrorKind::Invalid);
            assert_eq!(slice.range(5..=7).unwrap()[..], long[5..=7]);
            assert_eq!(slice.range(long.len() + 1..).unwrap_err().kind(), ErrorKind::Invalid);
            match (compression, batch.location(1)) {
                (Compression::None, Ok(location)) => {
                    let file = std::fs::read(&location.path).unwrap();
                    let (start, end) =
                        (location.offset as usize, (location.offset + location.length) as usize);
                    assert!(file[start..end] == long[..]);
                    assert_eq!(location.offset % 4096, 0);
                }
                (_, result) => assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid),
            }
        }
    }
}

#[test]
fn one_slice_of_eight_and_one_of_seventy_thousand_cost_the_same() {
    for mode in MODES {
        let cost = |count: usize| {
            let home = Home::new(unsynced());
            let mut producer = home.open(mode).producer("a").unwrap();
            add(&mut producer, &vec![vec![5; 3]; count]);
            let store = home.open(mode);
            let share = Share::new(count as u32 - 1, count as u32).unwrap();
            let mut consumer = consumer(&store, share);
            let batch = next(&mut consumer);
            assert_eq!(bytes_of(&batch), [[5; 3]]);
            let calls = store.stats().calls;
            // A small commit is faulted in whole; of a large one its own entry and its own slice.
            assert!(calls.populate <= 3, "{mode:?}: {} pieces of {count} slices", calls.populate);
            (calls.metadata(), calls.read_at, calls.map)
        };
        assert_eq!(cost(8), cost(65_536 + 4_464), "{mode:?}");
    }
}

/// A slice of `length` zeros but for its last byte, which costs no disk.
fn add_zeros(producer: &mut Producer, lengths: &[u64]) {
    use std::io::Write;
    let zeros = vec![0; 8 << 20];
    let mut draft = producer.draft().unwrap();
    for length in lengths {
        let mut slice = draft.slice().unwrap();
        let mut left = length - 1;
        while left > 0 {
            let piece = left.min(zeros.len() as u64);
            slice.write_all(&zeros[..piece as usize]).unwrap();
            left -= piece;
        }
        slice.write_all(&[9]).unwrap();
        slice.finish(Counts::default()).unwrap();
    }
    producer.publish_now(draft, "").unwrap();
}

#[test]
fn slices_around_two_and_four_gib_are_right_at_their_edges() {
    let home = Home::new(unsynced());
    let path = home.path();
    let storage = Arc::new(SkipZeros::new(Arc::new(Posix::new())));
    let env = Arc::new(System::new());
    let create = Store::open_or_create_on(&path, storage, env, home.options, &Settings::new());
    let mut producer = create.unwrap().producer("a").unwrap();
    // All in one part, so that offsets are beyond 4 GiB as well. Hashing is what takes time, so all 16 GiB
    // of them are for optimised builds.
    let mut lengths = vec![(1 << 31) + 1, (1 << 32) + 1];
    if cfg!(debug_assertions) {
        let what = "slices of 2^31-1 and 2^31 bytes and of 5 GiB";
        batchweave_sim::skipped(what, &"hashing them takes cargo test --release");
    } else {
        lengths.extend([(1 << 31) - 1, 1 << 31, 5 << 30]);
    }
    add_zeros(&mut producer, &lengths);
    for mode in MODES {
        let store = home.open(mode);
        let batch = store.batch(Step::ZERO).unwrap();
        for (index, length) in lengths.iter().copied().enumerate() {
            assert_eq!(batch.location(index).unwrap().length, length);
            assert_eq!(batch.range(index, length - 3..length).unwrap()[..], [0, 0, 9], "{mode:?} {length}");
            assert_eq!(batch.range(index, 0..2).unwrap()[..], [0, 0]);
            for edge in [1u64 << 31, 1 << 32].into_iter().filter(|edge| edge + 1 < length) {
                assert_eq!(batch.range(index, edge - 1..edge + 1).unwrap().len(), 2);
            }
            assert_eq!(batch.range(index, length - 1..length + 1).unwrap_err().kind(), ErrorKind::Invalid);
        }
        // The table and what lies behind it.
        assert_eq!(batch.attachments().unwrap(), [Vec::<u8>::new()]);
    }
    // One of them whole: every byte hashed by writer and reader.
    let whole = home.open(ReadMode::Map).batch(Step::ZERO).unwrap().slice(0).unwrap();
    assert_eq!((whole.len(), whole.last()), ((1 << 31) + 1, Some(&9)));
}

/// Whether this process runs nothing but one test. If not, it is run in a process that does, where it has to
/// pass.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "BATCHWEAVE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let child = child.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let passed = child.status.success() && said.contains("1 passed");
    assert!(passed, "{test} alone: {}: {said}{}", child.status, String::from_utf8_lossy(&child.stderr));
    false
}

/// Reads step 1 of a store in every way that there is; the first error.
fn read_step(store: &Store) -> Result<Vec<Vec<u8>>> {
    let batch = store.batch(Step::new(1))?;
    let found: Result<Vec<Vec<u8>>> = batch.slices().map(|slice| slice.map(|slice| slice.to_vec())).collect();
    batch.metadata()?;
    batch.attachments()?;
    for index in 0..batch.len() {
        batch.range(index, 0..1)?;
    }
    let run = store.run(Step::new(1))?;
    let mut consumer = run.consumer_with(Share::WHOLE, quiet())?;
    consumer.try_next()?;
    found
}

#[test]
fn hostile_commits_are_typed_errors_in_both_modes() {
    let home = Home::new(unsynced());
    let mut producer = home.open(ReadMode::Map).producer("a").unwrap();
    let written: Vec<Vec<u8>> = vec![vec![3; 5000], vec![4; 100], vec![5; (1 << 20) + 77]];
    for _ in 0..3 {
        add(&mut producer, &written);
    }
    let path = home.open(ReadMode::Map).batch(Step::new(1)).unwrap().location(0).unwrap().path;
    let good = std::fs::read(&path).unwrap();
    let mut hostile: Vec<(String, Vec<u8>)> = Vec::new();
    for length in [0, 1, 4095, 4096, 5000, good.len() / 2, good.len() - 1] {
        hostile.push((format!("cut to {length}"), good[..length].to_vec()));
    }
    // Every byte of the header that is anything, and a spread of the rest.
    let header = (0..4096).filter(|at| good[*at] != 0);
    for at in header.chain((4096..good.len()).step_by(9973)).chain(good.len() - 200..good.len()) {
        let mut flipped = good.clone();
        flipped[at] ^= 1 << (at % 8);
        hostile.push((format!("bit of byte {at}"), flipped));
    }
    hostile.push(("zeros".to_owned(), vec![0; good.len()]));
    hostile.push(("trailing garbage".to_owned(), [&good[..], &[7; 5000]].concat()));
    hostile.push((
        "another commit".to_owned(),
        std::fs::read(path.with_file_name(format!("{:020}", 3))).unwrap(),
    ));
    let mut caught = 0;
    for (how, bytes) in hostile {
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        for mode in MODES {
            match read_step(&home.open(mode)) {
                // Padding and trailing bytes are nobody's; what is handed out is still what was written.
                Ok(found) => assert_eq!(found, written, "{mode:?}: {how}: other bytes were handed out"),
                Err(error) => {
                    caught += 1;
                    let typed = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported);
                    assert!(typed, "{mode:?}: {how}: {error:?}");
                    assert!(error.path().is_some(), "{mode:?}: {how}: {error} names no path");
                    let placed = error.commit_version().is_some() || error.about_step().is_some();
                    assert!(placed, "{mode:?}: {how}: {error} names no version or step");
                }
            }
        }
    }
    assert!(caught > 400, "only {caught} of the hostile files were caught");
}

#[test]
fn a_commit_cut_while_it_is_mapped_is_an_error_not_a_signal() {
    let home = Home::new(unsynced());
    let store = home.open(ReadMode::Map);
    let mut producer = store.producer("a").unwrap();
    add(&mut producer, &[vec![3; 5000], vec![4; 1 << 20]]);
    let batch = store.batch(Step::ZERO).unwrap();
    assert_eq!(batch.slice(0).unwrap().len(), 5000);
    let path = batch.location(0).unwrap().path;
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(8192).unwrap();
    let error = batch.slice(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn every_share_ends_at_the_close_and_a_view_keeps_its_end() {
    let home = Home::new(unsynced());
    let store = home.open(ReadMode::Map);
    let mut producer = store.producer("a").unwrap();
    let before = store.run(Start::Beginning).unwrap();
    for step in 0..3 {
        add(&mut producer, &slices(4, step));
    }
    store.close(false).unwrap();
    let closed = store.run(Start::Beginning).unwrap();
    store.reopen().unwrap();
    let after = store.run(Start::Beginning).unwrap();
    let mut producer = store.producer("a").unwrap();
    add(&mut producer, &slices(4, 3));
    let ends = |run: &batchweave::Run| {
        let count = |index| {
            let mut consumer = run.consumer_with(Share::new(index, 4).unwrap(), quiet()).unwrap();
            let mut steps = 0;
            loop {
                match consumer.try_next().unwrap() {
                    Next::Batch(_) => steps += 1,
                    Next::Closed => break Some(steps),
                    _ => break None,
                }
            }
        };
        (0..4).map(count).collect::<Vec<_>>()
    };
    assert_eq!(ends(&before), [Some(3); 4], "a Reopen after the view isn't seen");
    assert_eq!(ends(&closed), [Some(3); 4], "closed as of the view, for ever");
    assert_eq!(ends(&after), [None; 4], "a Close that was reopened before the view is passed over");
    store.close(false).unwrap();
    assert_eq!(ends(&before), [Some(3); 4]);
    assert_eq!(ends(&after), [Some(4); 4], "the first Close after the view");
}

#[test]
fn positions_resume_at_exactly_the_next_step_at_any_prefetch_depth() {
    let home = Home::new(unsynced());
    let store = home.open(ReadMode::Map);
    let mut producer = store.producer("a").unwrap();
    for step in 0..20 {
        add(&mut producer, &slices(2, step));
    }
    let mut all = Vec::new();
    for depth in [0, 1, 8] {
        let run = store.run(Start::Beginning).unwrap();
        let options = ConsumerOptions::new().window_steps(depth);
        let mut consumer = run.consumer_with(Share::WHOLE, options).unwrap();
        let mut positions = vec![consumer.position()];
        for _ in 0..20 {
            let batch = consumer.next_batch().unwrap().unwrap();
            assert_eq!(batch.position(), consumer.position(), "what is read ahead doesn't count");
            positions.push(batch.position());
        }
        all.push(positions);
    }
    assert!(all.iter().all(|positions| *positions == all[0]), "positions depend on the prefetch depth");
    add(&mut producer, &slices(2, 20));
    for step in [0usize, 1, 10, 19, 20] {
        let saved = serde_json::to_string(&all[0][step]).unwrap();
        let run =
            home.open(ReadMode::Copy).run(serde_json::from_str::<batchweave::Position>(&saved).unwrap());
        let batch = next(&mut run.unwrap().consumer_with(Share::WHOLE, quiet()).unwrap());
        assert_eq!((batch.step(), bytes_of(&batch)), (Step::new(step as u64), slices(2, step)));
    }
}

#[test]
fn positions_of_another_store_beyond_the_end_or_of_other_history_are_refused() {
    let (home, other) = (Home::new(unsynced()), Home::new(unsynced()));
    let (store, elsewhere) = (home.open(ReadMode::Map), other.open(ReadMode::Map));
    for one in [&store, &elsewhere] {
        let mut producer = one.producer("a").unwrap();
        add(&mut producer, &slices(2, 0));
        add(&mut producer, &slices(2, 1));
    }
    let mut consumer = consumer(&store, Share::WHOLE);
    let position = next(&mut consumer).position();
    let refused = |store: &Store, position| store.run(Start::Position(position)).unwrap_err().kind();
    assert_eq!(refused(&elsewhere, position), ErrorKind::Invalid);
    let mut beyond = position;
    beyond.step = Step::new(3);
    assert_eq!(refused(&store, beyond), ErrorKind::Rewound);
    let mut wrong = position;
    wrong.lineage = batchweave::Checksum::new(1);
    assert_eq!(refused(&store, wrong), ErrorKind::Rewound);
    wrong.step = Step::ZERO;
    assert_eq!(refused(&store, wrong), ErrorKind::Rewound, "nothing comes before step 0");
    assert_eq!(store.run(Step::new(3)).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.batch(Step::new(2)).unwrap_err().kind(), ErrorKind::Invalid);
    store.run(position).unwrap();
}

#[test]
fn waiting_is_pending_then_a_timeout_that_says_for_what() {
    for class in [MountClass::Coherent, MountClass::CloseToOpen] {
        let settings = Settings::new().mount_class(class);
        let store = support::create(Arc::new(Memory::new()), 1, support::options(), &settings).unwrap();
        publish(&mut store.producer("a").unwrap()).unwrap();
        for depth in [0, 4] {
            let run = store.run(Step::new(1)).unwrap();
            let options = ConsumerOptions::new().window_steps(depth).timeout(Duration::from_secs(1800));
            let mut consumer = run.consumer_with(Share::WHOLE, options).unwrap();
            assert!(matches!(consumer.try_next().unwrap(), Next::Pending));
            let error = consumer.next_batch().unwrap_err();
            assert_eq!(
                (error.kind(), error.about_step()),
                (ErrorKind::Timeout, Some(Step::new(1))),
                "{error}"
            );
            assert!(error.to_string().contains("1800 s"), "{error}");
            assert_eq!(consumer.position().step, Step::new(1));
        }
        // What has timed out can be asked again.
        let mut consumer = store.run(Step::new(1)).unwrap().consumer_with(Share::WHOLE, quiet()).unwrap();
        assert_eq!(consumer.next_batch_timeout(Duration::ZERO).unwrap_err().kind(), ErrorKind::Timeout);
        publish(&mut store.producer("a").unwrap()).unwrap();
        assert!(consumer.next_batch().unwrap().is_some());
    }
}

#[test]
fn a_waiting_consumer_is_woken_by_another_handle() {
    // Two processes' handles on a real doorbell; each waits for what the other does next.
    use batchweave::env::Env;
    for mode in MODES {
        let home = Home::new(unsynced());
        let (ahead, behind) = (home.open(mode), home.open(mode));
        let mut producer = ahead.producer("a").unwrap();
        let echo = System::new().spawn(
            "echo",
            Box::new(move || {
                let mut answering = behind.producer("b").unwrap();
                let mut consumer = consumer(&behind, Share::WHOLE);
                for _ in 0..20 {
                    consumer.next_batch().unwrap().unwrap();
                    publish(&mut answering).unwrap();
                    consumer.next_batch().unwrap().unwrap();
                }
            }),
        );
        let run = ahead.run(Start::Beginning).unwrap();
        let mut consumer = run.consumer(Share::WHOLE).unwrap();
        for round in 0..20u64 {
            publish(&mut producer).unwrap();
            for step in [2 * round, 2 * round + 1] {
                assert_eq!(consumer.next_batch().unwrap().unwrap().step(), Step::new(step));
            }
        }
        assert!(echo.unwrap().join(), "the other process failed");
    }
}

/// Settings and whether negative look-ups count, for each kind of mount that has a budget.
fn remote() -> Settings {
    Settings::new().mount_class(MountClass::CloseToOpen).read_mode(ReadMode::Copy)
}

#[test]
fn catching_up_and_waiting_keep_to_the_budget() {
    for settings in [Settings::new(), remote()] {
        let disk = Memory::new();
        let options = Options::new().segment_size(256);
        let writer = support::create(Arc::new(disk.clone()), 1, options, &Settings::new()).unwrap();
        let mut producer = writer.producer("a").unwrap();
        for _ in 0..1000 {
            publish(&mut producer).unwrap();
        }
        let process = Arc::new(Fault::new(Arc::new(disk.clone()), Plan::new()));
        let env = Arc::new(Seeded::new(2));
        let store = support::open_in(process.clone(), &env, &settings).unwrap();
        let mut reading = consumer(&store, Share::WHOLE);
        (0..1000).for_each(|_| drop(next(&mut reading)));
        let calls = store.stats().metadata_calls;
        assert!(calls <= 3 * 1000, "{settings:?}: {calls} metadata calls for 1,000 published steps");
        // Waited for, one by one. Looks that find nothing are probes, counted apart.
        let mut calls = 0;
        for _ in 0..100 {
            env.advance(PAUSE);
            assert!(matches!(reading.try_next().unwrap(), Next::Pending));
            publish(&mut producer).unwrap();
            env.advance(PAUSE);
            let (before, from) = (store.stats().metadata_calls, process.calls());
            next(&mut reading);
            let trace = process.trace().into_iter().filter(|call| call.number >= from);
            let probe = |call: &batchweave_sim::Call| {
                call.on.contains("log/") && call.outcome == Outcome::Failed("ENOENT".to_owned())
            };
            let absent = trace.filter(probe).count();
            calls += store.stats().metadata_calls - before - absent as u64;
        }
        assert!(calls <= 6 * 100, "{settings:?}: {calls} metadata calls for 100 steps that were waited for");
    }
}

#[test]
fn producers_by_turns_look_and_lose_no_link() {
    let disk = Memory::new();
    let first = support::create(Arc::new(disk.clone()), 1, support::options(), &Settings::new()).unwrap();
    let stores = [first, support::open(disk.clone(), 2).unwrap()];
    let mut producers = [stores[0].producer("a").unwrap(), stores[1].producer("b").unwrap()];
    let links = || stores.iter().map(|store| store.stats().calls.link).sum::<u64>();
    let before = links();
    for _ in 0..5 {
        for producer in &mut producers {
            publish(producer).unwrap();
        }
    }
    assert_eq!(links() - before, 10, "a link that is lost costs more than a look");
}

#[test]
fn publishing_opening_and_reading_cost_the_same_at_any_length() {
    // P9: at some version, and 66 segments later, past the pruning of marks.
    let disk = Memory::new();
    let writer = support::create(Arc::new(disk.clone()), 1, support::options(), &Settings::new()).unwrap();
    let mut producer = writer.producer("a").unwrap();
    let mut costs = Vec::new();
    let mut version = 0;
    for at in [67 * 16, (67 + 66) * 16] {
        while version < at + 2 {
            version = publish(&mut producer).unwrap().version.get();
        }
        let env = Arc::new(Seeded::new(at));
        let store = support::open_in(Arc::new(disk.clone()), &env, &remote()).unwrap();
        store.info().unwrap();
        let opened = store.stats().calls;
        let mut consumer =
            store.run(store.info().unwrap().next_step).unwrap().consumer_with(Share::WHOLE, quiet()).unwrap();
        let before = (writer.stats().calls, store.stats().calls);
        for _ in 0..16 {
            publish(&mut producer).unwrap();
            env.advance(PAUSE);
            next(&mut consumer);
        }
        version += 16;
        let published = writer.stats().calls.since(&before.0);
        let read = store.stats().calls.since(&before.1);
        costs.push((opened, published, read));
    }
    assert_eq!(costs[0], costs[1], "opening, publishing or reading costs more in a longer log");
}
