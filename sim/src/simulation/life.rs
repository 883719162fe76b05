//! What a run of the lifecycle draws: trainers of groups, and operators.

use super::setup::Shape;
use crate::Choices;
use crate::actors::Word;

/// The salt by which it is asked whether anybody looks at everything.
const LOOKS: u64 = 9 << 40;
/// ... whether anybody closes the stream, reopens it or forgets names.
const CLOSES: u64 = 770_197 << 40;
/// Whoever closes the stream comes back to reopen it, as often as anything can go wrong.
const CLOSER_RESTARTS: u32 = 20;

/// A trainer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trainer {
    /// Its group; none reads without one.
    pub group: Option<&'static str>,
    /// Ranks that read a share each.
    pub ranks: u32,
    /// Steps held ready.
    pub window: usize,
    /// Of how many steps it saves its position after one.
    pub saves_one_in: u32,
    /// ... and checkpoints after one.
    pub checkpoints_one_in: u32,
    /// Whether it lets go of older checkpoints by itself.
    pub retains: bool,
    /// Whether it retires its group in the end.
    pub retires: bool,
    /// How often it comes back after it died.
    pub restarts: u32,
    /// Begins so late, in milliseconds.
    pub late_ms: u32,
}

/// An operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator {
    /// What it does.
    pub word: Word,
    /// How often.
    pub times: u32,
    /// How often it comes back after it died.
    pub restarts: u32,
}

/// Who else there is in a run of the lifecycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Who trains.
    pub trainers: Vec<Trainer>,
    /// Ranks in processes of their own, which join the runs of group `g`.
    pub joiners: u32,
    /// Who operates.
    pub operators: Vec<Operator>,
    /// Whether nothing goes wrong but that processes stand still.
    pub calm: bool,
}

impl Life {
    /// Draws it; nobody in another shape.
    pub(super) fn draw(shape: Shape, ranks: u32, choices: &Choices) -> Self {
        if shape != Shape::Lifecycle {
            return Self::default();
        }
        let trainers = (0..*choices.one_of(&[1, 0, 2, 3, 0]))
            .map(|number| Trainer::draw(number, ranks, choices))
            .collect();
        let joiners = choices.pick(2);
        let mut operators = Vec::new();
        let mut add = |word, times| {
            operators.push(Operator { word, times, restarts: choices.pick(2) });
        };
        for _ in 0..1 + choices.pick(2) {
            add(Word::Reclaim(1 + choices.pick(2) as usize), 1 + choices.pick(4));
        }
        for _ in 0..choices.pick(3) {
            add(Word::Rewind(*choices.one_of(&[4, 1, 20])), 1);
        }
        if choices.chance(2) {
            add(Word::Skip(*choices.one_of(&[4, 20])), 1 + choices.pick(2));
        }
        if choices.chance(4) {
            let group = if choices.chance(2) { "h" } else { "g" };
            add(Word::Retire(group), 1);
        }
        Self { trainers, joiners, operators, calm: choices.chance(3) }
    }

    /// Draws who else operates, in half of the runs: those whose seeds had drawn all else before these words
    /// were thought of are as they were.
    pub(super) fn draw_others(&mut self, choices: &Choices) {
        if choices.apart(LOOKS, 2) == 0 {
            return;
        }
        for _ in 0..choices.pick(3) {
            let times = 1 + choices.pick(4);
            self.operators.push(Operator { word: Word::Look, times, restarts: choices.pick(2) });
        }
    }

    /// Draws who closes the stream, reopens it and forgets names, in half of the runs: as above.
    pub(super) fn draw_closers(&mut self, choices: &Choices) {
        if choices.apart(CLOSES, 2) == 0 {
            return;
        }
        for _ in 0..choices.pick(3) {
            let times = 1 + choices.pick(3);
            self.operators.push(Operator { word: Word::Close, times, restarts: CLOSER_RESTARTS });
        }
        if choices.chance(3) {
            let times = 1 + choices.pick(4);
            self.operators.push(Operator { word: Word::Reopen, times, restarts: choices.pick(2) });
        }
        for _ in 0..1 + choices.pick(2) {
            let times = 2 + choices.pick(5);
            self.operators.push(Operator { word: Word::Forget, times, restarts: choices.pick(2) });
        }
    }
}

impl Trainer {
    fn draw(number: u32, ranks: u32, choices: &Choices) -> Self {
        Self {
            group: *choices.one_of(&[Some("g"), Some("g"), Some("h"), None]),
            ranks: *choices.one_of(&[ranks, 1]),
            window: *choices.one_of(&[0, 2, 8]),
            saves_one_in: *choices.one_of(&[2, 1]),
            checkpoints_one_in: *choices.one_of(&[4, 2, 12]),
            retains: choices.chance(3),
            retires: choices.chance(4),
            restarts: choices.pick(3),
            late_ms: if number == 0 { 0 } else { choices.pick(30) },
        }
    }
}
