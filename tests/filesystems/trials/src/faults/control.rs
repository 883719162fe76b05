//! The process that serves the mounts, and how it is told what goes wrong there.
//!
//! - It is a process of its own: one that serves itself can't be ended, since its end waits for the answer to
//!   the close of what it has open.
//! - A word is a line of JSON, and so is its answer: what was seen so far.
//! - It ends, and the mounts with it, when nobody talks to it any more, however the other process ended.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::filesystem::{Manner, mount};
use super::rules::{Operation, Rule, Rules};
use crate::Result;

#[derive(Serialize, Deserialize)]
enum Word {
    Set(Vec<Rule>),
    Lift,
    Delay(u64),
    LetGo(String),
    Look,
}

/// What was seen since the rules were set.
#[derive(Serialize, Deserialize)]
pub(crate) struct Seen {
    /// How often each operation was asked for until the rules were lifted.
    pub(crate) asked: BTreeMap<Operation, u64>,
    /// How often something went wrong, and what the last time.
    pub(crate) fired: u64,
    pub(crate) last: String,
    /// What was given a name, or acknowledged if it is by now, before it was durable.
    pub(crate) unsynced: Option<String>,
}

/// The serving process.
pub(crate) struct Control {
    process: Child,
    talk: Mutex<(Option<ChildStdin>, BufReader<ChildStdout>)>,
}

impl Control {
    /// Starts it; the source is mounted twice then.
    pub(super) fn start(source: &Path, a: &Path, b: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve-faults").args([source, a, b]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let told = process.stdin.take();
        let heard = process.stdout.take().ok_or("the serving process has no output")?;
        let control = Self { process, talk: Mutex::new((told, BufReader::new(heard))) };
        control.tell(&Word::Look).map_err(|error| format!("the mounts couldn't be made: {error}"))?;
        Ok(control)
    }

    fn tell(&self, word: &Word) -> Result<Seen> {
        let mut talk = self.talk.lock();
        let (told, heard) = &mut *talk;
        let told = told.as_mut().ok_or("nobody is told any more")?;
        writeln!(told, "{}", serde_json::to_string(word)?)?;
        let mut line = String::new();
        heard.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Forgets all that was set and seen, and goes by these from now on.
    pub(super) fn set(&self, rules: Vec<Rule>) -> Result<()> {
        self.tell(&Word::Set(rules)).map(drop)
    }

    /// Nothing goes wrong any more; what was seen stays.
    pub(super) fn lift(&self) -> Result<()> {
        self.tell(&Word::Lift).map(drop)
    }

    /// See [`Rules::delay`].
    pub(super) fn delay(&self, lookups: u64) -> Result<()> {
        self.tell(&Word::Delay(lookups)).map(drop)
    }

    /// What is below a directory of the root is gone.
    pub(super) fn let_go(&self, directory: &str) -> Result<()> {
        self.tell(&Word::LetGo(directory.to_owned())).map(drop)
    }

    pub(super) fn seen(&self) -> Result<Seen> {
        self.tell(&Word::Look)
    }

    /// What was acknowledged by now is durable.
    pub(super) fn check_durable(&self) -> Result<()> {
        self.seen()?.unsynced.map_or(Ok(()), |unsynced| Err(unsynced.into()))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.talk.lock().0 = None;
        let _ = self.process.wait();
    }
}

/// The life of the serving process.
pub(crate) fn serve(source: &Path, a: &Path, b: &Path) -> Result<()> {
    let rules = Arc::new(Rules::default());
    let mounts = [mount(source, a, &rules, Manner::Unknown)?, mount(source, b, &rules, Manner::Known)?];
    for line in io::stdin().lines() {
        match serde_json::from_str(&line?)? {
            Word::Set(set) => rules.set(set),
            Word::Lift => rules.lift(),
            Word::Delay(lookups) => rules.delay(lookups),
            Word::LetGo(directory) => mounts.iter().for_each(|mount| mount.let_go(&directory)),
            Word::Look => {}
        }
        println!("{}", serde_json::to_string(&rules.seen())?);
    }
    // Without an unmount, which would wait for whatever is open: the kernel ends what is served no more.
    std::process::exit(0)
}
