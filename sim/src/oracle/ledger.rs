//! Who was told what.
//!
//! - Where history changes and segments are removed the list is another one, the [`Annals`]: what is told
//!   goes there, and only there.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use batchweave::{Incarnation, Published, Step, Version};
use parking_lot::Mutex;

use super::annals::Annals;
use super::{Replayed, parse, state};

/// The list of what actors were told. Whatever contradicts it is said at once.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Book>, Option<Annals>);

#[derive(Debug, Default)]
struct Book {
    /// What was acknowledged, by producer and sequence.
    acknowledged: BTreeMap<(String, u64), Acknowledged>,
    /// The same by part.
    parts: BTreeMap<u64, String>,
    /// What was acknowledged by a flush, which doesn't say where it is.
    flushed: BTreeMap<(String, u64), String>,
    /// What every step holds, as delivered: the same whoever reads it, and when (P1, P2).
    delivered: BTreeMap<u64, Vec<String>>,
    /// Where the stream ended for a reader.
    ended: Option<u64>,
    /// Whether a close was acknowledged: nobody opens the stream again.
    closed: bool,
    /// How many steps have outlived the last power cut for sure; none if there was none.
    durable: Option<u64>,
    /// Incarnations whose retirement was acknowledged, by name.
    retired: BTreeMap<String, Incarnation>,
    /// Incarnations by name.
    opened: BTreeMap<String, Vec<Incarnation>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Acknowledged {
    text: String,
    published: Published,
    incarnation: Incarnation,
}

/// What of the unsynced there is still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// All of it.
    All,
    /// Any of it, or none: a power cut has been.
    Durable,
}

impl Book {
    /// How many parts are acknowledged, or come before one that is: these are durable.
    fn acknowledged_parts(&self) -> u64 {
        self.parts.last_key_value().map_or(0, |(last, _)| last + 1)
    }
}

impl Ledger {
    /// Of a store whose history changes.
    pub fn of_lifecycle() -> Self {
        Self(Mutex::default(), Some(Annals::default()))
    }

    /// The list of a store whose history changes.
    pub fn annals(&self) -> Option<&Annals> {
        self.1.as_ref()
    }

    /// A part was acknowledged.
    ///
    /// # Errors
    /// It contradicts what was acknowledged before.
    pub fn acknowledge(
        &self,
        text: &str,
        incarnation: Incarnation,
        published: Published,
    ) -> Result<(), String> {
        let (producer, sequence, _) = parse(text)?;
        if published.sequence.get() != sequence {
            return Err(format!("{text} was acknowledged as sequence {}", published.sequence));
        }
        if let Some(annals) = self.annals() {
            return annals.acknowledge(text, incarnation, published);
        }
        let new = Acknowledged { text: text.to_owned(), published, incarnation };
        let mut book = self.0.lock();
        let other = book.parts.insert(published.part.get(), text.to_owned());
        if let Some(other) = other.filter(|other| other != text) {
            return Err(format!("P2: {other} and {text} were both acknowledged as part {}", published.part));
        }
        match book.acknowledged.insert((producer.to_owned(), sequence), new.clone()) {
            Some(old) if old != new => {
                Err(format!("P3: two acknowledged parts are the same one: {old:?} and {new:?}"))
            }
            _ => Ok(()),
        }
    }

    /// A part was acknowledged by a flush.
    ///
    /// # Errors
    /// Another one was acknowledged as this one.
    pub fn flush(&self, text: &str) -> Result<(), String> {
        let (producer, sequence, _) = parse(text)?;
        if let Some(annals) = self.annals() {
            annals.flush(text);
            return Ok(());
        }
        let mut book = self.0.lock();
        match book.flushed.insert((producer.to_owned(), sequence), text.to_owned()) {
            Some(old) if old != text => Err(format!("P3: {old} and {text} were both acknowledged")),
            _ => Ok(()),
        }
    }

    /// A producer's name was opened: it goes on at `next`, with `state`.
    ///
    /// # Errors
    /// It lacks what was acknowledged, or has another state than that of its last part.
    pub fn open(&self, name: &str, incarnation: Incarnation, next: u64, found: &[u8]) -> Result<(), String> {
        if let Some(annals) = self.annals() {
            return annals.open(name, incarnation, next, found);
        }
        let mut book = self.0.lock();
        let incarnations = book.opened.entry(name.to_owned()).or_default();
        if incarnations.contains(&incarnation) {
            return Err(format!("P4: two processes opened {name} as incarnation {incarnation}"));
        }
        incarnations.push(incarnation);
        let found = String::from_utf8_lossy(found);
        if let Some(last) = next.checked_sub(1) {
            // Which of two writers has won the last sequence isn't always known; what they say is.
            let said = found.strip_prefix("after ").unwrap_or(&found);
            let right = parse(said).is_ok_and(|(producer, sequence, _)| (producer, sequence) == (name, last));
            if !right {
                return Err(format!("P3: {name} goes on at {next} with the state {found:?}"));
            }
        } else if !found.is_empty() {
            return Err(format!("P3: {name} begins with the state {found:?}"));
        }
        // What came after this Open, by a newer incarnation, isn't lost.
        let later = book.acknowledged.range((name.to_owned(), next)..(name.to_owned(), u64::MAX));
        let mut before = later.filter(|(_, known)| known.published.version.get() < incarnation.get());
        if let Some((_, lost)) = before.next() {
            return Err(format!("P6: {name} goes on at {next}, but {lost:?} was acknowledged"));
        }
        match next.checked_sub(1).and_then(|last| book.acknowledged.get(&(name.to_owned(), last))) {
            Some(last) if state(&last.text) != found => {
                Err(format!("P3: {name} got the state {found:?}, its last part is {}", last.text))
            }
            _ => Ok(()),
        }
    }

    /// The stream ended for a reader before a step.
    ///
    /// # Errors
    /// For another one it ended elsewhere.
    pub fn end(&self, step: u64) -> Result<(), String> {
        let mut book = self.0.lock();
        let known = *book.ended.get_or_insert(step);
        if let Some((last, _)) = book.delivered.last_key_value().filter(|(last, _)| **last >= step) {
            return Err(format!("P2: the stream ended before step {step}, and step {last} was delivered"));
        }
        if known == step {
            return Ok(());
        }
        Err(format!("P2: the stream ended before step {known} for one reader and before {step} for another"))
    }

    /// A close of the stream was acknowledged.
    pub fn close(&self) {
        self.0.lock().closed = true;
    }

    /// A name was retired, by an incarnation.
    pub fn retire(&self, name: &str, incarnation: Incarnation) {
        if let Some(annals) = self.annals() {
            return annals.retire(name, incarnation);
        }
        self.0.lock().retired.insert(name.to_owned(), incarnation);
    }

    /// How many parts are acknowledged for sure, with all before them.
    pub fn acknowledged_parts(&self) -> u64 {
        self.0.lock().acknowledged_parts()
    }

    /// A step was delivered.
    ///
    /// # Errors
    /// Another reader got something else.
    pub fn deliver(&self, step: u64, texts: Vec<String>) -> Result<(), String> {
        let mut book = self.0.lock();
        if let Some(end) = book.ended.filter(|end| *end <= step) {
            return Err(format!("P2: step {step} was delivered, and the stream ended before step {end}"));
        }
        let known = book.delivered.entry(step).or_insert_with(|| texts.clone());
        if *known == texts {
            return Ok(());
        }
        Err(format!("P2: step {step} held {known:?} for one reader and {texts:?} for another"))
    }

    /// A digest of all that was said.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{:?} {:?}", self.0.lock(), self.1).hash(&mut hasher);
        hasher.finish()
    }

    /// The steps that somebody has got, each with its texts.
    pub fn delivered(&self) -> BTreeMap<u64, Vec<String>> {
        self.0.lock().delivered.clone()
    }

    /// The texts that were acknowledged, each with its part; none where a flush has said it.
    pub fn acknowledged_texts(&self) -> Vec<(String, Option<u64>)> {
        let book = self.0.lock();
        let told = book.acknowledged.values();
        let told = told.map(|known| (known.text.clone(), Some(known.published.part.get())));
        told.chain(book.flushed.values().map(|text| (text.clone(), None))).collect()
    }

    /// How many parts were acknowledged.
    pub fn acknowledged(&self) -> usize {
        if let Some(annals) = self.annals() {
            return annals.acknowledged();
        }
        self.0.lock().acknowledged.len()
    }

    /// The power was cut: what was delivered and not acknowledged may come otherwise.
    pub fn power_cut(&self, parts_per_step: u64) {
        let mut book = self.0.lock();
        let steps = book.acknowledged_parts() / parts_per_step;
        book.delivered.retain(|step, _| *step < steps);
        book.ended = book.ended.filter(|_| book.closed);
        book.durable = Some(steps);
    }

    /// Whether a position at this step was saved before a power cut that may have taken the step before it.
    pub fn may_be_lost(&self, step: u64) -> bool {
        self.0.lock().durable.is_some_and(|durable| step > durable)
    }

    /// Holds the next sequence of each name against what was acknowledged.
    ///
    /// # Errors
    /// Something that was is not in.
    pub fn check_sequences(&self, next: impl Fn(&str) -> u64) -> Result<(), String> {
        let book = self.0.lock();
        for (name, sequence) in book.acknowledged.keys().chain(book.flushed.keys()) {
            if *sequence >= next(name) {
                return Err(format!(
                    "P6: {name}/{sequence} was acknowledged, {name} goes on at {}",
                    next(name)
                ));
            }
        }
        Ok(())
    }

    /// Holds the truth against all that was said; after a power cut, against what was acknowledged.
    ///
    /// # Errors
    /// What contradicts it.
    pub fn check(
        &self,
        replayed: &Replayed,
        texts: &[String],
        parts_per_step: u64,
        left: Left,
    ) -> Result<(), String> {
        let book = self.0.lock();
        let steps = match left {
            Left::All => u64::MAX,
            Left::Durable => book.acknowledged_parts() / parts_per_step,
        };
        if book.closed && replayed.state.ends.is_empty() {
            return Err("P6: the stream's close was acknowledged, and isn't in the log".to_owned());
        }
        let unknown = |step: &u64| left == Left::All && !replayed.state.ends.contains(&Step::new(*step));
        if let Some(step) = book.ended.filter(unknown) {
            return Err(format!("P2: the stream ended before step {step}, where nobody has closed it"));
        }
        for (name, incarnation) in &book.retired {
            let found = replayed.state.producers.iter().find(|(known, _)| known.as_str() == name);
            let newer = |last: Incarnation| last > *incarnation;
            if !found.is_some_and(|(_, known)| known.finished || newer(known.last_open.incarnation())) {
                return Err(format!("P6: incarnation {incarnation} of {name} was retired, and isn't"));
            }
        }
        for (name, incarnations) in &book.opened {
            let found = replayed.state.producers.iter().find(|(known, _)| known.as_str() == name);
            let found = found.map(|(_, known)| known.last_open.incarnation());
            if found < incarnations.iter().max().copied() {
                return Err(format!("P6: {name} was opened as {incarnations:?}, the log has {found:?}"));
            }
        }
        for ((name, sequence), known) in &book.acknowledged {
            let place = known.published.part.get() as usize;
            let holder = replayed.holders.get(place);
            if holder != Some(&(name.clone(), *sequence, known.published.version)) {
                return Err(format!("P6: {known:?} was acknowledged, the log has {holder:?} there"));
            }
            // The parts of an open step are in the log, and no reader gets them yet.
            if let Some(found) = texts.get(place).filter(|found| **found != known.text) {
                return Err(format!("P2: {known:?} was acknowledged, its place holds {found}"));
            }
            self.check_fence(&book, name, known.incarnation, known.published.version)?;
        }
        for ((name, sequence), text) in &book.flushed {
            let is_it = |holder: &(String, u64, Version)| (&holder.0, holder.1) == (name, *sequence);
            let Some(place) = replayed.holders.iter().position(is_it) else {
                return Err(format!("P6: {text} was acknowledged by a flush and isn't in the log"));
            };
            if let Some(found) = texts.get(place).filter(|found| *found != text) {
                return Err(format!("P3: {text} was acknowledged by a flush, its place holds {found}"));
            }
        }
        for (step, known) in book.delivered.range(..steps) {
            let place = (step * parts_per_step) as usize;
            let found = texts.get(place..place + parts_per_step as usize).unwrap_or_default();
            if found != known {
                return Err(format!("P2: step {step} was delivered as {known:?}, now it is {found:?}"));
            }
        }
        Ok(())
    }

    /// P4: nothing of an older incarnation comes after a newer Open, whose version the incarnation is.
    fn check_fence(&self, book: &Book, name: &str, mine: Incarnation, at: Version) -> Result<(), String> {
        let newer = book.opened.get(name).into_iter().flatten();
        let mut newer = newer.filter(|other| **other > mine && other.get() < at.get());
        match newer.next() {
            Some(other) => Err(format!(
                "P4: incarnation {mine} of {name} committed version {at}, after {other} was opened"
            )),
            None => Ok(()),
        }
    }
}
