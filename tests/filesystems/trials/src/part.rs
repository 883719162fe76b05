//! What a part holds: bytes that are a function of producer, sequence and process, so that whoever reads them
//! can tell a lost, doubled, torn or misplaced one, and a zombie's from its successor's.

use std::fmt;

use batchweave::{Batch, Counts, Draft, Options, Producer, Published};

use crate::random::Random;
use crate::{Failure, Result};

/// Slices of a part.
const SLICES: u64 = 2;

/// Small segments, so that boundaries and reclaims come often; synced, as a store is that has to last.
pub(crate) fn options() -> Options {
    Options::new().segment_size(16).divisor(SLICES as u32)
}

/// Who published a part, as its how manieth, and from which process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub(crate) producer: String,
    pub(crate) sequence: u64,
    pub(crate) process: u32,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} by {}", self.producer, self.sequence, self.process)
    }
}

impl Id {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (part, process) = text.split_once(" by ")?;
        let (producer, sequence) = part.split_once('/')?;
        Some(Self {
            producer: producer.to_owned(),
            sequence: sequence.parse().ok()?,
            process: process.parse().ok()?,
        })
    }

    /// Whether it is this part, whoever published it.
    pub(crate) fn is(&self, producer: &str, sequence: u64) -> bool {
        self.producer == producer && self.sequence == sequence
    }

    /// A slice: the id, a newline, and up to 12 KiB that follow from it.
    fn bytes(&self, slice: u64) -> Vec<u8> {
        let seed = self
            .to_string()
            .bytes()
            .fold(0, |seed: u64, byte| seed.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(byte)));
        let mut random = Random::new(seed.wrapping_mul(SLICES).wrapping_add(slice));
        let mut bytes = format!("{self}\n").into_bytes();
        let length = random.below(12 << 10);
        bytes.extend((0..length).map(|_| random.below(256) as u8));
        bytes
    }
}

/// What a producer commits with a part.
pub(crate) fn state(producer: &str, sequence: u64) -> String {
    format!("{producer} is after {sequence}")
}

/// The id of a batch of one part, every byte of which is as it was published.
pub(crate) fn check(batch: &Batch) -> Result<Id> {
    let mut found = None;
    let mut count = 0;
    for (number, slice) in (0..).zip(batch.slices()) {
        let slice = slice?;
        found = Some(check_slice(&slice, number).map_err(|what| format!("step {}: {what}", batch.step()))?);
        count += 1;
    }
    match found {
        Some(id) if count == SLICES => Ok(id),
        _ => Err(format!("step {} has {count} slices, not {SLICES}", batch.step()).into()),
    }
}

/// The id of a slice, every byte of which is as it was published.
pub(crate) fn check_slice(slice: &[u8], number: u64) -> Result<Id> {
    let head = slice.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let id = std::str::from_utf8(head).ok().and_then(Id::parse).ok_or("WRONG BYTES: a slice of nobody's")?;
    if slice != id.bytes(number) {
        return Err(format!("WRONG BYTES: slice {number} isn't what {id} was published with").into());
    }
    Ok(id)
}

/// A draft of the producer's next part.
pub(crate) fn draft(producer: &mut Producer) -> Result<Draft, batchweave::Error> {
    let id = next(producer);
    let mut draft = producer.draft()?;
    for slice in 0..SLICES {
        draft.add_slice(&id.bytes(slice), Counts { samples: 1, tokens: 1 })?;
    }
    Ok(draft)
}

/// Publishes the producer's next part, and returns when that is acknowledged.
pub(crate) fn publish(producer: &mut Producer) -> Result<Published, batchweave::Error> {
    let draft = draft(producer)?;
    let state = state(producer.name().as_str(), producer.next_sequence().get());
    Ok(producer.publish_now(draft, state)?)
}

fn next(producer: &Producer) -> Id {
    Id {
        producer: producer.name().to_string(),
        sequence: producer.next_sequence().get(),
        process: std::process::id(),
    }
}

/// A producer that was just opened has the state of its last visible part (P3).
pub(crate) fn check_state(producer: &Producer) -> Result<(), Failure> {
    let name = producer.name().as_str();
    let last = producer.next_sequence().get().checked_sub(1);
    let expected = last.map(|last| state(name, last)).unwrap_or_default();
    if producer.state() != expected.as_bytes() {
        let found = String::from_utf8_lossy(&producer.state()).into_owned();
        return Err(format!("{name} was given the state {found:?} instead of {expected:?}").into());
    }
    Ok(())
}
