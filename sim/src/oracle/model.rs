//! The plain model of a store: lists of parts, groups and changes of history, and nothing else.
//!
//! - It decides by itself what each record does and whether it has any effect, from the promises alone: what
//!   the engine's replay says is held against it, commit by commit.
//! - It keeps everything that ever was, so it can say what held at any version, and in any generation.
//! - It knows neither Close nor Turns: no run of the lifecycle closes its stream.

use std::collections::{BTreeMap, BTreeSet};

use batchweave::Checksum;
use batchweave::format::part::Item;
use batchweave::format::record::{Checkpoint, Parts, Record, Rewind};
use batchweave::log::apply::Commit;

/// A part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who wrote it.
    pub producer: String,
    /// Its place among that one's parts.
    pub sequence: u64,
    /// The commit that holds it.
    pub version: u64,
    /// The state committed with it.
    pub state: Item,
    checksum: Checksum,
    record: Checksum,
}

/// A producer's name.
#[derive(Clone, Debug, Default)]
struct Writer {
    newest: u64,
    current: Option<u64>,
    /// Since when it is finished, or isn't any more: by version.
    finished: Vec<(u64, bool)>,
}

/// A checkpoint that is retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its commit.
    pub version: u64,
    /// Its name.
    pub name: String,
    /// The next step.
    pub step: u64,
}

/// A group's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The version of its newest Group record, which is its incarnation.
    pub newest: u64,
    /// Whether that incarnation lives.
    pub live: bool,
    /// Where it started.
    pub start: u64,
    /// What it protects beside its checkpoints.
    pub holds: Option<u64>,
    /// Its checkpoints.
    pub kept: Vec<Kept>,
}

impl Reading {
    /// The first step that it needs; none if it doesn't live.
    pub fn needs(&self) -> Option<u64> {
        let steps = self.kept.iter().map(|kept| kept.step);
        if self.live { steps.chain(self.holds).min() } else { None }
    }
}

/// What an Open found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The name.
    pub name: String,
    /// The sequence at which it goes on.
    pub next: u64,
    /// The state of its last part.
    pub state: Option<Item>,
}

/// What a run that began at some version has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The group.
    pub group: String,
    /// Where it starts.
    pub start: u64,
    /// The generation.
    pub generation: u64,
    /// The floor.
    pub floor: u64,
    /// The next step.
    pub head: u64,
    /// Steps that are passed over.
    pub skipped: BTreeSet<u64>,
}

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
            _ => true,
        })
    }

    /// A producer's parts that are still there.
    fn of<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m Held> {
        self.parts.iter().filter(move |held| held.producer == name)
    }

    /// The last of them.
    pub fn last_of<'m>(&'m self, name: &'m str) -> Option<&'m Held> {
        self.of(name).last()
    }

    fn open(&mut self, version: u64, name: &str, last: Option<u64>) -> bool {
        if self.writers.get(name).map(|known| known.newest) != last {
            return false;
        }
        let (next, state) = (self.of(name).count() as u64, self.of(name).last().map(|held| held.state));
        self.opens.insert(version, Opened { name: name.to_owned(), next, state });
        let writer = self.writers.entry(name.to_owned()).or_default();
        writer.newest = version;
        writer.current = Some(version);
        writer.finished.push((version, false));
        true
    }

    fn publish(&mut self, version: u64, commit: &Commit, parts: &Parts) -> bool {
        let name = parts.producer.as_str();
        let next = self.of(name).count() as u64;
        if self.current_writer(name) != Some(parts.incarnation.get()) || parts.first.get() != next {
            return false;
        }
        let held = parts.parts.iter().zip(next..).map(|(part, sequence)| Held {
            producer: name.to_owned(),
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
            let expected = (self.of(name).count() as u64, last.map(|held| held.checksum));
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
