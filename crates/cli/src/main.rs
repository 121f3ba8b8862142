//! `sockdrawer`: serves, loads and measures sockets, and proves that they survive changes. Glue over the libraries: low arguments
//! become a plan in each command's own file, and only this crate prints.

mod agents;
mod arguments;
mod budget;
mod check;
mod compare;
mod ctl;
mod doctor;
mod find;
mod foreign;
mod generate;
mod itself;
mod keys;
mod ladder;
mod limits;
mod load;
mod names;
mod origin;
mod outcome;
mod panel;
mod parent;
mod plan;
mod print;
mod program;
mod progress;
mod protocols;
mod report;
mod screen;
mod serve;
mod signals;
mod table;
mod terminal;
mod thresholds;
mod trial;
mod upgrade;
mod usage;
mod values;
mod words;
mod workload;

use arguments::Command;
use outcome::{Exit, Failure};
use sockdrawer_load::Report;
use std::process::ExitCode;
use std::time::Duration;

/// How long the end waits for standard error to take the last line.
const PATIENCE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    sockdrawer::reset_signals();
    // A helper of models that run in other processes goes no further.
    sockdrawer::layers(&[sockdrawer_tls::RECIPE]);
    sockdrawer::processes(&[&sockdrawer_catalog::RECIPES[..], &sockdrawer_trial::kinds::RECIPES].concat());
    sockdrawer_load::agent();
    match run() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            print::tell_within(PATIENCE, format_args!("error: {failure}"));
            failure.exit.into()
        }
    }
}

fn run() -> Result<Exit, Failure> {
    match usage::parse(std::env::args_os())? {
        None => Ok(Exit::Ok),
        Some(Command::Serve(arguments)) => serve::run(*arguments),
        Some(Command::Check(arguments)) => check::run(&arguments),
        Some(Command::Ctl(arguments)) => ctl::run(*arguments),
        Some(Command::Load(arguments)) if arguments.acks.ladder => ladder::run(*arguments),
        Some(Command::Load(arguments)) => load::run(*arguments),
        Some(Command::Doctor(arguments)) => doctor::run(*arguments),
        Some(Command::Find(arguments)) => find::run(*arguments),
        Some(Command::Schema) => print::line(Report::JSON_SCHEMA.trim_end()).map(|()| Exit::Ok),
        Some(Command::Report(arguments)) => report::run(&arguments),
        Some(Command::Compare(arguments)) => compare::run(arguments),
        Some(Command::Upgrade(arguments)) => upgrade::run(arguments),
        Some(Command::Parent(arguments)) => parent::run(arguments),
        Some(Command::Generate(asked)) => generate::run(&asked),
        Some(Command::Agent(arguments)) => agents::run(&arguments),
        Some(Command::Trial(arguments)) if foreign::is_meant(&arguments) => foreign::run(&arguments),
        Some(Command::Trial(arguments)) => trial::run(*arguments),
    }
}
