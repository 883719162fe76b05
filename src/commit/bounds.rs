//! Back-pressure as a pure decision: whether a producer may publish now, has to wait, or never may.
//!
//! - Bounds are judged between steps: a step once begun may always be completed, and every bound admits one
//!   step.
//! - Nobody waits while a consumer is hungry for the next step: either what is over the bound could be
//!   reclaimed, then the step is admitted; or no waiting would help, then the bound that would do is named.
//! - What isn't known never makes anybody wait: without a live group's hint its lead isn't judged.

use crate::id::Step;
use crate::options::Bounds;

/// What is known of a store when a part is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Bytes of all parts above the floor.
    pub retained_bytes: u64,
    /// Bytes of the part.
    pub part_bytes: u64,
    /// The first step that is retained.
    pub floor: Step,
    /// The step that the part belongs to.
    pub next_step: Step,
    /// Parts of that step are published already.
    pub step_is_open: bool,
    /// The lowest step that a live group needs, and which; none without one.
    pub needed: Option<(Step, String)>,
    /// The live groups, as far as they tell.
    pub groups: Vec<Told>,
}

/// What a live group tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its name.
    pub name: String,
    /// The next step that it delivers; none if it doesn't tell.
    pub step: Option<Step>,
    /// It waits for that step.
    pub hungry: bool,
}

/// Whether a part may be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Admit,
    /// Over the bound, since a consumer is hungry and what is over could be reclaimed.
    AdmitOver(String),
    /// Not yet, and why.
    Wait(String),
    /// Waiting can't help, and why.
    Never(String),
}

/// Judges a part by its producer's bounds.
pub fn judge(bounds: &Bounds, seen: &Seen) -> Verdict {
    if seen.step_is_open {
        return Verdict::Admit;
    }
    match judge_bytes(bounds, seen) {
        Verdict::Admit => judge_lead(bounds, seen),
        other => other,
    }
}

fn hungry(seen: &Seen) -> Option<&str> {
    let waits = |told: &&Told| told.hungry && told.step == Some(seen.next_step);
    seen.groups.iter().find(waits).map(|told| told.name.as_str())
}

fn judge_bytes(bounds: &Bounds, seen: &Seen) -> Verdict {
    let Some(most) = bounds.retained_bytes else { return Verdict::Admit };
    let after = seen.retained_bytes.saturating_add(seen.part_bytes);
    if after <= most || seen.next_step == seen.floor {
        return Verdict::Admit;
    }
    let holder = match &seen.needed {
        Some((step, group)) => format!("group {group} needs step {step} and all after it"),
        None => "no group lives, so nothing is freed unless it is told by step".to_owned(),
    };
    let silent = seen.groups.iter().find(|told| told.step.is_none());
    let silent = silent.map(|told| format!("; group {} doesn't tell whether it waits", told.name));
    let retained = in_words(seen.retained_bytes);
    let what = format!("{retained} retained of {}: {holder}{}", in_words(most), silent.unwrap_or_default());
    let reclaimable = seen.needed.as_ref().is_some_and(|(step, _)| *step > seen.floor);
    match hungry(seen) {
        None if reclaimable => Verdict::Wait(format!("{what}; what is below could be reclaimed")),
        None => Verdict::Wait(what),
        Some(group) if reclaimable => Verdict::AdmitOver(format!(
            "{what}; group {group} waits for step {}, and what is below could be reclaimed",
            seen.next_step
        )),
        Some(group) => Verdict::Never(format!(
            "{what}, and group {group} waits for step {}: a bound of at least {after} bytes would do",
            seen.next_step
        )),
    }
}

fn judge_lead(bounds: &Bounds, seen: &Seen) -> Verdict {
    let Some(most) = bounds.lead_steps else { return Verdict::Admit };
    let told: Option<Vec<(Step, &str)>> =
        seen.groups.iter().map(|told| Some((told.step?, told.name.as_str()))).collect();
    // Who doesn't tell isn't waited for; without any group, the first one is.
    let Some(told) = told else { return Verdict::Admit };
    let slowest = told.into_iter().min();
    let (from, who) = slowest.map_or((seen.floor, None), |(step, group)| (step, Some(group)));
    let lead = seen.next_step.get().saturating_sub(from.get());
    if lead < most.max(1) {
        return Verdict::Admit;
    }
    let what = match who {
        Some(group) => format!("{lead} steps of {most} lie ahead of group {group}, which is at step {from}"),
        None => format!("{lead} steps of {most} lie there, and no group reads them yet"),
    };
    match hungry(seen) {
        None => Verdict::Wait(what),
        Some(group) => Verdict::Never(format!(
            "{what}, and group {group} waits for step {}: a bound of at least {} steps would do",
            seen.next_step,
            lead.saturating_add(1)
        )),
    }
}

/// Bytes for people: `14.2 GiB`.
pub fn in_words(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scaled = bytes as f64;
    let mut unit = "bytes";
    for next in UNITS {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        unit = next;
    }
    if unit == "bytes" { format!("{bytes} bytes") } else { format!("{scaled:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen() -> Seen {
        Seen {
            retained_bytes: 15 << 30,
            part_bytes: 2 << 30,
            floor: Step::new(1200),
            next_step: Step::new(1400),
            step_is_open: false,
            needed: Some((Step::new(1200), "llama-7b".into())),
            groups: vec![Told { name: "llama-7b".into(), step: Some(Step::new(1390)), hungry: false }],
        }
    }

    fn bytes(most: u64) -> Bounds {
        Bounds::new().retained_bytes(most)
    }

    #[test]
    fn a_producer_over_the_bound_waits_and_says_for_what() {
        assert_eq!(judge(&bytes(17 << 30), &seen()), Verdict::Admit);
        let Verdict::Wait(why) = judge(&bytes(16 << 30), &seen()) else { panic!() };
        assert_eq!(why, "15.0 GiB retained of 16.0 GiB: group llama-7b needs step 1200 and all after it");
        let open = Seen { step_is_open: true, ..seen() };
        assert_eq!(judge(&bytes(16 << 30), &open), Verdict::Admit, "a step once begun is completed");
        let empty = Seen { floor: Step::new(1400), ..seen() };
        assert_eq!(judge(&bytes(1), &empty), Verdict::Admit, "every bound admits one step");
    }

    #[test]
    fn nobody_waits_while_a_consumer_is_hungry() {
        let mut hungry = seen();
        hungry.groups[0] = Told { step: Some(Step::new(1400)), hungry: true, ..hungry.groups[0].clone() };
        let Verdict::Never(why) = judge(&bytes(16 << 30), &hungry) else { panic!() };
        assert!(why.contains(&format!("a bound of at least {} bytes would do", 17u64 << 30)), "{why}");
        let reclaimable = Seen { floor: Step::new(1100), ..hungry.clone() };
        assert!(matches!(judge(&bytes(16 << 30), &reclaimable), Verdict::AdmitOver(_)));
        hungry.groups.push(Told { name: "slow".into(), step: Some(Step::new(1300)), hungry: false });
        let Verdict::Never(why) = judge(&Bounds::new().lead_steps(50), &hungry) else { panic!() };
        assert!(why.ends_with("a bound of at least 101 steps would do"), "{why}");
    }

    #[test]
    fn a_lead_is_that_over_the_slowest_that_tells() {
        let lead = |most| judge(&Bounds::new().lead_steps(most), &seen());
        assert_eq!(lead(11), Verdict::Admit);
        let Verdict::Wait(why) = lead(10) else { panic!() };
        assert_eq!(why, "10 steps of 10 lie ahead of group llama-7b, which is at step 1390");
        let silent = Told { name: "other".into(), step: None, hungry: false };
        let mut unknown = seen();
        unknown.groups.push(silent);
        assert_eq!(judge(&Bounds::new().lead_steps(1), &unknown), Verdict::Admit);
        let nobody = Seen { groups: Vec::new(), needed: None, ..seen() };
        assert!(matches!(judge(&Bounds::new().lead_steps(200), &nobody), Verdict::Wait(_)));
        assert_eq!(judge(&Bounds::new().lead_steps(201), &nobody), Verdict::Admit);
    }

    #[test]
    fn bytes_are_said_as_people_say_them() {
        for (bytes, said) in [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (u64::MAX, "16.0 EiB")]
        {
            assert_eq!(in_words(bytes), said);
        }
    }

    proptest! {
        /// Whatever is seen: who is hungry is never waited over, and one step is always admitted.
        #[test]
        fn no_wait_over_the_hungry(
            most in 0..100u64, lead in 0..20u64, retained in 0..200u64, part in 1..50u64,
            floor in 0..10u64, steps in 0..10u64, at in prop::option::of(0..25u64), hungry: bool,
        ) {
            let next = floor + steps;
            let groups = vec![Told { name: "g".into(), step: at.map(Step::new), hungry }];
            let seen = Seen {
                retained_bytes: retained,
                part_bytes: part,
                floor: Step::new(floor),
                next_step: Step::new(next),
                step_is_open: false,
                needed: Some((Step::new(floor), "g".into())),
                groups,
            };
            let verdict = judge(&Bounds::new().retained_bytes(most).lead_steps(lead), &seen);
            if hungry && at == Some(next) {
                prop_assert!(!matches!(verdict, Verdict::Wait(_)), "{verdict:?}");
            }
            if steps == 0 && at.is_none_or(|at| at >= next) {
                prop_assert_eq!(verdict, Verdict::Admit);
            }
        }
    }
}
