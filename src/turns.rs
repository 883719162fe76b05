//! The facade's words on turns: who publishes in which order.

use serde::Serialize;

use crate::error::Result;
use crate::id::Version;
use crate::lifecycle::turns::{self, Wanted};
use crate::log::state::State;
use crate::name::Name;
use crate::store::Store;

/// Producers that take turns; see [`Store::set_turns`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TurnsInfo {
    /// Its members, in turn.
    pub members: Vec<Name>,
    /// How many parts each publishes in its turn.
    pub parts_per_turn: u32,
    /// Whose turn it is; none while all have finished: then anybody may publish.
    pub turn: Option<Name>,
    /// How many parts are left of that turn.
    pub parts_left: u32,
    /// The commit that moved the ring last: a part in turn, or what set the ring, or set it back.
    pub moved_at: Version,
    /// That member's newest commit; none if it was never opened.
    pub last_seen: Option<Version>,
    /// Whether anybody has that member open.
    pub opened: bool,
}

impl TurnsInfo {
    fn of(state: &State) -> Option<Self> {
        let ring = state.ring.as_ref().filter(|ring| !ring.names.is_empty())?;
        let turn = state.turn();
        let known = turn.and_then(|(_, name, _)| state.producers.get(name));
        Some(Self {
            members: ring.names.clone(),
            parts_per_turn: ring.parts_per_turn,
            turn: turn.map(|(_, name, _)| name.clone()),
            parts_left: turn.map_or(0, |(_, _, left)| left),
            moved_at: ring.moved,
            last_seen: known.map(|known| known.last_version),
            opened: known.is_some_and(|known| known.incarnation.is_some()),
        })
    }
}

impl Store {
    /// Lets producers take turns, from now on: each publishes `parts_per_turn` parts, then the next one does,
    /// round and round. So many producers give *one* order, the same in every run, however fast each is and
    /// whatever goes wrong on the way: which step has which bytes depends on the ring, on what each producer
    /// publishes, and on when it finishes, counted in parts. False if it was so already, so every producer of
    /// a job may say it at its start.
    ///
    /// - Who isn't next waits in [`Producer::publish`](crate::Producer::publish), with the part written and
    ///   ready; one that isn't in the ring is told `Invalid`.
    /// - A member that has finished is passed over, until it is opened again; one that hasn't been opened yet
    ///   is waited for. So one that stalls stalls all, and they say for whom they wait: retire it
    ///   ([`Store::retire`]), or set another ring, which begins with its first member.
    /// - A rewind sets the turn back with the parts. The ring stays as it is: where the step is from before
    ///   it was set, it begins with its first member.
    ///
    /// With as many members as a step has parts, and one part per turn, every step has one part of each.
    ///
    /// # Errors
    /// `Invalid` for a bad name, none at all, more than 65,536, one that is there twice, or turns without
    /// parts; `Contended` when another ring was set meanwhile; `Rewound` when history was changed meanwhile;
    /// `Full`, `Io`.
    ///
    /// ```
    /// use batchweave::{Counts, Options, Step, Store};
    /// # fn main() -> batchweave::Result<()> {
    /// # let directory = tempfile::tempdir()?;
    /// # let root = directory.path().join("train");
    /// // Every step is mixed from both sources: the first half of its slices is code, the second is text.
    /// let store = Store::open_or_create(&root, Options::new().parts_per_step(2))?;
    /// store.set_turns(["code", "text"], 1)?;
    /// let source = |name: &'static str| {
    ///     let store = store.clone();
    ///     move || -> batchweave::Result<()> {
    ///         let mut producer = store.producer(name)?;
    ///         for part in 0..20 {
    ///             let mut draft = producer.draft()?;
    ///             draft.add_slice(format!("{name} {part}").as_bytes(), Counts::default())?;
    ///             producer.publish(draft, [part])?.wait()?;
    ///         }
    ///         producer.finish()
    ///     }
    /// };
    /// let threads = ["text", "code"].map(|name| std::thread::spawn(source(name)));
    /// threads.into_iter().try_for_each(|thread| thread.join().unwrap())?;
    ///
    /// for step in 0..20 {
    ///     let batch = store.batch(Step::new(step))?;
    ///     assert_eq!(*batch.slice(0)?, *format!("code {step}").as_bytes());
    ///     assert_eq!(*batch.slice(1)?, *format!("text {step}").as_bytes());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_turns(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        parts_per_turn: u32,
    ) -> Result<bool> {
        self.log().once(|| turns::set(self.log(), &Wanted::ring(self.log(), names, parts_per_turn)?))
    }

    /// Whether [`Store::set_turns`] would change anything now. Nothing is changed.
    ///
    /// # Errors
    /// `Invalid` as there; `Corrupt`, `Unsupported`, `Io`.
    pub fn preview_turns(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        parts_per_turn: u32,
    ) -> Result<bool> {
        turns::preview(self.log(), &Wanted::ring(self.log(), names, parts_per_turn)?)
    }

    /// Ends the ring: from now on every producer publishes when it likes. False if there was none.
    ///
    /// # Errors
    /// `Contended` when another ring was set meanwhile; `Rewound` when history was changed meanwhile; `Full`,
    /// `Io`.
    ///
    /// ```
    /// # use batchweave::{Options, Store};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open_or_create(directory.path().join("train"), Options::new())?;
    /// store.set_turns(["tok-0", "tok-1"], 8)?;
    /// assert_eq!(store.turns()?.unwrap().turn.unwrap().as_str(), "tok-0");
    /// assert!(store.end_turns()?);
    /// assert_eq!(store.turns()?, None);
    /// # Ok::<(), batchweave::Error>(())
    /// ```
    pub fn end_turns(&self) -> Result<bool> {
        self.log().once(|| turns::set(self.log(), &Wanted::end()))
    }

    /// Who takes turns, and whose turn it is, as of now; none without a ring.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Io`.
    pub fn turns(&self) -> Result<Option<TurnsInfo>> {
        Ok(TurnsInfo::of(&self.log().current()?.state))
    }
}
