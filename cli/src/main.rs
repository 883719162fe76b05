//! The command `batchweave`: looks into, verifies and tends a store.
//!
//! - Verbs use the library's public API only; each has a file of its own in `verbs/`. `bench` alone looks
//!   below.
//! - Facts go to stdout, as text or as JSON; progress, warnings and errors go to stderr.
//! - How a run ended is its exit code, a distinct one for each kind of error: see `failure`.
//! - A reader that closes the pipe ends the command quietly.
#![deny(unsafe_code)]

mod bench;
mod failure;
mod interrupt;
mod logging;
mod output;
mod thread;
mod verbs;

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::{Args, Parser, Subcommand};

use failure::{Answer, Failure};

/// Looks into, verifies and tends a BatchWeave store.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = failure::EXIT_CODES)]
struct Command {
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Args)]
struct Verbosity {
    /// Say more on stderr: -v what is done, -vv details, -vvv everything
    ///
    /// The environment variable BATCHWEAVE_LOG says the same in words, for all or for a part, such as
    /// "info" or "batchweave::log=debug"; -v and -q go before it.
    #[arg(short, long, global = true, display_order = 1001)]
    #[arg(action = clap::ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
    /// Say less on stderr: -q errors only, without progress; -qq also no logged errors
    #[arg(short, long, global = true, display_order = 1002, action = clap::ArgAction::Count)]
    quiet: u8,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Init(verbs::init::Init),
    Info(verbs::info::Info),
    Log(verbs::log::Log),
    Cat(verbs::cat::Cat),
    Producers(verbs::producers::Producers),
    Turns(verbs::turns::Turns),
    Retire(verbs::stream::Retire),
    Close(verbs::stream::Close),
    Reopen(verbs::stream::Reopen),
    Follow(verbs::follow::Follow),
    Groups(verbs::groups::Groups),
    Checkpoints(verbs::groups::Checkpoints),
    Checkpoint(verbs::groups::Checkpoint),
    DropCheckpoint(verbs::groups::DropCheckpoint),
    RetireGroup(verbs::groups::RetireGroup),
    Reclaim(verbs::reclaim::Reclaim),
    Rewind(verbs::history::Rewind),
    Skip(verbs::history::Skip),
    Forget(verbs::history::Forget),
    Check(verbs::check::Check),
    Verify(verbs::verify::Verify),
    Repair(verbs::repair::Repair),
    Copy(verbs::copy::Copy),
    Destroy(verbs::destroy::Destroy),
    Doctor(verbs::doctor::Doctor),
    Bench(bench::BenchArgs),
    Debug(verbs::debug::Debug),
}

fn main() -> ExitCode {
    let Command { verbosity, verb } = Command::parse();
    logging::start(&verbosity);
    match run(verb, &verbosity) {
        Ok(answer) => answer.into(),
        Err(failure) => {
            let code = failure.say();
            let is_interrupted = interrupt::stop().load(Ordering::Relaxed);
            if is_interrupted { interrupt::EXIT_CODE } else { code }.into()
        }
    }
}

fn run(verb: Verb, verbosity: &Verbosity) -> Result<Answer, Failure> {
    match verb {
        Verb::Init(init) => init.run(),
        Verb::Info(info) => info.run(),
        Verb::Log(log) => log.run(),
        Verb::Cat(cat) => cat.run(),
        Verb::Producers(producers) => producers.run(),
        Verb::Turns(turns) => turns.run(),
        Verb::Retire(retire) => retire.run(),
        Verb::Close(close) => close.run(),
        Verb::Reopen(reopen) => reopen.run(),
        Verb::Follow(follow) => follow.run(),
        Verb::Groups(groups) => groups.run(),
        Verb::Checkpoints(checkpoints) => checkpoints.run(),
        Verb::Checkpoint(checkpoint) => checkpoint.run(),
        Verb::DropCheckpoint(drop) => drop.run(),
        Verb::RetireGroup(retire) => retire.run(),
        Verb::Reclaim(reclaim) => reclaim.run(),
        Verb::Rewind(rewind) => rewind.run(),
        Verb::Skip(skip) => skip.run(),
        Verb::Forget(forget) => forget.run(),
        Verb::Check(check) => check.run(),
        Verb::Repair(repair) => repair.run(),
        Verb::Copy(copy) => copy.run(),
        Verb::Destroy(destroy) => destroy.run(),
        Verb::Verify(verify) => verify.run(verbosity.quiet == 0),
        Verb::Doctor(doctor) => doctor.run(),
        Verb::Bench(arguments) => Ok(bench::run(arguments).map(|()| Answer::Yes)?),
        Verb::Debug(debug) => debug.run(),
    }
}
