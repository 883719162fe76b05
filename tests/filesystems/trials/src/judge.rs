//! What a store holds, held against what was to be there.

use std::collections::BTreeMap;
use std::path::Path;

use batchweave::{Next, Share, Start, Store};

use crate::Result;
use crate::part::{self, Id};

/// Nothing is lost, doubled, torn or out of order, by handles of their own through both mounts; and `verify`
/// finds nothing. Gives how many parts each producer has.
pub(crate) fn judge(a: &Path, b: &Path) -> Result<BTreeMap<String, u64>> {
    let through_a = read_all(a)?;
    let through_b = read_all(b)?;
    if through_a != through_b {
        let at = through_a.iter().zip(&through_b).take_while(|(a, b)| a == b).count();
        let (a, b) = (through_a.len(), through_b.len());
        return Err(format!("A reads {a} steps and B {b}; they differ from step {at} on").into());
    }
    let counts = count(through_a)?;
    for path in [a, b] {
        verify(path)?;
    }
    Ok(counts)
}

/// Each producer has exactly `parts`, and nobody else has any.
pub(crate) fn all_have(counts: &BTreeMap<String, u64>, names: &[String], parts: u64) -> Result<()> {
    if let Some(stranger) = counts.keys().find(|name| !names.contains(name)) {
        return Err(format!("parts of {stranger} are there, who never published").into());
    }
    for name in names {
        let has = counts.get(name).copied().unwrap_or_default();
        if has != parts {
            return Err(format!("{name} published {parts} parts, but {has} are there").into());
        }
    }
    Ok(())
}

/// The ids of all visible steps, by a handle of its own.
pub(crate) fn read_all(path: &Path) -> Result<Vec<Id>> {
    let run = Store::open(path)?.run(Start::Beginning)?;
    let mut consumer = run.consumer(Share::WHOLE)?;
    let mut found = Vec::new();
    while let Next::Batch(batch) = consumer.try_next()? {
        found.push(part::check(&batch)?);
    }
    Ok(found)
}

/// Every producer's parts are 0, 1, 2, ... in the order of the steps (P3); gives how many there are.
pub(crate) fn count(ids: impl IntoIterator<Item = Id>) -> Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for id in ids {
        let expected = counts.entry(id.producer.clone()).or_insert(0);
        match id.sequence.cmp(expected) {
            std::cmp::Ordering::Less => return Err(format!("DOUBLED: {id} is there again").into()),
            std::cmp::Ordering::Greater => {
                return Err(format!("LOST: {id} comes where {}/{expected} has to", id.producer).into());
            }
            std::cmp::Ordering::Equal => *expected += 1,
        }
    }
    Ok(counts)
}

/// `batchweave verify` finds nothing.
pub(crate) fn verify(path: &Path) -> Result<()> {
    let report = Store::open(path)?.verify(|_| ())?;
    match report.findings.first() {
        None => Ok(()),
        Some(first) => {
            let (count, what) = (report.findings.len(), &first.what);
            let through = path.display();
            Err(format!("verify through {through} finds {count} faults, first: {what} ({first:?})").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(texts: &[&str]) -> Vec<Id> {
        texts.iter().map(|text| Id::parse(text).unwrap()).collect()
    }

    #[test]
    fn what_is_lost_doubled_or_strange_is_named() {
        let counts = count(ids(&["a/0 by 7", "b/0 by 7", "a/1 by 8"])).unwrap();
        assert_eq!(counts, BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]));
        let said = |texts| count(ids(texts)).unwrap_err().to_string();
        assert_eq!(said(&["a/0 by 7", "a/0 by 8"]), "DOUBLED: a/0 by 8 is there again");
        assert_eq!(said(&["a/0 by 7", "a/2 by 7"]), "LOST: a/2 by 7 comes where a/1 has to");
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let have = |all: &[&str], parts| all_have(&counts, &names(all), parts).unwrap_err().to_string();
        assert_eq!(have(&["a"], 2), "parts of b are there, who never published");
        assert_eq!(have(&["a", "b"], 2), "b published 2 parts, but 1 are there");
        assert_eq!(have(&["a", "b", "c"], 2), "b published 2 parts, but 1 are there");
    }
}
