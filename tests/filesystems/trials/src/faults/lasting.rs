//! What goes wrong and stays so: links refused at run time after a probe that passed, a full disk, transfers
//! cut short. Then it is lifted, and the same producer goes on.

use batchweave::{Error, ErrorKind, PublishError, Store};

use super::case::{Case, FULL, NAME, Place};
use super::rules::{Operation, Rule, What};
use super::works::BEFORE_BOUNDARY;
use crate::{Result, judge, part};

const EPERM: i32 = 1;
const EXDEV: i32 = 18;
const EMLINK: i32 = 31;
const EOPNOTSUPP: i32 = 95;

/// A mount that no longer links, or not between two directories (R9).
pub(super) fn refused(place: &Place) -> Result<String> {
    let template = place.template(BEFORE_BOUNDARY)?;
    let mut served = 0;
    for errno in [EPERM, EXDEV, EOPNOTSUPP, EMLINK] {
        for between in ["/stage/", ""] {
            let way = format!("errno {errno} from links of {between:?}");
            let case = place.like(&template)?;
            let rule = Rule::new(Operation::Link, What::Fail(errno)).always().path(between);
            let said = lasting(&case, vec![rule]).map_err(|error| format!("{way}: {error}"))?;
            let is_served = !between.is_empty() && [EPERM, EXDEV].contains(&errno);
            match said {
                None if is_served => served += 1,
                Some(error) if !is_served => is_refusal(&error, errno)?,
                other => return Err(format!("{way}: {other:?}").into()),
            }
            case.remove()?;
        }
    }
    Ok(format!("{served} mounts served from beside the name, the others refused in words"))
}

/// It says what to do.
fn is_refusal(error: &Error, errno: i32) -> Result<()> {
    let says = error.to_string().contains("another filesystem");
    if error.kind() == ErrorKind::Unsupported && error.errno() == Some(errno) && says {
        return Ok(());
    }
    Err(format!("a refused link isn't told as such: {error:?}").into())
}

/// No space or no quota, at each operation that may need some.
pub(super) fn full(place: &Place) -> Result<String> {
    let template = place.template(BEFORE_BOUNDARY)?;
    use Operation as Op;
    let mut told = 0;
    for errno in FULL {
        for operation in [Op::Create, Op::Write, Op::Fsync, Op::Flush, Op::Link, Op::Mkdir] {
            let case = place.like(&template)?;
            let rules = vec![Rule::new(operation, What::Fail(errno)).always()];
            match lasting(&case, rules)? {
                Some(error) if error.kind() == ErrorKind::Full => told += 1,
                other => return Err(format!("errno {errno} from {operation:?}: {other:?}").into()),
            }
            case.remove()?;
        }
    }
    Ok(format!("told {told} times, and room used once there was some"))
}

/// Each write and read moves a few bytes only.
pub(super) fn short(place: &Place) -> Result<String> {
    let template = place.template(BEFORE_BOUNDARY)?;
    for most in [100, 4095] {
        let case = place.like(&template)?;
        let (write, read) = (Operation::Write, Operation::Read);
        let rules = [write, read].map(|operation| Rule::new(operation, What::Short(most)).always());
        if let Some(error) = lasting(&case, rules.to_vec())? {
            return Err(format!("at most {most} bytes at a time: {error:?}").into());
        }
        place.rules.set(rules.to_vec())?;
        judge::read_all(&case.path)?;
        judge::verify(&case.path)?;
        place.rules.lift()?;
        case.remove()?;
    }
    Ok("written and read on".to_owned())
}

/// Parts across a boundary while it lasts, in four tries; gives the last error, if there was any. Then
/// it is lifted, and the same producer goes on with what it was given back.
fn lasting(case: &Case<'_>, rules: Vec<Rule>) -> Result<Option<Error>> {
    let store = case.open()?;
    let mut producer = store.producer(NAME)?;
    let mut last = None;
    case.place.rules.set(rules)?;
    for _ in 0..4 {
        let tried = part::draft(&mut producer).map(|draft| {
            let state = part::state(NAME, producer.next_sequence().get());
            producer.publish_now(draft, state)
        });
        let error = match tried {
            Ok(Ok(_)) => continue,
            Ok(Err(PublishError { error, .. })) | Err(error) => error,
        };
        case.check(&error)?;
        last = Some(error);
    }
    let acknowledged = producer.next_sequence().get();
    case.place.rules.lift()?;
    finish(case, &store, producer, acknowledged)?;
    Ok(last)
}

fn finish(case: &Case<'_>, store: &Store, producer: batchweave::Producer, acknowledged: u64) -> Result<()> {
    // What is of unknown outcome comes in first.
    let producer = case.publish(store, producer)?;
    let expected = producer.next_sequence().get();
    if expected <= acknowledged {
        return Err("nothing was published once it was lifted".into());
    }
    drop(producer);
    case.judge(batchweave::Step::new(0), expected)
}
