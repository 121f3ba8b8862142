//! `check`: says whether a server would take a configuration file.

use crate::arguments::CheckArguments;
use crate::outcome::{Exit, Failure};
use crate::print;
use crate::program::Program;
use crate::table::{Table, plain};
use sockdrawer_operate::{PoolDocument, Protocol};
use std::path::Path;

/// Returns the path of a file; that of standard input for `-`.
pub(crate) fn path(file: &Path) -> &Path {
    if file == Path::new("-") { Path::new("/dev/stdin") } else { file }
}

/// Says what is wrong with a file, each mistake in a line, or which pools it has.
pub(crate) fn run(program: &Program, arguments: &CheckArguments) -> Result<Exit, Failure> {
    let operated = program.operated().clone();
    let operated = match &arguments.file {
        Some(file) => operated.of_file(path(file)),
        None => operated,
    };
    let checked = if arguments.bind { operated.rehearse() } else { operated.check() };
    let document = match checked {
        Ok(document) => document,
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| print::tell(plain(mistake)));
            return Ok(Exit::Usage);
        }
    };
    let mut table = Table::new(&["POOL", "PROTOCOL", "MODEL", ">LIMIT", "LISTEN"]);
    for (name, PoolDocument { protocol, values }) in &document.pools {
        let known = operated.protocols().iter().find(|known| known.name() == *protocol);
        let model = known.map_or("loops", |known: &Protocol| known.model(values));
        table.row([
            name.clone(),
            (*protocol).to_owned(),
            model.to_owned(),
            values.count("limit").map_or_else(|| "-".to_owned(), |limit| crate::table::count(limit as u64)),
            values.list("listen").join(" "),
        ]);
    }
    print::line(table.lines(crate::terminal::size_of(&std::io::stdout()).map(|(columns, _)| columns)).join("\n"))?;
    let file = operated.file().map_or_else(|| program.name().to_owned(), |file| file.display().to_string());
    print::line(format_args!("{file}: good")).map(|()| Exit::Ok)
}
