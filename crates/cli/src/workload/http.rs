//! `http`.

use super::Told;
use super::lines::Lines;
use super::options::{OperationArguments, first_given, usage};
use crate::outcome::Failure;
use crate::values::{BadValue, Body, Field, Method, Path, Url, number};
use clap::{Args, ValueEnum};
use sockdrawer_catalog::http::{Close, Page, Request};
use sockdrawer_catalog::time;
use sockdrawer_load::http::Wanted;
use sockdrawer_load::{Plan, Workload};
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Options that no other workload has.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "http")]
pub(crate) struct HttpArguments {
    /// The method of the requests [default: GET, with a body POST].
    ///
    /// For http, as the following.
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub(crate) method: Option<Method>,
    /// The body of the requests: a text, or @FILE.
    ///
    /// base64: begins bytes that are no text.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(crate) body: Option<Body>,
    /// The path of the requests, such as /index.html [default: /; without TARGET /test/fast, whose answer
    /// is checked to the byte].
    ///
    /// Not with --mix.
    #[arg(long, value_name = "P")]
    pub(crate) path: Option<Path>,
    /// Several pages with weights: fast=9,slow=1 or /a=9,/b=1; each request takes one.
    #[arg(long, value_name = "PAGE=N,...", conflicts_with = "path")]
    pub(crate) mix: Option<Mix>,
    /// The side that ends a connection: the server, this side by fin, or this side by rst [default: server].
    #[arg(long, value_enum, value_name = "SIDE", conflicts_with = "keep_alive")]
    pub(crate) close: Option<Closing>,
    /// One request after the other on each connection, which the server may end after any answer [default with a URL].
    ///
    /// Not with --close.
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
    /// Returns the first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        first_given([
            ("--path", self.path.is_some()),
            ("--mix", self.mix.is_some()),
            ("--close", self.close.is_some()),
            ("--keep-alive", self.keep_alive),
            ("--method", self.method.is_some()),
            ("--body", self.body.is_some()),
        ])
    }
}

/// Facts beside the options of `http` that say what is asked for.
pub(crate) struct Asks<'a> {
    /// The first option, of those that not `http` alone has, that says when connections begin.
    pub(crate) begun: Option<&'static str>,
    pub(crate) has_target: bool,
    pub(crate) urls: &'a [&'a Url],
    pub(crate) header: &'a [Field],
    /// Connections at once.
    pub(crate) connections: usize,
}

/// Makes the workload of the clients' requests.
///
/// # Errors
/// When a rate, or a URL, makes no sense with the rest.
pub(crate) fn wanted(arguments: &HttpArguments, options: &OperationArguments, asks: Asks<'_>) -> Result<Workload, Failure> {
    let HttpArguments { path, mix, close, keep_alive, .. } = arguments;
    let close = match close {
        None if *keep_alive || !asks.urls.is_empty() => None,
        None | Some(Closing::Server) => Some(Close::Server),
        Some(Closing::Fin) => Some(Close::Fin),
        Some(Closing::Rst) => Some(Close::Rst),
    };
    if let Some(begun) = asks.begun.filter(|_| options.rate.is_some() && close.is_some()) {
        return Err(usage(format_args!("--rate and {begun} exclude each other: both say when connections begin")));
    }
    if options.interval.is_some() && close.is_some() {
        return Err(usage("--interval is for connections with one request after the other: add --keep-alive"));
    }
    let one = |path: &Path| vec![Page { path: path.0.clone(), weight: 1, exact: false }];
    let pages = match (path, mix, asks.urls) {
        (None, Some(Mix(pages)), _) => pages.clone(),
        (Some(path), _, _) if asks.urls.is_empty() => one(path),
        (Some(_), ..) => return Err(usage("--path and a URL exclude each other: both say what is asked for")),
        (None, None, [url, others @ ..]) if others.iter().all(|other| other.path == url.path) => one(&url.path),
        (None, None, [_, ..]) => return Err(usage("the URLs have several paths: use --mix /a=1,/b=1 for them")),
        (None, None, []) if asks.has_target => one(&Path("/".to_owned())),
        (None, None, []) => Wanted::default().pages,
    };
    let interval = options.interval.unwrap_or_default();
    let wanted = Wanted { pages, request: request(arguments, &asks)?, close, rate: None, interval };
    let mut workload = Workload::Http(wanted);
    if let Some(rate) = options.rate {
        workload.set_rate(rate, asks.connections);
    }
    Ok(workload)
}

fn request(arguments: &HttpArguments, asks: &Asks<'_>) -> Result<Request, Failure> {
    let body = arguments.body.as_ref().map_or_else(Vec::new, |body| body.0.clone());
    let usual = if arguments.body.is_some() { "POST" } else { "GET" };
    let method = arguments.method.as_ref().map_or(usual, |method| &method.0).to_owned();
    let urls = asks.urls;
    let fields = asks.header.iter().map(|field| field.0.clone()).collect();
    let mut request = Request { method, fields, body };
    if let [url, others @ ..] = urls
        && !request.has("Host")
    {
        let is_same = others.iter().all(|other| other.host == url.host);
        if is_same && !is_address(&url.host).is_some_and(|has_port| has_port) {
            request.fields.push(format!("Host: {}", url.host));
        } else if urls.iter().any(|url| is_address(&url.host).is_none()) {
            return Err(usage("the URLs have several hosts: say which one the requests name, by -H 'Host: NAME'"));
        }
    }
    Ok(request)
}

/// Returns true where a host is an address, which each connection names by itself, and has a port, and false where it has none; None: it is a name.
fn is_address(host: &str) -> Option<bool> {
    if let Some((_, port)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return Some(!port.is_empty());
    }
    let (host, port) = host.split_once(':').map_or((host, false), |(host, _)| (host, true));
    host.parse::<Ipv4Addr>().is_ok().then_some(port)
}

impl Told for Wanted {
    fn words(&self, plan: &Plan, connections: &str) -> String {
        let pages: Vec<String> = match self.pages.as_slice() {
            [page] => vec![page.path.clone()],
            pages => pages.iter().map(|page| format!("{} ({})", page.path, page.weight)).collect(),
        };
        let Request { method, body, .. } = &self.request;
        let with = if body.is_empty() { String::new() } else { format!(" with {} bytes", body.len()) };
        let get = format!("{method} {}{with}", pages.join(" or "));
        let Some(close) = self.close else {
            if self.interval.is_zero() {
                return format!("{connections}, one {get} after the other on each");
            }
            let each = number(plan.connections as f64 / self.interval.as_secs_f64());
            return format!("{connections}, one {get} each {}: {each} requests/s on schedule", time::format(self.interval));
        };
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
        if !self.interval.is_zero() {
            lines.time("interval", self.interval);
        }
        let Request { method, fields, body } = &self.request;
        if method != if body.is_empty() { "GET" } else { "POST" } {
            lines.add("method", method.as_str());
        }
        if !fields.is_empty() {
            lines.add("header", fields.clone());
        }
        if !body.is_empty() {
            lines.add("body", Body(body.clone()).to_string());
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
}
