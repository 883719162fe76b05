//! Who was told what of a store whose history changes: the list beside the [`Truth`].
//!
//! - What is told names its commit, or its generation: so it stays true however history goes on, and is held
//!   against the truth of just that commit or generation (P2).
//! - A power cut takes what was read and not acknowledged; with a commit that was acknowledged, all before it
//!   is durable (P6).

use std::collections::{BTreeMap, BTreeSet};

use batchweave::{Incarnation, Position, Published};
use parking_lot::Mutex;

use super::ledger::Left;
use super::model::Model;
use super::parse;
use super::stream::Span;
use super::truth::{Truth, is_text};

/// A word whose effect was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The stream is closed.
    Close,
    /// It goes on.
    Reopen,
    /// A name is forgotten.
    Forget,
}

/// The list.
#[derive(Debug, Default)]
pub struct Annals(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// Acknowledged parts, by version and part.
    parts: BTreeMap<(u64, u64), Acknowledged>,
    /// Texts that were acknowledged by a flush, which doesn't say where they are.
    flushed: Vec<String>,
    /// Producers by incarnation: name, next sequence, state.
    opened: BTreeMap<u64, (String, u64, Vec<u8>)>,
    /// Producers that retired, and groups that were retired.
    retired: Vec<(String, u64)>,
    groups_retired: Vec<String>,
    /// Runs of groups, by incarnation: the group, what was saved before, where it began.
    begun: BTreeMap<u64, (String, Option<Position>, Position)>,
    /// Checkpoints, by version: group, name, step.
    kept: BTreeMap<u64, (String, String, u64)>,
    /// Rewinds: generation, step, parts dropped. Skips: first, last.
    rewinds: Vec<(u64, u64, u64)>,
    skips: Vec<(u64, u64)>,
    /// What every step of a generation holds.
    delivered: BTreeMap<(u64, u64), Vec<String>>,
    /// Closes, Reopens and Forgets, by the version by which they were there at the latest.
    words: BTreeMap<u64, Said>,
    /// Which steps the consumers of a run have got, in order: of a group's by its incarnation.
    views: BTreeMap<u64, Vec<u64>>,
    /// Where runs may end that have begun since the last power cut.
    spans: BTreeMap<u64, Span>,
    /// Runs of no group.
    others: u64,
    /// How often the power was cut, and what has outlived the last time for sure: the last position that was
    /// good then, as (generation, step).
    cuts: u64,
    durable: (u64, u64),
    /// What a power cut has shown.
    broken: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Acknowledged {
    text: String,
    published: Published,
    incarnation: Incarnation,
}

impl Book {
    /// The newest version that was acknowledged.
    fn newest(&self) -> Option<u64> {
        let parts = self.parts.last_key_value().map(|((version, _), _)| *version);
        let others = [
            self.opened.keys().last(),
            self.begun.keys().last(),
            self.kept.keys().last(),
            self.words.keys().last(),
        ];
        others.into_iter().flatten().copied().chain(parts).max()
    }
}

impl Annals {
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
        let new = Acknowledged { text: text.to_owned(), published, incarnation };
        let place = (published.version.get(), published.part.get());
        match self.0.lock().parts.insert(place, new.clone()) {
            Some(old) if old != new => {
                Err(format!("P3: two acknowledged parts are the same one: {old:?} and {new:?}"))
            }
            _ => Ok(()),
        }
    }

    /// A part was acknowledged by a flush.
    pub fn flush(&self, text: &str) {
        self.0.lock().flushed.push(text.to_owned());
    }

    /// A producer's name was opened: it goes on at `next`, with `state`.
    ///
    /// # Errors
    /// Another process has that incarnation.
    pub fn open(&self, name: &str, incarnation: Incarnation, next: u64, found: &[u8]) -> Result<(), String> {
        let new = (name.to_owned(), next, found.to_owned());
        match self.0.lock().opened.insert(incarnation.get(), new) {
            None => Ok(()),
            Some(_) => Err(format!("P4: two processes opened {name} as incarnation {incarnation}")),
        }
    }

    /// A producer's name was retired.
    pub fn retire(&self, name: &str, incarnation: Incarnation) {
        self.0.lock().retired.push((name.to_owned(), incarnation.get()));
    }

    /// A group was retired.
    pub fn retire_group(&self, name: &str) {
        self.0.lock().groups_retired.push(name.to_owned());
    }

    /// A group's run began, from what was saved.
    ///
    /// # Errors
    /// Another process has that incarnation, or it begins elsewhere.
    pub fn begin(
        &self,
        group: &str,
        incarnation: u64,
        saved: Option<Position>,
        at: Position,
    ) -> Result<(), String> {
        if saved.is_some_and(|saved| saved.step != at.step) {
            return Err(format!("P2: saved {saved:?}, the run begins at {at:?}"));
        }
        match self.0.lock().begun.insert(incarnation, (group.to_owned(), saved, at)) {
            None => Ok(()),
            Some(_) => Err(format!("P4: two processes began {group} as incarnation {incarnation}")),
        }
    }

    /// A checkpoint was acknowledged.
    pub fn keep(&self, version: u64, group: &str, name: &str, step: u64) {
        self.0.lock().kept.insert(version, (group.to_owned(), name.to_owned(), step));
    }

    /// A rewind was acknowledged: the generation that it began, its step, and how many parts it dropped.
    pub fn rewind(&self, generation: u64, step: u64, parts: u64) {
        self.0.lock().rewinds.push((generation, step, parts));
    }

    /// A skip was acknowledged.
    pub fn skip(&self, first: u64, last: u64) {
        self.0.lock().skips.push((first, last));
    }

    /// A close, a reopen or a forget was acknowledged: the effect was there by this version at the latest.
    pub fn say(&self, word: Said, version: u64) {
        self.0.lock().words.insert(version, word);
    }

    /// A run begins of which it is known as of how many versions its view is, at least and at most: a group's
    /// by its incarnation. Gives the key by which to name it.
    pub fn watch(&self, incarnation: Option<u64>, generation: u64, views: (u64, u64)) -> u64 {
        let mut book = self.0.lock();
        // Other runs are counted from the end: no version is as large.
        let key = incarnation.unwrap_or(u64::MAX - book.others);
        book.others += u64::from(incarnation.is_none());
        book.spans.insert(key, Span::new(generation, views));
        key
    }

    /// Where a run may end by what the log says, each of which may be not at all; none of it is known of one
    /// from before a power cut.
    pub fn ends(&self, run: u64, model: &Model) -> Option<BTreeSet<Option<u64>>> {
        self.0.lock().spans.get(&run).map(|span| span.ends(model))
    }

    /// A run has ended for one of its ranks, before a step.
    ///
    /// # Errors
    /// For another one it has ended elsewhere.
    pub fn end(&self, run: u64, step: u64) -> Result<(), String> {
        self.0.lock().spans.get_mut(&run).map_or(Ok(()), |span| span.end(step))
    }

    /// A step was delivered, as the `number`-th of a run.
    ///
    /// # Errors
    /// Another reader got something else.
    pub fn deliver(
        &self,
        (run, number): (u64, usize),
        (generation, step): (u64, u64),
        texts: Vec<String>,
    ) -> Result<(), String> {
        let mut book = self.0.lock();
        let steps = book.views.entry(run).or_default();
        if number == steps.len() {
            steps.push(step);
        }
        if steps.get(number) != Some(&step) {
            let other = steps.get(number);
            return Err(format!("P2: of run {run}, step {step} is number {number}, and {other:?}"));
        }
        let known = book.delivered.entry((generation, step)).or_insert_with(|| texts.clone());
        if *known == texts {
            return Ok(());
        }
        Err(format!("P2: step {step} of generation {generation} held {known:?}, and {texts:?} for another"))
    }

    /// How often the power was cut so far.
    pub fn power_cuts(&self) -> u64 {
        self.0.lock().cuts
    }

    /// Whether a position that was saved after so many power cuts is from before one that may have taken what
    /// is before it.
    pub fn may_be_lost(&self, position: &Position, cuts: u64) -> bool {
        let book = self.0.lock();
        cuts < book.cuts && (position.generation.get(), position.step.get()) > book.durable
    }

    /// How many parts were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.0.lock().parts.len()
    }

    /// The power was cut, and this is left: what was delivered and isn't durable may come otherwise.
    pub fn power_cut(&self, left: Result<Option<Truth>, String>) {
        let mut book = self.0.lock();
        let newest = book.newest();
        book.cuts += 1;
        // Whoever read is dead, and the Close at which he ended may be lost.
        book.spans.clear();
        match left {
            Ok(Some(truth)) => {
                let model = &truth.model;
                book.delivered.retain(|place, _| is_durable(model, *place, newest));
                let began = |generation: &u64| {
                    model.began.get(generation).is_some_and(|began| Some(*began) <= newest)
                };
                let generation = (0..=model.generation).rev().find(began).unwrap_or(0);
                let durable = (0..).find(|step| !is_durable(model, (generation, *step), newest));
                book.durable = (generation, durable.unwrap_or(0));
            }
            Ok(None) => book.broken = Some("P6: after a power cut there is no store".to_owned()),
            Err(what) => book.broken = Some(format!("after a power cut: {what}")),
        }
    }

    /// Holds the truth against all that was said; after a power cut, against what was acknowledged.
    ///
    /// # Errors
    /// What contradicts it.
    pub fn check(&self, truth: &Truth, left: Left) -> Result<(), String> {
        let book = self.0.lock();
        if let Some(broken) = &book.broken {
            return Err(broken.clone());
        }
        check_producers(&book, &truth.model)?;
        check_groups(&book, &truth.model)?;
        check_history(&book, &truth.model)?;
        check_words(&book, &truth.model)?;
        if left == Left::All {
            for (run, span) in &book.spans {
                let last = book.views.get(run).and_then(|steps| steps.last()).copied();
                span.check(last, &truth.model).map_err(|what| format!("{what}, run {run}"))?;
            }
        }
        let newest = book.newest();
        for ((generation, step), texts) in &book.delivered {
            if left == Left::Durable && !is_durable(&truth.model, (*generation, *step), newest) {
                continue;
            }
            let found = truth.model.step(*generation, *step).unwrap_or_default();
            if found.len() != texts.len() || found.iter().zip(texts).any(|(held, text)| !is_text(held, text))
            {
                return Err(format!(
                    "P2: step {step} of generation {generation} was delivered as {texts:?}, the log has \
                     {found:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Whether a step of a generation stands with a version that was acknowledged.
fn is_durable(model: &Model, (generation, step): (u64, u64), newest: Option<u64>) -> bool {
    let began = model.began.get(&generation).is_some_and(|began| Some(*began) <= newest);
    let held = model.step(generation, step).and_then(|parts| parts.last());
    began && held.is_some_and(|last| Some(last.version) <= newest)
}

/// P3, P4, P6: what producers were told.
fn check_producers(book: &Book, model: &Model) -> Result<(), String> {
    for ((version, place), told) in &book.parts {
        let (name, sequence, _) = parse(&told.text)?;
        let found = model.part(*place, *version);
        let is_it = found.is_some_and(|held| {
            held.producer == name && held.sequence == sequence && is_text(held, &told.text)
        });
        if !is_it || told.published.sequence.get() != sequence {
            return Err(format!("P6: {told:?} was acknowledged, the log has {found:?} there"));
        }
        let opened = |(at, opened): (&u64, &super::known::Opened)| {
            *at > told.incarnation.get() && at < version && opened.name == name
        };
        if model.opens.iter().any(opened) {
            return Err(format!("P4: {told:?} came after a newer incarnation was opened"));
        }
    }
    for text in &book.flushed {
        if !model.all_parts().any(|held| is_text(held, text)) {
            return Err(format!("P6: {text} was acknowledged by a flush and was never in the log"));
        }
    }
    for (incarnation, (name, next, found)) in &book.opened {
        let Some(opened) = model.opens.get(incarnation).filter(|opened| opened.name == *name) else {
            return Err(format!(
                "P6: {name} was opened as incarnation {incarnation}, which isn't in the log"
            ));
        };
        let same = match &opened.state {
            None => found.is_empty(),
            Some(state) => state.checksum == batchweave::format::checksum::of(found),
        };
        if opened.next != *next || !same {
            let found = String::from_utf8_lossy(found);
            return Err(format!(
                "P3: {name}, incarnation {incarnation}, goes on at {next} with {found:?}; {opened:?}"
            ));
        }
    }
    match book.retired.iter().find(|retired| !model.retired.contains(retired)) {
        Some((name, incarnation)) => {
            Err(format!("P6: incarnation {incarnation} of {name} was retired, and isn't"))
        }
        None => Ok(()),
    }
}

/// P2, P4, P6: what trainers were told.
fn check_groups(book: &Book, model: &Model) -> Result<(), String> {
    for (incarnation, (group, saved, at)) in &book.begun {
        let Some(seen) = model.runs.get(incarnation).filter(|seen| seen.group == *group) else {
            return Err(format!("P6: {group} began as incarnation {incarnation}, which isn't in the log"));
        };
        // Its view is as of the record, or of a later change of history that it met while it began.
        let (generation, start) = (at.generation.get(), at.step.get());
        if start != seen.start || generation < seen.generation {
            return Err(format!("P2: {group}, incarnation {incarnation}, began at {at:?}, not {seen:?}"));
        }
        if let Some(saved) = saved {
            let since = model.began.get(&generation).copied().unwrap_or_default().max(*incarnation);
            let seen = super::known::Seen { generation, ..seen.clone() };
            if let Some(why) = model.refuses(saved.generation.get(), saved.step.get(), &seen, since) {
                return Err(format!("P2: {saved:?} was taken by incarnation {incarnation}, but {why}"));
            }
        }
        let steps = book.views.get(incarnation).map(Vec::as_slice).unwrap_or_default();
        let skipped = model.skipped_in(generation);
        let expected = (start..).filter(|step| !skipped.contains(step));
        if let Some((got, right)) = steps.iter().copied().zip(expected).find(|(got, right)| got != right) {
            return Err(format!(
                "P2: run {incarnation} delivered step {got} where {right} is next: {seen:?}"
            ));
        }
    }
    for (version, told) in &book.kept {
        if model.checkpoints.get(version) != Some(told) {
            let found = model.checkpoints.get(version);
            return Err(format!(
                "P6: checkpoint {told:?} was acknowledged at version {version}, there is {found:?}"
            ));
        }
    }
    let retired = |name: &String| model.groups_retired.iter().any(|(known, _)| known == name);
    match book.groups_retired.iter().find(|name| !retired(name)) {
        Some(name) => Err(format!("P6: group {name} was retired, and isn't")),
        None => Ok(()),
    }
}

/// P2, P6: what was told of changes of history.
fn check_history(book: &Book, model: &Model) -> Result<(), String> {
    for told in &book.rewinds {
        if !model.rewinds.iter().any(|(_, generation, step, parts)| (*generation, *step, *parts) == *told) {
            let found = &model.rewinds;
            return Err(format!("P2: rewind {told:?} was acknowledged, the log has {found:?}"));
        }
    }
    for told in &book.skips {
        if !model.skips.iter().any(|(_, first, last)| (*first, *last) == *told) {
            return Err(format!("P6: skip {told:?} was acknowledged, the log has {:?}", model.skips));
        }
    }
    Ok(())
}

/// P6: what was told of closes, reopens and forgotten names.
fn check_words(book: &Book, model: &Model) -> Result<(), String> {
    for (version, word) in &book.words {
        let found = match *word {
            Said::Close => model.stream.closes.iter().any(|(at, _)| at == version),
            Said::Reopen => model.stream.reopens.contains(version),
            Said::Forget => model.forgotten.iter().any(|(at, _)| at == version),
        };
        if !found {
            return Err(format!("P6: a {word:?} was acknowledged at version {version}, and isn't there"));
        }
    }
    Ok(())
}
