//! Replay against its promises, over arbitrary sequences of records: most of them zombies, duplicates, gaps
//! and stale words, as a hostile cluster writes them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::apply::Commit;
use super::history::past;
use super::state::{ProducerState, State};
use super::void::Void;
use crate::error::ErrorKind;
use crate::format::part::{Item, PartDescriptor};
use crate::format::record::{Checkpoint, Parts, Record, Rewind, Rewound};
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
    Forget { who: u8 },
    Group { who: u8, knows_last: bool, back: u8 },
    RetireGroup { who: u8, as_current: bool },
    Checkpoint { who: u8, as_current: bool, back: u8, name: u8 },
    Drop { who: u8, as_current: bool, nth: u8 },
    Floor { back: u8 },
    Rewind { back: u8, many_groups: bool, other_generation: bool },
    Skip { back: u8, count: u8, other_generation: bool },
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
        1 => (0..3u8).prop_map(|who| Deed::Forget { who }),
        6 => change(),
    ]
}

/// What groups and operators do.
fn change() -> impl Strategy<Value = Deed> {
    let mostly = || prop::bool::weighted(0.8);
    let rarely = || prop::bool::weighted(0.1);
    let (who, back) = (0..3u8, 0..6u8);
    prop_oneof![
        2 => (who.clone(), mostly(), back.clone())
            .prop_map(|(who, knows_last, back)| Deed::Group { who, knows_last, back }),
        1 => (who.clone(), rarely()).prop_map(|(who, as_current)| Deed::RetireGroup { who, as_current }),
        4 => (who.clone(), mostly(), back.clone(), 0..6u8).prop_map(|(who, as_current, back, name)| {
            Deed::Checkpoint { who, as_current, back, name }
        }),
        2 => (who, mostly(), 0..3u8)
            .prop_map(|(who, as_current, nth)| Deed::Drop { who, as_current, nth }),
        2 => back.clone().prop_map(|back| Deed::Floor { back }),
        1 => (back.clone(), any::<bool>(), rarely()).prop_map(|(back, many_groups, other_generation)| {
            Deed::Rewind { back, many_groups, other_generation }
        }),
        1 => (back, 0..4u8, rarely())
            .prop_map(|(back, count, other_generation)| Deed::Skip { back, count, other_generation }),
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
        Deed::Forget { who } => {
            let last = state.producers.get(&name(*who)).map_or(Version::ZERO, |known| known.last_open);
            Some(Record::Forget { producer: name(*who), incarnation: last.incarnation() })
        }
        Deed::Require => Some(Record::Require { features: 0 }),
        Deed::Optional => None,
        Deed::Rewind { other_generation, .. } | Deed::Skip { other_generation, .. } => {
            generation = Generation::new(generation.get() + u64::from(*other_generation));
            Some(change_of(state, deed))
        }
        _ => Some(change_of(state, deed)),
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

/// The record of what a group or an operator does.
fn change_of(state: &State, deed: &Deed) -> Record {
    let head = state.next_step().get();
    // Now and then beyond the head by one.
    let back = |back: u8| Step::new((head + 1).saturating_sub(back.into()));
    let known = |who: u8| state.groups.get(&name(who));
    let incarnation = |who: u8, as_current: bool| {
        let current = known(who).and_then(|known| known.incarnation).unwrap_or(Incarnation::new(u64::MAX));
        if as_current { current } else { Incarnation::new(current.get() / 2) }
    };
    match *deed {
        Deed::Group { who, knows_last, back: to } => {
            let last = known(who).map(|known| known.last_group).filter(|_| knows_last);
            Record::Group { group: name(who), last, start: back(to) }
        }
        Deed::RetireGroup { who, as_current } => {
            Record::RetireGroup { group: name(who), incarnation: incarnation(who, as_current) }
        }
        Deed::Checkpoint { who, as_current, back: to, name: own } => Record::Checkpoint(Checkpoint {
            group: name(who),
            incarnation: incarnation(who, as_current),
            step: back(to),
            lineage: Checksum::new(head),
            name: name(own),
            pinned: own == 0,
            metadata: vec![own; own.into()],
        }),
        Deed::Drop { who, as_current, nth } => {
            let kept = known(who).and_then(|known| known.checkpoints.get(usize::from(nth)));
            let checkpoint = kept.map_or(Version::ZERO, |kept| kept.version);
            Record::Drop { group: name(who), incarnation: incarnation(who, as_current), checkpoint }
        }
        Deed::Floor { back: to } => {
            let step = back(to);
            Record::Floor { step, lineage: Checksum::new(step.get()), bytes_before: step.get() }
        }
        Deed::Rewind { back: to, many_groups, .. } => rewind(state, back(to), many_groups),
        Deed::Skip { back: to, count, .. } => {
            let first = back(to);
            Record::Skip { first, last: Step::new(first.get() + u64::from(count)), reason: String::new() }
        }
        _ => unreachable!("{deed:?} isn't a change"),
    }
}

/// A rewind that says of every producer what the state says now; the test sets it right.
fn rewind(state: &State, step: Step, many_groups: bool) -> Record {
    let back = |(name, known): (&Name, &ProducerState)| Rewound {
        producer: name.clone(),
        next: known.next,
        last: known.last_checksum,
        last_part: known.last_part,
        finished: known.finished,
        place: 4096,
        state: Item::default(),
    };
    Record::Rewind(Rewind {
        generation: state.generation.next(),
        step,
        lineage: Checksum::ZERO,
        bytes_before: step.get(),
        many_groups,
        turn: None,
        producers: state.producers.iter().map(back).collect(),
    })
}

/// What readers see, kept in the plainest way.
#[derive(Default)]
struct Seen {
    per_step: usize,
    /// Sequences by producer, in the order of the stream; those of a forgotten one count no more.
    parts: Vec<(Name, u64)>,
    opens: BTreeMap<Name, Vec<u64>>,
    closed: Option<u64>,
    floor: u64,
    generation: u64,
    skipped: BTreeSet<u64>,
    /// By generation, up to which step a position of it is good.
    good: Vec<u64>,
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
            Some(Record::Rewind(rewind)) => {
                self.parts.truncate(usize::try_from(rewind.step.get()).unwrap() * self.per_step);
                self.skipped.retain(|step| *step < rewind.step.get());
                self.closed = None;
                self.opens.values_mut().for_each(|opens| opens.push(u64::MAX));
                self.generation += 1;
                self.good.push(u64::MAX);
                self.good.iter_mut().rev().skip(1).for_each(|good| *good = (*good).min(rewind.step.get()));
            }
            Some(Record::Skip { first, last, .. }) => {
                self.skipped.extend(first.get()..=last.get());
                self.generation += 1;
                self.good.push(u64::MAX);
            }
            Some(Record::Floor { step, .. }) => {
                prop_assert!(step.get() >= self.floor, "the floor falls");
                self.floor = step.get();
            }
            Some(Record::Forget { producer, .. }) => {
                self.parts.iter_mut().filter(|part| part.0 == *producer).for_each(|part| part.1 = u64::MAX);
            }
            _ => {}
        }
        Ok(())
    }

    /// How many parts of a name are in, and the last of them.
    fn of(&self, name: &Name) -> (u64, Option<u64>) {
        let mine = || self.parts.iter().enumerate().filter(|(_, part)| part.0 == *name && part.1 != u64::MAX);
        (mine().count() as u64, mine().next_back().map(|(part, _)| part as u64))
    }

    /// A rewind's producers as they were at its step.
    fn set_back(&self, commit: &mut Commit) {
        let Some(Record::Rewind(rewind)) = &mut commit.record else { return };
        let end = usize::try_from(rewind.step.get()).unwrap().saturating_mul(self.per_step);
        let parts = self.parts.get(..end).unwrap_or(&self.parts).to_vec();
        let then = Seen { parts, ..Seen::default() };
        for one in &mut rewind.producers {
            let (count, last) = then.of(&one.producer);
            (one.next, one.last_part) = (Sequence::new(count), last.map(crate::Part::new));
        }
    }

    fn check(&self, state: &State) -> Result<(), TestCaseError> {
        prop_assert_eq!(state.next_part.get(), self.parts.len() as u64);
        prop_assert_eq!(state.closed.map(Step::get), self.closed);
        prop_assert_eq!((state.floor.get(), state.generation.get()), (self.floor, self.generation));
        let head = state.next_step().get();
        for step in self.floor..head + 2 {
            let passed = (step..).find(|step| !self.skipped.contains(step)).unwrap();
            prop_assert_eq!(past(&state.history.skips, Step::new(step)).get(), passed, "past {}", step);
            // A position of an older generation is good as far as no rewind since went below it.
            for (generation, good) in (0..).zip(&self.good) {
                let limit = state.history.limit_of(Generation::new(generation));
                prop_assert_eq!(limit.is_none_or(|limit| step <= limit.get()), step <= *good);
            }
        }
        if let Some((needed, group)) = state.needed() {
            // A group may begin beyond the head; replay doesn't mind.
            let begun_beyond = state.groups[group].holds == Some(needed);
            prop_assert!(needed >= state.floor, "{} needs what is gone", group);
            prop_assert!(needed <= state.next_step() || begun_beyond, "{} needs what isn't there", group);
        }
        for (group, known) in state.live_groups() {
            prop_assert!(known.needs().is_some(), "{} needs nothing", group);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn promises_hold_over_any_records(deeds in prop::collection::vec(deed(), 1..120), per_step in 1..4u32) {
        let mut state = State::new(per_step);
        let mut seen = Seen { per_step: per_step as usize, good: vec![u64::MAX], ..Seen::default() };
        for deed in &deeds {
            let mut commit = commit(&state, deed);
            seen.set_back(&mut commit);
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
            seen.check(&state)?;
            prop_assert_eq!(State::decode(&state.encode(), per_step).unwrap(), state.clone());
        }
        // P3: per producer 0, 1, 2, ... without gap or double.
        let mut next: BTreeMap<Name, u64> = BTreeMap::new();
        for (producer, sequence) in seen.parts.into_iter().filter(|part| part.1 != u64::MAX) {
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
fn a_feature_that_is_not_known_stops_there() {
    let mut state = replayed(&[OPEN]);
    let before = state.clone();
    let unknown = Commit { record: Some(Record::Require { features: 1 << 40 }), ..commit(&state, &OPEN) };
    assert_eq!(state.apply(state.next_version, &unknown).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(state, before);
}
