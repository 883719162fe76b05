//! How many producers contend, counted from the log: nobody sends a message for it.
//!
//! - Whoever has opened or committed among the last `4 N` commits is live, N being the number of those. So a
//!   cold start counts, since every producer begins with its Open, and the dead fade without a clock.
//! - N is the least such number from eight on: names that are open and silent fade after a few
//!   commits of the others, not after four commits for each silent name.
//! - The own name always counts.
//!
//! [`live`] looks at every name once. A [`Census`] looks anew only when the log has moved on by a 32nd of the
//! count, which is a small part of any producer's turn, or by a 1024th of the names, dead ones too: so it
//! looks at 32 names for each commit while all are live, and never at more than 1024.

use std::time::Duration;

use crate::log::state::{ProducerState, State};
use crate::name::Name;

/// A producer that attempts every `N d / theta` and wins two in three commits once in N commits: one that
/// is alive is missing among the last `4 N` about once in a hundred times.
const COMMITS_PER_PRODUCER: u64 = 4;
/// Below this many the window is too short to trust: a few lucky wins in a row would hide everybody else.
const PRODUCERS_MIN: u64 = 8;
/// The count is taken anew when the log has moved on by this part of it, ...
const PART_OF_COUNT: u64 = 32;
/// ... or by this part of all names, if that is more.
const PART_OF_NAMES: u64 = 1024;

/// Who contends, as one producer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Live producers, the own one among them.
    pub producers: u32,
    /// The largest cost of an attempt that records of the others carry; zero if none is known.
    pub attempt: Duration,
}

/// The live producers of a state, seen by the one named `own`, whether it is open yet or not.
pub fn live(state: &State, own: &Name) -> Live {
    Counted::of(state).seen_by(state, own)
}

/// [`live`] that remembers: cheap enough to be asked after every commit.
#[derive(Clone, Debug, Default)]
pub struct Census {
    counted: Option<Counted>,
}

impl Census {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`live`], from a count that may be older by a 32nd of it in commits.
    pub fn live(&mut self, state: &State, own: &Name) -> Live {
        if state.producers.len() <= 1 && state.producers.keys().all(|name| name == own) {
            return Live { producers: 1, attempt: Duration::ZERO };
        }
        let next = state.next_version.get();
        let kept = self.counted.take().filter(|kept| {
            let names = state.producers.len() as u64;
            let stale_after = (kept.producers / PART_OF_COUNT).max(names / PART_OF_NAMES).max(1);
            next.checked_sub(kept.next_version).is_some_and(|moved| moved < stale_after)
        });
        self.counted.insert(kept.unwrap_or_else(|| Counted::of(state))).seen_by(state, own)
    }
}

/// A count, before anybody's own name is added.
#[derive(Clone, Debug)]
struct Counted {
    /// The log that was looked at ended here.
    next_version: u64,
    /// Who has committed since this version is live.
    since: u64,
    producers: u64,
    /// The two largest costs, and whose the first is: one's own isn't another's.
    dearest: Option<(Name, u32)>,
    second_us: u32,
}

impl Counted {
    fn of(state: &State) -> Self {
        let next_version = state.next_version.get();
        let age = |one: &ProducerState| next_version.saturating_sub(one.last_version.get());
        // How many were last seen in each block of as many commits as one producer adds to the window.
        let most = state.producers.len().max(PRODUCERS_MIN as usize);
        let mut seen_in = vec![0u64; most.saturating_add(1)];
        for one in state.producers.values().filter(|one| is_open(one)) {
            let block = usize::try_from(age(one).div_ceil(COMMITS_PER_PRODUCER)).unwrap_or(usize::MAX);
            if let Some(seen) = seen_in.get_mut(block) {
                *seen = seen.saturating_add(1);
            }
        }
        // The least fixed point: n producers are seen in a window of n blocks.
        let (mut within, mut producers) = (0u64, 0u64);
        for (blocks, seen) in (0u64..).zip(&seen_in) {
            if blocks > producers.max(PRODUCERS_MIN) {
                break;
            }
            producers = producers.saturating_add(*seen);
            within = blocks;
        }
        let since = next_version.saturating_sub(within.saturating_mul(COMMITS_PER_PRODUCER));
        let mut counted = Self { next_version, since, producers, dearest: None, second_us: 0 };
        let mut dearest: Option<(&Name, u32)> = None;
        for (name, one) in &state.producers {
            let dearest_us = dearest.map_or(0, |(_, us)| us);
            if !counted.is_live(one) {
                continue;
            }
            if one.attempt_us > dearest_us {
                counted.second_us = dearest_us;
                dearest = Some((name, one.attempt_us));
            } else {
                counted.second_us = counted.second_us.max(one.attempt_us);
            }
        }
        counted.dearest = dearest.map(|(name, us)| (name.clone(), us));
        counted
    }

    fn is_live(&self, one: &ProducerState) -> bool {
        is_open(one) && one.last_version.get() >= self.since
    }

    fn seen_by(&self, state: &State, own: &Name) -> Live {
        // Who has committed since the count was among the live then, or is one more now.
        let counts_already = state.producers.get(own).is_some_and(|one| self.is_live(one));
        let producers = self.producers.saturating_add(u64::from(!counts_already)).max(1);
        let others_us = match &self.dearest {
            Some((name, us)) if name != own => *us,
            _ => self.second_us,
        };
        Live {
            producers: u32::try_from(producers).unwrap_or(u32::MAX),
            attempt: Duration::from_micros(u64::from(others_us)),
        }
    }
}

/// Neither retired, nor set back by a rewind and not opened again since.
fn is_open(one: &ProducerState) -> bool {
    one.incarnation.is_some() && !one.finished
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::record::Record;
    use crate::id::{Checksum, Generation, Nonce, Version};
    use crate::log::apply::Commit;

    fn name(number: u64) -> Name {
        Name::new(&format!("tok-{number:05}")).unwrap()
    }

    /// Applies a commit: an Open, which is as good as any for who is live.
    fn open(state: &mut State, number: u64, attempt_us: u32) {
        let last = state.producers.get(&name(number)).map(|one| one.last_open);
        append(state, Record::Open { producer: name(number), last }, attempt_us);
    }

    fn append(state: &mut State, record: Record, attempt_us: u32) {
        let commit = Commit {
            nonce: Nonce::new(u128::from(state.next_version.get()).to_le_bytes()),
            checksum: Checksum::new(1),
            kind: record.kind().number(),
            generation: Generation::ZERO,
            attempt_us,
            record: Some(record),
        };
        assert_eq!(state.apply(state.next_version, &commit).unwrap(), None);
    }

    fn opened(producers: u64) -> State {
        let mut state = State::new(1);
        (0..producers).for_each(|number| open(&mut state, number, 700));
        state
    }

    #[test]
    fn who_has_opened_counts_from_the_start() {
        assert_eq!(live(&State::new(1), &name(0)).producers, 1, "the own one, whether it is open or not");
        for producers in [1, 2, 7, 8, 9, 40, 10_000] {
            assert_eq!(live(&opened(producers), &name(0)).producers, producers as u32);
            assert_eq!(live(&opened(producers), &name(99_999)).producers, producers as u32 + 1);
        }
    }

    #[test]
    fn the_dead_fade_and_the_retired_are_gone() {
        let mut state = opened(100);
        let incarnation = state.producers[&name(99)].incarnation.unwrap();
        append(&mut state, Record::Retire { producer: name(99), incarnation }, 700);
        assert_eq!(live(&state, &name(0)).producers, 99);
        for round in 0..5 {
            assert!(round < 4 || live(&state, &name(0)).producers == 50, "half have died");
            (0..50).for_each(|number| open(&mut state, number, 700));
        }
        assert_eq!(live(&state, &name(70)).producers, 51, "the own one counts, seen or not");
        for _ in 0..=32 {
            open(&mut state, 7, 700);
        }
        assert_eq!(live(&state, &name(7)).producers, 1, "silent names don't make one alone wait");
    }

    #[test]
    fn the_largest_cost_is_that_of_another_and_fades_with_it() {
        let mut state = opened(10);
        open(&mut state, 3, 9000);
        open(&mut state, 4, 8000);
        assert_eq!(live(&state, &name(0)).attempt, Duration::from_millis(9));
        assert_eq!(live(&state, &name(3)).attempt, Duration::from_millis(8));
        for _ in 0..40 {
            open(&mut state, 1, 700);
            open(&mut state, 2, 600);
        }
        assert_eq!(live(&state, &name(1)).attempt, Duration::from_micros(600));
        assert_eq!(live(&State::new(1), &name(1)).attempt, Duration::ZERO, "nothing is known");
    }

    /// The definition, word by word.
    fn naive(state: &State) -> u64 {
        let seen_in = |commits: u64| {
            let since = state.next_version.get().saturating_sub(commits);
            state.producers.values().filter(|one| is_open(one) && one.last_version.get() >= since).count()
        };
        let mut producers = PRODUCERS_MIN;
        loop {
            let seen = seen_in(COMMITS_PER_PRODUCER * producers) as u64;
            if seen <= producers {
                return seen;
            }
            producers = seen;
        }
    }

    proptest! {
        /// By any history of commits: the count is the defined one, and a census has it a few commits later.
        #[test]
        fn a_census_is_the_definition(
            names in 1..300u64,
            activity in 1..300u64,
            commits in prop::collection::vec((any::<u64>(), 0..1000u32), 0..1500),
        ) {
            let mut state = opened(names);
            let mut census = Census::new();
            let mut recent = std::collections::VecDeque::new();
            for (number, attempt_us) in commits {
                let who = name(number % names.min(activity));
                let version = state.next_version;
                let one = state.producers.get_mut(&who).unwrap();
                (one.last_version, one.attempt_us) = (version, attempt_us);
                state.next_version = Version::new(version.get() + 1);
                let exact = live(&state, &who).producers;
                if number % 8 == 0 {
                    prop_assert_eq!(u64::from(exact), naive(&state).max(1));
                }
                recent.push_front(exact);
                recent.truncate(300 / PART_OF_COUNT as usize + 1);
                let kept = census.live(&state, &who).producers;
                prop_assert!(recent.iter().any(|exact| kept.abs_diff(*exact) <= 1), "{kept}: {recent:?}");
            }
        }
    }
}
