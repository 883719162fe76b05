//! The driver: starts the producers and the trainer, kills some of them on the way, starts them again, ends
//! the stream.
//!
//! - What happens when is decided by progress, which the children report line by line, never by time.
//! - No child outlives it: dropped ones are killed, and the kernel kills those of a driver that was killed
//!   itself.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use batchweave::Store;

use crate::corpus::Corpus;
use crate::job::{CHILD, Job, PARTITIONS, Result, Role, SAVE_EVERY, Said};
use crate::screen::Screen;
use crate::trainer::Saved;

/// The producer that is killed.
const VICTIM: Role = Role::Producer(1);

/// What happened.
pub struct Driven {
    /// Who was killed when, and where it went on.
    pub events: Vec<String>,
    /// The step that the trainer's last save came before when it was killed.
    pub resumed_at: u64,
    /// From the start to the end of the last producer.
    pub published_in: Duration,
    /// From the start to the end of the trainer.
    pub trained_in: Duration,
}

pub fn drive(corpus: &Corpus, store: &Store, run: &Path) -> Result<Driven> {
    let mut crew = Crew::new(store, run);
    let screen = Screen::new(corpus);
    let began = Instant::now();
    // Halfway between two saves, so that the steps since the last one are trained again.
    let trainer_dies_at = corpus.steps() / 2 / SAVE_EVERY * SAVE_EVERY + SAVE_EVERY / 2;
    let victim_dies_at = corpus.batches(1) / 3;
    let mut driven = Driven {
        events: Vec::new(),
        resumed_at: 0,
        published_in: Duration::ZERO,
        trained_in: Duration::ZERO,
    };
    let mut finished = 0;

    (0..PARTITIONS).try_for_each(|partition| crew.start(Role::Producer(partition)))?;
    crew.start(Role::Trainer)?;
    loop {
        let (role, heard) = crew.heard.recv()?;
        match heard {
            Heard::Said(said) => {
                screen.show(role, &said);
                let due = match said {
                    Said::Opened { batches: 0 } => false,
                    Said::Opened { .. } => {
                        driven.events.push(screen.say(format!("{role} goes on {said}")));
                        false
                    }
                    Said::Published { batches } => role == VICTIM && batches >= victim_dies_at,
                    Said::Trained { step, .. } => step >= trainer_dies_at,
                };
                if due && crew.kill(role)? {
                    driven.events.push(screen.say(format!("{role} killed (SIGKILL) {said}")));
                }
            }
            Heard::Ended => match (crew.bury(role)?, role) {
                (Death::Killed, Role::Producer(_)) => crew.start(role)?,
                (Death::Killed, Role::Trainer) => {
                    let saved = Saved::load(run)?.ok_or("the trainer was killed before it saved anything")?;
                    driven.resumed_at = saved.position.step.get();
                    let what = format!("{role} goes on at step {}, as saved", driven.resumed_at);
                    driven.events.push(screen.say(what));
                    crew.start(role)?;
                }
                (Death::Natural, Role::Producer(_)) => {
                    screen.say(format!("{role} has finished"));
                    finished += 1;
                    if finished == PARTITIONS {
                        store.close(false)?;
                        driven.published_in = began.elapsed();
                        screen.say(format!("stream closed at step {}", store.info()?.next_step));
                    }
                }
                (Death::Natural, Role::Trainer) => {
                    driven.trained_in = began.elapsed();
                    screen.finish();
                    return Ok(driven);
                }
            },
        }
    }
}

/// What the driver hears of a child.
enum Heard {
    Said(Said),
    /// Its output has ended, so it has too.
    Ended,
}

enum Death {
    Natural,
    Killed,
}

struct Process {
    child: Child,
    killed: bool,
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails for what has been waited for, which is what most are.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All children that live, and how often each role was started.
struct Crew<'s> {
    store: &'s Store,
    run: PathBuf,
    processes: BTreeMap<Role, Process>,
    lives: BTreeMap<Role, u32>,
    heard: Receiver<(Role, Heard)>,
    tell: Sender<(Role, Heard)>,
}

impl<'s> Crew<'s> {
    fn new(store: &'s Store, run: &Path) -> Self {
        let (tell, heard) = channel();
        let run = run.to_path_buf();
        Self { store, run, processes: BTreeMap::new(), lives: BTreeMap::new(), heard, tell }
    }

    fn start(&mut self, role: Role) -> Result<()> {
        let life = self.lives.entry(role).or_default();
        let job = Job::new(role, *life, self.store, self.run.clone());
        *life += 1;
        let mut command = Command::new(std::env::current_exe()?);
        command.args([CHILD, &serde_json::to_string(&job)?]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("the child has no output")?;
        self.processes.insert(role, Process { child, killed: false });
        let tell = self.tell.clone();
        std::thread::spawn(move || {
            // A line that isn't whole is the last one of a child that was killed.
            let lines =
                BufReader::new(output).lines().map_while(|line| serde_json::from_str(&line.ok()?).ok());
            let said = lines.map(Heard::Said).chain([Heard::Ended]);
            // An error: the driver has given up.
            said.map(|heard| tell.send((role, heard))).take_while(Result::is_ok).for_each(drop);
        });
        Ok(())
    }

    /// Kills a role in its first life, once. False if there is nothing to do.
    fn kill(&mut self, role: Role) -> Result<bool> {
        let Some(process) = self.processes.get_mut(&role).filter(|process| !process.killed) else {
            return Ok(false);
        };
        if self.lives.get(&role) != Some(&1) {
            return Ok(false);
        }
        process.child.kill()?;
        process.killed = true;
        Ok(true)
    }

    /// How it ended. An end that nobody wanted is an error.
    fn bury(&mut self, role: Role) -> Result<Death> {
        let mut process = self.processes.remove(&role).ok_or("a child ended that was never started")?;
        let status = process.child.wait()?;
        match (process.killed, status.success()) {
            (false, true) => Ok(Death::Natural),
            (true, false) => Ok(Death::Killed),
            (true, true) => {
                Err(format!("{role} was done before it could be killed; give it more text").into())
            }
            (false, false) => Err(format!("{role} failed: {status}").into()),
        }
    }
}
