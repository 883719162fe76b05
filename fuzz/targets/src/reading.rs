//! A whole store asked for everything that it can be asked without writing.
//!
//! - Whatever the files hold, there is an answer or a typed error that says where; no panic, no end of
//!   memory.
//! - Where `verify` finds nothing, everything that is retained can be read; and reading by maps or by copies
//!   gives the same bytes.
//! - Nothing is changed by any of it, not by a repair's dry run either.

use std::path::Path;
use std::sync::Arc;

use batchweave::storage::Storage;
use batchweave::{
    Batch, Consumer, ConsumerOptions, Error, ErrorKind, MountClass, Next, ReadMode, RepairOptions, Result,
    Settings, Share, Start, Step, Store, Version,
};
use batchweave_sim::{Memory, Seeded};

use crate::files;

/// Steps, commits and batches that are read at most, so that a case ends.
const READS_MAX: usize = 64;

/// An answer; or none, if the error is one that a reader may be given.
pub fn typed<T>(read: Result<T>) -> Option<T> {
    read.map_err(|error| check(&error)).ok()
}

fn check(error: &Error) {
    assert!(
        !matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Full | ErrorKind::Timeout),
        "a reader is told {}: {error}",
        error.kind()
    );
    let located = error.path().is_some() || error.commit_version().is_some() || error.about_step().is_some();
    assert!(located, "an error that doesn't say where: {error}");
    assert!(!error.to_string().is_empty());
}

/// Opens a store in memory as it is.
pub fn open(memory: &Memory, settings: &Settings) -> Result<Store> {
    let storage = Arc::new(memory.clone()) as Arc<dyn Storage>;
    Store::open_on(Path::new(files::ROOT), storage, Arc::new(Seeded::new(9)), settings)
}

/// Reads everything, by every mode.
pub fn everything(memory: &Memory, remote: bool) {
    let before = memory.fingerprint();
    let class = if remote { MountClass::CloseToOpen } else { MountClass::Local };
    let settings = |mode| Settings::new().read_mode(mode).mount_class(class);
    let mapped = typed(open(memory, &settings(ReadMode::Map))).map(|store| all_of(&store));
    let copied = typed(open(memory, &settings(ReadMode::Copy))).map(|store| all_of(&store));
    check_modes(mapped.as_deref(), copied.as_deref());
    if let Some(store) = typed(open(memory, &Settings::new())) {
        let report = typed(store.verify(|_| ()));
        let whole = mapped.as_ref().is_some_and(|read| read.iter().all(Option::is_some));
        if report.is_some_and(|report| report.is_clean()) {
            assert!(whole, "verify finds nothing, but not everything can be read: {:?}", first_error(memory));
        }
        typed(store.repair(RepairOptions::new().dry_run(true)));
    }
    assert_eq!(memory.fingerprint(), before, "reading has changed the store");
}

/// What a map is read as, so is a copy. A copy asks for no file's size, so it may still read what a map,
/// which
/// has to, refuses.
fn check_modes(mapped: Option<&[Option<u64>]>, copied: Option<&[Option<u64>]>) {
    let (Some(mapped), Some(copied)) = (mapped, copied) else {
        assert_eq!(mapped, copied, "opened by one mode only");
        return;
    };
    assert_eq!(mapped.len(), copied.len(), "maps and copies are asked differently");
    for (mapped, copied) in mapped.iter().zip(copied) {
        assert!(mapped.is_none() || mapped == copied, "a map and a copy are read differently");
    }
}

/// For the message: what can't be read.
fn first_error(memory: &Memory) -> Option<String> {
    let store = open(memory, &Settings::new()).err().map(|error| error.to_string());
    store.or_else(|| {
        let store = open(memory, &Settings::new()).ok()?;
        let info = store.info().err().map(|error| error.to_string());
        info.or_else(|| {
            let info = store.info().ok()?;
            let mut steps = (info.floor.get()..info.next_step.get()).take(READS_MAX);
            steps.find_map(|step| whole(&store, Step::new(step)).err().map(|error| error.to_string()))
        })
    })
}

/// What each question was answered, by a checksum of the answer; none for an error.
fn all_of(store: &Store) -> Vec<Option<u64>> {
    let mut answers = Vec::new();
    let mut told = |text: Option<String>| answers.push(text.map(|text| of(text.as_bytes())));
    let info = typed(store.info());
    let steps = info.as_ref().map_or(0..0, |info| info.floor.get()..info.next_step.get());
    let first = info.as_ref().and_then(|info| info.head_version).map_or(0, Version::get);
    told(info.map(|info| format!("{:?} {:?} {:?}", info.head_version, info.next_step, info.closed)));
    told(typed(store.producers()).map(|producers| format!("{producers:?}")));
    told(typed(store.turns()).map(|turns| format!("{turns:?}")));
    let groups = typed(store.groups());
    for group in groups.iter().flatten() {
        let checkpoints = store.group(group.name.as_str()).and_then(|group| group.checkpoints());
        told(typed(checkpoints).map(|checkpoints| format!("{checkpoints:?}")));
    }
    told(groups.map(|groups| format!("{:?}", groups.iter().map(|group| &group.name).collect::<Vec<_>>())));
    for step in steps.take(READS_MAX) {
        answers.push(typed(whole(store, Step::new(step))));
    }
    if let Some(run) = typed(store.run(Start::Beginning)) {
        if let Some(joined) = typed(store.join(&run.snapshot())) {
            assert_eq!(joined.position(), run.position());
        }
        let consumer = run.consumer_with(Share::WHOLE, ConsumerOptions::new().window_steps(0));
        answers.extend(typed(consumer).and_then(|mut consumer| follow(&mut consumer)));
    } else {
        answers.push(None);
    }
    let from = Version::new(first.saturating_sub(40));
    for commit in typed(store.commits(from)).into_iter().flatten().take(READS_MAX) {
        // One of a dead part may be gone.
        let _ = typed(commit);
    }
    answers
}

/// The steps on a consumer's way, to the first that can't be read, or the end; none if there was one.
pub fn follow(consumer: &mut Consumer) -> Option<Option<u64>> {
    let mut read = 0;
    for _ in 0..READS_MAX {
        match typed(consumer.try_next()) {
            Some(Next::Batch(batch)) => read ^= typed(slices(&batch))?.rotate_left(7),
            Some(_) => break,
            None => return Some(None),
        }
    }
    Some(Some(read))
}

fn slices(batch: &Batch) -> Result<u64> {
    batch.slices().try_fold(0, |sum, slice| Ok(of(&slice?) ^ u64::rotate_left(sum, 9)))
}

/// Everything of a step.
pub fn whole(store: &Store, step: Step) -> Result<u64> {
    let batch = store.batch(step)?;
    let mut sum = slices(&batch)?;
    for index in 0..batch.len().min(READS_MAX) {
        let slice = batch.slice(index)?;
        let end = slice.len() as u64;
        let part = batch.range(index, end / 3..end)?;
        assert_eq!(&*part, &slice[(end / 3) as usize..], "a range isn't that of its slice");
        match batch.location(index) {
            Ok(location) => assert_eq!(location.length, end),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
        }
    }
    for bytes in batch.attachments()?.iter().chain(&batch.metadata()?) {
        sum = sum.rotate_left(5) ^ of(bytes);
    }
    assert!(batch.producers()?.len() == store.options().parts_per_step as usize);
    Ok(sum)
}

fn of(bytes: &[u8]) -> u64 {
    batchweave::format::checksum::of(bytes).get()
}
