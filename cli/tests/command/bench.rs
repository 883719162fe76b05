//! `bench commit`: tiny runs, by what their rows hold, never by how fast they are; and what is left behind.

use rustix::process::{Pid, Signal, kill_process};

use super::{args, *};

fn names_in(dir: &Path) -> Vec<OsString> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn a_row_for_each_policy_and_number_is_whole_and_sane() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    let load = args!["--producers", "2", "--seconds", "1", "--warm-up", "0", "--rate", "20"];
    let more = args!["--serialized", "1", "--json"];
    let first = args!["bench", "commit", dir];
    let fact = run(&[&first[..], load, more].concat()).fact();
    assert_eq!(fact.as_object().unwrap().len(), 1);
    let rows = fact["rows"].as_array().unwrap();
    let policies: Vec<_> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["dac", "greedy", "fixed", "backoff"]);
    let mut keys = vec!["policy", "producers", "offered", "committed", "conflict_ratio", "jain"];
    keys.extend(["attempts_per_commit", "delay_p50_ms", "delay_p99_ms", "metadata_calls_per_batch"]);
    keys.sort_unstable();
    for row in rows {
        let mut held: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        held.sort_unstable();
        assert_eq!(held, keys);
        let number = |key: &str| row[key].as_f64().unwrap();
        assert_eq!(row["producers"], 2);
        assert_eq!(number("offered"), rows[0]["offered"].as_f64().unwrap(), "all are offered the same");
        assert!(number("offered") > 0.0);
        assert!((0.0..=number("offered")).contains(&number("committed")), "{row}");
        assert!((0.0..=1.0).contains(&number("conflict_ratio")), "{row}");
        assert!((0.0..=1.0).contains(&number("jain")), "{row}");
        assert!(number("delay_p50_ms") > 0.0 && number("delay_p50_ms") <= number("delay_p99_ms"), "{row}");
        if number("committed") > 0.0 {
            assert!(number("attempts_per_commit") >= 1.0, "{row}");
            assert!(number("metadata_calls_per_batch") > 0.0, "{row}");
        }
    }
    assert_eq!(names_in(dir), Vec::<OsString>::new());
}

#[test]
fn a_producer_that_dies_is_named_and_nothing_is_left() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    let arguments = args!["bench", "commit", dir, "--producers", "2", "--seconds", "600"];
    let mut command = command(arguments);
    let bench = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", bench.id());
    let first = loop {
        let listed = fs::read_to_string(&children).expect("it runs");
        if let Some(first) = listed.split_whitespace().next() {
            break first.parse().unwrap();
        }
        std::thread::yield_now();
    };
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    let sentence = wait(bench).failed(1);
    assert_eq!(sentence, "producer producer-0000 of 2 by dac ended early, with signal: 9 (SIGKILL)");
    assert_eq!(names_in(dir), Vec::<OsString>::new());
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let place = TempDir::new().unwrap();
    let dir = place.path();
    for wrong in [["--producers", "0"], ["--producers", "4,x"], ["--rate", "0"], ["--seconds", "0"]] {
        let first = args!["bench", "commit", dir];
        let arguments: Vec<&OsStr> = first.iter().copied().chain(wrong.iter().map(OsStr::new)).collect();
        let ended = run(&arguments);
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(ended.stderr.contains(wrong[0]), "{}", ended.stderr);
    }
    let nowhere = dir.join("none");
    assert!(run(args!["bench", "commit", nowhere]).failed(1).starts_with("can't look at "));
    assert_eq!(names_in(dir), Vec::<OsString>::new());
}
