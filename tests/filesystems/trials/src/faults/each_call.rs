//! Each call of the kernel that a piece of the engine's work makes fails once, in each way that such a call
//! can: the work is seen through as the documentation says, and then nothing is lost, doubled, torn or
//! damaged.
//!
//! - What a work asks for is counted in a run without faults; then for each operation, each of its calls and
//!   each way there is a run of its own, on a copy of the same store.
//! - In a short run calls of the longer works fail in one way only, the ways in turn, and of the longest only
//!   some.
//! - Threads of the engine may ask in another order in each run: so a call is the n-th *of its kind*.

use super::case::Place;
use super::rules::{Operation, Rule, What};
use super::works::{WORKS, Work};
use crate::Result;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EEXIST: i32 = 17;
const EXDEV: i32 = 18;
const ENOSPC: i32 = 28;
const EMLINK: i32 = 31;
const EOPNOTSUPP: i32 = 95;
const ETIMEDOUT: i32 = 110;
const ESTALE: i32 = 116;
const EDQUOT: i32 = 122;

/// After so many the others of a work aren't tried.
const FAILURES_MAX: usize = 5;

/// The ways in which an operation can fail.
fn ways(operation: Operation) -> Vec<What> {
    use Operation as Op;
    let (before, after): (&[i32], &[i32]) = match operation {
        Op::Lookup | Op::Getattr | Op::Open | Op::Read | Op::Opendir | Op::Readdir => (&[EIO, ESTALE], &[]),
        Op::Statfs => (&[EIO], &[]),
        Op::Write | Op::Flush | Op::Fsync => (&[EIO, ENOSPC, EDQUOT], &[]),
        Op::Fsyncdir => (&[EIO, ENOSPC], &[]),
        Op::Create => (&[EIO, ENOSPC, EDQUOT], &[EIO]),
        Op::Mkdir => (&[EIO, ENOSPC], &[EIO, EEXIST]),
        Op::Link => (&[EIO, ENOSPC, EDQUOT, EPERM, EXDEV, EMLINK, EOPNOTSUPP], &[EIO, EEXIST, ETIMEDOUT]),
        Op::Unlink | Op::Rmdir | Op::Rename => (&[EIO], &[EIO, ENOENT]),
    };
    let fails = before.iter().map(|errno| What::Fail(*errno));
    let loses = after.iter().map(|errno| What::LoseReply(*errno));
    let other: &[What] = match operation {
        Op::Write => &[What::Short(1), What::Short(0), What::Restart],
        Op::Read => &[What::Short(1), What::Restart],
        Op::Create | Op::Fsync | Op::Link | Op::Fsyncdir | Op::Readdir | Op::Open => &[What::Restart],
        _ => &[],
    };
    fails.chain(loses).chain(other.iter().copied()).collect()
}

pub(super) fn each_call(place: &Place) -> Result<String> {
    let (mut runs, mut said) = (0, Vec::new());
    for work in &WORKS {
        let began = std::time::Instant::now();
        let of_this = each_of(place, work).map_err(|error| format!("{}: {error}", work.name))?;
        eprintln!("each-call: {}: {of_this} runs in {:.1} s", work.name, began.elapsed().as_secs_f64());
        said.push(format!("{} {of_this}", work.name));
        runs += of_this;
    }
    Ok(format!("{runs} runs with a fault each: {}", said.join(", ")))
}

fn each_of(place: &Place, work: &Work) -> Result<u64> {
    let template = place.template(work.parts)?;
    let run = |rules: &dyn Fn() -> Vec<Rule>| -> Result<()> {
        let case = if work.parts == 0 { place.case() } else { place.like(&template)? };
        place.rules.set(Vec::new())?;
        (work.act)(&case, &|| place.rules.set(rules()))?;
        case.remove()
    };
    run(&Vec::new)?;
    let (mut runs, mut fired, mut before, mut failures) = (0, 0, 0, Vec::<String>::new());
    for (operation, calls) in place.rules.seen()?.asked {
        let mut ways = ways(operation);
        // To a page cache a short read is the file's end.
        ways.retain(|way| !(work.name == "mapped" && matches!(way, What::Short(_))));
        let tried =
            (1..=calls).flat_map(|nth| ways.iter().enumerate().map(move |(way, what)| (nth, way, *what)));
        for (nth, way, what) in tried {
            let number = before + nth;
            let in_turn = |every| number % every == 0 && way == (number / every) as usize % ways.len();
            let is_left_out = !place.thorough && work.every > 0 && !in_turn(work.every);
            if is_left_out || failures.len() == FAILURES_MAX {
                continue;
            }
            let rules = || vec![Rule::new(operation, what).nth(nth)];
            if let Err(error) = run(&rules) {
                failures
                    .push(format!("{operation:?} {nth} of {calls}, {}: {error}", place.rules.seen()?.last));
            }
            runs += 1;
            fired += u64::from(place.rules.seen()?.fired > 0);
        }
        before += calls;
    }
    if let Some(first) = failures.first() {
        failures.iter().for_each(|failure| eprintln!("each-call: {}: {failure}", work.name));
        return Err(format!("{} of {runs} runs, first {first}", failures.len()).into());
    }
    if fired * 10 < runs * 8 {
        return Err(format!("of {runs} faults only {fired} came to pass").into());
    }
    template.remove()?;
    Ok(fired)
}
