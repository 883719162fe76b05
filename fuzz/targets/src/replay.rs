//! Replay of any records: it never panics, never lets take effect what it judges void, and every replayer
//! comes to the same state, also one that began in the middle from the state's bytes.
//!
//! What each record may do is said here once more, in other words than the engine's.

use batchweave::format::commit::{Draft, Header, People, seal};
use batchweave::format::record::Record;
use batchweave::log::apply::Commit;
use batchweave::log::history::past;
use batchweave::log::state::State;
use batchweave::{ErrorKind, Nonce, StoreUuid, Version};

use crate::draw;
use crate::input::Input;

const COMMITS_MAX: usize = 96;

/// A log of drawn records.
pub fn replay(data: &[u8]) {
    let mut input = Input::new(data);
    let parts_per_step = 1 + u32::from(input.u8() % 3);
    let mut state = State::new(parts_per_step);
    let mut other = state.clone();
    for _ in 0..COMMITS_MAX {
        if input.is_empty() {
            break;
        }
        let begin_again = input.rarely(3);
        let Some(commit) = commit(&mut input, &state) else { continue };
        let before = state.clone();
        if !apply(&mut state, &commit) {
            continue;
        }
        check(&before, &state, &commit);
        let bytes = state.encode();
        let decoded = State::decode(&bytes, parts_per_step).expect("a state's own bytes");
        assert_eq!(decoded, state, "a state is read as another one");
        assert_eq!(decoded.encode(), bytes);
        other.apply(before.next_version, &commit).expect("what one can replay, all can");
        assert_eq!(other, state, "two replayers differ");
        if begin_again {
            other = decoded;
        }
    }
}

/// Drawn records on a state that may be any: no panic, and the judge's word holds.
pub(crate) fn any_records_on(mut state: State, data: &[u8]) {
    let mut input = Input::new(data);
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        if let Some(commit) = commit(&mut input, &state) {
            apply(&mut state, &commit);
        }
    }
}

/// As it comes out of a file: sealed, then read. None if it can't be sealed.
fn commit(input: &mut Input<'_>, state: &State) -> Option<Commit> {
    let draft = Draft {
        store: StoreUuid::new([1; 16]),
        nonce: Nonce::new([input.u8(); 16]),
        generation: draw::generation(input, state),
        seen: None,
        attempt_us: 5,
        people: People::default(),
    };
    let record = draw::record(input, state);
    let sealed = match seal(draft, &record) {
        Ok(sealed) => sealed,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            return None;
        }
    };
    let (header, checksum) = Header::decode(&sealed.block).expect("a sealed header");
    let elsewhere = sealed.elsewhere.map(|(_, bytes)| bytes).unwrap_or_default();
    let read = header.record(&sealed.block, &elsewhere).expect("a sealed record");
    // Now and then of a kind that isn't known, and optional.
    Some(Commit::new(&header, checksum, read.filter(|_| !input.rarely(31))))
}

/// Applies a commit; false if this library can't replay it.
fn apply(state: &mut State, commit: &Commit) -> bool {
    let before = state.clone();
    let version = state.next_version;
    let judged = state.judge(commit);
    let void = match (state.apply(version, commit), judged) {
        (Ok(void), Ok(judged)) => {
            assert_eq!(void, judged, "what takes effect isn't what was judged");
            void
        }
        (Err(error), Err(_)) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert_eq!(*state, before, "a record that can't be replayed has changed something");
            return false;
        }
        (applied, judged) => panic!("judged {judged:?}, applied {applied:?}"),
    };
    assert_eq!(state.next_version, version.next());
    if void.is_some() || commit.record.is_none() {
        let idle = State { next_version: version.next(), ..before };
        assert_eq!(*state, idle, "what is void ({void:?}) has changed something");
    }
    true
}

/// What holds after every commit, whatever it was.
fn check(before: &State, after: &State, commit: &Commit) {
    assert!(after.floor >= before.floor, "the floor fell");
    assert!(after.generation >= before.generation, "the generation fell");
    assert!(after.next_step() >= after.floor, "the floor passed the head");
    for (name, group) in after.live_groups() {
        let needs = group.needs().unwrap_or_else(|| panic!("live group {name} protects nothing (P5)"));
        assert!(needs >= after.floor, "what group {name} needs is below the floor (P5)");
        assert!(group.checkpoints.iter().all(|kept| kept.step <= after.next_step()));
    }
    let pieces = &after.history.pieces;
    assert!(after.history.piece_of(after.floor).is_some(), "the floor is in no piece");
    assert!(pieces.is_sorted_by(|one, next| one.step < next.step && one.version < next.version));
    let skips = &after.history.skips;
    assert!(skips.is_sorted_by(|one, next| one.last.next() < next.first), "skips touch: {skips:?}");
    assert!(skips.iter().all(|skip| skip.first <= skip.last && skip.last < after.next_step()));
    assert!(past(skips, after.floor) >= after.floor);
    if let Some(step) = after.closed {
        assert_eq!(after.ends.last(), Some(&step));
    }
    let effect = *after != State { next_version: after.next_version, ..before.clone() };
    if effect {
        check_effect(before, after, commit);
    }
}

/// What has to have been so for a record to take effect.
fn check_effect(before: &State, after: &State, commit: &Commit) {
    let stays = |name: &batchweave::Name| {
        let others = |state: &State| {
            state
                .producers
                .iter()
                .filter(|(other, _)| *other != name)
                .map(|(_, known)| *known)
                .collect::<Vec<_>>()
        };
        assert_eq!(others(before), others(after), "a record of {name} has changed another producer");
    };
    match commit.record.as_ref().expect("only a record has an effect") {
        Record::Parts(parts) => {
            let (was, is) = (before.producers[&parts.producer], after.producers[&parts.producer]);
            assert_eq!(was.incarnation, Some(parts.incarnation), "a fenced producer published (P4)");
            assert_eq!(was.next, parts.first, "a sequence was lost or doubled (P3)");
            assert!(before.closed.is_none(), "parts after the end of the stream");
            let count = parts.parts.len() as u64;
            assert_eq!(is.next.get(), was.next.get() + count);
            assert_eq!(after.next_part.get(), before.next_part.get() + count);
            assert_eq!(is.last_part.map(|part| part.get() + 1), Some(after.next_part.get()));
            stays(&parts.producer);
        }
        Record::Open { producer, .. } => {
            let version = Version::new(after.next_version.get() - 1);
            assert_eq!(after.producers[producer].incarnation, Some(version.incarnation()));
            stays(producer);
        }
        Record::Retire { producer, .. } | Record::Forget { producer, .. } => stays(producer),
        Record::Rewind(rewind) => {
            assert_eq!(after.next_step(), rewind.step);
            assert!(after.generation > before.generation, "a rewind nobody notices (P2)");
            assert!(after.producers.values().all(|one| one.incarnation.is_none()));
        }
        Record::Skip { .. } => {
            assert!(after.generation > before.generation, "a skip nobody notices (P2)");
            assert_eq!(after.next_part, before.next_part);
        }
        _ => assert_eq!(after.producers, before.producers),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use batchweave::format::record::Kind;

    use super::*;
    use crate::mutate::Mutator;

    #[test]
    fn records_of_every_kind_take_effect_and_are_void() {
        let (mut mutator, mut effective, mut void) = (Mutator::new(5), BTreeSet::new(), BTreeSet::new());
        for _ in 0..300 {
            let data = mutator.input(&[]);
            let (mut input, mut state) = (Input::new(&data), State::new(2));
            while !input.is_empty() {
                let Some(commit) = commit(&mut input, &state) else { continue };
                let Some(record) = &commit.record else { continue };
                match state.judge(&commit) {
                    Ok(None) => effective.insert(record.kind()),
                    Ok(Some(_)) => void.insert(record.kind()),
                    Err(_) => continue,
                };
                apply(&mut state, &commit);
            }
        }
        let all: BTreeSet<Kind> = Kind::ALL.iter().copied().collect();
        assert_eq!(effective, all);
        assert_eq!(void.len(), all.len() - 1, "only a Require can't be void");
    }
}
