//! The policy against what it promises, over arbitrary observations and attempts, and case by case.

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn seen(producers: u32) -> Observed {
    Observed {
        now: Duration::from_secs(100),
        parts: 1,
        bytes: 4096,
        since: Duration::from_secs(100),
        is_full: false,
        producers,
        attempt_of_others: Duration::ZERO,
        hungry: false,
        random: 0,
    }
}

fn attempt(cost: Duration, won: bool) -> Attempt {
    Attempt { ended: Duration::from_secs(100), cost, won }
}

/// One that has attempted before, with these costs, the last one at second 100, and has won.
fn warm(costs: &[Duration]) -> Dac {
    let mut dac = Dac { is_warm: true, ..Dac::default() };
    for cost in costs {
        dac.note(&attempt(*cost, true));
    }
    dac
}

fn hold(dac: &mut Dac, seen: &Observed) -> Duration {
    match dac.decide(seen) {
        Verdict::Hold(hold) => hold,
        Verdict::Commit => Duration::ZERO,
    }
}

/// The interval of a turn: its hold with the least jitter is half of it.
fn interval(mut dac: Dac, seen: &Observed) -> Duration {
    hold(&mut dac, &Observed { random: 0, ..*seen }) * 2
}

fn close(one: Duration, other: Duration) -> bool {
    one.abs_diff(other) < Duration::from_micros(2)
}

#[test]
fn all_producers_together_attempt_theta_times_an_attempt() {
    for producers in [2, 16, 1024, 10_000] {
        let dac = warm(&[30 * MS, 3 * MS, 40 * MS]);
        assert!(close(interval(dac.clone(), &seen(producers)), 3 * MS * producers * 2), "the least cost");
        let latest = hold(&mut dac.clone(), &Observed { random: u64::MAX, ..seen(producers) });
        assert!(close(latest, 3 * MS * producers * 3), "jittered over 0.5..1.5");
    }
}

#[test]
fn one_alone_never_holds() {
    let mut dac = warm(&[3 * MS]);
    for won in [true, false, false, false, false, true] {
        assert_eq!(dac.decide(&seen(1)), Verdict::Commit);
        dac.note(&attempt(3 * MS, won));
    }
    assert_eq!(Dac::default().decide(&seen(0)), Verdict::Commit, "nobody is known, not even this one");
    let nothing = Observed { parts: 0, ..seen(1) };
    assert!(matches!(Dac::default().decide(&nothing), Verdict::Hold(_)), "there is nothing to commit");
}

#[test]
fn a_first_turn_is_spread_over_the_whole_interval_by_what_is_known() {
    let crowd = Observed { random: u64::MAX, ..seen(50) };
    assert!(close(hold(&mut Dac::default(), &crowd), 10 * MS * 100), "nothing is known");
    let told = Observed { attempt_of_others: 20 * MS, ..crowd };
    assert!(close(hold(&mut Dac::default(), &told), 20 * MS * 100), "others' records tell");
    let mut opened = Dac::default();
    opened.note(&attempt(3 * MS, true));
    assert!(close(hold(&mut opened, &crowd), 3 * MS * 100), "the Open has told");
    assert_eq!(opened.clone().decide(&Observed { random: 0, ..crowd }), Verdict::Hold(3 * MS * 100));
    let mut first = Dac::default();
    assert_eq!(first.decide(&Observed { random: 0, ..crowd }), Verdict::Commit, "uniform from 0");
}

#[test]
fn after_a_pause_it_commits_at_once_until_that_has_lost() {
    let mut dac = warm(&[3 * MS]);
    let later = Duration::from_secs(1000);
    let paused = Observed { now: later, since: later, random: u64::MAX, ..seen(500) };
    assert_eq!(dac.decide(&paused), Verdict::Commit);
    let lost = Attempt { ended: later, cost: 3 * MS, won: false };
    let mut spread = Vec::new();
    for round in 2..6u32 {
        dac.note(&lost);
        let lockstep = Observed { now: later * round, since: later * round, ..paused };
        spread.push(hold(&mut dac, &lockstep));
    }
    let whole = 3 * MS * 1000;
    assert!(close(spread[0], whole / 4) && close(spread[1], whole / 2), "{spread:?}");
    assert!(spread[3] >= whole - MS, "{spread:?}");
    for round in 6..40u32 {
        dac.note(&Attempt { won: true, ..lost });
        hold(&mut dac, &Observed { now: later * round, since: later * round, ..paused });
    }
    assert!(dac.spread < 0.001, "what wins again is spread no more: {}", dac.spread);
}

#[test]
fn a_slow_producer_slows_nobody_and_a_slow_store_everybody() {
    let slow = Observed { attempt_of_others: 30 * MS, ..seen(100) };
    let own = interval(warm(&[3 * MS, 3 * MS]), &seen(100));
    assert!(close(interval(warm(&[3 * MS, 3 * MS]), &slow), own), "the own attempts are as fast as ever");
    assert!(close(interval(warm(&[3 * MS, 3 * MS, 31 * MS]), &slow), own), "one long attempt was a queue");
    let both = interval(warm(&[3 * MS, 31 * MS, 32 * MS]), &slow);
    assert!(close(both, own * 10), "the own last two attempts say so too");
    let alone = interval(warm(&[3 * MS, 31 * MS, 32 * MS]), &seen(100));
    assert!(close(alone, own), "without others' word the least cost counts");
    let behind = Observed { attempt_of_others: 3 * MS, ..seen(100) };
    assert!(close(interval(warm(&[6 * MS]), &behind), own), "the slowest paces by the others");
    assert!(close(interval(warm(&[30 * MS]), &behind), own * 10 / 4), "down to a quarter of its own cost");
}

#[test]
fn losses_in_a_row_back_off_and_wins_come_back() {
    let mut dac = warm(&[3 * MS]);
    let own = interval(dac.clone(), &seen(100));
    let mut after = Vec::new();
    for won in [false, false, false, false, false, false, true, true, true] {
        dac.note(&attempt(3 * MS, won));
        after.push(interval(dac.clone(), &seen(100)).as_secs_f64() / own.as_secs_f64());
    }
    let after: Vec<f64> = after.iter().map(|times| times.round()).collect();
    assert_eq!(after, [1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 2.0, 1.0, 1.0]);
    for _ in 0..100 {
        dac.note(&attempt(3 * MS, false));
    }
    assert!(close(interval(dac, &seen(100)), Duration::from_secs(20)), "up to the bound");
    let mut slow = warm(&[30 * MS]);
    slow.decide(&Observed { attempt_of_others: 3 * MS, ..seen(100) });
    for _ in 0..100 {
        slow.note(&attempt(30 * MS, false));
    }
    assert_eq!(slow.doublings, 0, "one ten times as slow has to expect them");
}

#[test]
fn a_store_that_has_become_slow_isnt_backed_off_from_twice() {
    let mut dac = warm(&[3 * MS; 5]);
    let mut most = Duration::ZERO;
    for _ in 0..12 {
        dac.note(&attempt(15 * MS, false));
        dac.note(&attempt(15 * MS, true));
        most = most.max(interval(dac.clone(), &seen(100)));
    }
    assert!(close(interval(dac, &seen(100)), 15 * MS * 200), "as its cost says");
    assert!(most <= 15 * MS * 200 * 2, "and hardly more meanwhile: {most:?}");
}

#[test]
fn a_collapse_isnt_taken_for_the_pace_of_the_store() {
    let mut dac = warm(&[3 * MS; 5]);
    for _ in 0..COSTS_KEPT {
        dac.note(&attempt(9000 * MS, false));
    }
    assert_eq!(dac.cost(), 12 * MS, "every attempt of the window stood behind a crowd");
    dac.note(&attempt(3 * MS, true));
    assert_eq!(dac.cost(), 3 * MS, "and the first that didn't says so");
}

/// Where as many again join, their first attempts all stand in one queue.
#[test]
fn a_newcomer_takes_the_pace_of_the_store_from_others_and_not_from_the_crowd_it_came_with() {
    let known = Observed { attempt_of_others: 3 * MS, ..seen(100) };
    let mut dac = Dac::default();
    hold(&mut dac, &known);
    dac.note(&attempt(9000 * MS, true));
    assert_eq!(dac.cost(), 12 * MS, "as of who has attempted before");
    assert!(close(interval(dac.clone(), &known), 3 * MS * 200), "so it is a producer as all others");
    let mut alone = Dac::default();
    hold(&mut alone, &seen(100));
    alone.note(&attempt(9000 * MS, true));
    assert_eq!(alone.cost(), 9000 * MS, "where nobody says anything the own attempt counts");
}

#[test]
fn a_queue_that_was_met_says_how_many_are_there() {
    let mut dac = warm(&[3 * MS]);
    dac.note(&attempt(603 * MS, false));
    assert_eq!(dac.doublings, 1, "a crowd is a sign by itself");
    assert!(close(interval(dac.clone(), &seen(2)), 2400 * MS), "200 attempts were before it");
    assert!(close(interval(dac.clone(), &seen(1000)), 12_000 * MS), "N explains them");
    dac.note(&attempt(603 * MS, true));
    assert!(close(interval(dac, &seen(2)), 12 * MS), "who has won goes on as N says");
}

#[test]
fn urgency_shortens_a_turn_by_its_bounded_part() {
    let dac = warm(&[3 * MS]);
    let own = interval(dac.clone(), &seen(100));
    let urgent = [
        Observed { hungry: true, ..seen(100) },
        Observed { is_full: true, ..seen(100) },
        Observed { parts: 256, ..seen(100) },
        Observed { bytes: 64 << 20, ..seen(100) },
        Observed { bytes: 64 << 20, parts: 256, is_full: true, hungry: true, ..seen(100) },
    ];
    for urgent in urgent {
        assert!(close(interval(dac.clone(), &urgent), own * 5 / 6), "{urgent:?}");
    }
    let mut dac = dac;
    let calm = hold(&mut dac, &seen(100));
    let hungry = hold(&mut dac, &Observed { hungry: true, ..seen(100) });
    assert!(hungry < calm, "also in the middle of a turn");
    assert_eq!(hold(&mut dac, &seen(100)), hungry, "and then for the whole of it");
}

fn observed() -> impl Strategy<Value = Observed> {
    let times = (0..10_000_000u64, 0..10_000_000u64);
    let load = (0..300u32, 0..1u64 << 28, any::<bool>());
    let hints = (prop_oneof![0..4u32, 0..70_000u32], 0..20_000_000u64, any::<bool>());
    (times, load, hints, any::<u64>()).prop_map(|((now, age), (parts, bytes, is_full), hints, random)| {
        let (producers, others, hungry) = hints;
        Observed {
            now: Duration::from_micros(now),
            parts,
            bytes,
            // Now and then after now: clocks are taken at different places.
            since: Duration::from_micros((now + 1000).saturating_sub(age)),
            is_full,
            producers,
            attempt_of_others: Duration::from_micros(others),
            hungry,
            random,
        }
    })
}

fn attempts() -> impl Strategy<Value = Vec<Attempt>> {
    let one = (0..10_000_000u64, 0..60_000_000u64, any::<bool>());
    let one = one.prop_map(|(ended, cost, won)| Attempt {
        ended: Duration::from_micros(ended),
        cost: Duration::from_micros(cost),
        won,
    });
    prop::collection::vec(one, 0..20)
}

fn after(attempts: &[Attempt]) -> Dac {
    let mut dac = Dac::default();
    for attempt in attempts {
        dac.decide(&seen(3));
        dac.note(attempt);
    }
    dac
}

proptest! {
    /// Whatever is seen, no hold is longer than is documented.
    #[test]
    fn no_hold_beyond_the_bound(attempts in attempts(), asks in prop::collection::vec(observed(), 1..10)) {
        let mut dac = after(&attempts);
        for seen in asks {
            let bound = dac.hold_max(&seen);
            let pace = dac.cost().min(dac.knobs.cost_max).mul_f64(f64::from(seen.producers) * 1.5 / 0.5);
            prop_assert!(bound <= dac.knobs.hold_max.max(pace + MS));
            match dac.decide(&seen) {
                Verdict::Hold(hold) => prop_assert!(hold <= bound && (seen.producers > 1 || seen.parts == 0)),
                Verdict::Commit => prop_assert!(seen.parts > 0),
            }
        }
    }

    /// A wait once begun is never made longer, whatever changes, and when it has elapsed it is over.
    #[test]
    fn no_due_moves_later(attempts in attempts(), asks in prop::collection::vec(observed(), 1..10)) {
        let mut dac = after(&attempts);
        let (mut due, mut now) = (Duration::MAX, Duration::ZERO);
        for seen in asks {
            let seen = Observed { now: seen.now.max(now), parts: seen.parts.max(1), ..seen };
            now = seen.now;
            let held = now + hold(&mut dac, &seen);
            prop_assert!(held <= due.max(now), "{held:?} after {due:?}");
            due = due.min(held);
            let elapsed = Observed { now: held, ..seen };
            prop_assert_eq!(dac.clone().decide(&elapsed), Verdict::Commit);
        }
    }

    /// Whatever hunger says, a turn is at most a sixth shorter, and no longer.
    #[test]
    fn hunger_is_worth_its_part_and_no_more(attempts in attempts(), seen in observed()) {
        let seen = Observed { now: Duration::ZERO, since: Duration::ZERO, ..seen };
        let mut calm = after(&attempts);
        let mut hungry = calm.clone();
        let calm_for = hold(&mut calm, &Observed { hungry: false, ..seen });
        let hungry_for = hold(&mut hungry, &Observed { hungry: true, ..seen });
        prop_assert!(hungry_for <= calm_for);
        let ended = attempts.last().map_or(Duration::ZERO, |last| last.ended);
        // From the own last attempt on, which is over.
        prop_assert!(calm_for.saturating_sub(ended).mul_f64(0.83) <= hungry_for || seen.parts == 0);
    }
}
