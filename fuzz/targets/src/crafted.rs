//! Whole stores built of drawn commits, sealed as a writer seals them: the lies are under checksums that are
//! right, in slice tables, lengths, places and frames.

use std::path::Path;

use batchweave::format::checksum;
use batchweave::format::codec::Codec;
use batchweave::format::commit::Seen;
use batchweave::format::names;
use batchweave::format::part::PartDescriptor;
use batchweave::format::record::{Parts, Record};
use batchweave::format::store::Identity;
use batchweave::log::apply::Commit;
use batchweave::log::build;
use batchweave::log::state::State;
use batchweave::storage::Storage as _;
use batchweave::{Durability, Generation, Nonce, Options, Primitive, Segment, Settings, StoreUuid, Version};
use batchweave_sim::Memory;

use crate::craft::{self, Contents, Part, Who};
use crate::input::Input;
use crate::{draw, files, golden, reading};

const STORE: StoreUuid = StoreUuid::new([0x5a; 16]);
const SEGMENT: u32 = 16;
/// A kind that no library knows.
const UNKNOWN: u16 = 1000;
const COMMITS_MAX: u32 = 2 * SEGMENT + 4;

/// Builds a store and reads everything.
pub fn crafted(data: &[u8]) {
    let memory = build(data);
    reading::open(&memory, &Settings::new()).expect("its STORE is sound");
    reading::everything(&memory, data.first().is_some_and(|flags| flags & 6 == 6));
}

fn build(data: &[u8]) -> Memory {
    let mut input = Input::new(data);
    let flags = input.u8();
    let parts_per_step = 1 + u32::from(flags & 1);
    let mut log = Log::new(parts_per_step);
    for _ in 0..COMMITS_MAX {
        if input.is_empty() || !log.draw_one(&mut input) {
            break;
        }
    }
    log.memory
}

/// A store of these records, each with the bytes behind its header block.
pub(crate) fn of(records: impl IntoIterator<Item = (Record, Vec<u8>)>) -> Memory {
    let mut log = Log::new(1);
    for (record, payload) in records {
        assert!(log.push(Some(&record), &payload, Generation::ZERO), "a record of this library");
    }
    log.memory
}

fn begin(parts_per_step: u32) -> Memory {
    let memory = Memory::new();
    let options = Options::new().parts_per_step(parts_per_step).segment_size(SEGMENT);
    let options = options.durability(Durability::Unsynced);
    let (origin, primitive) = (Identity::NO_ORIGIN, Primitive::Link);
    let identity = Identity { uuid: STORE, origin, options, primitive };
    memory.make_root(Path::new(files::ROOT)).expect("a new directory");
    golden::directories().for_each(|name| files::make_dir(&memory, name));
    begin_segment(&memory, Segment::ZERO);
    files::write(&memory, names::STORE, &identity.encode());
    memory
}

fn begin_segment(memory: &Memory, segment: Segment) {
    let name = names::segment(segment);
    files::make_dir(memory, &format!("{}/{name}", names::LOG));
    files::write(memory, &format!("{}/{name}", names::MARKS), &[]);
}

struct Log {
    memory: Memory,
    state: State,
    seen: Option<Seen>,
}

impl Log {
    fn new(parts_per_step: u32) -> Self {
        Self { memory: begin(parts_per_step), state: State::new(parts_per_step), seen: None }
    }

    /// One more commit; false where the log ends.
    fn draw_one(&mut self, input: &mut Input<'_>) -> bool {
        let version = self.state.next_version;
        if version > Version::ZERO && version.slot(SEGMENT) == 0 && !self.boundary(version.segment(SEGMENT)) {
            return false;
        }
        let generation = draw::generation(input, &self.state);
        let (record, payload) = self.draw(input);
        self.push((!input.rarely(31)).then_some(&record), &payload, generation)
    }

    /// Puts a commit at the end, one of an unknown kind without a record; false if it can't be replayed. What
    /// no writer could seal isn't put.
    fn push(&mut self, record: Option<&Record>, payload: &[u8], generation: Generation) -> bool {
        let version = self.state.next_version;
        let nonce = Nonce::new([version.get() as u8; 16]);
        let who = Who { store: STORE, nonce, generation, seen: self.seen };
        let (bytes, checksum) = match record {
            None => craft::unknown(who, UNKNOWN, false),
            Some(record) => match craft::commit(who, record, payload) {
                Ok(sealed) => sealed,
                Err(_) => return true,
            },
        };
        let kind = record.map_or(UNKNOWN, |record| record.kind().number());
        let commit = Commit { nonce, checksum, kind, generation, attempt_us: 1, record: record.cloned() };
        let segment = names::segment(version.segment(SEGMENT));
        let name = format!("{}/{segment}/{}", names::LOG, names::version(version));
        files::write(&self.memory, &name, &bytes);
        self.seen = Some(Seen { version, checksum });
        self.state.apply(version, &commit).is_ok()
    }

    /// What a record says, and the bytes behind its header block.
    fn draw(&self, input: &mut Input<'_>) -> (Record, Vec<u8>) {
        if !input.rarely(3) {
            let (producer, incarnation, first) = draw::publisher(input, &self.state);
            let mut parts: Vec<Part> = (0..1 + input.below(2)).map(|_| part(input)).collect();
            let payload = craft::place(&mut parts);
            let parts: Vec<PartDescriptor> = parts.iter().map(|part| part.descriptor).collect();
            if self.state.producers.get(&producer).is_some_and(|known| known.incarnation.is_some()) {
                return (Record::Parts(Parts { producer, incarnation, first, parts }), payload);
            }
            let last = self.state.producers.get(&producer).map(|known| known.last_open);
            return (Record::Open { producer, last }, Vec::new());
        }
        let record = draw::record(input, &self.state);
        let end = record.payload_end().unwrap_or(4096).min(1 << 20);
        (record, vec![0; end.saturating_sub(4096) as usize])
    }

    /// Ends a segment as the engine does; false if it can't.
    fn boundary(&self, segment: Segment) -> bool {
        let Ok(store) = reading::open(&self.memory, &Settings::new()) else { return false };
        let log = store.inner();
        let (Some(before), Ok(tail)) = (segment.previous(), log.current()) else { return false };
        let Some((bytes, _)) = reading::typed(build::index(log, &tail, before)) else { return false };
        drop(tail);
        files::write(&self.memory, &format!("{}/{}", names::INDEX, names::segment(before)), &bytes);
        begin_segment(&self.memory, segment);
        true
    }
}

/// A part, sound or with lies in it.
fn part(input: &mut Input<'_>) -> Part {
    let mut contents = Contents::default();
    for _ in 0..input.below(4) {
        let length = match input.u8() {
            // Seldom: they cost a thousand times what the others do.
            0 if input.u8() < 32 => (1 << 20) + input.below(3) - 1,
            // A frame of these is small: what it unpacks to isn't.
            1 if input.u8() < 32 => 4 << 20,
            other => usize::from(other) * 37 % 9000,
        };
        let byte = input.u8();
        contents.slice(&vec![byte; length], length > 1 << 21 || input.rarely(3));
    }
    let lying = input.rarely(2);
    if lying {
        lie_in_table(&mut contents, input);
    }
    if input.rarely(4) {
        // Many small slices in the same place.
        contents.entries =
            contents.entries.iter().cycle().take(contents.entries.len() * 40).copied().collect();
    }
    let given = input.take(usize::from(input.clone().u8()) % 64);
    contents.attachment = given.to_vec();
    if input.rarely(3) {
        contents.attachment = craft::zstd(given);
        contents.packed = Some(if lying { input.number(given.len() as u64) } else { given.len() as u64 });
    }
    contents.metadata = input.take(usize::from(input.clone().u8()) % 16).to_vec();
    contents.state = input.take(usize::from(input.clone().u8()) % 16).to_vec();
    let mut part = contents.part();
    if lying && input.rarely(2) {
        lie_in_descriptor(&mut part.descriptor, input);
    }
    part
}

fn lie_in_table(contents: &mut Contents, input: &mut Input<'_>) {
    let at = input.below(contents.entries.len());
    let all = contents.slices.len() as u64;
    let Some(entry) = contents.entries.get_mut(at) else { return };
    match input.u8() % 6 {
        0 => entry.offset = input.number(entry.offset / 4096).saturating_mul(4096),
        1 => entry.stored = input.number(entry.stored),
        2 => entry.length = input.number(entry.length),
        3 => entry.codec = if entry.codec == Codec::Raw { Codec::Zstd } else { Codec::Raw },
        4 => (entry.offset, entry.stored) = (0, all),
        _ => entry.counts.tokens = input.number(0),
    }
    if entry.codec == Codec::Raw {
        entry.length = entry.stored;
    }
    let range = entry.offset as usize..entry.offset.saturating_add(entry.stored) as usize;
    if entry.blocks() == 1
        && let Some(bytes) = contents.slices.get(range)
    {
        entry.checksum = checksum::of(bytes);
    }
}

fn lie_in_descriptor(part: &mut PartDescriptor, input: &mut Input<'_>) {
    match input.u8() % 6 {
        0 => part.slices = input.number(part.slices),
        1 => part.table = input.number(part.table / 64).saturating_mul(64),
        2 => part.bytes = input.number(part.bytes),
        3 => part.attachment.stored = input.number(part.attachment.stored),
        4 => part.attachment.length = input.number(part.attachment.length),
        _ => part.state.length = input.number(part.state.length.into()) as u32,
    }
}

#[cfg(test)]
mod tests {
    use batchweave::Step;

    use super::*;
    use crate::seeds;

    #[test]
    fn what_is_drawn_has_steps_that_can_be_read_steps_that_cannot_and_indexes() {
        let (mut read, mut refused, mut indexed) = (0, 0, 0);
        for seed in seeds::of("crafted") {
            let memory = build(&seed);
            indexed += memory.names_in("/store/index").len();
            let store = reading::open(&memory, &Settings::new()).unwrap();
            let Ok(info) = store.info() else { continue };
            for step in info.floor.get()..info.next_step.get() {
                match reading::whole(&store, Step::new(step)) {
                    Ok(_) => read += 1,
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(
            read > 50 && refused > 20 && indexed > 10,
            "{read} read, {refused} refused, {indexed} indexes"
        );
    }
}
