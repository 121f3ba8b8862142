//! `generate`: files for other programs, made of what this one is told.

pub(crate) mod man;

use crate::arguments::Generated;
use crate::outcome::{Exit, Failure};
use crate::print;
use crate::program::Program;
use clap::Command;

/// Prints the file that is asked for; `definition` is that of the whole program.
pub(crate) fn run(program: &Program, definition: &Command, asked: &Generated) -> Result<Exit, Failure> {
    let text = match asked {
        Generated::Schema => format!("{:#}", program.schema()),
        Generated::Man => man::page(program, definition),
        Generated::Completions { shell } => {
            let (mut command, mut text) = (definition.clone(), Vec::new());
            clap_complete::generate(*shell, &mut command, program.name(), &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    };
    print::line(text.trim_end()).map(|()| Exit::Ok)
}
