//! Verification of whole stores. The method: a store with everything that a store can have is clean; then
//! one thing is broken at a time (every byte of a small commit and of an index, sampled bytes of all files,
//! cuts, swaps, removals), and the report has to name the file that it was done to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use batchweave::env::System;
use batchweave::storage::{Access, Dir, File, Storage, read_exact_at, write_all_at};
use batchweave::{
    CommitInfo, Compression, Counts, Draft, Durability, Options, Producer, Settings, Store, VerifyReport,
    Version,
};
use batchweave_sim::Memory;

const SEGMENT: u32 = 16;

/// A store in memory, and the hands that break it.
struct Broken {
    storage: Arc<Memory>,
    store: Store,
    random: u64,
}

impl Broken {
    fn new(parts_per_step: u32) -> Self {
        let storage = Arc::new(Memory::new());
        let options = Options::new()
            .segment_size(SEGMENT)
            .parts_per_step(parts_per_step)
            .durability(Durability::Unsynced);
        let env = Arc::new(System::new());
        let store = Store::open_or_create_on(
            Path::new("/store"),
            Arc::clone(&storage) as Arc<dyn Storage>,
            env,
            options,
            &Settings::new(),
        )
        .unwrap();
        Self { storage, store, random: 0x9e37_79b9_7f4a_7c15 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn noise(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.random(256) as u8).collect()
    }

    fn verify(&self) -> VerifyReport {
        self.store.verify(|_| ()).unwrap()
    }

    fn dir_of<'p>(&self, path: &'p str) -> (Dir, &'p str) {
        let mut dir = self.storage.open_root(Path::new("/store")).unwrap();
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        for parent in parents.split('/').filter(|parent| !parent.is_empty()) {
            dir = self.storage.open_dir(&dir, parent).unwrap();
        }
        (dir, name)
    }

    fn open(&self, path: &str) -> File {
        let (dir, name) = self.dir_of(path);
        self.storage.open(&dir, name, Access::Update).unwrap()
    }

    fn read(&self, path: &str) -> Vec<u8> {
        let file = self.open(path);
        let mut bytes = vec![0; self.storage.size(&file).unwrap() as usize];
        read_exact_at(&*self.storage, &file, &mut bytes, 0).unwrap();
        bytes
    }

    fn remove(&self, path: &str) {
        let (dir, name) = self.dir_of(path);
        self.storage.remove(&dir, name).unwrap();
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let (dir, name) = self.dir_of(path);
        let file = self.storage.create_exclusive(&dir, name).unwrap();
        write_all_at(&*self.storage, &file, bytes, 0).unwrap();
    }

    fn replace(&self, path: &str, bytes: &[u8]) {
        self.remove(path);
        self.write(path, bytes);
    }

    /// Flips one bit, verifies, and flips it back.
    fn verify_flipped(&mut self, path: &str, at: usize) -> VerifyReport {
        let file = self.open(path);
        let mut byte = [0];
        read_exact_at(&*self.storage, &file, &mut byte, at as u64).unwrap();
        let flipped = [byte[0] ^ (1 << self.random(8))];
        write_all_at(&*self.storage, &file, &flipped, at as u64).unwrap();
        let report = self.verify();
        write_all_at(&*self.storage, &file, &byte, at as u64).unwrap();
        report
    }

    /// Every file of the log and of the indexes.
    fn files(&self) -> Vec<String> {
        let paths = self.storage.paths().into_iter();
        let paths = paths.filter_map(|path| path.strip_prefix("/store/").map(str::to_owned));
        paths
            .filter(|path| !path.ends_with('/') && (path.starts_with("log/") || path.starts_with("index/")))
            .collect()
    }
}

fn commit(version: u64) -> String {
    format!("log/{:012}/{version:020}", version / u64::from(SEGMENT))
}

fn index(segment: u64) -> String {
    format!("index/{segment:012}")
}

#[track_caller]
fn names(report: &VerifyReport, path: &str) {
    assert!(report.findings.iter().any(|found| found.path == Path::new(path)), "{path}: {report:#?}");
}

#[track_caller]
fn clean(report: &VerifyReport) {
    assert!(report.is_clean() && report.litter.is_empty(), "{report:#?}");
}

fn publish(producer: &mut Producer, state: &[u8], fill: impl FnOnce(&mut Draft)) {
    let mut draft = producer.draft().unwrap();
    fill(&mut draft);
    producer.publish(draft, state).unwrap();
}

fn counts(samples: u64) -> Counts {
    Counts { samples, tokens: samples * 10 }
}

/// One complete segment and a few commits of the next, all small. The commit at version 3 has every piece
/// that a small one can have.
fn small() -> Broken {
    let broken = Broken::new(1);
    let mut producer = broken.store.producer("tok-017").unwrap();
    for number in 0..u64::from(SEGMENT) + 2 {
        publish(&mut producer, &number.to_le_bytes()[..5], |draft| {
            draft.add_slice(b"seventeen of them", counts(number)).unwrap();
            draft.add_slice(b"", counts(0)).unwrap();
            draft.attach(b"sample ids").unwrap();
            draft.metadata(b"why").unwrap();
        });
    }
    broken
}

/// Two parts a step, two producers, three segments, slices of every sort, a close and a reopening.
fn rich() -> Broken {
    let mut broken = Broken::new(2);
    let noise = broken.noise((5 << 20) / 2 + 77);
    let mut a = broken.store.producer("a").unwrap();
    let mut b = broken.store.producer("b").unwrap();
    for number in 0..10u64 {
        publish(&mut a, &noise[..number as usize * 3], |draft| {
            for length in [0, 1, 5000, 4096 * number as usize, 0] {
                draft.add_slice(&noise[..length], counts(number)).unwrap();
            }
        });
        b.set_compression(if number % 2 == 0 { Compression::Zstd(1) } else { Compression::None });
        publish(&mut b, b"", |draft| {
            let length = if number < 2 { noise.len() } else { 100 * number as usize };
            draft.add_slice(&noise[..length], counts(1)).unwrap();
            draft.add_slice(&vec![7; 3 << 20 >> number], counts(1)).unwrap();
            draft.attach(&noise[..777 * number as usize]).unwrap();
            draft.metadata(&noise[..number as usize * 11]).unwrap();
        });
    }
    publish(&mut a, b"no slices", |_| ());
    assert!(broken.store.close(true).unwrap() && broken.store.reopen().unwrap());
    let mut a = broken.store.producer("a").unwrap();
    for number in 0..12u64 {
        publish(&mut a, &number.to_le_bytes(), |draft| draft.add_slice(b"more", counts(1)).unwrap());
    }
    b.finish().unwrap();
    broken
}

#[test]
fn a_whole_store_is_clean_and_all_of_it_is_read() {
    let rich = rich();
    let mut last = batchweave::Progress::default();
    let report = rich
        .store
        .verify(|progress| {
            assert!(progress.versions_done >= last.versions_done && progress.bytes >= last.bytes);
            last = progress;
        })
        .unwrap();
    clean(&report);
    assert_eq!((report.commits, report.parts, report.indexes), (39, 33, 2));
    assert_eq!(report.slices, 10 * 5 + 10 * 2 + 12);
    assert_eq!((last.versions_done, last.versions_total, last.bytes), (39, 39, report.bytes));
    let on_disk: usize = rich.files().iter().map(|path| rich.read(path).len()).sum();
    assert_eq!(report.bytes, on_disk as u64 + 512, "every byte once, STORE's too");
    assert!(serde_json::to_string(&report).unwrap().contains("\"findings\":[]"));
    let empty = Broken::new(1);
    clean(&empty.verify());
}

#[test]
fn every_byte_of_a_small_commit_and_of_an_index_counts() {
    let mut small = small();
    clean(&small.verify());
    for path in [commit(3), index(0)] {
        for at in 0..small.read(&path).len() {
            let report = small.verify_flipped(&path, at);
            assert!(
                report.findings.iter().any(|found| found.path == Path::new(&path)),
                "{path} byte {at}: {report:?}"
            );
        }
    }
    clean(&small.verify());
}
