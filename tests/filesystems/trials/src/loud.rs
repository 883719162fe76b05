//! Two mounts that remember for long that a name wasn't there, whatever is opened anew: no store can live
//! there, and no probe on one node can tell. What has to hold even so: who fails says why, in words and not
//! by waiting for ever, and all that was acknowledged is there, once, for who reads without those mounts.

use std::collections::BTreeMap;
use std::path::Path;

use batchweave::Store;

use crate::child::{Crew, FAILED, Task};
use crate::{Result, judge, part, race};

const PRODUCERS: usize = 6;
const PARTS: u64 = 40;
/// Stores that are tried until somebody fails: now and then nobody looks for a name too early.
const STORES_MAX: u32 = 20;

pub(crate) fn loud(a: &Path, b: &Path, truth: &Path) -> Result<String> {
    let mut parts = 0;
    for number in 0..STORES_MAX {
        let (failed, acknowledged) = one(a, b, truth, &format!("loud-{number}"))?;
        parts += acknowledged;
        if failed > 0 {
            return Ok(format!(
                "{failed} of {PRODUCERS} producers failed in words, at store {number}; all {parts} \
                 acknowledged parts are there, once"
            ));
        }
    }
    Err("nobody failed, so this shows nothing: is the mount better than it was?".into())
}

/// One store: how many producers failed, and how many parts were acknowledged.
fn one(a: &Path, b: &Path, truth: &Path, trial: &str) -> Result<(u64, u64)> {
    Store::create(a.join(trial), part::options().allow_unknown_fuse(true))?;
    let names = race::names(PRODUCERS);
    let mut crew = Crew::new();
    for (name, mount) in names.iter().zip([a, b].into_iter().cycle()) {
        let task = Task::Producer { store: mount.join(trial), name: name.clone(), parts: PARTS };
        crew.start(format!("producer {name}"), &task)?;
    }
    let mut acknowledged = BTreeMap::new();
    let mut failed = 0;
    while crew.is_running() {
        let heard = crew.hear_even_failures()?;
        let word = heard.word.unwrap_or_default();
        if let Some(sequence) = word.strip_prefix("published ") {
            acknowledged.insert(names[heard.who].clone(), sequence.parse::<u64>()? + 1);
        }
        failed += u64::from(word.starts_with(FAILED));
    }
    let truth = truth.join(trial);
    let counts = judge::judge(&truth, &truth)?;
    for (name, parts) in &acknowledged {
        let has = counts.get(name).copied().unwrap_or_default();
        if has < *parts {
            return Err(format!("LOST: {parts} parts of {name} were acknowledged, {has} are there").into());
        }
    }
    Ok((failed, acknowledged.values().sum()))
}
