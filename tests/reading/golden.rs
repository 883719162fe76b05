//! Stores as libraries that were released have written them, read byte for byte. **This test is never edited
//! to make it pass, and its stores are never made again**: what fails here can't read what lies on people's
//! disks. A new format version gets stores and a test of its own, beside these.
//!
//! The method: a copy of a store in `tests/fixtures/` (made once by `fuzz/targets/examples/golden.rs`) is
//! opened, and everything that it holds is compared with what is written out here. Two more have a record of
//! a kind that this library doesn't know: an optional one is passed over, a required one stops it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use batchweave::format::checksum;
use batchweave::{
    Batch, ConsumerOptions, Counts, ErrorKind, Generation, Incarnation, Next, ReadMode, Sequence, Settings,
    Share, Start, Step, Store, Version,
};

use crate::MODES;

/// A part: who published it, its metadata, its attachment, its first slice, and what its second one repeats
/// eight times.
type PartRow = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// The parts of the retained steps of `plain`, from step 1 on, two for each step.
const PLAIN: [PartRow; 14] = [
    ("tok-a", "", "the ids of tok-a 1", "tok-a part 1 slice 0. ", "tok-a part 1 slice 1. "),
    ("tok-b", "", "the ids of tok-b 1", "tok-b part 1 slice 0. ", "tok-b part 1 slice 1. "),
    ("tok-a", "about tok-a 2", "the ids of tok-a 2", "tok-a part 2 slice 0. ", "tok-a part 2 slice 1. "),
    ("tok-b", "about tok-b 2", "the ids of tok-b 2", "tok-b part 2 slice 0. ", "tok-b part 2 slice 1. "),
    ("tok-a", "", "the ids of tok-a 3", "tok-a part 3 slice 0. ", "tok-a part 3 slice 1. "),
    ("tok-b", "", "the ids of tok-b 3", "tok-b part 3 slice 0. ", "tok-b part 3 slice 1. "),
    ("tok-a", "about tok-a 4", "the ids of tok-a 4", "tok-a part 4 slice 0. ", "tok-a part 4 slice 1. "),
    ("tok-b", "about tok-b 4", "the ids of tok-b 4", "tok-b part 4 slice 0. ", "tok-b part 4 slice 1. "),
    ("tok-a", "", "the ids of tok-a 5", "tok-a part 5 slice 0. ", "tok-a part 5 slice 1. "),
    ("tok-b", "", "the ids of tok-b 5", "tok-b part 5 slice 0. ", "tok-b part 5 slice 1. "),
    // Its first slice has 1 MiB and 5 bytes more: see `long`.
    ("tok-a", "about tok-a 6", "the ids of tok-a 6", "tok-a part 6 slice 0. ", "tok-a part 6 slice 1. "),
    ("tok-b", "about tok-b 6", "the ids of tok-b 6", "tok-b part 6 slice 0. ", "tok-b part 6 slice 1. "),
    // Both in one commit.
    ("tok-a", "", "", "tok-a part 7 slice 0. ", "tok-a part 7 slice 1. "),
    ("tok-a", "", "", "tok-a part 8 slice 0. ", "tok-a part 8 slice 1. "),
];

/// The kinds of its commits, in the order of the log.
const PLAIN_KINDS: &str = "open open parts parts parts parts group parts parts checkpoint turns parts parts \
    checkpoint skip open retire forget open retire group retire-group close reopen drop floor parts parts \
    parts parts rewind open open parts parts turns parts parts parts retire close";

/// A copy of a store, which may be opened, and its directory, which goes with it.
struct Copy {
    directory: tempfile::TempDir,
}

impl Copy {
    fn of(name: &str) -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1").join(name);
        let directory = tempfile::tempdir().unwrap();
        copy(&from, &directory.path().join("store"));
        // What is empty, git doesn't keep.
        for name in ["stage", "groups", "index", "marks", "log"] {
            fs::create_dir_all(directory.path().join("store").join(name)).unwrap();
        }
        Self { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    fn open(&self, mode: ReadMode) -> Store {
        Store::open_with(self.path(), &Settings::new().read_mode(mode)).unwrap()
    }

    /// Of every file of the log and of the indexes, by its path and bytes: that nobody has touched them.
    fn checksum(&self) -> String {
        let mut files = BTreeMap::new();
        for room in ["STORE", "log", "index", "marks"] {
            list(&self.path(), Path::new(room), &mut files);
        }
        let all: Vec<u8> =
            files.into_iter().flat_map(|(path, bytes)| [path.into_bytes(), bytes].concat()).collect();
        checksum::of(&all).to_string()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            // Its bytes, not its mode: a checkout may be read-only.
            fs::write(to, fs::read(from).unwrap()).unwrap();
        }
    }
}

fn list(root: &Path, path: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    let full = root.join(path);
    if full.is_dir() {
        for entry in fs::read_dir(full).unwrap() {
            list(root, &path.join(entry.unwrap().file_name()), files);
        }
    } else {
        files.insert(path.to_str().unwrap().to_owned(), fs::read(full).unwrap());
    }
}

/// What the long slice has after its text.
fn long() -> Vec<u8> {
    (0..(1u32 << 20) + 5).map(|at| (at / 4096) as u8).collect()
}

/// Holds a batch of the whole step against the rows of its parts.
fn check(batch: &Batch, rows: &[PartRow]) {
    let producers: Vec<_> = batch.producers().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(producers, rows.iter().map(|row| row.0).collect::<Vec<_>>());
    assert_eq!(batch.metadata().unwrap(), rows.iter().map(|row| row.1.as_bytes()).collect::<Vec<_>>());
    assert_eq!(batch.attachments().unwrap(), rows.iter().map(|row| row.2.as_bytes()).collect::<Vec<_>>());
    let expected = rows.iter().flat_map(|row| {
        let mut first = row.3.as_bytes().to_vec();
        if row.3.starts_with("tok-a part 6") {
            first.extend(long());
        }
        [first, row.4.repeat(8).into_bytes()]
    });
    let slices: Vec<Vec<u8>> = batch.slices().map(|slice| slice.unwrap().to_vec()).collect();
    assert!(slices.iter().eq(expected.collect::<Vec<_>>().iter()), "the slices of step {}", batch.step());
}

#[test]
fn a_store_of_format_1_is_what_it_was() {
    let copy = Copy::of("plain");
    assert_eq!(copy.checksum(), "caf471a5c91b07fa", "the fixture was changed");
    for mode in MODES {
        let store = copy.open(mode);
        let info = store.info().unwrap();
        assert_eq!(info.uuid.to_string(), "c15c0289ec2d0a9167ec8e65a18debbe");
        assert_eq!((info.format, info.options.divisor, info.options.parts_per_step), (1, 2, 2));
        assert_eq!(info.head_version, Some(Version::new(40)));
        assert_eq!(
            (info.floor, info.next_step, info.closed),
            (Step::new(1), Step::new(8), Some(Step::new(8)))
        );
        assert_eq!(info.generation, Generation::new(2));
        for step in 1..8 {
            let batch = store.batch(Step::new(step)).unwrap();
            check(&batch, &PLAIN[2 * (step as usize - 1)..][..2]);
        }
        let error = store.batch(Step::new(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reclaimed, "{error}");
        let slice = store.batch(Step::new(6)).unwrap().slice(0).unwrap();
        assert_eq!(slice.counts(), Counts { samples: 1, tokens: 7 });
        let kinds: Vec<_> =
            store.commits(Version::ZERO).unwrap().map(|commit| commit.unwrap().kind).collect();
        assert_eq!(kinds.join(" "), PLAIN_KINDS);
    }
}

#[test]
fn a_run_over_a_store_of_format_1_delivers_its_steps() {
    let copy = Copy::of("plain");
    for mode in MODES {
        let run = copy.open(mode).run(Start::Beginning).unwrap();
        let options = ConsumerOptions::new().window_steps(0);
        let mut consumer = run.consumer_with(Share::WHOLE, options).unwrap();
        let mut steps = Vec::new();
        while let Next::Batch(batch) = consumer.try_next().unwrap() {
            check(&batch, &PLAIN[2 * (batch.step().get() as usize - 1)..][..2]);
            steps.push(batch.step().get());
        }
        assert_eq!(steps, [2, 3, 4, 5, 6, 7], "step 1 is skipped");
        assert_eq!(consumer.position().lineage.to_string(), "c5917d6af8bed438");
    }
}

#[test]
fn producers_groups_and_checkpoints_of_format_1_are_what_they_were() {
    let copy = Copy::of("plain");
    let store = copy.open(ReadMode::Map);
    let producers: Vec<_> = store
        .producers()
        .unwrap()
        .into_iter()
        .map(|one| {
            let state = String::from_utf8(one.state).unwrap();
            (
                one.name.to_string(),
                one.incarnation,
                one.sequence,
                one.last_step,
                one.last_version,
                one.finished,
                state,
            )
        })
        .collect();
    let row = |name: &str,
               incarnation: Option<u64>,
               sequence,
               step: Option<u64>,
               version,
               finished,
               state: &str| {
        let (incarnation, step) = (incarnation.map(Incarnation::new), step.map(Step::new));
        let (sequence, version) = (Sequence::new(sequence), Version::new(version));
        (name.to_owned(), incarnation, sequence, step, version, finished, state.to_owned())
    };
    assert_eq!(
        producers,
        [
            row("tok-a", Some(31), 9, Some(7), 38, false, "tok-a is after 8"),
            row("tok-b", None, 7, Some(6), 39, true, "tok-b is after 6"),
            row("tok-d", None, 0, None, 19, true, ""),
        ]
    );
    let groups: Vec<_> = store
        .groups()
        .unwrap()
        .into_iter()
        .map(|group| (group.name.to_string(), group.incarnation))
        .collect();
    assert_eq!(groups, [("llama".to_owned(), Some(Incarnation::new(6))), ("old".to_owned(), None)]);
    let kept = store.group("llama").unwrap().checkpoints().unwrap();
    let [kept] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((kept.name.as_str(), kept.version, kept.pinned), ("step-4", Version::new(13), true));
    assert_eq!((kept.position.step, kept.position.generation), (Step::new(4), Generation::new(0)));
    assert_eq!(
        (kept.metadata.as_slice(), kept.position.lineage.to_string()),
        (&b"a model"[..], "25a4ea6bd6d8aa03".to_owned())
    );
    assert_eq!(store.run(kept).unwrap().position().step, Step::new(4), "a position that is still good");
    assert!(store.group("old").unwrap().checkpoints().unwrap().is_empty());
    assert_eq!(store.turns().unwrap(), None);
}

#[test]
fn a_store_of_format_1_is_sound_and_goes_on() {
    let copy = Copy::of("plain");
    let store = copy.open(ReadMode::Map);
    let report = store.verify(|_| ()).unwrap();
    assert!(report.is_clean() && report.litter.is_empty(), "{report:?}");
    assert_eq!((report.commits, report.parts, report.slices, report.indexes), (41, 18, 36, 2));
    assert!(store.reopen().unwrap());
    let mut producer = store.producer("tok-a").unwrap();
    assert_eq!(
        (producer.next_sequence(), producer.state()),
        (Sequence::new(9), b"tok-a is after 8".to_vec())
    );
    // Into the next segment, whose index is built on those that are there.
    for _ in 0..16 {
        let mut draft = producer.draft().unwrap();
        draft.add_slice(b"one", Counts::default()).unwrap();
        draft.add_slice(b"two", Counts::default()).unwrap();
        producer.publish_now(draft, "on").unwrap();
    }
    assert_eq!(store.info().unwrap().next_step, Step::new(16));
    assert!(Store::open(copy.path()).unwrap().verify(|_| ()).unwrap().is_clean());
}

#[test]
fn an_unknown_optional_record_is_passed_over() {
    let copy = Copy::of("unknown-optional");
    assert_eq!(copy.checksum(), "aba7281a6970c734", "the fixture was changed");
    for mode in MODES {
        let store = copy.open(mode);
        for step in 0..18 {
            let batch = store.batch(Step::new(step)).unwrap();
            assert_eq!(*batch.slice(0).unwrap(), *format!("tok-a part {step} slice 0. ").as_bytes());
        }
        let commits: Vec<_> = store.commits(Version::new(3)).unwrap().map(|commit| commit.unwrap()).collect();
        assert_eq!(
            (commits[0].kind.as_str(), commits[0].library.as_str()),
            ("unknown kind 1000", "batchweave 9.9.9")
        );
        let info = store.info().unwrap();
        assert_eq!((info.head_version, info.closed), (Some(Version::new(21)), Some(Step::new(18))));
        let [producer] = &store.producers().unwrap()[..] else { panic!("one producer") };
        assert_eq!(
            (producer.sequence, producer.state.as_slice()),
            (Sequence::new(18), &b"tok-a is after 17"[..])
        );
        let report = store.verify(|_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

#[test]
fn an_unknown_required_record_stops_there_and_says_where() {
    let copy = Copy::of("unknown-required");
    assert_eq!(copy.checksum(), "b66a62edc4a93e35", "the fixture was changed");
    for mode in MODES {
        let store = copy.open(mode);
        let read = [
            store.info().map(drop),
            store.run(Start::Beginning).map(drop),
            store.producer("tok-a").map(drop),
            store.batch(Step::new(0)).map(drop),
        ];
        for read in read {
            let error = read.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert_eq!(error.commit_version(), Some(Version::new(3)), "{error}");
            let path = copy.path().join("log/000000000000/00000000000000000003");
            assert_eq!(error.path(), Some(&*path), "{error}");
            for word in ["kind 1001", "format version 1", "batchweave 9.9.9"] {
                assert!(error.to_string().contains(word), "{error}");
            }
        }
        assert!(fs::read_dir(copy.path().join("stage")).unwrap().next().is_none(), "nothing is written");
    }
}
