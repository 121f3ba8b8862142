//! The options of `load http`.

use super::load::first_given;
use crate::values::BadValue;
use clap::{Args, ValueEnum};
use sockdrawer_catalog::http::Page;
use sockdrawer_load::http::Wanted;
use std::fmt;
use std::str::FromStr;

/// Options that no other workload has.
#[derive(Debug, Default, Args)]
pub(crate) struct HttpArguments {
    /// http: what is asked for, such as /index.html [default: /; without TARGET /test/fast, whose answer
    /// must be right to the byte].
    #[arg(long, value_name = "P")]
    pub(crate) path: Option<Path>,
    /// http: several pages with weights: fast=9,slow=1 or /a=9,/b=1; each request takes one.
    #[arg(long, value_name = "PAGE=N,...", conflicts_with = "path")]
    pub(crate) mix: Option<Mix>,
    /// http: who ends a connection: the server, this side by fin, or this side by rst [default: server].
    #[arg(long, value_enum, value_name = "WHO", conflicts_with = "keep_alive")]
    pub(crate) close: Option<Closing>,
    /// http: one request after the other on each connection, which the server may end after any answer.
    #[arg(long)]
    pub(crate) keep_alive: bool,
}

/// Who ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Closing {
    /// The server, whose end is awaited.
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
