//! The truth of a store: its log read from the first version by itself, without indexes, tails or caches.

use std::collections::BTreeMap;

use batchweave::format::record::Record;
use batchweave::log::state::State;
use batchweave::log::tail::Tail;
use batchweave::log::void::Void;
use batchweave::log::{Log, read};
use batchweave::{Store, Version};

use super::turns::Taken;

/// The log, replayed from its first version without any index.
#[derive(Debug)]
pub struct Replayed {
    /// The state at its end.
    pub state: State,
    /// Whose parts became visible, in order, and by which version.
    pub holders: Vec<(String, u64, Version)>,
    /// Why each commit has no effect, if it has none.
    pub voids: Vec<Option<Void>>,
    /// What had an effect on whose turn it is, in order.
    pub turns: Vec<Taken>,
}

impl Replayed {
    /// Whose parts became visible, in order.
    pub fn parts(&self) -> Vec<(String, u64)> {
        self.holders.iter().map(|(producer, sequence, _)| (producer.clone(), *sequence)).collect()
    }
}

/// Replays the whole log.
///
/// # Panics
/// A commit can't be read, or an older incarnation has changed something.
pub fn replay(log: &Log) -> Replayed {
    let mut state = State::new(log.parts_per_step());
    let (mut holders, mut voids, mut turns) = (Vec::new(), Vec::new(), Vec::new());
    let mut newest_opens = BTreeMap::new();
    loop {
        let version = state.next_version;
        let segment = log.open_segment(version.segment(log.segment_size())).expect("a readable log");
        let Some(file) = segment.and_then(|dir| read::open(log, &dir, version).ok()) else { break };
        let commit = read::commit(log, &file, version).expect("a whole commit").to_commit();
        let void = state.apply(version, &commit).expect("a record of this version");
        voids.push(void);
        if let Some(record) = commit.record.as_ref().filter(|_| void.is_none()) {
            Taken::note(record, &mut turns);
        }
        // P4, by nothing but the log: what is visible is of the newest Open of its name.
        match &commit.record {
            Some(Record::Open { producer, .. }) if void.is_none() => {
                newest_opens.insert(producer.clone(), version.incarnation());
            }
            // What it drops is visible no more, and nobody is open after it.
            Some(Record::Rewind(rewind)) if void.is_none() => {
                let kept = rewind.step.first_part(log.parts_per_step()).get();
                holders.truncate(usize::try_from(kept).expect("so many parts that memory can hold"));
                newest_opens.clear();
            }
            Some(Record::Parts(parts)) if void.is_none() => {
                let newest = newest_opens.get(&parts.producer);
                assert_eq!(newest, Some(&parts.incarnation), "P4: version {version} is a zombie's");
            }
            _ => {}
        }
        if let Some(Record::Parts(record)) = &commit.record
            && void.is_none()
        {
            let sequences = record.first.get()..record.first.get() + record.parts.len() as u64;
            let name = record.producer.as_str();
            holders.extend(sequences.map(|sequence| (name.to_owned(), sequence, version)));
        }
    }
    Replayed { state, holders, voids, turns }
}

/// Holds a freshly loaded tail, and every index, against the replay from the beginning: all openers, from an
/// index or from the start, compute the same state.
///
/// # Panics
/// They differ.
pub fn check_replay(store: &Store) -> Replayed {
    let log = store.inner();
    let replayed = replay(log);
    let tail = Tail::load(log).unwrap_or_else(|error| panic!("the log can't be loaded: {error}"));
    assert_eq!(tail.state, replayed.state, "the newest index and what follows it differ from the whole log");
    let size = log.segment_size();
    // A commit in a segment proves that the one before is indexed (R4); the segment's own last commit
    // doesn't.
    let newest = replayed.voids.len().saturating_sub(1) as u64 / u64::from(size);
    for segment in 0..newest {
        let index = batchweave::log::index::Index::open(log, segment.into()).expect("a readable index");
        let index = index.unwrap_or_else(|| panic!("segment {segment} is complete and has no index"));
        index.producer_states().expect("a whole index");
        for slot in 0..u64::from(size) {
            let version = Version::new(segment * u64::from(size) + slot);
            let void = replayed.voids[version.get() as usize].map_or(0, Void::number);
            assert_eq!(index.version(version).expect("its entry").void, void, "version {version}");
        }
    }
    replayed
}
