//! Records out of an input, near what would take effect on a state: what is drawn at random never gets past
//! the first look.

use batchweave::format::checksum;
use batchweave::format::part::{Item, PartDescriptor, align};
use batchweave::format::record::{Checkpoint, Kind, Parts, Record, Rewind, Rewound};
use batchweave::log::groups::GroupState;
use batchweave::log::state::{ProducerState, State};
use batchweave::{Checksum, Generation, Incarnation, Name, Part, Sequence, Step, Version};

use crate::input::Input;

/// Few names, so that records meet each other.
const NAMES: [&str; 3] = ["a", "b.7", "c-"];

/// One of them.
pub fn name(input: &mut Input<'_>) -> Name {
    Name::new(input.pick::<&str>(&NAMES)).expect("a name")
}

/// `right`, or now and then another number.
fn near(input: &mut Input<'_>, right: u64) -> u64 {
    if input.rarely(11) { input.number(right) } else { right }
}

fn version(input: &mut Input<'_>, right: Option<Version>) -> Option<Version> {
    if input.rarely(11) { Some(Version::new(input.number(0))) } else { right }
}

/// A step of those that there are, or near them.
fn step(input: &mut Input<'_>, state: &State) -> Step {
    let (floor, next) = (state.floor.get(), state.next_step().get());
    let ahead = u64::from(input.u8() % 8).min(next.saturating_sub(floor));
    let right = if input.rarely(2) { next } else { floor.saturating_add(ahead) };
    Step::new(near(input, right))
}

/// The generation that a commit says it was written for.
pub fn generation(input: &mut Input<'_>, state: &State) -> Generation {
    Generation::new(near(input, state.generation.get()))
}

/// Parts without slices, each with a state.
pub fn descriptors(input: &mut Input<'_>) -> Vec<PartDescriptor> {
    let mut place = Some(4096);
    let mut parts = Vec::new();
    for _ in 0..1 + input.below(3) {
        let Some(at) = place else { break };
        let length = u32::from(input.u8());
        let state = Item { length, checksum: checksum::of(&vec![0; length as usize]) };
        let part = PartDescriptor { place: at, state, ..PartDescriptor::default() };
        place = part.layout().and_then(|layout| align(layout.end, 4096));
        parts.push(part);
    }
    parts
}

/// Who publishes, as which incarnation, from which sequence on.
pub fn publisher(input: &mut Input<'_>, state: &State) -> (Name, Incarnation, Sequence) {
    let producer = name(input);
    let known = state.producers.get(&producer);
    let incarnation = known.and_then(|one| one.incarnation).map_or(0, Incarnation::get);
    let incarnation = near(input, incarnation);
    let first = near(input, known.map_or(0, |one| one.next.get()));
    (producer, Incarnation::new(incarnation), Sequence::new(first))
}

fn rewind(input: &mut Input<'_>, state: &State) -> Rewind {
    let mut place = 4096;
    let mut one = |(name, known): (&Name, &ProducerState)| {
        let next = Sequence::new(near(input, known.next.get()));
        let length = u32::from(input.u8());
        let at = place;
        place += u64::from(length);
        let checksum = checksum::of(&vec![0; length as usize]);
        Rewound {
            producer: name.clone(),
            next,
            last: known.last_checksum,
            last_part: (next > Sequence::ZERO).then(|| known.last_part.unwrap_or(Part::ZERO)),
            finished: input.rarely(5),
            place: at,
            state: Item { length, checksum },
        }
    };
    let producers = state.producers.iter().map(&mut one).collect();
    let ring = state.ring.as_ref().filter(|ring| !ring.names.is_empty());
    let turn = ring.map(|ring| {
        let member = input.below(ring.names.len()) as u32;
        (member, near(input, ring.left.into()) as u32)
    });
    Rewind {
        generation: Generation::new(near(input, state.generation.get().saturating_add(1))),
        step: step(input, state),
        lineage: Checksum::new(input.u64()),
        bytes_before: near(input, state.bytes_written),
        many_groups: input.rarely(2),
        turn: if input.rarely(11) { None } else { turn },
        producers,
    }
}

fn group(input: &mut Input<'_>, state: &State) -> (Name, Incarnation) {
    let group = name(input);
    let incarnation = state.groups.get(&group).and_then(|known| known.incarnation);
    let incarnation = near(input, incarnation.map_or(0, Incarnation::get));
    (group, Incarnation::new(incarnation))
}

/// A record that may well take effect.
pub fn record(input: &mut Input<'_>, state: &State) -> Record {
    // Parts and Opens make what all others are about.
    let kind = match input.u8() {
        first @ 0..=127 if first % 4 == 0 => Kind::Open,
        0..=127 => Kind::Parts,
        other => Kind::ALL[usize::from(other) % Kind::ALL.len()],
    };
    match kind {
        Kind::Parts => {
            let (producer, incarnation, first) = publisher(input, state);
            Record::Parts(Parts { producer, incarnation, first, parts: descriptors(input) })
        }
        Kind::Open => {
            let producer = name(input);
            let last = state.producers.get(&producer).map(|one| one.last_open);
            Record::Open { producer, last: version(input, last) }
        }
        Kind::Retire => {
            let (producer, incarnation, _) = publisher(input, state);
            Record::Retire { producer, incarnation }
        }
        Kind::Forget => {
            let producer = name(input);
            let last = state.producers.get(&producer).map_or(0, |one| one.last_open.get());
            Record::Forget { producer, incarnation: Incarnation::new(near(input, last)) }
        }
        Kind::Turns => Record::Turns {
            last: version(input, state.ring.as_ref().map(|ring| ring.last)),
            names: (0..input.below(4)).map(|_| name(input)).collect(),
            parts_per_turn: 1 + u32::from(input.u8() % 4),
        },
        _ => of_groups(kind, input, state),
    }
}

fn of_groups(kind: Kind, input: &mut Input<'_>, state: &State) -> Record {
    match kind {
        Kind::Group => {
            let group = name(input);
            let last = state.groups.get(&group).map(|known| known.last_group);
            Record::Group { last: version(input, last), start: step(input, state), group }
        }
        Kind::RetireGroup => {
            let (group, incarnation) = group(input, state);
            Record::RetireGroup { group, incarnation }
        }
        Kind::Checkpoint => {
            let (group, incarnation) = group(input, state);
            Record::Checkpoint(Checkpoint {
                group,
                incarnation,
                step: step(input, state),
                lineage: Checksum::new(input.u64()),
                name: Name::new(&format!("at-{}", input.u8() % 16)).expect("a name"),
                pinned: input.rarely(2),
                metadata: vec![7; usize::from(input.u8())],
            })
        }
        Kind::Drop => {
            let (group, incarnation) = group(input, state);
            let kept = |known: &GroupState| known.checkpoints.first().map(|kept| kept.version.get());
            let right = state.groups.get(&group).and_then(kept).unwrap_or(0);
            Record::Drop { group, incarnation, checkpoint: Version::new(near(input, right)) }
        }
        Kind::Floor => Record::Floor {
            step: step(input, state),
            lineage: Checksum::new(input.u64()),
            bytes_before: near(input, state.bytes_reclaimed),
        },
        Kind::Rewind => Record::Rewind(rewind(input, state)),
        Kind::Skip => {
            let first = step(input, state);
            let last = Step::new(first.get().saturating_add(u64::from(input.u8() % 3)));
            Record::Skip { first, last, reason: "drawn".to_owned() }
        }
        Kind::Close => Record::Close {
            step: Step::new(near(input, state.next_step().get())),
            closes: near(input, state.closes()),
            open_step: input.rarely(2),
        },
        Kind::Reopen => Record::Reopen { closes: near(input, state.closes()) },
        _ => Record::Require { features: near(input, 0) },
    }
}
