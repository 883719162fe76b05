//! The verbs that tend a store, each once for real; and that a dry run is one.

use super::{args, *};

/// Segments of 16 versions and so many steps, each a commit beside an Open.
fn filled(steps: u64) -> Place {
    let place = Place::new(&["--segment", "16"]);
    (0..steps).for_each(|step| place.publish("p", format!("bytes {step}").as_bytes()));
    place
}

fn checkpoint(place: &Place, step: u64, name: &str) -> Value {
    let step = step.to_string();
    run(args!["checkpoint", place.root, step, "--group", "g", "--name", name, "--json"]).fact()
}

#[test]
fn checkpoints_are_written_listed_and_dropped() {
    let place = filled(4);
    let root = &place.root;
    let made = checkpoint(&place, 2, "two");
    assert_eq!(
        (&made["step"], &made["position"]["step"], &made["pinned"]),
        (&2.into(), &2.into(), &false.into())
    );
    assert_eq!(checkpoint(&place, 2, "two")["version"], made["version"], "said again, it is there already");
    let text = OsStr::from_bytes(b"\xff");
    let pinned = ["checkpoint".as_ref(), root.as_os_str(), "3".as_ref(), "--group".as_ref(), "h".as_ref()];
    let more = args!["--name", "x", "--pin", "--metadata", text];
    let said = run(&[&pinned[..], more].concat()).text();
    assert!(said.starts_with("x of h at step 3, pinned (version "), "{said}");
    assert!(said.ends_with("): 1 B that aren't text\n"), "{said}");

    let listed = run(args!["checkpoints", root, "--json"]).json();
    let names: Vec<_> = listed.iter().map(|kept| kept["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["two", "x"]);
    assert_eq!((&listed[0]["metadata"], &listed[1]["metadata_base64"]), (&"".into(), &"/w==".into()));
    assert_eq!(run(args!["checkpoints", root, "--group", "h", "--json"]).json(), listed[1..]);

    let groups = run(args!["groups", root, "--json"]).json();
    assert_eq!((&groups[0]["start"], &groups[0]["needs"]), (&0.into(), &2.into()));
    assert_eq!((&groups[0]["reached"], &groups[0]["checkpoints"]), (&2.into(), &1.into()));
    assert!(run(args!["groups", root]).text().starts_with("NAME  STATUS "));

    let drop: &[&OsStr] = args!["drop-checkpoint", root, "two", "--group", "g", "--json"];
    let mut dry = Value::Null;
    changes_nothing(root, || dry = run(drop).fact());
    assert_eq!((&dry["step"], &dry["dry_run"], &dry["changed"]), (&2.into(), &true.into(), &false.into()));
    let confirmed = [drop, args!["--confirm"]].concat();
    let done = run(&confirmed).fact();
    assert_eq!((&done["step"], &done["others"], &done["changed"]), (&2.into(), &0.into(), &true.into()));
    let again = run(&confirmed).fact();
    assert_eq!((&again["step"], &again["changed"]), (&Value::Null, &false.into()));

    assert_eq!(run(args!["retire-group", root, "h", "--json"]).fact()["changed"], true);
    assert_eq!(run(args!["retire-group", root, "h", "--json"]).fact()["changed"], false);
    assert_eq!(run(args!["checkpoints", root]).text(), "");
    let sentence = run(args!["drop-checkpoint", root, "x", "--group", "h"]).failed(17);
    assert!(sentence.contains("group h is retired"), "{sentence}");
}

#[test]
fn bad_inputs_are_named() {
    let place = filled(4);
    let root = &place.root;
    let checkpoint =
        |step: &str, name: &str| run(args!["checkpoint", root, step, "--group", "g", "--name", name]);
    checkpoint("1", "c").good();
    assert!(checkpoint("5", "d").failed(17).contains("beyond the end"));
    assert!(checkpoint("2", "c").failed(17).contains("has a checkpoint c at step 1 already"));
    assert_eq!(checkpoint("2", "../c").code, 2);
    let cases: [(&[&OsStr], &str); _] = [
        (args!["checkpoints", root, "--group", "no"], "there is no group no"),
        (args!["drop-checkpoint", root, "c", "--group", "no"], "there is no group no"),
        (args!["retire-group", root, "no"], "there is no group no"),
        (args!["rewind", root, "5"], "step 5"),
        (args!["skip", root, "3", "4", "--reason", "r"], "the next one is 4"),
        (args!["skip", root, "3", "2", "--reason", "r"], "there are no steps from 3 to 2"),
        (args!["forget", root, "p"], "producer p hasn't finished"),
        (args!["reclaim", root, "--keep", "0"], "g"),
    ];
    for (arguments, said) in cases {
        changes_nothing(root, || {
            let sentence = run(arguments).failed(17);
            assert!(sentence.contains(said), "{sentence}");
        });
    }
    run(args!["retire-group", root, "g"]).good();
    assert!(run(args!["reclaim", root, "--up-to", "5"]).failed(17).contains("step 5"));
    assert_eq!(run(args!["check", root]).code, 2, "it has to be told what to check");
    assert_eq!(run(args!["skip", root, "1", "1"]).code, 2, "a skip has a reason");
    assert_eq!(run(args!["copy", root, "x", "--steps", "1-2"]).code, 2);
}

#[test]
fn reclaim_frees_what_no_checkpoint_needs() {
    let place = filled(40);
    let root = &place.root;
    [10, 30, 39].iter().for_each(|step| drop(checkpoint(&place, *step, &format!("c{step}"))));
    let keep: &[&OsStr] = args!["reclaim", root, "--keep", "2", "--json"];
    let mut plan = Value::Null;
    changes_nothing(root, || plan = run(keep).fact());
    assert_eq!((&plan["dry_run"], &plan["floor"]), (&true.into(), &30.into()));
    changes_nothing(root, || {
        let said = run(args!["reclaim", root, "--keep", "2"]).text();
        assert!(said.contains("would rise from step 0 to step 30"), "{said}");
        assert!(said.ends_with("nothing was changed: --confirm does it\n"), "{said}");
    });
    let done = run(&[keep, args!["--confirm"]].concat()).fact();
    assert_eq!((&done["dry_run"], &done["floor"]), (&false.into(), &30.into()));
    assert_eq!(done["segments"], plan["segments"]);
    assert!(done["segments"]["count"].as_u64().unwrap() > 0);
    assert_eq!(run(args!["info", root, "--json"]).fact()["floor"], 30);
    run(args!["cat", root, "29"]).failed(14);
    assert_eq!(run(args!["cat", root, "30"]).good(), b"bytes 30");
    let bounded = run(args!["reclaim", root, "--keep", "1", "--up-to", "35", "--confirm", "--json"]).fact();
    assert_eq!(bounded["floor"], 35);
    let last = args!["reclaim", root, "--keep", "0", "--allow-no-checkpoint", "--json"];
    assert_eq!(run(last).fact()["dropped"].as_array().unwrap().len(), 1);
}

#[test]
fn history_is_changed_when_confirmed() {
    let place = filled(5);
    let root = &place.root;
    checkpoint(&place, 5, "late");
    let rewind: &[&OsStr] = args!["rewind", root, "4", "--json"];
    let mut plan = Value::Null;
    changes_nothing(root, || plan = run(rewind).fact());
    assert_eq!(
        (&plan["dry_run"], &plan["parts"], &plan["checkpoints"]["g"][0]),
        (&true.into(), &1.into(), &"late".into())
    );
    changes_nothing(root, || {
        let said = run(args!["rewind", root, "4"]).text();
        assert!(said.starts_with("the next step would be 4, not 5: 1 step (1 part, "), "{said}");
        assert!(said.contains("\nproducer p would be set back to sequence 4, by 1 part\n"), "{said}");
        assert!(said.contains("\ncheckpoint late of group g would be dropped\n"), "{said}");
    });
    let done = run(&[rewind, args!["--confirm", "-q"]].concat()).fact();
    assert_eq!((&done["dry_run"], &done["producers"]), (&false.into(), &plan["producers"]));
    run(args!["cat", root, "4"]).failed(17);
    checkpoint(&place, 4, "other");
    run(args!["checkpoint", root, "1", "--group", "h", "--name", "x"]).good();
    assert!(run(args!["rewind", root, "3"]).failed(17).contains('h'), "two groups live");
    assert_eq!(run(args!["rewind", root, "3", "--even-with-groups", "--json"]).fact()["parts"], 1);

    let skip: &[&OsStr] = args!["skip", root, "1", "2", "--reason", "bad\ndata", "--json"];
    changes_nothing(root, || assert_eq!(run(skip).fact()["changed"], true));
    changes_nothing(root, || {
        let said = run(args!["skip", root, "1", "2", "--reason", "bad\ndata"]).text();
        assert!(said.starts_with("steps 1 to 2 would be passed over: bad\\ndata\n"), "{said}");
    });
    let confirmed = [skip, args!["--confirm", "-q"]].concat();
    assert_eq!(run(&confirmed).fact()["changed"], true);
    assert_eq!(run(&confirmed).fact()["changed"], false);
    assert_eq!(run(skip).fact()["changed"], false, "a dry run of what is done");
    let steps = wait(place.follow(&["--json", "--until", "4", "--timeout", "0"])).json();
    assert_eq!(steps.iter().map(|line| line["step"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 3]);

    place.publish("q", b"of q");
    run(args!["retire", root, "q"]).good();
    assert!(run(args!["forget", root, "q"]).failed(17).contains("retained"));
    assert_eq!(run(args!["forget", root, "nobody", "--json"]).fact()["changed"], false);
    ["g", "h"].iter().for_each(|group| drop(run(args!["retire-group", root, group]).good()));
    run(args!["reclaim", root, "--up-to", "5", "--confirm"]).good();
    assert_eq!(run(args!["forget", root, "q", "--json"]).fact()["changed"], true);
    assert_eq!(run(args!["producers", root, "--json"]).json().len(), 1);
}

#[test]
fn repair_mends_when_confirmed() {
    let place = filled(20);
    let root = &place.root;
    let repair: &[&OsStr] = args!["repair", root, "--json"];
    let confirmed = [repair, args!["--confirm"]].concat();
    changes_nothing(root, || assert_eq!(run(repair).fact()["sound"], true));
    let index = root.join("index/000000000001");
    let bytes = fs::read(&index).unwrap();
    fs::remove_file(&index).unwrap();
    let fact = |ended: Ended, code| {
        assert_eq!((ended.code, ended.stderr.lines().count()), (code, 0), "{}", ended.stderr);
        serde_json::from_slice::<Value>(&ended.stdout).unwrap()
    };
    let quiet = |arguments: &[&OsStr]| run(&[arguments, args!["-q"]].concat());
    changes_nothing(root, || {
        let told = fact(quiet(repair), 1);
        assert_eq!(
            (&told["rebuilt"][0]["path"], &told["sound"]),
            (&"index/000000000001".into(), &false.into())
        );
    });
    assert_eq!(fact(quiet(&confirmed), 0)["sound"], true);
    assert_eq!(fs::read(&index).unwrap(), bytes);

    let newest = run(args!["info", root, "--json"]).fact()["head_version"].as_u64().unwrap();
    let lost = place.root.join(format!("log/{:012}/{:020}", (newest - 2) / 16, newest - 2));
    fs::remove_file(lost).unwrap();
    run(args!["info", root]).failed(11);
    changes_nothing(root, || {
        let told = fact(quiet(repair), 1);
        assert_eq!((&told["lost"]["version"], &told["dropped"]), (&(newest - 2).into(), &false.into()));
        let said = String::from_utf8(quiet(args!["repair", root]).stdout).unwrap();
        assert!(said.ends_with("BROKEN\nnothing was changed: --confirm does it\n"), "{said}");
    });
    assert_eq!(fact(quiet(&confirmed), 0)["dropped"], true);
    assert_eq!(run(args!["verify", root, "--json"]).fact()["clean"], true);
    place.publish("p", b"it goes on");
}

#[test]
fn destroy_goes_on_where_it_was_stopped_and_leaves_what_is_foreign() {
    let place = filled(20);
    let root = &place.root;
    checkpoint(&place, 3, "c");
    fs::write(root.join(OsStr::from_bytes(b"not\xffes")), b"mine").unwrap();
    fs::write(root.join("log/000000000000/mine"), b"mine").unwrap();
    let destroy: &[&OsStr] = args!["destroy", root, "--json"];
    let mut plan = Value::Null;
    changes_nothing(root, || plan = run(destroy).fact());
    assert_eq!((&plan["dry_run"], &plan["resumed"]), (&true.into(), &false.into()));
    let left = ["log/000000000000/mine", "not\u{fffd}es"];
    assert_eq!(plan["left"], serde_json::json!(left));
    let confirmed = [destroy, args!["--confirm"]].concat();
    let done = run(&confirmed).fact();
    for what in ["commits", "others", "left"] {
        assert_eq!(done[what], plan[what], "{what}");
    }
    run(args!["info", root]).failed(17);
    let sentence = run(&confirmed).failed(17);
    assert!(sentence.contains("it isn't taken for the rest of a store"), "{sentence}");
    assert_eq!(fs::read(root.join("log/000000000000/mine")).unwrap(), b"mine");
    let there: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(there.len(), 2, "{there:?}");

    let half = filled(20);
    let root = &half.root;
    fs::remove_file(root.join("STORE")).unwrap();
    assert!(run(args!["init", root]).failed(17).contains("half of a destroyed store"));
    let destroy: &[&OsStr] = args!["destroy", root, "--json"];
    changes_nothing(root, || assert_eq!(run(destroy).fact()["resumed"], true));
    assert_eq!(run(&[destroy, args!["--confirm"]].concat()).fact()["resumed"], true);
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
    assert!(run(destroy).failed(17).contains("the directory is empty"));
    run(args!["doctor", root]).good();
    run(args!["init", root, "--unsynced"]).good();
    half.publish("p", b"begins anew");
    assert_eq!(run(args!["cat", root, "0"]).good(), b"begins anew");
}

#[test]
fn a_directory_that_is_no_store_is_never_taken_for_one() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("log")).unwrap();
    fs::write(dir.path().join("log/today"), b"mine").unwrap();
    fs::write(dir.path().join("thesis"), b"mine").unwrap();
    changes_nothing(dir.path(), || {
        let sentence = run(args!["destroy", dir.path(), "--confirm"]).failed(17);
        assert!(sentence.contains("thesis"), "{sentence}");
    });
}

#[test]
fn check_says_in_a_sentence_what_is_wrong() {
    let place = filled(10);
    let root = &place.root;
    let check = |more: &[&str]| {
        let more: Vec<&OsStr> = more.iter().map(OsStr::new).collect();
        run(&[args!["check", root], &more[..]].concat())
    };
    let no = |more: &[&str]| {
        let ended = check(more);
        assert_eq!((ended.code, ended.stderr.as_str()), (1, ""));
        String::from_utf8(ended.stdout).unwrap()
    };
    let all = ["--min-lead", "6", "--max-idle", "3600", "--max-bytes", "1000000"];
    changes_nothing(root, || drop(check(&all).good()));
    checkpoint(&place, 4, "c");
    let seen = check(&[&all[..], &["--json"]].concat()).fact();
    assert_eq!((&seen["ok"], &seen["lead"], &seen["slowest_group"]), (&true.into(), &6.into(), &"g".into()));
    let said = no(&["--min-lead", "7", "--max-bytes", "1"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(": only 6 steps of 7 ahead of group g, which is at step 4; "), "{said}");
    assert!(said.ends_with(" retained, where 1 B are allowed\n"), "{said}");
    let reader = batchweave::Store::open(root).unwrap();
    let run_of = reader.group("g").unwrap().begin(batchweave::Step::new(4)).unwrap();
    let mut consumer = run_of.consumer(batchweave::Share::WHOLE).unwrap();
    consumer.next_batch().unwrap();
    let told = check(&["--min-lead", "1", "--json"]).fact()["reached"].as_u64().unwrap();
    assert!(told == 4 || told == 5, "its progress says {told}");

    let empty = Place::new(&[]);
    let said = run(args!["check", empty.root, "--max-idle", "10"]);
    assert_eq!(said.code, 1);
    assert!(String::from_utf8(said.stdout).unwrap().contains("no commit yet"));
    run(args!["close", empty.root]).good();
    run(args!["check", empty.root, "--max-idle", "0", "--min-lead", "1"]).good();
}

#[test]
fn turns_are_shown_set_and_ended_when_confirmed() {
    let place = filled(2);
    let root = &place.root;
    assert_eq!(run(args!["turns", root]).text(), "no turns: every producer publishes freely\n");
    assert_eq!(run(args!["turns", root, "--json"]).fact()["ring"], false);
    let set: &[&OsStr] = args!["turns", root, "--set", "p,q", "--parts", "2", "--json"];
    let mut dry = Value::Null;
    changes_nothing(root, || dry = run(set).fact());
    assert_eq!((&dry["changes"], &dry["dry_run"]), (&true.into(), &true.into()));
    let confirmed = [set, args!["--confirm"]].concat();
    assert_eq!(run(&confirmed).fact()["changes"], true);
    assert_eq!(run(&confirmed).fact()["changes"], false, "it is so already");

    place.publish("p", b"first");
    let shown = run(args!["turns", root, "--json"]).fact();
    assert_eq!((&shown["turn"], &shown["parts_left"]), (&"p".into(), &1.into()));
    place.publish("p", b"second");
    let shown = run(args!["turns", root, "--json"]).fact();
    assert_eq!(
        (&shown["turn"], &shown["opened"], &shown["last_seen"]),
        (&"q".into(), &false.into(), &Value::Null)
    );
    assert!(shown["moved_us"].is_u64(), "{shown}");
    let text = run(args!["turns", root]).text();
    assert!(
        text.starts_with("2 parts each, in this order:\n  p\n  q\nit is the turn of q, for 2 parts more, ")
    );
    assert!(text.ends_with("q was never opened: all others wait for it\n"), "{text}");
    assert_eq!(run(args!["info", root, "--json"]).fact()["turn"], "q");

    let twice = run(args!["turns", root, "--set", "p,p", "--parts", "1"]).failed(17);
    assert!(twice.contains("p is in the ring of turns twice"), "{twice}");
    assert_eq!(run(args!["turns", root, "--set", "p"]).code, 2, "without --parts");
    changes_nothing(root, || drop(run(args!["turns", root, "--end"])));
    assert_eq!(run(args!["turns", root, "--end", "--confirm", "--json"]).fact()["changes"], true);
    assert_eq!(run(args!["turns", root, "--json"]).fact()["ring"], false);
    assert!(run(args!["log", root]).text().contains("2 parts each: p, q"));
}
