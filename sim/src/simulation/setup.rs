//! What a run draws before it begins; the first answer to each question is the simplest.

use std::time::Duration;

use super::base::Kind;
use super::life::Life;
use crate::faults::Wrong;
use crate::mount::{Class, Links};
use crate::{Choices, Style};

/// Which of three seeds that differ in this only is a run of the lifecycle.
const LIFECYCLES: usize = 0;
/// ... and which of eighteen is one of turns.
const TURNS: usize = 6;

/// What a run is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Producers, consumers, inspectors; everything but damage goes wrong.
    Traffic,
    /// Writers that sleep while segments pass and are removed.
    Sleepers,
    /// Files vanish, or can't be read any more.
    Damage,
    /// Several processes close the stream for good.
    Endings,
    /// As traffic, but that producers take turns.
    Turns,
    /// Trainers checkpoint, operators reclaim, rewind and skip, and whoever likes stands still meanwhile.
    Lifecycle,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 6] =
        [Self::Traffic, Self::Sleepers, Self::Damage, Self::Endings, Self::Turns, Self::Lifecycle];

    /// Draws one. Most runs are traffic, or of the lifecycle: these have most to go wrong. What a seed drew
    /// before there was a lifecycle, or turns, it draws still, or that.
    fn draw(choices: &Choices) -> Self {
        let others =
            [Self::Traffic, Self::Traffic, Self::Traffic, Self::Sleepers, Self::Damage, Self::Endings];
        let drawn = choices.pick(3 * others.len() as u32) as usize;
        match drawn {
            TURNS => Self::Turns,
            _ if drawn / others.len() == LIFECYCLES => Self::Lifecycle,
            _ => others[drawn % others.len()],
        }
    }
}

impl Shape {
    /// How many versions there may be already: near a segment's end, where most can go wrong. A segment has
    /// 16.
    fn bases(self) -> &'static [u64] {
        match self {
            Self::Traffic | Self::Turns => &[3, 0, 13, 14, 15, 16, 30, 31],
            Self::Sleepers => &[15, 14, 16, 31, 32],
            Self::Damage => &[20, 14, 31, 47],
            Self::Endings => &[3, 15, 16],
            Self::Lifecycle => &[31, 20, 3, 46, 47, 48],
        }
    }
}

/// A producing process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Which name it has: several may have the same.
    pub name: &'static str,
    /// Parts of that name in the end.
    pub parts: u64,
    /// Slices' padding in bytes.
    pub padding: usize,
    /// Whether it retires its name.
    pub finishes: bool,
    /// How often it comes back after it died.
    pub restarts: u32,
}

/// A consuming process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// Steps held ready.
    pub window: usize,
    /// How often it saves its position.
    pub saves_every: u64,
    /// Ranks that read a share each, of one run; or one that reads all.
    pub ranks: u32,
    /// How often it comes back after it died.
    pub restarts: u32,
}

/// What a run draws before it begins.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What it is about.
    pub shape: Shape,
    /// What the nodes' mounts are like.
    pub class: Class,
    /// Where the mounts make hard links.
    pub links: Links,
    /// Whether readers run on a node of their own that is mounted for reading only.
    pub read_only: bool,
    /// How many nodes there are.
    pub nodes: usize,
    /// Whether the store is synced.
    pub synced: bool,
    /// Parts of a step.
    pub parts_per_step: u32,
    /// Slices divide by it.
    pub divisor: u32,
    /// How many versions there are already; none: the store is created.
    pub base: u64,
    /// Who writes.
    pub writers: Vec<Writer>,
    /// How many parts each name has in its turn; 0: they don't take turns.
    pub parts_per_turn: u32,
    /// Who reads.
    pub readers: Vec<Reader>,
    /// How often somebody looks at everything.
    pub inspections: u32,
    /// Who asks for the stream's end.
    pub watchers: u32,
    /// Who closes the stream.
    pub closers: u32,
    /// Of how many times that a node may answer from a stale cache it does so once; never when 0.
    pub wild_one_in: u32,
    /// How often segments pass.
    pub passes: u32,
    /// Who trains and operates.
    pub life: Life,
    /// How many parts a producer publishes before it waits for them; each at once when 0.
    pub ahead: u32,
    /// What may go wrong.
    pub wrongs: Vec<Wrong>,
    /// How many things do.
    pub faults: u32,
    /// How long a mount that is away is waited for; none for as long as by default.
    pub io_patience: Option<Duration>,
    /// How threads are chosen.
    pub style: Style,
}

impl Setup {
    /// The store that the run begins with.
    pub(super) fn store(&self) -> Kind {
        Kind {
            versions: self.base,
            synced: self.synced,
            parts_per_step: self.parts_per_step,
            divisor: self.divisor,
            linkless: self.links == Links::Nowhere,
        }
    }

    /// Draws a set-up.
    pub fn draw(shape: Option<Shape>, choices: &Choices) -> Self {
        let shape = shape.unwrap_or_else(|| Shape::draw(choices));
        let class = *choices.one_of(&[
            Class::Local,
            Class::Coherent { bricks: 1 },
            Class::CloseToOpen,
            Class::Coherent { bricks: 3 },
        ]);
        let nodes = if class == Class::Local { 1 } else { 1 + choices.pick(3) as usize };
        let links = Self::draw_links(class, choices);
        let read_only = class != Class::Local && choices.chance(3);
        let synced = !choices.chance(4);
        let in_parts = matches!(shape, Shape::Traffic | Shape::Turns | Shape::Lifecycle);
        let parts_per_step = if in_parts && choices.chance(5) { 2 } else { 1 };
        let divisor = 1 + choices.pick(2);
        let base = *choices.one_of(shape.bases());
        let writers = Self::draw_writers(shape, choices);
        let parts_per_turn = if shape == Shape::Turns { 1 + choices.pick(3) } else { 0 };
        let readers = Self::draw_readers(shape, parts_per_step, divisor, choices);
        let inspections = if in_parts && choices.chance(3) { 1 + choices.pick(3) } else { 0 };
        let watchers = if matches!(shape, Shape::Damage | Shape::Lifecycle) { 0 } else { choices.pick(2) };
        let closers = if shape == Shape::Endings { 2 + choices.pick(2) } else { 0 };
        let wild_one_in = *choices.one_of(&[0, 2, 1]);
        let passes = Self::draw_passes(shape, choices);
        let ranks = if parts_per_step == 1 { divisor } else { 1 };
        let mut life = Life::draw(shape, ranks, choices);
        let wrongs = if life.calm {
            vec![Wrong::Frozen, Wrong::FrozenInBoundary]
        } else {
            Self::wrongs(shape, class, synced)
        };
        let faults = choices.pick(if shape == Shape::Lifecycle { 10 } else { 5 });
        // What is damaged doesn't come back: waiting for it long shows nothing more.
        let short = shape == Shape::Damage || choices.chance(3);
        let io_patience = short.then_some(Duration::from_millis(300));
        let style = Self::draw_style(choices);
        let ahead = *choices.one_of(&[0, 0, 0, 2, 6]);
        if shape == Shape::Lifecycle {
            life.draw_others(choices);
            life.draw_closers(choices);
        }
        Self {
            shape,
            class,
            links,
            read_only,
            nodes,
            synced,
            parts_per_step,
            divisor,
            base,
            writers,
            parts_per_turn,
            readers,
            inspections,
            watchers,
            closers,
            wild_one_in,
            passes,
            life,
            ahead,
            wrongs,
            faults,
            io_patience,
            style,
        }
    }

    /// Mostly everywhere. Else a store is published by another primitive from the beginning, or the mount
    /// refuses what it allowed when the store was made.
    fn draw_links(class: Class, choices: &Choices) -> Links {
        match (class, choices.chance(8)) {
            (_, false) => Links::Everywhere,
            (Class::Local, true) => Links::Nowhere,
            (_, true) => Links::WithinDirectory,
        }
    }

    fn draw_readers(shape: Shape, parts_per_step: u32, divisor: u32, choices: &Choices) -> Vec<Reader> {
        if matches!(shape, Shape::Sleepers | Shape::Lifecycle) {
            return Vec::new();
        }
        let ranks = if parts_per_step == 1 { divisor } else { 1 };
        (0..choices.pick(3)).map(|_| Reader::draw(ranks, choices)).collect()
    }

    fn draw_passes(shape: Shape, choices: &Choices) -> u32 {
        match shape {
            Shape::Sleepers => 1 + choices.pick(2),
            Shape::Lifecycle => choices.pick(3),
            _ => 0,
        }
    }

    fn draw_writers(shape: Shape, choices: &Choices) -> Vec<Writer> {
        if shape == Shape::Turns {
            return Self::draw_ring(choices);
        }
        let writers = match shape {
            Shape::Sleepers => 1 + choices.pick(2),
            Shape::Endings => choices.pick(2),
            _ => 1 + choices.pick(3),
        };
        let parts = if shape == Shape::Lifecycle { 30 } else { 3 };
        (0..writers)
            .map(|_| {
                let name = *choices.one_of(&["a", "b"]);
                Writer {
                    name,
                    parts: 1 + u64::from(choices.pick(parts)),
                    padding: *choices.one_of(&[0, 0, 9000]),
                    finishes: choices.chance(3),
                    restarts: choices.pick(3),
                }
            })
            .collect()
    }

    /// Each name at least once; all retire theirs, since the others wait for who doesn't.
    fn draw_ring(choices: &Choices) -> Vec<Writer> {
        let names = ["a", "b", "c"];
        (0..2 + choices.pick(3) as usize)
            .map(|number| Writer {
                name: names[number % names.len()],
                parts: 1 + u64::from(choices.pick(6)),
                padding: *choices.one_of(&[0, 0, 9000]),
                finishes: true,
                restarts: choices.pick(3),
            })
            .collect()
    }

    fn wrongs(shape: Shape, class: Class, synced: bool) -> Vec<Wrong> {
        let mut wrongs = vec![Wrong::Short, Wrong::ProcessDies, Wrong::ProcessDiesAfter];
        match shape {
            Shape::Damage => wrongs.extend([Wrong::Purged, Wrong::Unreadable, Wrong::Purged]),
            _ => wrongs.extend([Wrong::NoSpace, Wrong::Refused, Wrong::NodeDies]),
        }
        if shape == Shape::Lifecycle {
            wrongs.extend([Wrong::Frozen, Wrong::Frozen, Wrong::Frozen, Wrong::Frozen]);
            wrongs.extend([Wrong::FrozenInBoundary, Wrong::FrozenInBoundary]);
        }
        if class != Class::Local {
            wrongs.push(Wrong::ReplyLost);
        }
        // What isn't synced is only as safe as the node, or its server.
        if synced && shape != Shape::Damage {
            wrongs.extend([Wrong::SyncFailed, Wrong::PowerCut]);
        }
        wrongs
    }

    fn draw_style(choices: &Choices) -> Style {
        let odds = *choices.one_of(&[4, 1, 32]);
        if choices.chance(3) { Style::Urgency(odds * 8) } else { Style::Sticky(odds) }
    }
}

impl Reader {
    fn draw(ranks: u32, choices: &Choices) -> Self {
        Self {
            ranks: *choices.one_of(&[1, ranks]),
            window: *choices.one_of(&[0, 2, 8]),
            saves_every: 1 + u64::from(choices.pick(3)),
            restarts: choices.pick(3),
        }
    }
}
