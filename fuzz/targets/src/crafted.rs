//! Whole stores built of drawn commits, sealed as a writer seals them: the lies are under checksums that are
//! right, in slice tables, lengths, places and frames.

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
use batchweave::{Durability, Nonce, Options, Primitive, Segment, Settings, StoreUuid, Version};
use batchweave_sim::Memory;

use crate::craft::{self, Contents, Part, Who};
use crate::input::Input;
use crate::{draw, files, golden, reading};

const STORE: StoreUuid = StoreUuid::new([0x5a; 16]);
const SEGMENT: u32 = 16;
const COMMITS_MAX: u32 = 2 * SEGMENT + 4;

/// Builds a store and reads everything.
pub fn crafted(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.u8();
    let parts_per_step = 1 + u32::from(flags & 1);
    let memory = begin(parts_per_step);
    let mut log = Log { memory, state: State::new(parts_per_step), seen: None };
    for _ in 0..COMMITS_MAX {
        if input.is_empty() || !log.push(&mut input) {
            break;
        }
    }
    reading::everything(&log.memory, flags & 6 == 6);
}

fn begin(parts_per_step: u32) -> Memory {
    let memory = Memory::new();
    let options = Options::new().parts_per_step(parts_per_step).segment_size(SEGMENT);
    let options = options.durability(Durability::Unsynced);
    let (origin, primitive) = (Identity::NO_ORIGIN, Primitive::Link);
    let identity = Identity { uuid: STORE, origin, options, primitive };
    files::make_dir(&memory, "");
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
    /// One more commit; false where the log ends.
    fn push(&mut self, input: &mut Input<'_>) -> bool {
        let version = self.state.next_version;
        let segment = version.segment(SEGMENT);
        if version > Version::ZERO && version.slot(SEGMENT) == 0 && !self.boundary(segment) {
            return false;
        }
        let who = Who {
            store: STORE,
            nonce: Nonce::new([version.get() as u8; 16]),
            generation: draw::generation(input, &self.state),
            seen: self.seen,
        };
        let (record, payload) = self.draw(input);
        let (bytes, checksum, record) = if input.rarely(31) {
            let (bytes, checksum) = craft::unknown(who, 1000, false);
            (bytes, checksum, None)
        } else {
            let Ok((bytes, checksum)) = craft::commit(who, &record, &payload) else { return true };
            (bytes, checksum, Some(record))
        };
        let kind = record.as_ref().map_or(1000, |record| record.kind().number());
        let commit =
            Commit { nonce: who.nonce, checksum, kind, generation: who.generation, attempt_us: 1, record };
        let name = format!("{}/{}/{}", names::LOG, names::segment(segment), names::version(version));
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
            long @ 0..=3 => (1 << 20) + usize::from(long) - 1,
            // Frames of these are small: what they unpack to isn't.
            4..=7 => 4 << 20,
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
