//! Who can't write, and mounts on which no store may be made.

use std::path::Path;

use batchweave::{ErrorKind, Options, Share, Start, Store};

use crate::child::PATIENCE;
use crate::{Result, judge, part};

/// EROFS.
const READ_ONLY: i32 = 30;
const STEPS: u64 = 40;

/// Readers need no write permission (P7); who has to write is told so.
pub(crate) fn read_only(writable: &Path, read_only: &Path) -> Result<String> {
    let store = Store::create(writable.join("store"), part::options())?;
    let path = read_only.join("store");
    let reading = Store::open(&path)?;
    let mut consumer = reading.run(Start::Beginning)?.consumer(Share::WHOLE)?;
    let mut producer = store.producer("tok")?;
    for sequence in 0..STEPS {
        part::publish(&mut producer)?;
        let batch = consumer.next_batch_timeout(PATIENCE)?.ok_or("the stream ended early")?;
        let id = part::check(&batch)?;
        if !id.is("tok", sequence) {
            return Err(format!("step {sequence} holds {id}").into());
        }
    }
    judge::verify(&path)?;
    let open = reading.producer("other").err();
    let create = Store::create(read_only.join("another"), part::options()).err();
    for (what, error) in [("a producer", open), ("a store", create)] {
        let error = error.ok_or_else(|| format!("{what} could be opened on a read-only mount"))?;
        if error.kind() != ErrorKind::Io || error.errno() != Some(READ_ONLY) {
            return Err(format!("{what} is refused for another reason: {error:?}").into());
        }
    }
    Ok(format!("{STEPS} steps read, producer and creation refused by EROFS"))
}

/// No store may be made there, these words say why, and nothing is left behind.
pub(crate) fn refused(directory: &Path, words: &str, allow_unknown_fuse: bool) -> Result<String> {
    let options = Options::new().allow_unknown_fuse(allow_unknown_fuse);
    let path = directory.join("store");
    let Err(error) = Store::create(&path, options) else {
        return Err("a store could be made".into());
    };
    if error.kind() != ErrorKind::Unsupported || !error.to_string().contains(words) {
        return Err(format!("it is refused in other words than {words:?}: {error:?}").into());
    }
    let left = std::fs::read_dir(&path).map(Iterator::count).unwrap_or_default();
    if left > 0 {
        return Err(format!("{left} files were left behind").into());
    }
    let report = batchweave::doctor(directory, &options)?;
    match report.report.refusal {
        Some(refusal) if refusal.contains(words) => Ok(refusal),
        other => Err(format!("doctor says {other:?}").into()),
    }
}
