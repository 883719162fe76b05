//! The log that all producers replay, as far as contention goes: the engine's own state and census.
//!
//! - A commit is applied by the engine's `State::apply`, so who is live is what the engine would say.

use std::time::Duration;

use batchweave::commit::census::{Census, Live};
use batchweave::format::record::{Parts, Record};
use batchweave::log::apply::Commit;
use batchweave::log::state::State;
use batchweave::{Checksum, Generation, Name, Nonce, Version};

pub struct Log {
    state: State,
    census: Census,
    names: Vec<Name>,
}

impl Log {
    /// With so many commits in it already.
    pub fn new(length: u64) -> Self {
        let mut state = State::new(1);
        state.next_version = Version::new(length);
        Self { state, census: Census::new(), names: Vec::new() }
    }

    /// The version that is free.
    pub fn head(&self) -> u64 {
        self.state.next_version.get()
    }

    pub fn open(&mut self, producer: usize, cost: Duration) {
        for number in self.names.len()..=producer {
            self.names.push(Name::new(&format!("tok-{number:05}")).expect("a valid name"));
        }
        self.append(Record::Open { producer: self.names[producer].clone(), last: None }, cost);
    }

    pub fn publish(&mut self, producer: usize, cost: Duration) {
        let producer = self.names[producer].clone();
        let known = &self.state.producers[&producer];
        let (incarnation, first) = (known.incarnation.expect("it is open"), known.next);
        // Whose they are is what counts here, so they have no bytes.
        self.append(Record::Parts(Parts { producer, incarnation, first, parts: Vec::new() }), cost);
    }

    fn append(&mut self, record: Record, cost: Duration) {
        let commit = Commit {
            nonce: Nonce::new(u128::from(self.head()).to_le_bytes()),
            checksum: Checksum::new(self.head()),
            kind: record.kind().number(),
            generation: Generation::new(0),
            attempt_us: u32::try_from(cost.as_micros()).unwrap_or(u32::MAX),
            record: Some(record),
        };
        let void = self.state.apply(self.state.next_version, &commit).expect("a known record");
        assert_eq!(void, None, "only what has an effect is linked");
    }

    /// Who is live, as a producer sees it that has replayed all.
    pub fn live(&mut self, producer: usize) -> Live {
        match self.names.get(producer) {
            Some(own) => self.census.live(&self.state, own),
            None => {
                let own = Name::new("not-open-yet").expect("a valid name");
                self.census.live(&self.state, &own)
            }
        }
    }
}
