//! `sockdrawer`: serves, loads and measures sockets, and proves that they survive changes. Glue over the libraries: low arguments
//! become a plan in each command's own file, and only this crate prints.

mod agents;
mod arguments;
mod budget;
mod checks;
mod compare;
mod doctor;
mod find;
mod foreign;
mod generate;
mod itself;
mod junit;
mod keys;
mod ladder;
mod limits;
mod load;
mod names;
mod origin;
mod panel;
mod plan;
mod progress;
mod protocols;
mod report;
mod thresholds;
mod trial;
mod usage;
mod values;
mod words;
mod workload;

use arguments::{Command, Tried};
use outcome::{Exit, Failure};
use sockdrawer_load::Report;
// The front of all programs that serve is this one's too.
use sockdrawer_program::{outcome, print, screen, signals, terminal};
use std::process::ExitCode;
use usage::Parsed;

fn main() -> ExitCode {
    sockdrawer::reset_signals();
    // A helper of models that run in other processes goes no further.
    sockdrawer::layers(&[sockdrawer_tls::RECIPE]);
    sockdrawer::processes(
        &[&sockdrawer_catalog::RECIPES[..], &sockdrawer_trial::kinds::RECIPES, &[sockdrawer_websocket::Echo::RECIPE]].concat(),
    );
    sockdrawer_load::agent();
    sockdrawer_program::end(run())
}

fn run() -> Result<Exit, Failure> {
    match usage::parse(std::env::args_os())? {
        None => Ok(Exit::Ok),
        Some(Parsed::Own(command)) => run_own(command),
        Some(Parsed::Serving(matches)) => arguments::program().run(&arguments::command(), &matches).unwrap_or(Ok(Exit::Ok)),
    }
}

fn run_own(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Load(arguments) if arguments.acks.ladder => ladder::run(*arguments),
        Command::Load(arguments) => load::run(*arguments),
        Command::Doctor(arguments) => doctor::run(*arguments),
        Command::Find(arguments) => find::run(*arguments),
        Command::Schema => print::line(Report::JSON_SCHEMA.trim_end()).map(|()| Exit::Ok),
        Command::Report(arguments) => report::run(&arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Generate(asked) => generate::run(&asked),
        Command::Agent(arguments) => agents::run(&arguments),
        Command::Trial(arguments) => match &arguments.tried {
            Some(Tried::Upgrade(builds)) => foreign::run_builds(builds),
            None if foreign::is_meant(&arguments) => foreign::run(&arguments),
            None => trial::run(*arguments),
        },
    }
}
