//! Children: this program again, as producer, trainer or reader, in processes that can be killed and stopped.
//!
//! - A child says what it does line by line; the crew hears all of them in the order in which they come, with
//!   the time at which they came.
//! - Whatever isn't heard in time is an error that says who was waited for.
//! - No child outlives the program: dropped ones are killed, and the kernel kills those of a program that was
//!   killed itself.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};

use crate::{Result, fresh, keep_contract, killed, power, race, reclaim};

/// How long anybody waits for a word.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// What the last word of a child that fails begins with.
pub(crate) const FAILED: &str = "failed: ";

/// What a child is to do.
#[derive(Clone)]
pub(crate) enum Task {
    /// Publishes until it has so many parts, saying each; then retires the name.
    Producer { store: PathBuf, name: String, parts: u64 },
    /// Waits for each step, and says it.
    Watcher { store: PathBuf, steps: u64 },
    /// Delivers, notes and checkpoints until it has so many steps.
    Trainer { store: PathBuf, journal: PathBuf, steps: u64 },
    /// Reads as it is told to.
    Reader { store: PathBuf },
    /// Works until the power is cut.
    Life { store: PathBuf, plan: power::Plan },
    /// The contract suite.
    Contract { root: PathBuf },
}

impl Task {
    /// As an argument.
    pub(crate) fn words(&self) -> String {
        let text = |path: &PathBuf| path.display().to_string();
        let words = match self {
            Self::Producer { store, name, parts } => {
                vec!["producer".to_owned(), text(store), name.clone(), parts.to_string()]
            }
            Self::Watcher { store, steps } => vec!["watcher".to_owned(), text(store), steps.to_string()],
            Self::Trainer { store, journal, steps } => {
                vec!["trainer".to_owned(), text(store), text(journal), steps.to_string()]
            }
            Self::Reader { store } => vec!["reader".to_owned(), text(store)],
            Self::Life { store, plan } => {
                ["life".to_owned(), text(store)].into_iter().chain(plan.words()).collect()
            }
            Self::Contract { root } => vec!["contract".to_owned(), text(root)],
        };
        serde_json::json!({ "parent": getpid().as_raw_pid(), "words": words }).to_string()
    }
}

/// A child's whole life.
pub(crate) fn live(task: &str) -> bool {
    match try_live(task) {
        Ok(()) => true,
        Err(error) => {
            say(&format!("{FAILED}{error}"));
            false
        }
    }
}

fn try_live(task: &str) -> Result<()> {
    let task: serde_json::Value = serde_json::from_str(task)?;
    crate::plant()?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before the kernel was told.
    let parent = getppid().map(|parent| i64::from(parent.as_raw_pid()));
    if parent != task["parent"].as_i64() {
        return Err("the program that started this is gone".into());
    }
    let words: Vec<&str> =
        task["words"].as_array().into_iter().flatten().filter_map(|word| word.as_str()).collect();
    match words[..] {
        ["producer", store, name, parts] => race::produce(store.as_ref(), name, parts.parse()?),
        ["watcher", store, steps] => fresh::watch(store.as_ref(), steps.parse()?),
        ["trainer", store, journal, steps] => killed::train(store.as_ref(), journal.as_ref(), steps.parse()?),
        ["reader", store] => reclaim::read(store.as_ref()),
        ["life", store, operation, moment, call, left_out] => {
            power::Plan::parse([operation, moment, call, left_out])?.live(store.as_ref())
        }
        ["contract", root] => {
            keep_contract(root.as_ref());
            Ok(())
        }
        _ => Err(format!("not a task: {task}").into()),
    }
}

/// One line to the crew; one that has stopped listening is no fault.
pub(crate) fn say(line: &str) {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Which child: they are numbered as they are started.
pub(crate) type Who = usize;

/// Something heard.
pub(crate) struct Heard {
    pub(crate) who: Who,
    /// None when its output has ended.
    pub(crate) word: Option<String>,
    pub(crate) at: Instant,
}

struct Running {
    process: Child,
    told: Option<ChildStdin>,
    name: String,
    last: String,
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails for what has been waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// All children of a trial.
pub(crate) struct Crew {
    all: Vec<Option<Running>>,
    heard: Receiver<Heard>,
    tell: Sender<Heard>,
}

impl Crew {
    pub(crate) fn new() -> Self {
        let (tell, heard) = channel();
        Self { all: Vec::new(), heard, tell }
    }

    /// Starts a child; `name` is for sentences.
    pub(crate) fn start(&mut self, name: impl Into<String>, task: &Task) -> Result<Who> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["child", &task.words()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let output = process.stdout.take().ok_or("the child has no output")?;
        let told = process.stdin.take();
        let who = self.all.len();
        self.all.push(Some(Running { process, told, name: name.into(), last: String::new(), ended: false }));
        let tell = self.tell.clone();
        std::thread::spawn(move || {
            let words = BufReader::new(output).lines().map_while(io::Result::ok).map(Some).chain([None]);
            let heard = words.map(|word| tell.send(Heard { who, word, at: Instant::now() }));
            // An error: nobody listens any more.
            heard.take_while(Result::is_ok).for_each(drop);
        });
        Ok(who)
    }

    /// What is heard next, of whoever lives; a child that fails is an error.
    pub(crate) fn hear(&mut self) -> Result<Heard> {
        let heard = self.hear_even_failures()?;
        let Some(child) = self.all.get_mut(heard.who).and_then(Option::as_mut) else { return Ok(heard) };
        match &heard.word {
            Some(word) if word.starts_with(FAILED) => Err(format!("{} {word}", child.name).into()),
            None if !child.process.wait()?.success() => {
                Err(format!("{} {}", child.name, in_words(child.process.wait()?)).into())
            }
            _ => Ok(heard),
        }
    }

    /// As [`Crew::hear`], but a child may fail.
    pub(crate) fn hear_even_failures(&mut self) -> Result<Heard> {
        loop {
            let heard = self.heard.recv_timeout(PATIENCE).map_err(|_| self.silence())?;
            // None: it was killed.
            let Some(child) = self.all.get_mut(heard.who).and_then(Option::as_mut) else { continue };
            match &heard.word {
                Some(word) => child.last.clone_from(word),
                None => child.ended = true,
            }
            return Ok(heard);
        }
    }

    /// Whether anybody's end wasn't heard yet.
    pub(crate) fn is_running(&self) -> bool {
        self.all.iter().flatten().any(|child| !child.ended)
    }

    /// The next word of whomever, passing over who has ended.
    pub(crate) fn hear_word(&mut self) -> Result<Heard> {
        loop {
            let heard = self.hear()?;
            if heard.word.is_some() {
                return Ok(heard);
            }
        }
    }

    fn silence(&self) -> String {
        let waited = self.all.iter().flatten().filter(|child| !child.ended);
        let names: Vec<_> =
            waited.map(|child| format!("{} (last word: {:?})", child.name, child.last)).collect();
        format!("nothing was heard for {} s of {}", PATIENCE.as_secs(), names.join(", "))
    }

    /// The next word of one child, passing over those of others. None if it has ended.
    pub(crate) fn hear_of(&mut self, who: Who) -> Result<Option<String>> {
        loop {
            let heard = self.hear()?;
            if heard.who == who {
                return Ok(heard.word);
            }
        }
    }

    /// Hears on until all that run have ended well; gives the last word of each of them.
    pub(crate) fn end(&mut self) -> Result<Vec<String>> {
        while self.is_running() {
            self.hear()?;
        }
        Ok(self.all.drain(..).flatten().map(|child| child.last.clone()).collect())
    }

    /// Tells a child a line.
    pub(crate) fn tell(&mut self, who: Who, line: &str) -> Result<()> {
        let child = self.all.get_mut(who).and_then(Option::as_mut).ok_or("told one who is dead")?;
        let told = child.told.as_mut().ok_or("told one who doesn't listen any more")?;
        Ok(writeln!(told, "{line}")?)
    }

    /// Tells a child that no more will be told.
    pub(crate) fn hang_up(&mut self, who: Who) {
        if let Some(child) = self.all.get_mut(who).and_then(Option::as_mut) {
            child.told = None;
        }
    }

    /// Its process's number.
    pub(crate) fn process(&self, who: Who) -> u32 {
        self.all.get(who).and_then(Option::as_ref).map_or(0, |child| child.process.id())
    }

    pub(crate) fn signal(&self, who: Who, signal: Signal) -> Result<()> {
        let child = self.all.get(who).and_then(Option::as_ref).ok_or("a signal to one who is dead")?;
        Ok(kill_process(Pid::from_child(&child.process), signal)?)
    }

    /// Kills all at once, whatever they do. One that had failed by itself before is an error.
    pub(crate) fn kill_all(&mut self) -> Result<()> {
        for child in self.all.iter_mut().flatten() {
            // Fails for what has ended.
            let _ = child.process.kill();
        }
        for child in self.all.iter_mut().filter_map(Option::take) {
            let mut child = child;
            let status = child.process.wait()?;
            use std::os::unix::process::ExitStatusExt;
            if !status.success() && status.signal() != Some(Signal::KILL.as_raw()) {
                return Err(
                    format!("{} {} (last word: {:?})", child.name, in_words(status), child.last).into()
                );
            }
        }
        Ok(())
    }
}

fn in_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(7) => "was ended by SIGBUS".to_owned(),
        Some(11) => "was ended by SIGSEGV".to_owned(),
        Some(signal) => format!("was ended by signal {signal}"),
        None => format!("failed: {status}"),
    }
}
