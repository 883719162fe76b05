//! Names that one mount makes and the other doesn't find: for a few look-ups, or until it opens their
//! directory afresh, as NFS clients do. Counted, so that nothing depends on how fast anyone is.

use batchweave::{Producer, Share, Start, Store};

use super::case::{Case, Place, options};
use crate::child::PATIENCE;
use crate::{Result, judge, part};

/// For how many look-ups, unless the directory is opened.
const LOOKUPS: [u64; 3] = [1, 4, u64::MAX];
/// Of each producer: over two boundaries.
const PARTS: u64 = 18;

pub(super) fn delayed(place: &Place) -> Result<String> {
    let mut hidden = 0;
    for lookups in LOOKUPS {
        place.rules.set(Vec::new())?;
        let case = place.case();
        drop(Store::create(&case.path, options())?);
        place.rules.delay(lookups)?;
        both_publish(&case).map_err(|error| format!("hidden for {lookups} look-ups: {error}"))?;
        hidden += place.rules.seen()?.fired;
        case.remove()?;
    }
    Ok(format!("{hidden} names not found at first"))
}

/// Two producers take turns, each on its own mount, and two consumers read what both publish.
fn both_publish(case: &Case<'_>) -> Result<()> {
    let paths = [case.path.clone(), case.at_b()];
    let stores = paths.iter().map(Store::open).collect::<Result<Vec<_>, _>>()?;
    let names = ["at-a", "at-b"].map(str::to_owned);
    let mut producers = Vec::new();
    for (store, name) in stores.iter().zip(&names) {
        producers.push(case.insist("opening a producer", || store.producer(name))?);
    }
    let mut consumers = Vec::new();
    for store in &stores {
        consumers.push(store.run(Start::Beginning)?.consumer(Share::WHOLE)?);
    }
    for _ in 0..PARTS {
        for producer in &mut producers {
            publish(case, producer)?;
        }
    }
    for consumer in &mut consumers {
        let mut found = Vec::new();
        for _ in 0..2 * PARTS {
            let batch = case.insist("the next batch", || consumer.next_batch_timeout(PATIENCE))?;
            found.push(part::check(&batch.ok_or("the stream ended early")?)?);
        }
        judge::all_have(&judge::count(found)?, &names, PARTS)?;
    }
    case.place.rules.lift()?;
    judge::all_have(&judge::judge(&case.truth, &paths[1])?, &names, PARTS)
}

/// The part comes in, with the same draft if need be.
fn publish(case: &Case<'_>, producer: &mut Producer) -> Result<()> {
    let sequence = producer.next_sequence();
    let mut draft = Some(part::draft(producer)?);
    let state = part::state(producer.name().as_str(), sequence.get());
    case.insist("publishing", || {
        let Some(given) = draft.take() else { return producer.flush() };
        producer.publish_now(given, &state).map(drop).map_err(|failed| {
            draft = failed.draft.map(|draft| *draft);
            failed.error
        })
    })
}
