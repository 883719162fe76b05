//! Replay against its promises, over arbitrary sequences of records: most of them zombies, duplicates, gaps
//! and stale words, as a hostile cluster writes them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::apply::{Commit, Void};
use super::state::State;
use crate::error::ErrorKind;
use crate::format::part::PartDescriptor;
use crate::format::record::{Parts, Record};
use crate::id::{Checksum, Generation, Incarnation, Nonce, Sequence, Step, Version};
use crate::name::Name;

/// What a writer does, relative to what it could know; replay decides what becomes of it.
#[derive(Clone, Debug)]
enum Deed {
    Open { who: u8, knows_last: bool },
    Parts { who: u8, as_current: bool, skew: i8, count: u8 },
    Retire { who: u8, as_current: bool },
    Close { step_skew: u8, closes_skew: u8, open_step: bool, other_generation: bool },
    Reopen { closes_skew: u8 },
    Require,
    Optional,
}

fn deed() -> impl Strategy<Value = Deed> {
    let mostly = || prop::bool::weighted(0.8);
    prop_oneof![
        3 => (0..3u8, mostly()).prop_map(|(who, knows_last)| Deed::Open { who, knows_last }),
        9 => (0..3u8, mostly(), prop_oneof![8 => Just(0i8), 1 => Just(-1), 1 => Just(1)], 1..4u8)
            .prop_map(|(who, as_current, skew, count)| Deed::Parts { who, as_current, skew, count }),
        1 => (0..3u8, mostly()).prop_map(|(who, as_current)| Deed::Retire { who, as_current }),
        1 => (0..5u8, 0..5u8, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
            |(step, closes, open_step, other_generation)| Deed::Close {
                step_skew: step / 4,
                closes_skew: closes / 4,
                open_step,
                other_generation,
            }
        ),
        1 => (0..5u8).prop_map(|closes| Deed::Reopen { closes_skew: closes / 4 }),
        1 => Just(Deed::Require),
        1 => Just(Deed::Optional),
    ]
}

fn name(who: u8) -> Name {
    Name::new(&format!("tok-{who}")).unwrap()
}

/// The commit of a deed, written by someone who knows `state`.
fn commit(state: &State, deed: &Deed) -> Commit {
    let version = state.next_version.get();
    let incarnation = |who: u8, as_current: bool| {
        let known = state.producers.get(&name(who)).and_then(|known| known.incarnation);
        let current = known.unwrap_or(Incarnation::new(u64::MAX));
        if as_current { current } else { Incarnation::new(current.get() / 2) }
    };
    let mut generation = state.generation;
    let record = match deed {
        Deed::Open { who, knows_last } => {
            let last = state.producers.get(&name(*who)).map(|known| known.last_open);
            let stale = last.and_then(|last| last.get().checked_sub(1)).map(Version::new);
            Some(Record::Open { producer: name(*who), last: if *knows_last { last } else { stale } })
        }
        Deed::Parts { who, as_current, skew, count } => {
            let next = state.producers.get(&name(*who)).map_or(0, |known| known.next.get());
            let first = Sequence::new(next.saturating_add_signed((*skew).into()));
            let part = PartDescriptor { place: 4096, samples: version, ..Default::default() };
            let parts = vec![part; usize::from(*count)];
            let incarnation = incarnation(*who, *as_current);
            Some(Record::Parts(Parts { producer: name(*who), incarnation, first, parts }))
        }
        Deed::Retire { who, as_current } => {
            Some(Record::Retire { producer: name(*who), incarnation: incarnation(*who, *as_current) })
        }
        Deed::Close { step_skew, closes_skew, open_step, other_generation } => {
            if *other_generation {
                generation = Generation::new(generation.get() + 1);
            }
            let step = Step::new(state.next_step().get() + u64::from(*step_skew));
            let closes = state.closes() + u64::from(*closes_skew);
            Some(Record::Close { step, closes, open_step: *open_step })
        }
        Deed::Reopen { closes_skew } => {
            Some(Record::Reopen { closes: state.closes() + u64::from(*closes_skew) })
        }
        Deed::Require => Some(Record::Require { features: 0 }),
        Deed::Optional => None,
    };
    Commit {
        nonce: Nonce::new(u128::from(version).to_le_bytes()),
        checksum: Checksum::new(version ^ 0x5555),
        kind: record.as_ref().map_or(999, |record| record.kind().number()),
        generation,
        attempt_us: 7,
        record,
    }
}

/// What readers see, kept in the plainest way.
#[derive(Default)]
struct Seen {
    /// Sequences by producer, in the order of the stream.
    parts: Vec<(Name, u64)>,
    opens: BTreeMap<Name, Vec<u64>>,
    closed: Option<u64>,
}

impl Seen {
    fn note(&mut self, version: u64, commit: &Commit) -> Result<(), TestCaseError> {
        match commit.record.as_ref() {
            Some(Record::Open { producer, .. }) => {
                self.opens.entry(producer.clone()).or_default().push(version)
            }
            Some(Record::Parts(parts)) => {
                prop_assert_eq!(self.closed, None, "parts after a Close");
                let newest = self.opens.get(&parts.producer).and_then(|opens| opens.last());
                prop_assert_eq!(newest, Some(&parts.incarnation.get()), "P4: parts of an older incarnation");
                let sequences = parts.first.get()..parts.first.get() + parts.parts.len() as u64;
                self.parts.extend(sequences.map(|sequence| (parts.producer.clone(), sequence)));
            }
            Some(Record::Close { step, .. }) => self.closed = Some(step.get()),
            Some(Record::Reopen { .. }) => self.closed = None,
            _ => {}
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn promises_hold_over_any_records(deeds in prop::collection::vec(deed(), 1..120), per_step in 1..4u32) {
        let mut state = State::new(per_step);
        let mut seen = Seen::default();
        for deed in &deeds {
            let commit = commit(&state, deed);
            let version = state.next_version;
            let before = state.clone();
            let judged = state.judge(&commit).unwrap();
            let void = state.apply(version, &commit).unwrap();
            prop_assert_eq!(judged, void, "R5: a writer judges as replay does");
            prop_assert_eq!(state.next_version, version.next());
            match void {
                None => seen.note(version.get(), &commit)?,
                Some(_) => prop_assert_eq!(&State { next_version: version.next(), ..before }, &state),
            }
            prop_assert_eq!(state.next_part.get(), seen.parts.len() as u64);
            prop_assert_eq!(state.closed.map(Step::get), seen.closed);
            prop_assert_eq!(State::decode(&state.encode(), per_step).unwrap(), state.clone());
        }
        // P3: per producer 0, 1, 2, ... without gap or double.
        let mut next: BTreeMap<Name, u64> = BTreeMap::new();
        for (producer, sequence) in seen.parts {
            let expected = next.entry(producer).or_default();
            prop_assert_eq!(sequence, *expected);
            *expected += 1;
        }
    }

    /// P2: whoever starts from an index comes to the same state as whoever starts from the beginning.
    #[test]
    fn replay_goes_on_from_any_index(
        deeds in prop::collection::vec(deed(), 2..80), cut in any::<prop::sample::Index>(),
    ) {
        let mut whole = State::new(2);
        let mut commits = Vec::new();
        for deed in &deeds {
            let commit = commit(&whole, deed);
            whole.apply(whole.next_version, &commit).unwrap();
            commits.push(commit);
        }
        let cut = cut.index(commits.len());
        let mut first = State::new(2);
        for commit in &commits[..cut] {
            first.apply(first.next_version, commit).unwrap();
        }
        let mut second = State::decode(&first.encode(), 2).unwrap();
        for commit in &commits[cut..] {
            second.apply(second.next_version, commit).unwrap();
        }
        prop_assert_eq!(second, whole);
    }

    #[test]
    fn any_bytes_are_no_state_or_read_back(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(state) = State::decode(&bytes, 1) {
            prop_assert_eq!(state.encode(), bytes);
        }
    }

    #[test]
    fn a_mutated_state_never_panics(
        deeds in prop::collection::vec(deed(), 1..40),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut state = State::new(1);
        for deed in &deeds {
            let commit = commit(&state, deed);
            state.apply(state.next_version, &commit).unwrap();
        }
        let mut bytes = state.encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = State::decode(&bytes, 1);
    }
}

fn replayed(deeds: &[Deed]) -> State {
    let mut state = State::new(1);
    for deed in deeds {
        let commit = commit(&state, deed);
        assert_eq!(state.apply(state.next_version, &commit).unwrap(), None, "{deed:?}");
    }
    state
}

const OPEN: Deed = Deed::Open { who: 0, knows_last: true };
const PART: Deed = Deed::Parts { who: 0, as_current: true, skew: 0, count: 1 };

#[test]
fn a_retired_producer_keeps_its_cursor_and_may_come_back() {
    let state = replayed(&[OPEN, PART, PART, Deed::Retire { who: 0, as_current: true }]);
    let known = state.producers[&name(0)];
    assert!(known.finished && known.incarnation.is_none());
    assert_eq!((known.next.get(), known.state.unwrap().version.get()), (2, 2));
    let state = replayed(&[OPEN, PART, Deed::Retire { who: 0, as_current: true }, OPEN, PART]);
    let known = state.producers[&name(0)];
    assert!(!known.finished);
    assert_eq!((known.incarnation.unwrap().get(), known.next.get()), (3, 2));
}

#[test]
fn every_void_has_its_own_number_and_word() {
    for number in 1..=u8::MAX {
        if let Some(void) = Void::from_number(number) {
            assert_eq!(void.number(), number);
            assert!(!void.word().is_empty());
        }
    }
    assert_eq!(Void::from_number(0), None, "0 stands for an effect");
}

#[test]
fn a_record_that_cannot_be_replayed_yet_stops_there() {
    let mut state = replayed(&[OPEN]);
    let before = state.clone();
    let record = Record::Floor { step: Step::ZERO, lineage: Checksum::ZERO, bytes_before: 0 };
    let floor = Commit { record: Some(record), ..commit(&state, &OPEN) };
    assert_eq!(state.apply(state.next_version, &floor).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(state, before);
    let unknown = Commit { record: Some(Record::Require { features: 1 << 40 }), ..commit(&state, &OPEN) };
    assert_eq!(state.apply(state.next_version, &unknown).unwrap_err().kind(), ErrorKind::Unsupported);
}
