//! Groups, checkpoints and rewinds by their records alone, and what a reclaim leaves on a disk.

use std::path::Path;

use batchweave::commit::writer::{Settled, append_control};
use batchweave::format::record::{Checkpoint, Record, Rewind, Rewound};
use batchweave::format::{checksum, names, part::Item};
use batchweave::log::past::Past;
use batchweave::storage::Storage;
use batchweave::{Name, Step, Store, Version};
use batchweave_sim::Memory;

use crate::support::{PATH, parse};

/// Appends a record that nobody races for.
fn append(store: &Store, record: &Record) -> Version {
    let log = store.inner();
    let mut tail = log.current().unwrap();
    let appended = append_control(log, &mut tail, |_| Ok(Some(record.clone())), |_, _| Settled::Open);
    let version = appended.unwrap().unwrap().version;
    assert_eq!(tail.entry(version).unwrap().void, None, "{record:?}");
    version
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Opens a group.
pub fn group(store: &Store, called: &str, start: u64) {
    let last = store.inner().current().unwrap().state.groups.get(&name(called)).map(|known| known.last_group);
    append(store, &Record::Group { group: name(called), last, start: Step::new(start) });
}

/// Writes a checkpoint of a group; one whose name begins with `p` is pinned.
pub fn checkpoint(store: &Store, group: &str, called: &str, step: u64) {
    let record = {
        let tail = store.inner().current().unwrap();
        Record::Checkpoint(Checkpoint {
            group: name(group),
            incarnation: tail.state.groups[&name(group)].incarnation.unwrap(),
            step: Step::new(step),
            lineage: store.inner().lineage(&tail, Step::new(step)).unwrap(),
            name: name(called),
            pinned: called.starts_with('p'),
            metadata: b"loss 2.5".to_vec(),
        })
    };
    append(store, &record);
}

/// Rewinds the store; the producers' states are forgotten.
pub fn rewind(store: &Store, step: u64) {
    let (log, step) = (store.inner(), Step::new(step));
    let record = {
        let tail = log.current().unwrap();
        let past = Past::before(log, &tail, step.first_part(log.parts_per_step())).unwrap().state;
        let producers = tail.state.producers.keys().map(|producer| {
            let was = past.producers.get(producer);
            Rewound {
                producer: producer.clone(),
                next: was.map(|was| was.next).unwrap_or_default(),
                last: was.map(|was| was.last_checksum).unwrap_or_default(),
                last_part: was.and_then(|was| was.last_part),
                finished: was.is_some_and(|was| was.finished),
                place: 4096,
                state: Item { length: 0, checksum: checksum::of(b"") },
            }
        });
        Record::Rewind(Rewind {
            generation: tail.state.generation.next(),
            step,
            lineage: log.lineage(&tail, step).unwrap(),
            bytes_before: past.bytes_written,
            many_groups: true,
            turn: None,
            producers: producers.collect(),
        })
    };
    append(store, &record);
}

/// The segments that a directory of the store has names for.
pub fn segments(disk: &Memory, dir: &str) -> Vec<u64> {
    let dir = disk.open_root(&Path::new(PATH).join(dir)).unwrap();
    let listed = disk.list(&dir).unwrap();
    let mut found: Vec<u64> =
        listed.iter().filter_map(names::parse_segment).map(|segment| segment.get()).collect();
    found.sort_unstable();
    found
}

/// What lies in log/, index/ and marks/.
pub fn left(disk: &Memory) -> Vec<String> {
    let kept = |path: &String| ["/log/", "/index/", "/marks/"].iter().any(|dir| path.contains(dir));
    disk.paths().into_iter().filter(kept).collect()
}

/// Every step from `from` up to `to` is producer a's, each its own.
pub fn check_steps(store: &Store, from: u64, to: u64) {
    for step in from..to {
        let batch = store.batch(step.into()).unwrap_or_else(|error| panic!("step {step}: {error}"));
        assert_eq!(parse(&batch.slice(0).unwrap()), ("a".to_owned(), step));
    }
}

/// Nothing is wrong, by a handle of its own.
pub fn check_clean(store: &Store) {
    let report = store.verify(|_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}
