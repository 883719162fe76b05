//! A producer: publishes its parts under its name until all are in, over crashes and failures.

use std::time::Duration;

use batchweave::{Bounds, Counts, Draft, Error, ErrorKind, Incarnation, Producer, PublishError, Store};

use super::{Stage, Trouble, is_stale};
use crate::oracle::{newest_open, state, text, visible_of};
use crate::{Met, Process};

/// What a producer does.
#[derive(Clone, Debug)]
pub struct Producing {
    /// Its name; several processes may have the same.
    pub name: String,
    /// How many parts there are to be in the end.
    pub parts: u64,
    /// Slices of a part.
    pub slices: u32,
    /// Bytes that fill each slice's text up, so that a part takes several pages.
    pub padding: usize,
    /// Whether it retires its name at the end.
    pub finishes: bool,
    /// When it waits for all others that are expected.
    pub meets: Meets,
    /// How many parts it publishes before it waits for them; each at once when 0.
    pub ahead: u32,
    /// Who takes turns, itself among them; none: nobody does.
    pub ring: Vec<String>,
    /// How many parts each of these has in its turn.
    pub parts_per_turn: u32,
}

/// When a producer waits for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    /// It doesn't.
    Never,
    /// Once it has the store, before it opens its name.
    WithStore,
    /// Once its name is open.
    WithName,
}

/// Publishes until `parts` of its name are in, or until it is fenced.
///
/// # Errors
/// A promise is broken.
pub fn produce(process: &Process, stage: &Stage, plan: &Producing) -> Result<(), String> {
    let mut kept: Option<Store> = None;
    stage.persist(process, || {
        // After a failure, by the handle that has met it, or by a new one.
        let store = match kept.take().filter(|_| process.world.choices().chance(2)) {
            Some(store) => store,
            None => stage.open_or_create(process)?,
        };
        kept = Some(store.clone());
        if plan.meets == Meets::WithStore {
            process.world.meet();
        }
        if !plan.ring.is_empty() {
            store.set_turns(&plan.ring, plan.parts_per_turn)?;
        }
        let since = stage.versions();
        let mut producer = match store.producer(&plan.name) {
            // Others have opened it again before this one knew its state.
            Err(error) if error.kind() == ErrorKind::Fenced && !process.is_dead() => {
                // ... or history was changed, after which nobody has a name any more.
                return if stage.ledger.annals().is_some() { Err(Trouble::Again) } else { Ok(()) };
            }
            Err(error) if !process.is_dead() && stage.is_closed_out(&error, since)? => {
                stage.coverage.met(Met::OpenedClosed, 1);
                return Err(Trouble::Again);
            }
            opened => opened?,
        };
        if !plan.ring.is_empty() {
            producer.set_bounds(Bounds::new().timeout(TURN_TIMEOUT));
        }
        let next = producer.next_sequence().get();
        stage.ledger.open(&plan.name, producer.incarnation(), next, &producer.state())?;
        note_anew(process, stage, &plan.name, producer.incarnation())?;
        if plan.meets == Meets::WithName {
            process.world.meet();
        }
        while producer.next_sequence().get() < plan.parts {
            let published = match plan.ahead {
                0 => publish(process, stage, plan, &mut producer),
                ahead => publish_ahead(process, stage, plan, &mut producer, ahead),
            };
            match published {
                Ok(()) => {}
                // A newer process has the name: what is left is its business.
                Err(Trouble::Told(error)) if is_late(process, stage, &producer, &error)? => {
                    return fenced(stage, &plan.name, producer.incarnation());
                }
                // Whoever's turn it is died for good.
                Err(Trouble::Told(error)) if is_stalled(stage, plan, &error) => return Err(Trouble::Over),
                Err(trouble) => return Err(trouble),
            }
        }
        if plan.finishes {
            let incarnation = producer.incarnation();
            match producer.finish() {
                Err(error) if error.kind() == ErrorKind::Fenced && !process.is_dead() => {
                    fenced(stage, &plan.name, incarnation)?;
                }
                finished => {
                    finished?;
                    stage.ledger.retire(&plan.name, incarnation);
                }
            }
        }
        Ok(())
    })
}

/// Counts who begins a forgotten name anew.
fn note_anew(process: &Process, stage: &Stage, name: &str, mine: Incarnation) -> Result<(), String> {
    if process.is_dead() || stage.ledger.annals().is_none() {
        return Ok(());
    }
    let model = stage.truth()?.model;
    let forgotten = model.forgotten.iter().any(|(at, forgotten)| forgotten == name && *at < mine.get());
    stage.coverage.met(Met::BegunAfterForget, u64::from(forgotten));
    Ok(())
}

/// How long it waits for its turn: longer than a process that died needs to come back.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether a member of the ring that it waits for may have died.
fn is_stalled(stage: &Stage, plan: &Producing, error: &Error) -> bool {
    error.kind() == ErrorKind::Timeout && !plan.ring.is_empty() && stage.allowed.failures
}

/// After how long a part that met the closed stream is tried again.
const REOPEN_WAIT: Duration = Duration::from_millis(15);

/// How often one part is tried before everything begins again.
const TRIES: u32 = 8;

/// Publishes the next part, as the same draft or commit for as long as that is to be tried.
fn publish(
    process: &Process,
    stage: &Stage,
    plan: &Producing,
    producer: &mut Producer,
) -> Result<(), Trouble> {
    let text = text(&plan.name, producer.next_sequence().get(), process.number);
    let after = state(&text);
    let mut draft = draft(plan, producer, &text)?;
    // All tries, and those of this draft that failed.
    let (mut tried, mut failed) = (0, 0);
    loop {
        let before = producer.next_sequence();
        let since = stage.versions();
        let PublishError { error, draft: back } = match producer.publish_now(draft, &after) {
            Ok(published) => {
                check_state(producer, &after)?;
                return Ok(stage.ledger.acknowledge(&text, producer.incarnation(), published)?);
            }
            Err(failed) => failed,
        };
        let closed = !process.is_dead() && stage.is_closed_out(&error, since)?;
        // Its file failed at an earlier try, and says so.
        let spoilt = error.kind() == ErrorKind::Invalid && failed > 0 && !closed;
        let stalled = is_stalled(stage, plan, &error);
        let again = spoilt || closed || stage.allowed.covers(&error);
        if process.is_dead() || tried > TRIES || stalled || !again {
            return if closed { Err(Trouble::Again) } else { Err(error.into()) };
        }
        if closed {
            stage.coverage.met(Met::PublishedClosed, 1);
            process.env().sleep(REOPEN_WAIT);
        }
        if back.is_some() && !stage.allowed.damage {
            check_given_back(stage, producer)?;
        }
        (tried, failed) = (tried + 1, if spoilt { 0 } else { failed + 1 });
        process.world.say(format!("{} tries {text} again after: {error}", process.name));
        draft = match back {
            Some(back) if spoilt => {
                drop(back);
                self::draft(plan, producer, &text)?
            }
            Some(back) => *back,
            // It is in, or will never be, or can't be told: the same commit again, until it can.
            None => {
                if let Err(error) = producer.flush() {
                    // What isn't in can't come in any more once the stream is closed.
                    let closed = !process.is_dead() && stage.is_closed_out(&error, since)?;
                    return if closed { Err(Trouble::Again) } else { Err(error.into()) };
                }
                if producer.next_sequence() == before {
                    return Err(error.into());
                }
                check_state(producer, &after)?;
                return Ok(stage.ledger.flush(&text)?);
            }
        };
    }
}

/// Publishes parts ahead, while those before them are committed; then waits for all. After a failure all
/// begins again, by a new producer: what was acknowledged until then is in.
fn publish_ahead(
    process: &Process,
    stage: &Stage,
    plan: &Producing,
    producer: &mut Producer,
    ahead: u32,
) -> Result<(), Trouble> {
    let mut tickets = Vec::new();
    let since = stage.versions();
    let mut queue = || -> Result<(), Trouble> {
        let left = plan.parts.saturating_sub(producer.next_sequence().get());
        for _ in 0..left.min(u64::from(1 + process.world.choices().pick(ahead))) {
            let text = text(&plan.name, producer.next_sequence().get(), process.number);
            let draft = draft(plan, producer, &text)?;
            let ticket = producer.publish(draft, state(&text)).map_err(|failed| failed.error)?;
            tickets.push((text, ticket));
        }
        Ok(producer.flush()?)
    };
    let queued = queue();
    let mut versions = std::collections::BTreeSet::new();
    let mut acknowledged = 0;
    for (text, ticket) in &tickets {
        let Some(published) = ticket.published() else { continue };
        stage.ledger.acknowledge(text, producer.incarnation(), published)?;
        versions.insert(published.version);
        acknowledged += 1;
    }
    stage.coverage.met(Met::Grouped, acknowledged - versions.len() as u64);
    match queued {
        Err(Trouble::Told(error)) if !process.is_dead() && stage.is_closed_out(&error, since)? => {
            return Err(Trouble::Again);
        }
        queued => queued?,
    }
    if acknowledged < tickets.len() as u64 {
        return Err("P3: a flush has left a part unacknowledged".to_owned().into());
    }
    check_state(producer, &tickets.last().map_or_else(String::new, |(text, _)| state(text)))?;
    Ok(())
}

/// P3: a producer's state is that of its last part.
fn check_state(producer: &Producer, after: &str) -> Result<(), String> {
    let found = producer.state();
    if found == after.as_bytes() {
        return Ok(());
    }
    Err(format!("P3: the state is {:?}, and was published as {after:?}", String::from_utf8_lossy(&found)))
}

/// P3: what is given back to be published again isn't in.
fn check_given_back(stage: &Stage, producer: &Producer) -> Result<(), String> {
    let (name, mine, next) = (producer.name(), producer.incarnation(), producer.next_sequence());
    if visible_of(&stage.memory, &stage.path, name.as_str(), mine)? <= next.get() {
        return Ok(());
    }
    Err(format!("P3: the draft of {name}/{next} was given back, and is visible"))
}

/// Whether an error says that the name isn't this producer's any more: in so many words; or in that a reclaim
/// has taken what it has staged for litter, which it is only then, and its mount says that the file is gone.
fn is_late(process: &Process, stage: &Stage, producer: &Producer, error: &Error) -> Result<bool, String> {
    if process.is_dead() || error.kind() == ErrorKind::Fenced {
        return Ok(!process.is_dead());
    }
    if !is_stale(error) || stage.ledger.annals().is_none() {
        return Ok(false);
    }
    let mine = producer.incarnation().get();
    Ok(stage.truth()?.model.current_writer(producer.name().as_str()) != Some(mine))
}

/// P4: fenced is who has a newer incarnation after him, and nobody else; but for a change of history, after
/// which everybody opens his name anew.
fn fenced(stage: &Stage, name: &str, mine: Incarnation) -> Result<(), Trouble> {
    if stage.allowed.damage || newest_open(&stage.memory, &stage.path, name)? > mine.get() {
        return Ok(());
    }
    if stage.ledger.annals().is_some() {
        let model = stage.truth()?.model;
        // It was retired before that.
        if model.forgotten.iter().any(|(version, forgotten)| *version > mine.get() && forgotten == name) {
            return Ok(());
        }
        if model.rewinds.iter().any(|rewind| rewind.0 > mine.get()) {
            stage.coverage.met(Met::ProducerSetBack, 1);
            return Err(Trouble::Again);
        }
    }
    Err(format!("P4: incarnation {mine} of {name} was fenced, and no newer one was opened").into())
}

fn draft(plan: &Producing, producer: &mut Producer, text: &str) -> batchweave::Result<Draft> {
    let mut draft = producer.draft()?;
    let padding = vec![b' '; plan.padding];
    for _ in 0..plan.slices {
        draft.add_slice(&[text.as_bytes(), &padding].concat(), Counts { samples: 1, tokens: 2 })?;
    }
    Ok(draft)
}
