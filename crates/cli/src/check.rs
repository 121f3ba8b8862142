//! `sockdrawer check`: whether a server would take a configuration file.

use crate::arguments::CheckArguments;
use crate::outcome::{Exit, Failure};
use crate::table::{Table, plain};
use crate::{print, protocols};
use sockdrawer_operate::{Operated, PoolDocument};
use std::path::Path;

/// Standard input by its name, for `-`.
pub(crate) fn path(file: &Path) -> &Path {
    if file == Path::new("-") { Path::new("/dev/stdin") } else { file }
}

/// Says what is wrong with a file, each mistake in a line, or which pools it has.
pub(crate) fn run(arguments: &CheckArguments) -> Result<Exit, Failure> {
    let file = path(&arguments.file);
    let operated = protocols::protocols().into_iter().fold(Operated::new(file), Operated::protocol);
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
        let unless = if *protocol == "exec" { "fork" } else { "loops" };
        table.row([
            name.clone(),
            (*protocol).to_owned(),
            values.text("model").unwrap_or(unless).to_owned(),
            values.count("limit").map_or_else(|| "-".to_owned(), |limit| crate::table::count(limit as u64)),
            values.list("listen").join(" "),
        ]);
    }
    print::line(table.lines(crate::terminal::size_of(&std::io::stdout()).map(|(columns, _)| columns)).join("\n"))?;
    print::line(format_args!("{}: good", file.display())).map(|()| Exit::Ok)
}
