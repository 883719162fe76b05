//! The ring of producers that take turns: whose turn it is, by replay alone.
//!
//! - It counts valid parts and nothing else: not versions, nor commits, nor void ones. So the order of
//!   producers doesn't depend on who else commits meanwhile, nor on how parts share commits.
//! - The turn passes on when it is needed: whose it is follows from whose it was, what is left of it and who
//!   has finished. So a Retire, and an Open after it, needs no word here.
//! - A member that was never opened, or that a rewind has set back, is waited for; who has finished isn't.
//!   Where all have, there is no ring for as long as that is so.
//! - A rewind sets the turn back, never the ring: that is an operator's word on what comes from now on.

use super::state::State;
use super::void::Void;
use crate::id::Version;
use crate::name::Name;

/// What replay knows of turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The newest valid Turns.
    pub last: Version,
    /// The members, in turn; none once an empty list has ended it.
    pub names: Vec<Name>,
    /// How many parts each publishes in its turn.
    pub parts_per_turn: u32,
    /// Whose turn it was last, by its place in the ring.
    pub member: u32,
    /// What was left of it then.
    pub left: u32,
    /// The newest commit that moved it: a part in turn, the Turns that set it, a Rewind.
    pub moved: Version,
}

/// What a name may publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<'s> {
    /// There is no ring, or all its members have finished: anybody may publish.
    Free,
    /// It is its turn.
    Now {
        /// How many parts are left of it.
        parts_left: u32,
    },
    /// It is another's.
    Wait {
        /// Whose.
        whom: &'s Name,
        /// That one's newest valid commit; none if it was never opened.
        last_seen: Option<Version>,
        /// Whether it has a current incarnation.
        opened: bool,
    },
    /// It isn't in the ring.
    Outside,
}

impl State {
    /// What a name may publish now.
    pub fn turn_of(&self, name: &Name) -> Turn<'_> {
        let Some((_, whom, parts_left)) = self.turn() else { return Turn::Free };
        if whom == name {
            return Turn::Now { parts_left };
        }
        if !self.is_in_ring(name) {
            return Turn::Outside;
        }
        let known = self.producers.get(whom);
        let opened = known.is_some_and(|known| known.incarnation.is_some());
        Turn::Wait { whom, last_seen: known.map(|known| known.last_version), opened }
    }

    /// Whether the ring has a member of that name.
    pub fn is_in_ring(&self, name: &Name) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.names.contains(name))
    }

    /// Whose turn it is, with the place in the ring and the parts left of the turn; none without a ring.
    pub fn turn(&self) -> Option<(usize, &Name, u32)> {
        let ring = self.ring.as_ref()?;
        let at = ring.member as usize;
        let lives = |place: usize| {
            let name = ring.names.get(place)?;
            let finished = self.producers.get(name).is_some_and(|known| known.finished);
            (!finished).then_some((place, name))
        };
        if ring.left > 0
            && let Some((place, name)) = lives(at)
        {
            return Some((place, name, ring.left));
        }
        let count = ring.names.len();
        let next = (1..=count).find_map(|ahead| lives(at.saturating_add(ahead) % count));
        next.map(|(place, name)| (place, name, ring.parts_per_turn))
    }

    /// The ring's turn for a rewind of this state to `then`: as it was, or the beginning of a ring that was
    /// set since. None without a ring.
    pub fn turn_as_of(&self, then: &Self) -> Option<(u32, u32)> {
        let now = self.ring.as_ref().filter(|ring| !ring.names.is_empty())?;
        let same = then.ring.as_ref().filter(|ring| ring.last == now.last);
        Some(same.map_or((0, now.parts_per_turn), |ring| (ring.member, ring.left)))
    }

    pub(super) fn judge_turns(&self, last: Option<Version>) -> Option<Void> {
        (self.ring.as_ref().map(|ring| ring.last) != last).then_some(Void::Overtaken)
    }

    /// Of parts by whoever may publish otherwise.
    pub(super) fn judge_turn(&self, name: &Name, parts: usize) -> Option<Void> {
        match self.turn_of(name) {
            Turn::Free => None,
            Turn::Now { parts_left } => (parts > parts_left as usize).then_some(Void::BeyondTurn),
            Turn::Wait { .. } => Some(Void::BeyondTurn),
            Turn::Outside => Some(Void::OutsideRing),
        }
    }

    /// A rewind speaks of the ring that there is.
    pub(super) fn judge_turn_of_rewind(&self, turn: Option<(u32, u32)>) -> Option<Void> {
        let ring = self.ring.as_ref().filter(|ring| !ring.names.is_empty());
        let fits = match (ring, turn) {
            (None, None) => true,
            (Some(ring), Some((member, left))) => {
                (member as usize) < ring.names.len() && left <= ring.parts_per_turn
            }
            _ => false,
        };
        (!fits).then_some(Void::OtherRing)
    }

    pub(super) fn set_turns(&mut self, version: Version, names: &[Name], parts_per_turn: u32) {
        // Of a ring that has ended nothing is told but that it has.
        let parts_per_turn = if names.is_empty() { 0 } else { parts_per_turn };
        self.ring = Some(Ring {
            last: version,
            names: names.to_vec(),
            parts_per_turn,
            member: 0,
            left: parts_per_turn,
            moved: version,
        });
    }

    /// Parts came in, by whoever has the turn.
    pub(super) fn take_turn(&mut self, version: Version, parts: usize) {
        let Some((place, _, left)) = self.turn() else { return };
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        let member = u32::try_from(place).unwrap_or(u32::MAX);
        if let Some(ring) = &mut self.ring {
            (ring.member, ring.left, ring.moved) = (member, left.saturating_sub(parts), version);
        }
    }

    pub(super) fn set_turn_back(&mut self, version: Version, turn: Option<(u32, u32)>) {
        if let (Some(ring), Some((member, left))) = (&mut self.ring, turn) {
            (ring.member, ring.left, ring.moved) = (member, left, version);
        }
    }
}
