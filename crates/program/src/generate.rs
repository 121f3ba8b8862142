//! `generate`: files for other programs, made of what this one is told.

pub(crate) mod man;

use crate::arguments::Generated;
use crate::outcome::{Exit, Failure};
use crate::print;
use crate::program::Program;
use clap::Command;

/// The unit of a service. `@FILE@` and `@ABOUT@` are replaced, and the name.
const UNIT: &str = include_str!("generate/unit.service");

/// Returns the unit of the program for systemd, which serves its configuration.
pub(crate) fn unit(program: &Program) -> String {
    let name = program.name();
    let file = program.operated().file().map_or_else(|| format!("/etc/{name}/{name}.toml"), |file| file.display().to_string());
    program.named(UNIT).replace("@FILE@", &file).replace("@ABOUT@", program.about_text())
}

/// Prints the file that is asked for; `definition` is that of the whole program.
pub(crate) fn run(program: &Program, definition: &Command, asked: &Generated) -> Result<Exit, Failure> {
    let text = match asked {
        Generated::Schema => format!("{:#}", program.schema()),
        Generated::Man => man::page(program, definition),
        Generated::Unit => unit(program),
        Generated::Completions { shell } => {
            let (mut command, mut text) = (definition.clone(), Vec::new());
            clap_complete::generate(*shell, &mut command, program.name(), &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    };
    print::line(text.trim_end()).map(|()| Exit::Ok)
}
