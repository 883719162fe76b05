//! The crew: all children that live, what is heard of them, and how they ended.
//!
//! No child outlives the driver: dropped ones are killed, and the kernel kills those of a driver that was
//! killed itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use batchweave::Store;

use crate::job::{CHILD, Job, PATIENCE, REWOUND, Result, Role, Said};

/// More lives than anybody needs: one, one after a kill, one after a rewind.
const LIVES_MAX: u32 = 3;

/// What the driver hears of a child.
pub enum Heard {
    Said(Said),
    /// Its output has ended, so it has too.
    Ended,
}

pub enum Death {
    Natural,
    Killed,
    /// The store was rewound under it.
    Rewound,
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

pub struct Crew<'d> {
    store: &'d Store,
    run: PathBuf,
    processes: BTreeMap<Role, Process>,
    lives: BTreeMap<Role, u32>,
    killed: BTreeSet<Role>,
    heard: Receiver<(Role, Heard)>,
    tell: Sender<(Role, Heard)>,
}

impl<'d> Crew<'d> {
    pub fn new(store: &'d Store, run: &Path) -> Self {
        let (tell, heard) = channel();
        Self {
            store,
            run: run.to_path_buf(),
            processes: BTreeMap::new(),
            lives: BTreeMap::new(),
            killed: BTreeSet::new(),
            heard,
            tell,
        }
    }

    pub fn runs(&self, role: Role) -> bool {
        self.processes.contains_key(&role)
    }

    pub fn start(&mut self, role: Role) -> Result<()> {
        let life = self.lives.entry(role).or_default();
        if *life == LIVES_MAX {
            return Err(format!("{role} has ended {life} times, and isn't started once more").into());
        }
        let job = Job::new(role, *life, self.store, self.run.clone());
        *life += 1;
        let mut command = Command::new(std::env::current_exe()?);
        command.args([CHILD, &serde_json::to_string(&job)?]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("the child has no output")?;
        self.processes.insert(role, Process { child, killed: false });
        let tell = self.tell.clone();
        std::thread::spawn(move || {
            // A line that isn't whole is the last one of a child that died.
            let lines =
                BufReader::new(output).lines().map_while(|line| serde_json::from_str(&line.ok()?).ok());
            let said = lines.map(Heard::Said).chain([Heard::Ended]);
            // An error: the driver has given up.
            said.map(|heard| tell.send((role, heard))).take_while(Result::is_ok).for_each(drop);
        });
        Ok(())
    }

    /// What is heard next, of whomever.
    pub fn hear(&self) -> Result<(Role, Heard)> {
        self.heard.recv_timeout(PATIENCE).map_err(|_| {
            let who: Vec<_> = self.processes.keys().map(Role::to_string).collect();
            let (who, seconds) = (who.join(", "), PATIENCE.as_secs());
            format!("nothing was heard for {seconds} s; these are running: {who}").into()
        })
    }

    /// Kills a role, once. False if there is nothing to do.
    pub fn kill(&mut self, role: Role) -> Result<bool> {
        let Some(process) = self.processes.get_mut(&role) else { return Ok(false) };
        if !self.killed.insert(role) {
            return Ok(false);
        }
        process.child.kill()?;
        process.killed = true;
        Ok(true)
    }

    /// How it ended. An end that nobody wanted is an error.
    pub fn bury(&mut self, role: Role) -> Result<Death> {
        let mut process = self.processes.remove(&role).ok_or("a child ended that was never started")?;
        let status = process.child.wait()?;
        match (process.killed, status.code()) {
            (false, Some(0)) => Ok(Death::Natural),
            (false, Some(code)) if code == i32::from(REWOUND) => Ok(Death::Rewound),
            (false, _) => Err(format!("{role} failed: {status}").into()),
            (true, Some(0)) => {
                Err(format!("{role} was done before it could be killed; give it more text").into())
            }
            (true, _) => Ok(Death::Killed),
        }
    }
}
