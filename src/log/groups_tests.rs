//! Groups, checkpoints, rewinds and skips, case by case: what the table in docs/design.md says of each.

use super::apply::Commit;
use super::state::State;
use super::void::Void;
use crate::error::ErrorKind;
use crate::format::part::{Item, PartDescriptor};
use crate::format::record::{Checkpoint, Parts, Record, Rewind, Rewound};
use crate::id::{Checksum, Generation, Incarnation, Nonce, Part, Sequence, Step, Version};
use crate::name::Name;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn step(number: u64) -> Step {
    Step::new(number)
}

/// Writes a record for the generation that the state is in.
fn write(state: &mut State, record: Record) -> Result<Version, Void> {
    let generation = state.generation;
    write_for(state, generation, record)
}

fn write_for(state: &mut State, generation: Generation, record: Record) -> Result<Version, Void> {
    let version = state.next_version;
    let commit = Commit {
        nonce: Nonce::new(u128::from(version.get() + 1).to_le_bytes()),
        checksum: Checksum::new(version.get()),
        kind: record.kind().number(),
        generation,
        attempt_us: 1,
        record: Some(record),
    };
    match state.apply(version, &commit).unwrap() {
        None => Ok(version),
        Some(void) => Err(void),
    }
}

/// A state with this many steps, of one part each, by a producer "a".
fn steps(count: u64) -> State {
    let mut state = State::new(1);
    let opened = write(&mut state, Record::Open { producer: name("a"), last: None }).unwrap();
    for first in 0..count {
        let parts = vec![PartDescriptor { place: 4096, ..Default::default() }];
        let (producer, first) = (name("a"), Sequence::new(first));
        let parts = Parts { producer, incarnation: opened.incarnation(), first, parts };
        write(&mut state, Record::Parts(parts)).unwrap();
    }
    state
}

fn group(state: &mut State, start: u64) -> Result<Incarnation, Void> {
    let last = state.groups.get(&name("g")).map(|known| known.last_group);
    let record = Record::Group { group: name("g"), last, start: step(start) };
    write(state, record).map(Version::incarnation)
}

fn checkpoint(incarnation: Incarnation, at: u64, called: &str) -> Record {
    Record::Checkpoint(Checkpoint {
        group: name("g"),
        incarnation,
        step: step(at),
        lineage: Checksum::ZERO,
        name: name(called),
        pinned: false,
        metadata: b"loss 2.5".to_vec(),
    })
}

fn drop_of(incarnation: Incarnation, checkpoint: Version) -> Record {
    Record::Drop { group: name("g"), incarnation, checkpoint }
}

fn floor(at: u64) -> Record {
    Record::Floor { step: step(at), lineage: Checksum::new(at), bytes_before: 10 * at }
}

fn rewind(state: &State, to: u64) -> Record {
    let one = |producer: &Name| Rewound {
        producer: producer.clone(),
        next: Sequence::new(to),
        last: Checksum::new(to),
        last_part: to.checked_sub(1).map(Part::new),
        finished: false,
        place: 4096,
        state: Item::default(),
    };
    Record::Rewind(Rewind {
        generation: state.generation.next(),
        step: step(to),
        lineage: Checksum::ZERO,
        bytes_before: to,
        many_groups: false,
        turn: None,
        producers: state.producers.keys().map(one).collect(),
    })
}

fn needed(state: &State) -> Option<u64> {
    state.needed().map(|(step, _)| step.get())
}

#[test]
fn a_start_is_protected_until_the_first_checkpoint() {
    let mut state = steps(9);
    assert_eq!(needed(&state), None, "no group, nothing needed");
    let first = group(&mut state, 2).unwrap();
    assert_eq!(needed(&state), Some(2));
    assert_eq!(write(&mut state, floor(3)), Err(Void::Protected));
    write(&mut state, checkpoint(first, 5, "one")).unwrap();
    assert_eq!(needed(&state), Some(5));
    write(&mut state, floor(5)).unwrap();
    assert_eq!((state.floor_lineage, state.bytes_reclaimed), (Checksum::new(5), 50));
    assert_eq!(write(&mut state, floor(4)), Err(Void::BelowFloor));
    assert_eq!(write(&mut state, floor(10)), Err(Void::BeyondHead));
    // A new incarnation protects its own start, beside the checkpoints that are there.
    let second = group(&mut state, 7).unwrap();
    assert_eq!(needed(&state), Some(5));
    assert_eq!(group(&mut state, 4), Err(Void::BelowFloor));
    // The older one is fenced (P4).
    assert_eq!(write(&mut state, checkpoint(first, 8, "late")), Err(Void::Fenced));
    assert_eq!(write(&mut state, checkpoint(second, 8, "one")), Err(Void::NameTaken));
    assert_eq!(write(&mut state, checkpoint(second, 10, "two")), Err(Void::BeyondHead));
    assert_eq!(write(&mut state, checkpoint(second, 4, "two")), Err(Void::BelowFloor));
}

#[test]
fn a_live_group_never_needs_nothing() {
    let mut state = steps(9);
    let own = group(&mut state, 0).unwrap();
    let one = write(&mut state, checkpoint(own, 4, "one")).unwrap();
    let two = write(&mut state, checkpoint(own, 6, "two")).unwrap();
    assert_eq!(write(&mut state, drop_of(Incarnation::new(0), one)), Err(Void::Fenced));
    write(&mut state, drop_of(own, one)).unwrap();
    assert_eq!(write(&mut state, drop_of(own, one)), Err(Void::Unknown));
    write(&mut state, floor(6)).unwrap();
    write(&mut state, drop_of(own, two)).unwrap();
    assert_eq!(needed(&state), Some(6), "the floor of that moment");
    assert_eq!(write(&mut state, floor(7)), Err(Void::Protected));
    let record = Record::RetireGroup { group: name("g"), incarnation: own };
    write(&mut state, record.clone()).unwrap();
    assert_eq!(write(&mut state, record), Err(Void::Fenced));
    write(&mut state, floor(9)).unwrap();
    assert!(group(&mut state, 9).is_ok(), "a retired group may be opened again");
}

#[test]
fn a_rewind_takes_the_checkpoints_beyond_it_along() {
    let mut state = steps(9);
    let own = group(&mut state, 3).unwrap();
    write(&mut state, checkpoint(own, 5, "one")).unwrap();
    write(&mut state, checkpoint(own, 8, "two")).unwrap();
    write(&mut state, floor(4)).unwrap();
    let old = state.generation;
    let to_six = rewind(&state, 6);
    write(&mut state, to_six).unwrap();
    assert_eq!(needed(&state), Some(5));
    assert_eq!((state.next_part, state.bytes_written), (Part::new(6), 6));
    assert_eq!(write_for(&mut state, old, checkpoint(own, 6, "late")), Err(Void::OtherGeneration));
    assert_eq!(write_for(&mut state, old, floor(5)), Err(Void::OtherGeneration));
    // It began at 3, but the floor has passed that.
    let to_four = rewind(&state, 4);
    write(&mut state, to_four).unwrap();
    assert_eq!(needed(&state), Some(4));
    let below = rewind(&state, 3);
    assert_eq!(write(&mut state, below), Err(Void::BelowFloor));
    let beyond = rewind(&state, 5);
    assert_eq!(write(&mut state, beyond), Err(Void::BeyondHead));
    assert_eq!(state.history.limit_of(old), Some(step(4)));
    assert_eq!(state.history.limit_of(state.generation), None);
}

#[test]
fn a_rewind_sets_every_producer_back_and_fences_it() {
    let mut state = steps(5);
    let Record::Rewind(mut incomplete) = rewind(&state, 2) else { unreachable!() };
    incomplete.producers.clear();
    assert_eq!(write(&mut state, Record::Rewind(incomplete)), Err(Void::OtherProducers));
    let back = rewind(&state, 2);
    let version = write(&mut state, back).unwrap();
    let known = state.producers[&name("a")];
    assert_eq!((known.incarnation, known.next.get()), (None, 2));
    assert_eq!((known.last_part, known.state.unwrap().version), (Some(Part::new(1)), version));
    let parts = vec![PartDescriptor { place: 4096, ..Default::default() }];
    let incarnation = known.last_open.incarnation();
    let late = Parts { producer: name("a"), incarnation, first: known.next, parts };
    assert_eq!(write(&mut state, Record::Parts(late)), Err(Void::Fenced));
    let piece = state.history.piece_of(step(2)).unwrap();
    assert_eq!((piece.step, piece.version), (step(2), version.next()));
    assert_eq!(state.history.piece_after(step(1)), Some(piece));
    let again = rewind(&state, 0);
    write(&mut state, again).unwrap();
    assert_eq!(state.producers[&name("a")].state, None, "before its first part it has none");
    assert_eq!(state.history.pieces.len(), 1);
}

#[test]
fn several_live_groups_have_to_be_meant() {
    let mut state = steps(5);
    group(&mut state, 0).unwrap();
    write(&mut state, Record::Group { group: name("h"), last: None, start: step(1) }).unwrap();
    let Record::Rewind(mut back) = rewind(&state, 2) else { unreachable!() };
    assert_eq!(write(&mut state, Record::Rewind(back.clone())), Err(Void::ManyGroups));
    back.many_groups = true;
    write(&mut state, Record::Rewind(back)).unwrap();
}

#[test]
fn skips_are_of_published_steps_and_become_one() {
    let mut state = steps(20);
    write(&mut state, floor(2)).unwrap();
    let skip = |first: u64, last: u64| Record::Skip {
        first: step(first),
        last: step(last),
        reason: "corrupt tokens".into(),
    };
    assert_eq!(write(&mut state, skip(1, 3)), Err(Void::BelowFloor));
    assert_eq!(write(&mut state, skip(19, 20)), Err(Void::BeyondHead));
    assert_eq!(write(&mut state, skip(9, 8)), Err(Void::BeyondHead));
    for (first, last) in [(4, 5), (9, 9), (6, 8), (15, 16)] {
        let before = state.generation;
        write(&mut state, skip(first, last)).unwrap();
        assert_eq!(state.generation, before.next(), "a new generation for every Skip");
    }
    assert_eq!(write(&mut state, skip(5, 8)), Err(Void::Skipped));
    let ranges: Vec<_> = state.history.skips.iter().map(|skip| (skip.first.get(), skip.last.get())).collect();
    assert_eq!(ranges, [(4, 9), (15, 16)]);
    write(&mut state, floor(10)).unwrap();
    assert_eq!(state.history.skips.len(), 1, "what is below the floor is forgotten");
    let back = rewind(&state, 16);
    write(&mut state, back).unwrap();
    assert_eq!(state.history.skips[0].last, step(15), "what a rewind drops isn't skipped when it comes anew");
}

#[test]
fn a_name_is_forgotten_once_nothing_of_it_is_retained() {
    let mut state = steps(3);
    let opened = state.producers[&name("a")].last_open.incarnation();
    let forget = |incarnation| Record::Forget { producer: name("a"), incarnation };
    assert_eq!(write(&mut state, forget(opened)), Err(Void::Unfinished));
    write(&mut state, Record::Retire { producer: name("a"), incarnation: opened }).unwrap();
    write(&mut state, floor(2)).unwrap();
    assert_eq!(write(&mut state, forget(opened)), Err(Void::Retained));
    write(&mut state, floor(3)).unwrap();
    assert_eq!(write(&mut state, forget(Incarnation::new(9))), Err(Void::Fenced));
    write(&mut state, forget(opened)).unwrap();
    assert_eq!(write(&mut state, forget(opened)), Err(Void::Unknown));
    write(&mut state, Record::Open { producer: name("a"), last: None }).unwrap();
    assert_eq!(state.producers[&name("a")].next, Sequence::ZERO);
}

#[test]
fn who_begins_after_a_forget_is_known_by_it() {
    let mut state = steps(1);
    let open = |who: &str| Record::Open { producer: name(who), last: None };
    let forget = |state: &mut State, who: &str| {
        let incarnation = state.producers[&name(who)].last_open.incarnation();
        write(state, Record::Retire { producer: name(who), incarnation }).unwrap();
        write(state, Record::Forget { producer: name(who), incarnation }).unwrap()
    };
    let anew = |state: &State| -> Vec<Option<Version>> {
        assert_eq!(State::decode(&state.encode(), 1).unwrap(), *state);
        state.producers.values().map(|one| one.anew).collect()
    };
    write(&mut state, open("b")).unwrap();
    assert_eq!((anew(&state), state.last_forget), (vec![None, None], None));
    assert_eq!(State { last_forget: None, ..state.clone() }.encode(), state.encode());
    let forgotten = forget(&mut state, "b");
    assert_eq!((anew(&state), state.last_forget), (vec![None], Some(forgotten)));
    let begun = write(&mut state, open("b")).unwrap();
    assert_eq!(anew(&state), [None, Some(begun)]);
    // Opening it once more begins nothing.
    write(&mut state, Record::Open { producer: name("b"), last: Some(begun) }).unwrap();
    let other = write(&mut state, open("c")).unwrap();
    assert_eq!(anew(&state), [None, Some(begun), Some(other)]);
    forget(&mut state, "b");
    let again = write(&mut state, open("b")).unwrap();
    assert_eq!(anew(&state), [None, Some(again), Some(other)]);
    // A rewind to before leaves it so.
    let back = rewind(&state, 0);
    write(&mut state, back).unwrap();
    assert_eq!(anew(&state), [None, Some(again), Some(other)]);
}

#[test]
fn names_that_were_begun_anew_are_known_and_in_order() {
    let mut state = steps(1);
    state.last_forget = Some(Version::new(7));
    for who in ["b", "c"] {
        write(&mut state, Record::Open { producer: name(who), last: None }).unwrap();
    }
    let good = state.encode();
    // The item is the last: version, count, and for each its name and version.
    let (b, c) = (good.len() - 19, good.len() - 9);
    assert_eq!((good[b], good[c]), (b'b', b'c'));
    for (at, byte, words) in [(b, b'c', "sorted"), (c, b'b', "sorted"), (c, b'd', "doesn't know")] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        let error = State::decode(&bytes, 1).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn the_shortest_of_everything_is_read_back() {
    let mut state = steps(2);
    let bare = group(&mut state, 0).unwrap();
    assert_eq!(State::decode(&state.encode(), 1).unwrap(), state, "a group without a checkpoint");
    let Record::Checkpoint(shortest) = checkpoint(bare, 1, "c") else { unreachable!() };
    write(&mut state, Record::Checkpoint(Checkpoint { metadata: Vec::new(), ..shortest })).unwrap();
    assert_eq!(State::decode(&state.encode(), 1).unwrap(), state, "a checkpoint of one letter and no more");
    let first = step(0);
    write(&mut state, Record::Skip { first, last: first, reason: String::new() }).unwrap();
    write(&mut state, Record::Close { step: step(2), closes: 0, open_step: false }).unwrap();
    assert_eq!(State::decode(&state.encode(), 1).unwrap(), state, "a skip and a close");
}

#[test]
fn a_state_without_what_every_state_has_is_none() {
    let bytes = steps(2).encode();
    let core = 8 + 72;
    assert!(State::decode(&bytes, 1).is_ok());
    let without_core = State::decode(&bytes[core..], 1).unwrap_err();
    assert_eq!(without_core.kind(), ErrorKind::Corrupt);
    let pieces = bytes.len() - 8 - 28;
    let mut without_producers = bytes[..core].to_vec();
    without_producers.extend(&bytes[pieces..]);
    assert!(State::decode(&without_producers, 1).is_err());
    for flags in [2, core + 2] {
        let mut optional = bytes.clone();
        optional[flags] = 0;
        assert!(State::decode(&optional, 1).is_err(), "an item that may be passed over: byte {flags}");
    }
}

#[test]
fn a_skip_that_no_generation_could_tell_of_is_void() {
    let mut state = steps(2);
    state.generation = Generation::new(u64::MAX - 1);
    let skip = |step: Step| Record::Skip { first: step, last: step, reason: String::new() };
    write(&mut state, skip(step(0))).unwrap();
    assert_eq!(state.generation, Generation::new(u64::MAX));
    assert_eq!(write(&mut state, skip(step(1))), Err(Void::OtherGeneration));
    assert_eq!(state.history.skips.len(), 1);
}
