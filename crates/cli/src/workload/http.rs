//! `http`.

use super::Told;
use super::lines::Lines;
use super::options::{OperationArguments, first_given, usage};
use crate::outcome::Failure;
use crate::values::{BadValue, number};
use clap::{Args, ValueEnum};
use sockdrawer_catalog::http::{Close, Page};
use sockdrawer_load::Plan;
use sockdrawer_load::http::Wanted;
use std::fmt;
use std::str::FromStr;

/// Options that no other workload has.
#[derive(Debug, Default, Args)]
pub(crate) struct HttpArguments {
    /// http: the path of the requests, such as /index.html [default: /; without TARGET /test/fast, whose answer
    /// is checked to the byte].
    #[arg(long, value_name = "P")]
    pub(crate) path: Option<Path>,
    /// http: several pages with weights: fast=9,slow=1 or /a=9,/b=1; each request takes one.
    #[arg(long, value_name = "PAGE=N,...", conflicts_with = "path")]
    pub(crate) mix: Option<Mix>,
    /// http: the side that ends a connection: the server, this side by fin, or this side by rst [default: server].
    #[arg(long, value_enum, value_name = "SIDE", conflicts_with = "keep_alive")]
    pub(crate) close: Option<Closing>,
    /// http: one request after the other on each connection, which the server may end after any answer.
    #[arg(long)]
    pub(crate) keep_alive: bool,
}

/// The side that ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Closing {
    /// The server; this side waits for its end.
    Server,
    /// This side, after the whole answer.
    Fin,
    /// This side, by a reset after the whole answer.
    Rst,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(pub(crate) String);

impl FromStr for Path {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Path, BadValue> {
        // More would end the request's line, or break it.
        let fits = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
        match fits {
            true => Ok(Path(text.to_owned())),
            false => {
                Err(BadValue("not a path: write one that begins with a slash and has no spaces, such as /index.html".to_owned()))
            }
        }
    }
}

/// Pages with their weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mix(pub(crate) Vec<Page>);

impl FromStr for Mix {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Mix, BadValue> {
        let wrong = || BadValue("not a mix: write pages and weights above 0, such as fast=9,slow=1 or /a=9,/b=1".to_owned());
        let page = |part: &str| {
            let (name, weight) = part.rsplit_once('=')?;
            let weight = weight.parse().ok().filter(|weight| *weight > 0)?;
            Some(match name {
                "fast" => Wanted::own(Wanted::OWN[0], weight),
                "slow" => Wanted::own(Wanted::OWN[1], weight),
                path => Page { path: path.parse::<Path>().ok()?.0, weight, exact: false },
            })
        };
        text.split(',').map(page).collect::<Option<Vec<Page>>>().map(Mix).ok_or_else(wrong)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |page: &Page| match Wanted::OWN.iter().position(|own| page.exact && page.path == *own) {
            Some(0) => "fast".to_owned(),
            Some(_) => "slow".to_owned(),
            None => page.path.clone(),
        };
        let part = |page: &Page| format!("{}={}", name(page), page.weight);
        f.write_str(&self.0.iter().map(part).collect::<Vec<_>>().join(","))
    }
}

impl HttpArguments {
    /// The first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        first_given([
            ("--path", self.path.is_some()),
            ("--mix", self.mix.is_some()),
            ("--close", self.close.is_some()),
            ("--keep-alive", self.keep_alive),
        ])
    }
}

/// What the clients ask for. `begun` is the first option, of those that not `http` alone has, that says when connections begin.
///
/// # Errors
/// When a rate makes no sense with the rest.
pub(crate) fn wanted(
    arguments: &HttpArguments,
    options: &OperationArguments,
    begun: Option<&'static str>,
    has_target: bool,
) -> Result<Wanted, Failure> {
    let HttpArguments { path, mix, close, keep_alive } = arguments;
    let other = begun.or(keep_alive.then_some("--keep-alive"));
    if let Some(other) = other.filter(|_| options.rate.is_some()) {
        return Err(usage(format_args!("--rate and {other} exclude each other: both say when connections begin")));
    }
    let pages = match (path, mix) {
        (_, Some(Mix(pages))) => pages.clone(),
        (Some(Path(path)), None) => vec![Page { path: path.clone(), weight: 1, exact: false }],
        (None, None) if !has_target => Wanted::default().pages,
        (None, None) => vec![Page { path: "/".to_owned(), weight: 1, exact: false }],
    };
    let close = match close {
        _ if *keep_alive => None,
        None | Some(Closing::Server) => Some(Close::Server),
        Some(Closing::Fin) => Some(Close::Fin),
        Some(Closing::Rst) => Some(Close::Rst),
    };
    Ok(Wanted { pages, close, rate: options.rate })
}

impl Told for Wanted {
    fn words(&self, plan: &Plan, connections: &str) -> String {
        let pages: Vec<String> = match self.pages.as_slice() {
            [page] => vec![page.path.clone()],
            pages => pages.iter().map(|page| format!("{} ({})", page.path, page.weight)).collect(),
        };
        let get = format!("GET {}", pages.join(" or "));
        let Some(close) = self.close else { return format!("{connections}, one {get} after the other on each") };
        let end = match close {
            Close::Server => "the server ends it",
            Close::Fin => "this side ends it",
            Close::Rst => "this side resets it",
        };
        match self.rate {
            Some(rate) => {
                let most = plan.connections;
                format!("{} connections/s on schedule, {most} at once at most, one {get} each, {end}", number(rate))
            }
            None => format!("{connections} at once, one {get} each, {end}, then the next"),
        }
    }

    fn keys(&self, plan: &Plan, lines: &mut Lines) {
        match self.pages.as_slice() {
            [page] if !page.exact => lines.add("path", page.path.as_str()),
            pages if plan.targets.is_empty() && *pages == Wanted::default().pages => {}
            pages => lines.add("mix", Mix(pages.to_vec()).to_string()),
        }
        match self.close {
            None => lines.add("keep-alive", true),
            Some(Close::Server) => lines.add("close", "server"),
            Some(Close::Fin) => lines.add("close", "fin"),
            Some(Close::Rst) => lines.add("close", "rst"),
        }
        if let Some(rate) = self.rate {
            lines.rate("rate", rate);
        }
    }

    fn has_choices(&self) -> bool {
        self.pages.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(text: &str) -> Option<Vec<(String, u32, bool)>> {
        let Mix(pages) = text.parse().ok()?;
        Some(pages.into_iter().map(|page| (page.path, page.weight, page.exact)).collect())
    }

    #[test]
    fn a_mix_has_names_or_paths_with_weights() {
        let own = |path: &str, weight| (path.to_owned(), weight, true);
        assert_eq!(mix("fast=9,slow=1"), Some(vec![own("/test/fast", 9), own("/test/slow", 1)]));
        assert_eq!(mix("/a?b=c=3"), Some(vec![("/a?b=c".to_owned(), 3, false)]));
        for text in ["", "fast", "fast=", "fast=0", "fast=-1", "fast=9,", "quick=1", "/a b=1", "fast=99999999999"] {
            assert_eq!(mix(text), None, "{text}");
        }
    }

    #[test]
    fn a_path_is_one_word_that_begins_with_a_slash() {
        for text in ["", "index.html", "/a b", "/a\r\nHost: x", "http://x/", "/\u{e9}"] {
            assert!(text.parse::<Path>().is_err(), "{text}");
        }
        assert_eq!("/%20?x=1".parse(), Ok(Path("/%20?x=1".to_owned())));
    }
}
