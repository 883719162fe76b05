//! The plain model of a store: lists of parts, groups and changes of history, and nothing else.
//!
//! - It decides by itself what each record does and whether it has any effect, from the promises alone: what
//!   the engine's replay says is held against it, commit by commit.
//! - It keeps everything that ever was, so it can say what held at any version, and in any generation.
//! - It knows no Turns: no run of the lifecycle has a ring.

use std::collections::{BTreeMap, BTreeSet};

use batchweave::Checksum;
use batchweave::format::record::{Checkpoint, Parts, Record, Rewind};
use batchweave::log::apply::Commit;

use super::known::{Held, Kept, Opened, Reading, Seen, Writer};
use super::stream::Stream;

/// A generation that is over.
#[derive(Clone, Debug)]
struct Era {
    generation: u64,
    parts: Vec<Held>,
    skipped: BTreeSet<u64>,
}

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Parts of a step.
    pub parts_per_step: u64,
    /// The generation.
    pub generation: u64,
    /// The version that began it.
    pub began: BTreeMap<u64, u64>,
    /// All parts, in order; those below the floor too.
    pub parts: Vec<Held>,
    /// The first retained step.
    pub floor: u64,
    /// Steps that are passed over.
    pub skipped: BTreeSet<u64>,
    /// The groups, by name.
    pub groups: BTreeMap<String, Reading>,
    /// What each Open found, by its version.
    pub opens: BTreeMap<u64, Opened>,
    /// What each Group record has seen, by its version.
    pub runs: BTreeMap<u64, Seen>,
    /// All checkpoints that ever took effect, by version: group, name, step.
    pub checkpoints: BTreeMap<u64, (String, String, u64)>,
    /// Rewinds: version, the generation begun, the step, the parts dropped.
    pub rewinds: Vec<(u64, u64, u64, u64)>,
    /// Skips: version, first, last.
    pub skips: Vec<(u64, u64, u64)>,
    /// Producers that retired, with the incarnation; groups that did.
    pub retired: BTreeSet<(String, u64)>,
    /// Groups that retired, with the incarnation.
    pub groups_retired: BTreeSet<(String, u64)>,
    /// Names that were forgotten: version, name.
    pub forgotten: Vec<(u64, String)>,
    /// When the stream was closed.
    pub stream: Stream,
    writers: BTreeMap<String, Writer>,
    eras: Vec<Era>,
}

impl Model {
    /// Of an empty log.
    pub fn new(parts_per_step: u32) -> Self {
        Self { parts_per_step: parts_per_step.into(), began: BTreeMap::from([(0, 0)]), ..Self::default() }
    }

    /// The next step.
    pub fn head(&self) -> u64 {
        self.parts.len() as u64 / self.parts_per_step
    }

    /// The parts of a step as it was, or is, in a generation.
    pub fn step(&self, generation: u64, step: u64) -> Option<&[Held]> {
        let parts = if generation == self.generation {
            &self.parts
        } else {
            &self.eras.iter().find(|era| era.generation == generation)?.parts
        };
        let first = usize::try_from(step * self.parts_per_step).ok()?;
        parts.get(first..first + self.parts_per_step as usize)
    }

    /// What a run of a generation passes over. That of a generation to come: nothing.
    pub fn skipped_in(&self, generation: u64) -> &BTreeSet<u64> {
        let era = self.eras.iter().find(|era| era.generation == generation);
        era.map_or(&self.skipped, |era| &era.skipped)
    }

    /// Whether a run of the generation that is now has something to deliver from a step on.
    pub fn has_next(&self, step: u64) -> bool {
        (step..self.head()).any(|step| !self.skipped.contains(&step))
    }

    /// Every part that ever was visible.
    pub fn all_parts(&self) -> impl Iterator<Item = &Held> {
        self.eras.iter().flat_map(|era| &era.parts).chain(&self.parts)
    }

    /// The part at a place, by the commit that brought it: also if it was dropped since.
    pub fn part(&self, place: u64, version: u64) -> Option<&Held> {
        let eras = self.eras.iter().map(|era| &era.parts).chain([&self.parts]);
        let at = |parts: &'_ [Held]| parts.get(place as usize).is_some_and(|held| held.version == version);
        eras.filter(|parts| at(parts)).find_map(|parts| parts.get(place as usize))
    }

    /// The step after which history was changed first since a generation; none if it wasn't.
    fn limit(&self, generation: u64, until: u64) -> Option<u64> {
        let since =
            self.rewinds.iter().filter(|(version, begun, ..)| *version <= until && *begun > generation);
        since.map(|(_, _, step, _)| *step).min()
    }

    /// Why a position isn't good for a run that begins at a version; none if it is.
    pub fn refuses(&self, generation: u64, step: u64, seen: &Seen, at: u64) -> Option<String> {
        if generation > seen.generation {
            return Some(format!("it is of generation {generation}, the store is of {}", seen.generation));
        }
        if let Some(limit) = self.limit(generation, at).filter(|limit| step > *limit) {
            return Some(format!("the store was rewound to {limit} since"));
        }
        if step < seen.floor {
            return Some(format!("the floor is {}", seen.floor));
        }
        (step > seen.head).then(|| format!("the head is {}", seen.head))
    }

    /// What a run that begins now would see.
    pub fn now(&self) -> Seen {
        Seen {
            group: String::new(),
            start: self.floor,
            generation: self.generation,
            floor: self.floor,
            head: self.head(),
            skipped: self.skipped.clone(),
        }
    }

    /// Whether all of a group's name that lives is this incarnation.
    pub fn is_current(&self, group: &str, incarnation: u64) -> bool {
        self.groups.get(group).is_some_and(|known| known.live && known.newest == incarnation)
    }

    /// The incarnation of a producer that may publish.
    pub fn current_writer(&self, name: &str) -> Option<u64> {
        self.writers.get(name)?.current
    }

    /// Does what a commit says, if it has any effect; whether it has. Kinds beyond the model do nothing.
    ///
    /// # Errors
    /// It has an effect that no commit may have.
    pub fn apply(&mut self, version: u64, commit: &Commit) -> Result<bool, String> {
        let Some(record) = &commit.record else { return Ok(true) };
        let same_history = commit.generation.get() == self.generation;
        Ok(match record {
            Record::Open { producer, last } => {
                self.open(version, producer.as_str(), last.map(|last| last.get()))
            }
            Record::Parts(parts) => self.publish(version, commit, parts),
            Record::Retire { producer, incarnation } => {
                self.retire(version, producer.as_str(), incarnation.get())
            }
            Record::Group { group, last, start } => {
                self.begin(version, group.as_str(), last.map(|last| last.get()), start.get())
            }
            Record::RetireGroup { group, incarnation } => {
                self.retire_group(group.as_str(), incarnation.get())
            }
            Record::Checkpoint(checkpoint) => same_history && self.keep(version, checkpoint),
            Record::Drop { group, incarnation, checkpoint } => {
                self.release(group.as_str(), incarnation.get(), checkpoint.get())
            }
            Record::Floor { step, .. } => same_history && self.raise(step.get()),
            Record::Rewind(rewind) => {
                if !same_history || !self.may_rewind(rewind) {
                    return Ok(false);
                }
                self.rewind(version, rewind)?;
                true
            }
            Record::Skip { first, last, .. } => same_history && self.skip(version, first.get(), last.get()),
            Record::Close { step, closes, open_step } => {
                same_history && self.close(version, step.get(), *closes, *open_step)
            }
            Record::Reopen { closes } => same_history && self.reopen(version, *closes),
            Record::Forget { producer, incarnation } => {
                self.forget(version, producer.as_str(), incarnation.get())
            }
            _ => true,
        })
    }

    /// A producer's parts that are still there. Those of who had the name before it was forgotten are
    /// another's.
    fn of<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m Held> {
        let life = self.writers.get(name).map(|known| known.life);
        self.parts.iter().filter(move |held| held.producer == name && Some(held.life) == life)
    }

    /// How many parts a producer has.
    pub fn count_of(&self, name: &str) -> u64 {
        self.of(name).count() as u64
    }

    /// The producers that there are, by name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.writers.keys().map(String::as_str)
    }

    /// Whether a name can be forgotten now: nothing of it is retained, and nobody writes by it any more.
    pub fn may_forget(&self, name: &str) -> bool {
        let last = self.last_place_of(name).map(|place| place / self.parts_per_step);
        let is_below = last.is_none_or(|step| step < self.floor);
        is_below && self.writers.get(name).is_some_and(Writer::is_finished)
    }

    fn last_place_of(&self, name: &str) -> Option<u64> {
        let life = self.writers.get(name)?.life;
        let is_its = |held: &Held| held.producer == name && held.life == life;
        self.parts.iter().rposition(is_its).map(|place| place as u64)
    }

    /// The last of them.
    pub fn last_of<'m>(&'m self, name: &'m str) -> Option<&'m Held> {
        self.of(name).last()
    }

    fn open(&mut self, version: u64, name: &str, last: Option<u64>) -> bool {
        let known = self.writers.get(name).map(|known| known.newest);
        if known != last || self.stream.closed().is_some() {
            return false;
        }
        let (next, state) = (self.count_of(name), self.of(name).last().map(|held| held.state));
        self.opens.insert(version, Opened { name: name.to_owned(), next, state });
        let new = Writer { life: version, ..Writer::default() };
        let writer = self.writers.entry(name.to_owned()).or_insert(new);
        writer.newest = version;
        writer.current = Some(version);
        writer.finished.push((version, false));
        true
    }

    fn publish(&mut self, version: u64, commit: &Commit, parts: &Parts) -> bool {
        let name = parts.producer.as_str();
        let next = self.count_of(name);
        let Some(writer) = self.writers.get(name).filter(|_| self.stream.closed().is_none()) else {
            return false;
        };
        if writer.current != Some(parts.incarnation.get()) || parts.first.get() != next {
            return false;
        }
        let life = writer.life;
        let held = parts.parts.iter().zip(next..).map(|(part, sequence)| Held {
            producer: name.to_owned(),
            life,
            sequence,
            version,
            state: part.state,
            checksum: part.checksum(),
            record: commit.checksum,
        });
        self.parts.extend(held.collect::<Vec<_>>());
        true
    }

    fn retire(&mut self, version: u64, name: &str, incarnation: u64) -> bool {
        let Some(writer) = self.writers.get_mut(name).filter(|one| one.current == Some(incarnation)) else {
            return false;
        };
        writer.current = None;
        writer.finished.push((version, true));
        self.retired.insert((name.to_owned(), incarnation));
        true
    }

    fn forget(&mut self, version: u64, name: &str, incarnation: u64) -> bool {
        let is_it = self.writers.get(name).is_some_and(|known| known.newest == incarnation);
        if !is_it || !self.may_forget(name) {
            return false;
        }
        self.writers.remove(name);
        self.forgotten.push((version, name.to_owned()));
        true
    }

    fn begin(&mut self, version: u64, name: &str, last: Option<u64>, start: u64) -> bool {
        if self.groups.get(name).map(|known| known.newest) != last || start < self.floor {
            return false;
        }
        let seen = Seen { group: name.to_owned(), start, ..self.now() };
        self.runs.insert(version, seen);
        let group = self.groups.entry(name.to_owned()).or_default();
        let kept = std::mem::take(&mut group.kept);
        *group = Reading { newest: version, live: true, start, holds: Some(start), kept };
        true
    }

    fn retire_group(&mut self, name: &str, incarnation: u64) -> bool {
        if !self.is_current(name, incarnation) {
            return false;
        }
        let group = self.groups.entry(name.to_owned()).or_default();
        (group.live, group.holds) = (false, None);
        group.kept.clear();
        self.groups_retired.insert((name.to_owned(), incarnation));
        true
    }

    fn keep(&mut self, version: u64, checkpoint: &Checkpoint) -> bool {
        let (group, name, step) = (checkpoint.group.as_str(), &checkpoint.name, checkpoint.step.get());
        // P4: nothing that a fenced trainer says takes effect.
        let fenced = !self.is_current(group, checkpoint.incarnation.get());
        if fenced || step < self.floor || step > self.head() {
            return false;
        }
        let Some(group) = self.groups.get_mut(group) else { return false };
        if group.kept.iter().any(|kept| kept.name == name.as_str()) {
            return false;
        }
        group.holds = None;
        group.kept.push(Kept { version, name: name.to_string(), step });
        let what = (checkpoint.group.to_string(), name.to_string(), step);
        self.checkpoints.insert(version, what);
        true
    }

    fn release(&mut self, name: &str, incarnation: u64, checkpoint: u64) -> bool {
        let (floor, current) = (self.floor, self.is_current(name, incarnation));
        let Some(group) = self.groups.get_mut(name).filter(|_| current) else { return false };
        let before = group.kept.len();
        group.kept.retain(|kept| kept.version != checkpoint);
        if group.kept.len() == before {
            return false;
        }
        if group.kept.is_empty() {
            group.holds.get_or_insert(floor);
        }
        true
    }

    fn raise(&mut self, step: u64) -> bool {
        // P5: what a live group needs is never freed.
        let needed = self.groups.values().filter_map(Reading::needs).min();
        if step < self.floor || step > self.head() || needed.is_some_and(|needed| step > needed) {
            return false;
        }
        self.floor = step;
        true
    }

    fn may_rewind(&self, rewind: &Rewind) -> bool {
        let live = self.groups.values().filter(|group| group.live).count();
        let named = rewind.producers.iter().map(|one| one.producer.as_str());
        (self.floor..=self.head()).contains(&rewind.step.get())
            && rewind.generation.get() > self.generation
            && (live < 2 || rewind.many_groups)
            && named.eq(self.writers.keys().map(String::as_str))
    }

    fn rewind(&mut self, version: u64, rewind: &Rewind) -> Result<(), String> {
        let step = rewind.step.get();
        let left = (step * self.parts_per_step) as usize;
        let dropped = self.parts.get(left).map(|held| held.version);
        let parts = self.parts.len().saturating_sub(left) as u64;
        self.end_era();
        self.parts.truncate(left);
        for one in &rewind.producers {
            let name = one.producer.as_str();
            let last = self.of(name).last();
            let expected = (self.count_of(name), last.map(|held| held.checksum));
            let says = (one.next.get(), one.last_part.map(|_| one.last));
            let state = last.map_or((0, None), |held| (held.state.length, Some(held.state.checksum)));
            let said = (one.state.length, last.map(|_| one.state.checksum));
            if expected != says || state != said {
                return Err(format!(
                    "P3: the rewind to step {step}, version {version}, sets {name} back to {says:?} with the \
                     state {said:?}, which was {expected:?} with {state:?}"
                ));
            }
            let writer = self.writers.entry(name.to_owned()).or_default();
            // What came before the first part that is dropped stands.
            let stood = writer.finished.iter().rfind(|(at, _)| dropped.is_none_or(|dropped| *at < dropped));
            let finished = stood.is_some_and(|(_, finished)| *finished);
            if finished != one.finished {
                return Err(format!(
                    "P3: the rewind, version {version}, says finished: {} of {name}",
                    one.finished
                ));
            }
            writer.current = None;
            writer.finished.push((version, finished));
        }
        let lineage = self.parts.last().map_or(Checksum::ZERO, |held| held.record);
        if left > 0 && lineage != rewind.lineage {
            return Err(format!("P2: the rewind, version {version}, has lineage {}", rewind.lineage));
        }
        let floor = self.floor;
        for group in self.groups.values_mut() {
            group.holds = group.holds.map(|held| held.min(step));
            let had = !group.kept.is_empty();
            group.kept.retain(|kept| kept.step <= step);
            if had && group.kept.is_empty() {
                group.holds.get_or_insert(group.start.min(step).max(floor));
            }
        }
        self.skipped.retain(|skipped| *skipped < step);
        if self.stream.closed().is_some() {
            self.stream.reopens.push(version);
        }
        self.generation = rewind.generation.get();
        self.began.insert(self.generation, version);
        self.rewinds.push((version, self.generation, step, parts));
        Ok(())
    }

    fn end_era(&mut self) {
        self.eras.push(Era {
            generation: self.generation,
            parts: self.parts.clone(),
            skipped: self.skipped.clone(),
        });
    }

    fn skip(&mut self, version: u64, first: u64, last: u64) -> bool {
        let all = (first..=last).all(|step| self.skipped.contains(&step));
        if first < self.floor || first > last || last >= self.head() || all {
            return false;
        }
        self.end_era();
        self.skipped.extend(first..=last);
        self.generation += 1;
        self.began.insert(self.generation, version);
        self.skips.push((version, first, last));
        true
    }
}
