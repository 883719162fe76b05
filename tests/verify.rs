//! Verification of whole stores. The method: a store with everything that a store can have is clean; then one
//! thing is broken at a time (every byte of a small commit and of an index, sampled bytes of all files, cuts,
//! swaps, removals), and the report has to name the file that it was done to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use batchweave::env::System;
use batchweave::format::checksum;
use batchweave::format::commit::{Draft as Header, Seen, seal};
use batchweave::format::index::{Header as IndexHeader, Section};
use batchweave::format::record::Record;
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
        let paths =
            paths.filter_map(|path| path.trim_start_matches('/').strip_prefix("store/").map(str::to_owned));
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
    producer.publish_now(draft, state).unwrap();
}

fn counts(samples: u64) -> Counts {
    Counts { samples, tokens: samples * 10 }
}

/// One complete segment and a few commits of the next, all small.
fn small() -> Broken {
    of_parts(u64::from(SEGMENT) + 2)
}

/// Small commits; the one at version 3 has every piece that a small one can have.
fn of_parts(parts: u64) -> Broken {
    let broken = Broken::new(1);
    let mut producer = broken.store.producer("tok-017").unwrap();
    for number in 0..parts {
        publish(&mut producer, &number.to_le_bytes()[..5], |draft| {
            draft.add_slice(b"seventeen of them", counts(number)).unwrap();
            if number == 2 {
                draft.add_slice(b"", counts(0)).unwrap();
                draft.attach(b"sample ids").unwrap();
                draft.metadata(b"why").unwrap();
            }
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

fn every_byte_counts(mut broken: Broken, path: &str) {
    clean(&broken.verify());
    for at in 0..broken.read(path).len() {
        let report = broken.verify_flipped(path, at);
        assert!(
            report.findings.iter().any(|found| found.path == Path::new(path)),
            "{path} byte {at}: {report:?}"
        );
    }
    clean(&broken.verify());
}

#[test]
fn every_byte_of_a_small_commit_counts() {
    every_byte_counts(of_parts(4), &commit(3));
}

#[test]
fn every_byte_of_an_index_counts() {
    every_byte_counts(small(), &index(0));
}

#[test]
fn sampled_bytes_of_every_file_count() {
    let mut rich = rich();
    for path in rich.files() {
        let length = rich.read(&path).len();
        // The end of a commit is where lists, tables and items are.
        let samples: Vec<usize> = (0..4).map(|_| rich.random(length as u64) as usize).collect();
        let near_end = (1..4).map(|nth| length - 1 - (nth * 211) % length.min(700));
        for at in samples.into_iter().chain(near_end) {
            let report = rich.verify_flipped(&path, at);
            assert!(
                report.findings.iter().any(|found| found.path == Path::new(&path)),
                "{path} byte {at}: {report:?}"
            );
        }
    }
    clean(&rich.verify());
}

/// A slice of several blocks: its bytes, its list and the padding between are told apart from each other, and
/// the step.
#[test]
fn a_broken_slice_names_its_step() {
    let mut rich = rich();
    let path = commit(3);
    let report = rich.verify_flipped(&path, 4096 + (2 << 20) + 5);
    names(&report, &path);
    let found = &report.findings[0];
    assert_eq!(
        (report.findings.len(), found.version, found.step),
        (1, Some(Version::new(3)), Some(0.into()))
    );
    assert_eq!(found.what, "the checksum of the bytes of slice 0 differs");
    let bytes_end = 4096 + (5 << 20) / 2 + 77;
    assert!(!rich.read(&commit(5)).len().is_multiple_of(4096), "the file ends with its part");
    let stored_raw = rich.read(&commit(5)).len() > bytes_end;
    assert!(stored_raw, "version 5 holds the large slice as it is");
    for (at, what) in [
        (bytes_end, "the padding at"),
        (bytes_end.next_multiple_of(8), "the checksum of the bytes of slice 0"),
        (bytes_end.next_multiple_of(8) + 24, "the padding at"),
    ] {
        let report = rich.verify_flipped(&commit(5), at);
        assert!(report.findings[0].what.starts_with(what), "{at}: {report:?}");
    }
}

#[test]
fn cuts_and_appended_bytes_are_found() {
    let broken = small();
    for path in [commit(3), commit(17), index(0)] {
        let whole = broken.read(&path);
        let longer = [whole.as_slice(), &[0]].concat();
        for changed in [&whole[..0], &whole[..whole.len() / 2], &whole[..whole.len() - 1], &longer] {
            broken.replace(&path, changed);
            names(&broken.verify(), &path);
        }
        broken.replace(&path, &whole);
    }
    clean(&broken.verify());
}

#[test]
fn what_is_missing_is_found() {
    let broken = small();
    for path in [commit(0), commit(7), commit(16), index(0)] {
        let whole = broken.read(&path);
        broken.remove(&path);
        names(&broken.verify(), &path);
        broken.write(&path, &whole);
    }
    let mark = "marks/000000000001";
    broken.remove(mark);
    names(&broken.verify(), mark);
    broken.write(mark, b"");
    clean(&broken.verify());
    for version in 16..19 {
        broken.remove(&commit(version));
    }
    let (log, segment) = broken.dir_of("log/000000000001");
    broken.storage.remove_dir(&log, segment).unwrap();
    names(&broken.verify(), "log/000000000001");
}

#[test]
fn what_is_in_anothers_place_is_found() {
    let broken = rich();
    let swap = |one: &str, other: &str| {
        let (first, second) = (broken.read(one), broken.read(other));
        broken.replace(one, &second);
        broken.replace(other, &first);
    };
    for (one, other) in [(commit(2), commit(4)), (commit(5), commit(20)), (index(0), index(1))] {
        swap(&one, &other);
        let report = broken.verify();
        names(&report, &one);
        names(&report, &other);
        swap(&one, &other);
    }
    // Where no index tells, the later one is found by what it has seen.
    swap(&commit(33), &commit(36));
    names(&broken.verify(), &commit(33));
    swap(&commit(33), &commit(36));
    // One of another store, whole in itself.
    let stranger = rich();
    for path in [commit(4), commit(36), index(0)] {
        let own = broken.read(&path);
        broken.replace(&path, &stranger.read(&path));
        names(&broken.verify(), &path);
        broken.replace(&path, &own);
    }
    clean(&broken.verify());
}

/// A lie whose checksums are right is one only against the rest of the log: each is told where it is.
#[test]
fn sealed_lies_of_an_index_are_found() {
    let broken = small();
    let path = index(0);
    let whole = broken.read(&path);
    let header = IndexHeader::decode(whole[..256].try_into().unwrap()).unwrap();
    // Why the fourth version has no effect, the second part's ordinal, a digit of the state, one of a
    // producer's state.
    for (section, at) in [
        (Section::Versions, 3 * 32 + 26),
        (Section::Parts, 16 + 8),
        (Section::State, 56),
        (Section::ProducerStates, 17),
    ] {
        let mut bytes = whole.clone();
        let placed = header.placed(section);
        bytes[placed.offset as usize + at] ^= 1;
        let mut lie = header;
        let lying = lie.sections.iter_mut().find(|one| one.offset == placed.offset).unwrap();
        lying.checksum = checksum::of(&bytes[placed.offset as usize..][..placed.length as usize]);
        bytes[..256].copy_from_slice(&lie.encode());
        broken.replace(&path, &bytes);
        names(&broken.verify(), &path);
    }
    broken.replace(&path, &whole);
    clean(&broken.verify());
}

/// Openers look back over two segments only (R10); verification over all that is there.
#[test]
fn what_a_commit_has_seen_is_held_against_all_history() {
    let rich = rich();
    let seen: Vec<_> = rich.store.commits(Version::ZERO).unwrap().map(Result::unwrap).collect();
    let open = |seen| {
        let draft = Header {
            store: rich.store.uuid(),
            nonce: batchweave::Nonce::new([9; 16]),
            generation: batchweave::Generation::ZERO,
            seen: Some(seen),
            attempt_us: 0,
            people: Default::default(),
        };
        let record = Record::Open { producer: batchweave::Name::new("late").unwrap(), last: None };
        seal(draft, &record).unwrap().block
    };
    let path = commit(39);
    rich.write(&path, &*open(Seen { version: Version::new(2), checksum: seen[2].checksum }));
    clean(&rich.verify());
    rich.replace(&path, &*open(Seen { version: Version::new(2), checksum: seen[3].checksum }));
    assert!(rich.store.info().is_ok(), "an opener doesn't look back that far");
    names(&rich.verify(), &path);
}

/// Bytes, entry and seal changed together: only the table's checksum in the record is left to tell.
#[test]
fn a_resealed_slice_is_found_by_its_table() {
    let broken = of_parts(4);
    let path = commit(1);
    let mut bytes = broken.read(&path);
    bytes[4096] ^= 1;
    let sum = checksum::of(&bytes[4096..4096 + 17]).get();
    let entry = 4096 + 64;
    bytes[entry + 24..entry + 32].copy_from_slice(&sum.to_le_bytes());
    let seal = checksum::seeded(0, &bytes[entry..entry + 56]).get();
    bytes[entry + 56..entry + 64].copy_from_slice(&seal.to_le_bytes());
    broken.replace(&path, &bytes);
    let report = broken.verify();
    names(&report, &path);
    assert_eq!(report.findings[0].what, "the checksum of the slice table differs");
}

#[test]
fn store_and_strangers_are_found() {
    let mut broken = small();
    let other = small().read("STORE");
    let own = broken.read("STORE");
    broken.replace("STORE", &other);
    names(&broken.verify(), "STORE");
    broken.replace("STORE", &own);
    for at in [0, 8, 24, 56, 300, 511] {
        names(&broken.verify_flipped("STORE", at), "STORE");
    }
    let whole = broken.read("STORE");
    broken.replace("STORE", &[whole.as_slice(), &[0]].concat());
    names(&broken.verify(), "STORE");
    broken.replace("STORE", &whole);
    for path in
        ["x", "log/x", "log/000000000000/x", "log/000000000000/00000000000000000099", "index/1", "marks/x"]
    {
        broken.write(path, b"");
        names(&broken.verify(), path);
        broken.remove(path);
    }
    // A directory in a commit's place is never opened as one.
    let own = broken.read(&commit(5));
    broken.remove(&commit(5));
    let path = commit(5);
    let (dir, name) = broken.dir_of(&path);
    broken.storage.make_dir(&dir, name).unwrap();
    names(&broken.verify(), &path);
    broken.storage.remove_dir(&dir, name).unwrap();
    broken.write(&path, &own);
    clean(&broken.verify());
}

/// One fault doesn't hide another one, and isn't told again by what follows from it.
#[test]
fn verification_goes_on_after_a_fault() {
    let broken = rich();
    for path in [commit(1), commit(9), commit(19), index(1), commit(38)] {
        let mut bytes = broken.read(&path);
        bytes[130] ^= 4;
        broken.replace(&path, &bytes);
    }
    let report = broken.verify();
    for path in [commit(1), commit(9), commit(19), index(1), commit(38)] {
        names(&report, &path);
    }
    assert_eq!(report.findings.len(), 5, "{report:#?}");
}

#[test]
fn litter_is_told_by_what_the_log_knows_and_is_no_fault() {
    let broken = small();
    let commits = broken.store.commits(Version::ZERO).unwrap();
    let nonce = commits.map(Result::unwrap).nth(4).unwrap().nonce;
    let other = "00000000000000000000000000000abc";
    let expected = [
        (format!("tok-017.0.18.{other}"), "may be in use by producer tok-017"),
        (format!("tok-017.0.7.{other}"), "dead: sequence 7 of producer tok-017 is in"),
        (format!("tok-017.0.18.{nonce}"), "dead: it is in the log by its own name"),
        (format!("tok-017.3.18.{other}"), "dead: producer tok-017 was opened anew"),
        (format!("nobody.3.18.{other}"), "dead: producer nobody is unknown"),
        (format!("-open.{other}"), "may be in use"),
        (format!("-open.{nonce}"), "dead: it is in the log by its own name"),
        (format!(".probe-{other}"), "left by a probe of the mount"),
        ("x".to_owned(), "the store gives no such name: a stranger's"),
    ];
    for (name, _) in &expected {
        broken.write(&format!("stage/{name}"), b"");
    }
    let report = broken.verify();
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!(report.litter.len(), expected.len());
    for (name, why) in expected {
        let path = PathBuf::from(format!("stage/{name}"));
        assert!(
            report.litter.iter().any(|litter| litter.path == path && litter.why == why),
            "{name}: {report:#?}"
        );
    }
    assert!(broken.store.retire("tok-017").unwrap());
    let finished = "dead: producer tok-017 is finished";
    assert_eq!(broken.verify().litter.iter().filter(|litter| litter.why == finished).count(), 3);
}

#[test]
fn commits_are_listed_in_order_with_their_steps_and_effects() {
    let rich = rich();
    let all: Vec<CommitInfo> = rich.store.commits(Version::ZERO).unwrap().map(Result::unwrap).collect();
    assert_eq!(all.iter().map(|info| info.version.get()).collect::<Vec<_>>(), (0..39).collect::<Vec<_>>());
    let parts: Vec<_> = all.iter().filter(|info| info.kind == "parts").collect();
    for (number, info) in parts.iter().enumerate() {
        let step = Some((number as u64 / 2).into());
        assert_eq!((info.first_step, info.last_step, info.parts, &info.void), (step, step, 1, &None));
        assert_eq!(info.bytes, rich.read(&commit(info.version.get())).len() as u64);
    }
    let (open, first) = (&all[0], parts[0]);
    assert_eq!(
        (open.kind.as_str(), open.who.as_ref().unwrap().as_str(), open.first_step),
        ("open", "a", None)
    );
    assert_eq!((first.slices, first.samples, first.incarnation), (5, 0, open.incarnation));
    let details: Vec<_> =
        all.iter().filter_map(|info| Some((info.kind.as_str(), info.detail.as_deref()?))).collect();
    for detail in [
        ("parts", "sequence 0"),
        ("close", "at step 10, which may be begun"),
        ("reopen", "after 1 closes"),
        ("open", "opened before at version 0"),
    ] {
        assert!(details.contains(&detail), "{detail:?} in {details:?}");
    }
    let later: Vec<_> = rich.store.commits(Version::new(21)).unwrap().map(Result::unwrap).collect();
    assert_eq!(later, all[21..]);
    assert!(serde_json::to_string(&later).unwrap().contains("\"kind\":\"retire\""));
}

#[test]
fn a_listing_goes_on_after_a_damaged_commit_and_says_what_is_not_known() {
    let broken = small();
    let mut bytes = broken.read(&commit(5));
    bytes[700] ^= 1;
    broken.replace(&commit(5), &bytes);
    let all: Vec<_> = broken.store.commits(Version::ZERO).unwrap().collect();
    assert_eq!(all.len(), 19);
    assert_eq!(all[5].as_ref().unwrap_err().commit_version(), Some(Version::new(5)));
    let unknown = all[6].as_ref().unwrap();
    assert_eq!(unknown.void.as_deref(), Some("what it does isn't known: version 5 can't be replayed"));
    let known = all[16].as_ref().unwrap();
    assert_eq!((known.first_step, &known.void), (Some(15.into()), &None));
}
