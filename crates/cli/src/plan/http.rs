//! What the options of `load http` make.

use super::usage;
use crate::arguments::{Closing, HttpArguments, LoadArguments, Mix, Path, first_given};
use crate::outcome::Failure;
use sockdrawer_catalog::http::{Close, Page};
use sockdrawer_load::http::Wanted;

/// What the clients ask for.
///
/// # Errors
/// When a rate makes no sense with the rest.
pub(crate) fn wanted(arguments: &LoadArguments) -> Result<Wanted, Failure> {
    let HttpArguments { path, mix, close, keep_alive, .. } = &arguments.http;
    let other = [
        ("--connect-rate", arguments.connect_rate.is_some()),
        ("--stage", !arguments.stage.is_empty()),
        ("--keep-alive", *keep_alive),
    ];
    if let Some(other) = first_given(other).filter(|_| arguments.rate.is_some()) {
        return Err(usage(format_args!("--rate and {other} exclude each other: both say when connections begin")));
    }
    let pages = match (path, mix) {
        (_, Some(Mix(pages))) => pages.clone(),
        (Some(Path(path)), None) => vec![Page { path: path.clone(), weight: 1, exact: false }],
        (None, None) if arguments.targets.is_empty() => Wanted::default().pages,
        (None, None) => vec![Page { path: "/".to_owned(), weight: 1, exact: false }],
    };
    let close = match close {
        _ if *keep_alive => None,
        None | Some(Closing::Server) => Some(Close::Server),
        Some(Closing::Fin) => Some(Close::Fin),
        Some(Closing::Rst) => Some(Close::Rst),
    };
    Ok(Wanted { pages, close, rate: arguments.rate.map(|rate| rate.0) })
}
