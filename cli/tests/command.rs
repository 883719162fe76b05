//! The command, by running it: real processes, their bytes, their exit codes.
//!
//! Method: a store in a directory of its own for each test; processes meet at pipes and exits, never by the
//! clock. Kinds of error that need another filesystem or a race have their codes checked beside the table,
//! in `failure`.

#[path = "command/bench.rs"]
mod bench;
#[path = "command/copy.rs"]
mod copy;
#[path = "command/interrupted.rs"]
mod interrupted;
#[path = "command/lifecycle.rs"]
mod lifecycle;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use serde_json::Value;
use tempfile::TempDir;

/// How a process ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Ended {
    /// What is on stdout, of a process that did well and had nothing to say besides.
    #[track_caller]
    fn good(self) -> Vec<u8> {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""));
        self.stdout
    }

    #[track_caller]
    fn text(self) -> String {
        String::from_utf8(self.good()).unwrap()
    }

    /// A JSON object a line.
    #[track_caller]
    fn json(self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The only JSON object.
    #[track_caller]
    fn fact(self) -> Value {
        let mut facts = self.json();
        assert_eq!(facts.len(), 1);
        facts.remove(0)
    }

    /// Holds a failure against its code; gives its one sentence.
    #[track_caller]
    fn failed(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{:?}", self.stderr);
        let sentence = self.stderr.strip_prefix("batchweave: ").expect("it says who it is");
        sentence.trim_end().to_owned()
    }
}

fn command(arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_batchweave"));
    command.args(arguments).env("LC_ALL", "C").env_remove("BATCHWEAVE_LOG").stdin(Stdio::null());
    command
}

fn run(arguments: &[&OsStr]) -> Ended {
    let output = command(arguments).output().unwrap();
    let code = output.status.code().expect("it isn't killed");
    Ended { code, stdout: output.stdout, stderr: String::from_utf8(output.stderr).unwrap() }
}

/// Arguments of text and of paths.
macro_rules! args {
    ($($argument:expr),* $(,)?) => { &[$(AsRef::<OsStr>::as_ref(&$argument)),*] };
}
use args;

/// A directory with a store of unsynced commits, and files beside it.
struct Place {
    dir: TempDir,
    root: PathBuf,
}

impl Place {
    fn new(options: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        // A name that is no UTF-8: whatever works here works with any.
        let root = dir.path().join(OsString::from_vec(b"st\xffore".to_vec()));
        let mut arguments: Vec<&OsStr> = vec!["init".as_ref(), root.as_ref(), "--unsynced".as_ref()];
        arguments.extend(options.iter().map(OsStr::new));
        run(&arguments).good();
        Self { dir, root }
    }

    fn file(&self, name: &[u8], bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(OsStr::from_bytes(name));
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Publishes a part of one slice.
    #[track_caller]
    fn publish(&self, producer: &str, bytes: &[u8]) {
        let file = self.file(b"slice", bytes);
        run(args!["debug", "publish", self.root, "--producer", producer, file]).good();
    }

    fn commit(&self, version: u64) -> PathBuf {
        self.root.join(format!("log/{:012}/{version:020}", 0))
    }

    /// A byte of the first slice in a commit, turned.
    fn damage(&self, version: u64) {
        let mut bytes = fs::read(self.commit(version)).unwrap();
        bytes[4096] ^= 1;
        fs::write(self.commit(version), bytes).unwrap();
    }

    fn follow(&self, more: &[&str]) -> Child {
        let mut arguments: Vec<&OsStr> = args!["follow", self.root, "--share", "0/1"].to_vec();
        arguments.extend(more.iter().map(OsStr::new));
        start(&arguments)
    }
}

fn start(arguments: &[&OsStr]) -> Child {
    command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn wait(mut child: Child) -> Ended {
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let output = child.wait_with_output().unwrap();
    Ended { code: output.status.code().unwrap(), stdout: output.stdout, stderr }
}

#[test]
fn files_come_back_byte_for_byte() {
    let place = Place::new(&[]);
    let every_byte: Vec<u8> = (0..=255).cycle().take(3 << 20 | 7).collect();
    let contents: [&[u8]; 4] = [b"text\n", b"", &every_byte, b"\0\xff"];
    let names: [&[u8]; 4] = [b"a", b"empty", b"b\xfe", b"c"];
    let files: Vec<PathBuf> =
        names.iter().zip(contents).map(|(name, bytes)| place.file(name, bytes)).collect();
    let mut arguments: Vec<&OsStr> =
        args!["debug", "publish", place.root, "--producer", "p", "--metadata", "m\n"].to_vec();
    arguments.extend(files.iter().map(|path| path.as_os_str()));
    run(&arguments).good();

    let all = run(args!["cat", place.root, "0"]).good();
    assert!(all == contents.concat(), "all slices, in order");
    for (index, bytes) in contents.iter().enumerate() {
        let slice = run(args!["cat", place.root, "0", "--slice", index.to_string()]).good();
        assert!(slice == *bytes, "slice {index}");
    }
    assert_eq!(run(args!["cat", place.root, "0", "--metadata"]).good(), b"m\n");
    assert_eq!(run(args!["cat", place.root, "0", "--attachment"]).good(), b"");
}

#[test]
fn parts_of_a_step_follow_one_another() {
    let place = Place::new(&["--parts", "2"]);
    place.publish("p", b"one");
    run(args!["cat", place.root, "0"]).failed(17);
    place.publish("q", b"two");
    assert_eq!(run(args!["cat", place.root, "0"]).good(), b"onetwo");
    assert_eq!(run(args!["cat", place.root, "0", "--slice", "1"]).good(), b"two");
}

#[test]
fn each_kind_of_end_has_its_code() {
    let place = Place::new(&[]);
    place.publish("p", b"bytes");
    let file = place.file(b"file", b"x");
    let nothing = place.dir.path().join("nothing");
    let usage = run(args!["follow", place.root, "--share", "2/2"]);
    assert_eq!(usage.code, 2);
    assert_eq!(run(args!["cat", place.root, "0", "--metadata", "--attachment"]).code, 2);
    assert_eq!(run(&[]).code, 2);

    let sentence = run(args!["debug", "publish", place.root, "--producer", "p", nothing]).failed(10);
    assert!(sentence.ends_with("No such file or directory (os error 2)"), "{sentence}");
    run(args!["debug", "publish", place.root, "--producer", "p", place.dir.path()]).failed(10);
    let full = fs::File::create("/dev/full").unwrap();
    let full = command(args!["info", place.root]).stdout(full).stderr(Stdio::null()).status().unwrap();
    assert_eq!(full.code(), Some(10));

    for verb in
        ["info", "log", "producers", "verify", "close", "reopen", "groups", "reclaim", "repair", "destroy"]
    {
        run(args![verb, nothing]).failed(17);
        run(args![verb, file]).failed(17);
    }
    run(args!["init", place.root]).failed(17);
    run(args!["init", place.root, "--if-absent", "--divisor", "3"]).failed(17);
    run(args!["init", place.root, "--if-absent", "--unsynced"]).good();
    run(args!["retire", place.root, "nobody"]).failed(17);
    run(args!["cat", place.root, "1"]).failed(17);
    run(args!["cat", place.root, "0", "--slice", "1"]).failed(17);
    run(args!["doctor", nothing]).failed(17);
    run(args!["follow", place.root, "--share", "0/1", "--from", "2"]).failed(17);
    wait(place.follow(&["--from", "1", "--timeout", "0"])).failed(19);

    assert_eq!(run(args!["verify", place.root]).code, 0);
    place.damage(1);
    run(args!["cat", place.root, "0"]).failed(11);
    let verify = run(args!["verify", place.root]);
    assert_eq!((verify.code, verify.stderr.as_str()), (1, ""));
    assert!(String::from_utf8(verify.stdout).unwrap().contains("00000000000000000001"), "it says where");
}

#[test]
fn a_publish_whose_name_is_taken_over_is_fenced() {
    let place = Place::new(&[]);
    let pipe = place.dir.path().join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let arguments: &[&OsStr] = args!["debug", "publish", place.root, "--producer", "p", pipe];
    let old = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Opens once the other end is opened, and that is after the producer.
    let mut end = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    place.publish("p", b"new");
    end.write_all(b"old").unwrap();
    drop(end);
    wait(old).failed(12);
    assert_eq!(run(args!["cat", place.root, "0"]).good(), b"new");
    run(args!["cat", place.root, "1"]).failed(17);
}

#[test]
fn every_verb_that_prints_facts_prints_json() {
    let place = Place::new(&[]);
    let file = place.file(b"slice", b"12345");
    let state = OsStr::from_bytes(b"\xff");
    let published =
        run(args!["debug", "publish", place.root, "--producer", "p", "--state", state, "--json", file]);
    assert_eq!(published.json()[0]["step"], 0);
    run(args!["debug", "publish", place.root, "--producer", "q", "--state", "text", file]).good();

    let info = &run(args!["info", place.root, "--json"]).json()[0];
    assert_eq!((&info["next_step"], &info["producers"]), (&2.into(), &2.into()));
    assert_eq!((&info["closed"], &info["durability"]), (&Value::Null, &"unsynced".into()));

    let producers = run(args!["producers", place.root, "--json"]).json();
    assert_eq!((&producers[0]["name"], &producers[0]["state_base64"]), (&"p".into(), &"/w==".into()));
    assert_eq!((&producers[1]["name"], &producers[1]["state"]), (&"q".into(), &"text".into()));
    assert_eq!(producers.len(), 2);

    let follow = ["--json", "--until", "2", "--timeout", "0"];
    let steps = wait(place.follow(&follow)).json();
    assert_eq!((&steps[1]["step"], &steps[1]["slices"][0]["bytes"]), (&1.into(), &5.into()));
    assert_eq!(steps[0]["slices"][0]["checksum"], steps[1]["slices"][0]["checksum"]);

    let log = run(args!["log", place.root, "--json"]).json();
    let versions: Vec<u64> = log.iter().map(|commit| commit["version"].as_u64().unwrap()).collect();
    assert_eq!(versions, [0, 1, 2, 3]);
    assert!(log[1]["time"].as_str().unwrap().ends_with('Z'));
    assert_eq!(run(args!["log", place.root, "--json", "--from", "3"]).json(), log[3..]);

    let verify = run(args!["verify", place.root, "--json"]).json();
    assert_eq!((&verify[0]["clean"], &verify[0]["commits"]), (&true.into(), &4.into()));
    assert_eq!(run(args!["doctor", place.dir.path(), "--json"]).json()[0]["fit"], true);
    assert_eq!(run(args!["retire", place.root, "p", "--json"]).json()[0]["changed"], true);
    assert_eq!(run(args!["retire", place.root, "p", "--json"]).json()[0]["changed"], false);
    assert_eq!(run(args!["close", place.root, "--json"]).json()[0]["closed"], 2);
    assert_eq!(run(args!["reopen", place.root, "--json"]).json()[0]["closed"], Value::Null);
    let other = place.dir.path().join("other");
    assert_eq!(run(args!["init", other, "--divisor", "8", "--json"]).json()[0]["divisor"], 8);
}

#[test]
fn follow_prints_as_it_is_published_and_ends_at_the_close() {
    let place = Place::new(&[]);
    let mut follow = place.follow(&[]);
    let mut lines = BufReader::new(follow.stdout.take().unwrap());
    let mut said = String::new();
    for step in 0..3 {
        place.publish("p", b"bytes");
        said.clear();
        lines.read_line(&mut said).unwrap();
        assert!(said.starts_with(&format!("step {step}  1 slice  5 B ")), "{said}");
    }
    run(args!["close", place.root]).good();
    let mut rest = Vec::new();
    lines.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    wait(follow).good();
}

#[test]
fn follow_prints_the_steps_from_here_until_there() {
    let place = Place::new(&[]);
    (0..4).for_each(|_| place.publish("p", b"bytes"));
    let steps = |more: &[&str]| {
        let printed = wait(place.follow(more)).json();
        printed.iter().map(|line| line["step"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(steps(&["--json", "--from", "1", "--until", "3"]), [1, 2]);
    assert_eq!(steps(&["--json", "--until", "0"]), [0; 0]);
    let late = wait(place.follow(&["--from", "2", "--timeout", "0"]));
    assert_eq!((late.code, late.stdout.split(|byte| *byte == b'\n').count()), (19, 3));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let place = Place::new(&[]);
    place.publish("p", &vec![b'\n'; 1 << 20]);
    let mut follow = place.follow(&["--timeout", "60"]);
    let mut lines = BufReader::new(follow.stdout.take().unwrap());
    lines.read_line(&mut String::new()).unwrap();
    // Now it waits for a step that never comes, and has nothing to write. If it only waited, it would end
    // with 19.
    drop(lines);
    wait(follow).good();

    let arguments: &[&OsStr] = args!["cat", place.root, "0"];
    let mut cat = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = cat.stdout.take().unwrap();
    pipe.read_exact(&mut [0]).unwrap();
    drop(pipe);
    wait(cat).good();

    // What the answer is doesn't depend on who listens.
    place.damage(1);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let verify = command(args!["verify", place.root]).stdout(writer).output().unwrap();
    assert_eq!((verify.status.code(), verify.stderr), (Some(1), Vec::new()));
}

/// Everything below a directory: its kind, its time of change, its bytes.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let modified = fs::metadata(dir).unwrap().modified().unwrap();
    found.insert(dir.to_owned(), (modified, Vec::new()));
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(snapshot(&path));
        } else {
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            found.insert(path.clone(), (modified, fs::read(&path).unwrap()));
        }
    }
    found
}

/// The directory's names, times and bytes are after a run what they were before.
#[track_caller]
fn changes_nothing<T>(root: &Path, run: impl FnOnce() -> T) -> T {
    let before = snapshot(root);
    let answer = run();
    let after = snapshot(root);
    let differs = |path: &&PathBuf| before.get(*path) != after.get(*path);
    let changed: Vec<_> = before.keys().chain(after.keys()).filter(differs).collect();
    assert!(changed.is_empty(), "{changed:?}");
    answer
}

#[test]
fn verbs_that_read_change_nothing() {
    let place = Place::new(&["--segment", "16"]);
    (0..20).for_each(|_| place.publish("p", b"bytes"));
    let before = snapshot(&place.root);
    run(args!["info", place.root]).good();
    run(args!["log", place.root]).good();
    run(args!["cat", place.root, "3"]).good();
    run(args!["producers", place.root]).good();
    run(args!["verify", place.root]).good();
    wait(place.follow(&["--until", "20", "--timeout", "0"])).good();
    assert!(snapshot(&place.root) == before);
}

#[test]
fn doctor_races_measures_and_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let found = run(args!["doctor", dir.path(), "--json"]).fact();
    assert_eq!((&found["fit"], &found["race"]["peers"]), (&Value::from(true), &Value::from(8)));
    for race in found["race"]["races"].as_array().unwrap() {
        assert_eq!((&race["broken"], &race["failed"]), (&Value::from(0), &Value::from(0)), "{race}");
    }
    assert!(found["costs"]["commit_us"].as_u64().unwrap() > 0);
    let text = run(args!["doctor", dir.path()]).text();
    assert!(text.contains("exactly one has won each") && text.contains("a durable commit"), "{text}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn two_doctors_meet_and_come_to_one_verdict() {
    let dir = TempDir::new().unwrap();
    let alone = run(args!["doctor", "--peer", "--timeout", "0", dir.path()]).failed(19);
    assert!(alone.contains("number 2 didn't come"), "{alone}");
    let both = [0, 1].map(|_| start(args!["doctor", "--peer", "--json", dir.path()]));
    let found = both.map(|one| wait(one).fact());
    let seats: u64 = found.iter().map(|one| one["seat"].as_u64().unwrap()).sum();
    assert_eq!(seats, 1);
    for one in &found {
        assert_eq!((&one["fit"], &one["freshness"]["stale_both"]), (&Value::from(true), &Value::from(0)));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_sentence_stays_on_its_line() {
    let dir = TempDir::new().unwrap();
    let sentence = run(args!["info", dir.path().join("two\nlines")]).failed(17);
    assert!(sentence.contains("two\\nlines"), "{sentence}");
}

#[test]
fn every_verb_has_an_example_and_the_command_a_table() {
    let help = run(args!["--help"]).text();
    assert!(help.contains("\nExit codes:\n   0  done"));
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs: Vec<&str> = listed
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    for verb in [
        "init",
        "info",
        "log",
        "cat",
        "producers",
        "retire",
        "close",
        "reopen",
        "follow",
        "verify",
        "groups",
        "checkpoints",
        "checkpoint",
        "drop-checkpoint",
        "retire-group",
        "reclaim",
        "rewind",
        "skip",
        "forget",
        "repair",
        "copy",
        "destroy",
        "check",
    ] {
        assert!(verbs.contains(&verb), "{verb} is missing from {verbs:?}");
    }
    for verb in verbs.iter().filter(|verb| **verb != "help") {
        let help = run(args![verb, "--help"]).text();
        assert!(help.contains(&format!("\nExample:\n  batchweave {verb} ")), "{verb}: {help}");
    }
    let help = run(args!["debug", "publish", "--help"]).text();
    assert!(help.contains("\nExample:\n  batchweave debug publish "));
}
