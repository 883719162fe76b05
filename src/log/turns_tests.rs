//! Turns, against a plain model that looks at nothing but whose parts came since the ring was set: over
//! arbitrary sequences of what producers and operators write, void commits among them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::apply::Commit;
use super::state::{ProducerState, State};
use super::turns::Turn;
use super::void::Void;
use crate::format::part::{Item, PartDescriptor};
use crate::format::record::{Parts, Record, Rewind, Rewound};
use crate::id::{Checksum, Generation, Incarnation, Nonce, Sequence, Step, Version};
use crate::name::Name;

#[derive(Clone, Debug)]
enum Deed {
    Open { who: u8 },
    Parts { who: u8, count: u8, as_current: bool },
    Retire { who: u8 },
    Forget { who: u8 },
    Turns { from: u8, count: u8, parts_per_turn: u32, knows_last: bool, other_generation: bool },
    Rewind { back: u8, turn: Said },
    Control,
    Unknown,
}

/// What a rewind says of the turn.
#[derive(Clone, Copy, Debug)]
enum Said {
    AsThen,
    None,
    BeyondRing,
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![8 => Just(Said::AsThen), 1 => Just(Said::None), 1 => Just(Said::BeyondRing)]
}

fn deed() -> impl Strategy<Value = Deed> {
    let mostly = || prop::bool::weighted(0.9);
    prop_oneof![
        4 => (0..4u8).prop_map(|who| Deed::Open { who }),
        16 => (0..4u8, 1..4u8, mostly())
            .prop_map(|(who, count, as_current)| Deed::Parts { who, count, as_current }),
        2 => (0..4u8).prop_map(|who| Deed::Retire { who }),
        1 => (0..4u8).prop_map(|who| Deed::Forget { who }),
        3 => (0..4u8, prop_oneof![8 => 1..4u8, 1 => Just(0)], 1..4u32, mostly(), prop::bool::weighted(0.1))
            .prop_map(|(from, count, parts_per_turn, knows_last, other_generation)| Deed::Turns {
                from, count, parts_per_turn, knows_last, other_generation,
            }),
        2 => (0..12u8, said()).prop_map(|(back, turn)| Deed::Rewind { back, turn }),
        1 => Just(Deed::Control),
        1 => Just(Deed::Unknown),
    ]
}

fn name(who: u8) -> Name {
    Name::new(&format!("tok-{}", who % 4)).unwrap()
}

fn commit_of(state: &State, record: Option<Record>) -> Commit {
    let version = state.next_version.get();
    Commit {
        nonce: Nonce::new(u128::from(version).to_le_bytes()),
        checksum: Checksum::new(version),
        kind: record.as_ref().map_or(999, |record| record.kind().number()),
        generation: state.generation,
        attempt_us: 7,
        record,
    }
}

fn open(state: &State, who: u8) -> Record {
    let last = state.producers.get(&name(who)).map(|known| known.last_open);
    Record::Open { producer: name(who), last }
}

fn parts(state: &State, who: u8, count: u8) -> Parts {
    let known = state.producers.get(&name(who));
    let part = PartDescriptor { place: 4096, ..Default::default() };
    Parts {
        producer: name(who),
        incarnation: known.and_then(|known| known.incarnation).unwrap_or(Incarnation::new(u64::MAX)),
        first: known.map_or(Sequence::ZERO, |known| known.next),
        parts: vec![part; count.into()],
    }
}

/// A rewind of `now` to a step, before whose first part the state was `then`.
fn rewind(now: &State, then: &State, step: Step) -> Rewind {
    let of = |name: &Name| -> Rewound {
        let known: Option<&ProducerState> = then.producers.get(name);
        Rewound {
            producer: name.clone(),
            next: known.map_or(Sequence::ZERO, |known| known.next),
            last: Checksum::ZERO,
            last_part: known.and_then(|known| known.last_part),
            finished: known.is_some_and(|known| known.finished),
            place: 4096,
            state: Item::default(),
        }
    };
    Rewind {
        generation: now.generation.next(),
        step,
        lineage: Checksum::ZERO,
        bytes_before: 0,
        many_groups: true,
        turn: now.turn_as_of(then),
        producers: now.producers.keys().map(of).collect(),
    }
}

/// The ring, in the plainest way: whose parts came, and since which of them it is.
#[derive(Clone, Default)]
struct Plain {
    parts: Vec<Name>,
    ring: Vec<Name>,
    parts_per_turn: u32,
    since: usize,
    finished: BTreeSet<Name>,
}

impl Plain {
    /// Whose turn it is, and what is left of it.
    fn turn(&self) -> Option<(Name, u32)> {
        // Others' came while all members had finished.
        let came = self.parts[self.since..].iter().filter(|name| self.ring.contains(name));
        let came: Vec<&Name> = came.collect();
        let each = self.parts_per_turn;
        let (first, left) = match came.last() {
            None => (0, each),
            Some(last) => {
                let run = came.iter().rev().take_while(|name| *name == last).count() as u32;
                let place = self.ring.iter().position(|name| name == *last)?;
                if run.is_multiple_of(each) { (place + 1, each) } else { (place, each - run % each) }
            }
        };
        let around = (first..first + self.ring.len()).map(|place| &self.ring[place % self.ring.len()]);
        let mut lefts = std::iter::once(left).chain(std::iter::repeat(each));
        around.zip(&mut lefts).find(|(name, _)| !self.finished.contains(*name)).map(|(n, l)| (n.clone(), l))
    }

    fn may_publish(&self, name: &Name, count: usize) -> Result<(), Void> {
        match self.turn() {
            _ if self.ring.is_empty() => Ok(()),
            None => Ok(()),
            Some((whom, left)) if whom == *name && count <= left as usize => Ok(()),
            Some(_) if self.ring.contains(name) => Err(Void::BeyondTurn),
            Some(_) => Err(Void::OutsideRing),
        }
    }
}

/// All that is replayed, and what it was before each part.
struct Stage {
    state: State,
    plain: Plain,
    /// Right before each part, of what is live.
    before: Vec<(State, Plain)>,
}

impl Stage {
    fn new(parts_per_step: u32) -> Self {
        Self { state: State::new(parts_per_step), plain: Plain::default(), before: Vec::new() }
    }

    fn apply(&mut self, commit: &Commit) -> Option<Void> {
        let before = self.state.clone();
        let judged = self.state.judge(commit).unwrap();
        let void = self.state.apply(before.next_version, commit).unwrap();
        assert_eq!(judged, void);
        if void.is_some() {
            assert_eq!(State { next_version: before.next_version.next(), ..before }, self.state);
        }
        assert_eq!(State::decode(&self.state.encode(), self.state.parts_per_step).unwrap(), self.state);
        void
    }

    fn publish(&mut self, parts: Parts) -> Option<Void> {
        let (before, count) = (self.state.clone(), parts.parts.len());
        let fenced = before.judge(&commit_of(
            &before,
            Some(Record::Retire { producer: parts.producer.clone(), incarnation: parts.incarnation }),
        ));
        let allowed = self.plain.may_publish(&parts.producer, count);
        let void = self.apply(&commit_of(&before, Some(Record::Parts(parts.clone()))));
        match fenced.unwrap() {
            Some(fenced) => assert_eq!(void, Some(fenced)),
            None => assert_eq!(void, allowed.err(), "{:?} by {}", self.plain.turn(), parts.producer),
        }
        if void.is_none() {
            for ordinal in 0..count {
                let mut then = before.clone();
                if ordinal > 0 {
                    let first = Parts { parts: parts.parts[..ordinal].to_vec(), ..parts.clone() };
                    then.apply(then.next_version, &commit_of(&before, Some(Record::Parts(first)))).unwrap();
                }
                self.before.push((then, self.plain.clone()));
                self.plain.parts.push(parts.producer.clone());
            }
        }
        void
    }

    fn set_turns(&mut self, deed: &Deed) {
        let Deed::Turns { from, count, parts_per_turn, knows_last, other_generation } = *deed else { return };
        let known = self.state.ring.as_ref().map(|ring| ring.last);
        let stale = if known.is_some() { None } else { Some(Version::new(u64::MAX - 1)) };
        let names: Vec<Name> = (from..from + count).map(name).collect();
        let last = if knows_last { known } else { stale };
        let mut commit =
            commit_of(&self.state, Some(Record::Turns { last, names: names.clone(), parts_per_turn }));
        commit.generation = Generation::new(commit.generation.get() + u64::from(other_generation));
        let expected = match (other_generation, knows_last) {
            (true, _) => Some(Void::OtherGeneration),
            (_, false) => Some(Void::Overtaken),
            _ => None,
        };
        assert_eq!(self.apply(&commit), expected);
        if expected.is_none() {
            (self.plain.ring, self.plain.parts_per_turn) = (names, parts_per_turn);
            self.plain.since = self.plain.parts.len();
        }
    }

    fn rewind(&mut self, back: u8, turn: Said) {
        let step = Step::new(self.state.next_step().get().saturating_sub(back.into()));
        let first = step.first_part(self.state.parts_per_step).get() as usize;
        let (then, plain) = match self.before.get(first) {
            Some(before) => before.clone(),
            None => (self.state.clone(), self.plain.clone()),
        };
        let mut record = rewind(&self.state, &then, step);
        let has_ring = !self.plain.ring.is_empty();
        let spoilt = match turn {
            Said::AsThen => false,
            Said::None => record.turn.take().is_some(),
            Said::BeyondRing => {
                record.turn = Some((self.plain.ring.len() as u32, 0));
                true
            }
        };
        assert_eq!(matches!(turn, Said::AsThen) && has_ring, record.turn.is_some() && !spoilt);
        let void = self.apply(&commit_of(&self.state, Some(Record::Rewind(record))));
        assert_eq!(void, spoilt.then_some(Void::OtherRing));
        if !spoilt {
            self.before.truncate(first);
            self.plain.parts.truncate(first);
            self.plain.since = self.plain.since.min(first);
            // What was forgotten stays so.
            let known = |name: &Name| self.state.producers.contains_key(name);
            self.plain.finished = plain.finished.into_iter().filter(known).collect();
        }
    }

    fn perform(&mut self, deed: &Deed) {
        let state = &self.state;
        match deed {
            Deed::Open { who } => {
                assert_eq!(self.apply(&commit_of(state, Some(open(state, *who)))), None);
                self.plain.finished.remove(&name(*who));
            }
            Deed::Parts { who, count, as_current } => {
                let mut parts = parts(state, *who, *count);
                if !as_current {
                    parts.incarnation = Incarnation::new(u64::MAX);
                }
                self.publish(parts);
            }
            Deed::Retire { who } => {
                let incarnation = parts(state, *who, 1).incarnation;
                let record = Record::Retire { producer: name(*who), incarnation };
                if self.apply(&commit_of(state, Some(record))).is_none() {
                    self.plain.finished.insert(name(*who));
                }
            }
            Deed::Forget { who } => {
                let last = state.producers.get(&name(*who)).map_or(Version::ZERO, |known| known.last_open);
                let record = Record::Forget { producer: name(*who), incarnation: last.incarnation() };
                let in_ring = self.plain.ring.contains(&name(*who));
                if self.apply(&commit_of(state, Some(record))).is_none() {
                    assert!(!in_ring, "it would be waited for");
                    self.plain.finished.remove(&name(*who));
                }
            }
            Deed::Turns { .. } => self.set_turns(deed),
            Deed::Rewind { back, turn } => self.rewind(*back, *turn),
            Deed::Control => {
                self.apply(&commit_of(state, Some(Record::Require { features: 0 })));
            }
            Deed::Unknown => {
                self.apply(&commit_of(state, None));
            }
        }
        self.check();
    }

    fn check(&self) {
        let found = self.state.turn().map(|(_, name, left)| (name.clone(), left));
        let expected = if self.plain.ring.is_empty() { None } else { self.plain.turn() };
        assert_eq!(found, expected);
        for who in (0..4).map(name) {
            let turn = self.state.turn_of(&who);
            match &expected {
                None => assert_eq!(turn, Turn::Free),
                Some((whom, left)) if *whom == who => assert_eq!(turn, Turn::Now { parts_left: *left }),
                Some((whom, _)) if self.plain.ring.contains(&who) => {
                    let known = self.state.producers.get(whom);
                    let opened = known.is_some_and(|known| known.incarnation.is_some());
                    let last_seen = known.map(|known| known.last_version);
                    assert_eq!(turn, Turn::Wait { whom, last_seen, opened });
                }
                Some(_) => assert_eq!(turn, Turn::Outside),
            }
        }
        assert_eq!(self.state.next_part.get(), self.plain.parts.len() as u64);
    }
}

proptest! {
    #[test]
    fn turns_are_those_of_the_plain_model(
        deeds in prop::collection::vec(deed(), 1..150), per_step in 1..4u32,
    ) {
        let mut stage = Stage::new(per_step);
        for deed in &deeds {
            stage.perform(deed);
        }
    }

    /// However commits come one after another and parts share them, the order of producers is the same.
    #[test]
    fn the_order_depends_on_ring_and_retirements_only(
        totals in prop::collection::vec(0..9u32, 4),
        parts_per_turn in 1..4u32,
        tries in prop::collection::vec((0..6u8, 1..4u8), 0..400),
    ) {
        let mut stage = Stage::new(2);
        stage.set_turns(&Deed::Turns {
            from: 0, count: 4, parts_per_turn, knows_last: true, other_generation: false,
        });
        (0..4).for_each(|who| stage.perform(&Deed::Open { who }));
        // After the drawn tries, in turn for as long as there is something left to do.
        let rest = (0..1000u32).map(|number| ((number % 4) as u8, 1));
        for (who, count) in tries.into_iter().chain(rest) {
            if who >= 4 {
                stage.perform(&Deed::Control);
                stage.perform(&Deed::Open { who: count });
                continue;
            }
            let came = stage.plain.parts.iter().filter(|came| **came == name(who)).count() as u32;
            let left = totals[usize::from(who)] - came;
            match u8::try_from(left).unwrap() {
                // It may have retired and begun again: then it finds that it is done, and retires again.
                0 => stage.perform(&Deed::Retire { who }),
                left => stage.perform(&Deed::Parts { who, count: count.min(left), as_current: true }),
            }
        }
        let (mut left, mut expected) = (totals.clone(), Vec::new());
        while left.iter().any(|left| *left > 0) {
            for (who, left) in left.iter_mut().enumerate() {
                let turn = parts_per_turn.min(*left);
                expected.extend(std::iter::repeat_n(name(who as u8), turn as usize));
                *left -= turn;
            }
        }
        prop_assert_eq!(stage.plain.parts, expected);
    }
}

#[test]
fn a_commit_beyond_its_turn_is_void_whole() {
    let mut stage = Stage::new(1);
    let ring =
        Deed::Turns { from: 0, count: 2, parts_per_turn: 2, knows_last: true, other_generation: false };
    for deed in [Deed::Open { who: 0 }, Deed::Open { who: 1 }, ring] {
        stage.perform(&deed);
    }
    assert_eq!(stage.publish(parts(&stage.state, 0, 3)), Some(Void::BeyondTurn));
    assert_eq!(stage.publish(parts(&stage.state, 0, 1)), None);
    assert_eq!(stage.publish(parts(&stage.state, 0, 2)), Some(Void::BeyondTurn));
    assert_eq!(stage.publish(parts(&stage.state, 1, 1)), Some(Void::BeyondTurn));
    assert_eq!(stage.publish(parts(&stage.state, 0, 1)), None);
    assert_eq!(stage.publish(parts(&stage.state, 1, 2)), None);
    assert_eq!(stage.publish(parts(&stage.state, 0, 2)), None);
    assert_eq!(stage.state.next_part.get(), 6);
}

#[test]
fn a_state_without_a_ring_has_no_item_of_it_and_one_that_ended_keeps_its_place() {
    let mut stage = Stage::new(1);
    stage.perform(&Deed::Open { who: 0 });
    let before = stage.state.encode();
    assert_eq!(State { ring: None, ..stage.state.clone() }.encode(), before);
    let end = Deed::Turns { from: 0, count: 0, parts_per_turn: 3, knows_last: true, other_generation: false };
    stage.perform(&end);
    let ring = stage.state.ring.clone().unwrap();
    assert_eq!((ring.last.get(), ring.parts_per_turn, ring.left), (1, 0, 0));
    let mut after = stage.state.encode();
    assert!(after.len() > before.len());
    // A member beyond the ring is no state.
    let at = after.len() - 20;
    after[at] = 1;
    assert!(State::decode(&after, 1).is_err());
}
