//! Every decision that a run leaves open, drawn from one seed, remembered, and replayed.
//!
//! - 0 is always the tame answer: the same thread goes on, nothing fails, what was unsynced is lost.
//! - A run is a function of its seed and the sequence of its decisions, so a sequence can be replayed, cut
//!   short and made tamer: that is how a failing schedule is shrunk.
//! - Beyond the end of a replayed sequence everything is tame.
//! - A question that was thought of later is asked [apart](Choices::apart): so what a seed has drawn before,
//!   it draws still.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::random::Random;

/// One decision: which of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The answer, below `of`.
    pub answer: u32,
    /// How many answers there were.
    pub of: u32,
}

/// Where decisions come from. A clone draws on from the same place.
///
/// ```
/// use batchweave_sim::Choices;
/// let choices = Choices::random(7);
/// let first: Vec<u32> = (0..3).map(|_| choices.pick(10)).collect();
/// let again = Choices::replay(choices.taken().iter().map(|taken| taken.answer).collect());
/// assert_eq!(first, [again.pick(10), again.pick(10), again.pick(10)]);
/// assert_eq!(again.pick(10), 0, "beyond the end all is tame");
/// ```
#[derive(Clone)]
pub struct Choices(Arc<Mutex<State>>);

struct State {
    source: Source,
    taken: Vec<Taken>,
}

enum Source {
    Random { seed: u64, all: Random, apart: BTreeMap<u64, Random> },
    Replay(Vec<u32>),
}

impl Choices {
    /// Decisions of a seed.
    pub fn random(seed: u64) -> Self {
        Self::from(Source::Random { seed, all: Random::new(seed), apart: BTreeMap::new() })
    }

    /// These decisions, then tame ones. One that is too large for its question is the largest there.
    pub fn replay(answers: Vec<u32>) -> Self {
        Self::from(Source::Replay(answers))
    }

    fn from(source: Source) -> Self {
        Self(Arc::new(Mutex::new(State { source, taken: Vec::new() })))
    }

    /// One of `of` answers, from 0; 0 when there is but one, which isn't a decision.
    pub fn pick(&self, of: u32) -> u32 {
        self.answer(of, None)
    }

    /// As [`Choices::pick`], from numbers that only questions of this salt have: those that a seed has for
    /// all others are not moved on by it. The salt is such that the seeds that the tests kept before the
    /// question was thought of answer it tamely.
    pub fn apart(&self, salt: u64, of: u32) -> u32 {
        self.answer(of, Some(salt))
    }

    fn answer(&self, of: u32, salt: Option<u64>) -> u32 {
        if of <= 1 {
            return 0;
        }
        let mut state = self.0.lock();
        let place = state.taken.len();
        let answer = match &mut state.source {
            Source::Random { seed, all, apart } => {
                let random = match salt {
                    None => all,
                    Some(salt) => apart.entry(salt).or_insert_with(|| Random::new(*seed ^ salt)),
                };
                (random.next() % u64::from(of)) as u32
            }
            Source::Replay(answers) => answers.get(place).copied().unwrap_or(0).min(of - 1),
        };
        state.taken.push(Taken { answer, of });
        answer
    }

    /// Whether what happens once in `in_how_many` times does; never when that is 0.
    pub fn chance(&self, in_how_many: u32) -> bool {
        match in_how_many {
            0 => false,
            1 => true,
            // The wild answer is the largest, so that the tame one is 0.
            of => self.pick(of) == of - 1,
        }
    }

    /// One of these, the first being the tamest.
    ///
    /// # Panics
    /// There is none.
    pub fn one_of<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.pick(of.len() as u32) as usize]
    }

    /// How many decisions were taken so far.
    pub fn count(&self) -> usize {
        self.0.lock().taken.len()
    }

    /// The decisions so far.
    pub fn taken(&self) -> Vec<Taken> {
        self.0.lock().taken.clone()
    }
}

impl fmt::Debug for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Choices({} taken)", self.0.lock().taken.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_decisions_again() {
        let draw = |seed| {
            let choices = Choices::random(seed);
            (0..100).map(|_| choices.pick(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn a_question_apart_moves_no_other_and_is_replayed() {
        let (plain, asked) = (Choices::random(3), Choices::random(3));
        let plain: Vec<u32> = (0..4).map(|_| plain.pick(1000)).collect();
        let others: Vec<u32> = (0..4).map(|_| (asked.apart(7, 1000), asked.pick(1000)).1).collect();
        assert_eq!(plain, others);
        let again = Choices::replay(asked.taken().iter().map(|taken| taken.answer).collect());
        let others: Vec<u32> = (0..4).map(|_| (again.apart(7, 1000), again.pick(1000)).1).collect();
        assert_eq!((others, again.taken()), (plain, asked.taken()));
        // Nor does one of another salt.
        let (seven, both) = (Choices::random(3), Choices::random(3));
        let seven: Vec<u32> = (0..4).map(|_| seven.apart(7, 1000)).collect();
        let both: Vec<u32> = (0..4).map(|_| (both.apart(8, 1000), both.apart(7, 1000)).1).collect();
        assert_eq!(seven, both);
    }

    #[test]
    fn a_question_with_one_answer_is_no_decision() {
        let choices = Choices::random(1);
        assert_eq!((choices.pick(1), choices.pick(0)), (0, 0));
        assert!(choices.chance(1) && !choices.chance(0));
        assert!(choices.taken().is_empty());
    }

    #[test]
    fn a_replayed_answer_is_bounded_by_its_question() {
        let choices = Choices::replay(vec![9]);
        assert_eq!(choices.pick(3), 2);
        assert_eq!(choices.taken(), [Taken { answer: 2, of: 3 }]);
    }
}
