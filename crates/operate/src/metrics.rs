//! Pages that collectors and load balancers ask for: `/metrics`, `/healthz` and `/readyz`, at an address of their own and at the control socket.

mod table;

use crate::document::Document;
use crate::failure::Failure;
use crate::operator::{Operator, OperatorPlaces};
use crate::program_settings;
use crate::server::{Server, State};
use crate::totals::Totals;
use crate::words;
use sockdrawer::listening::Listening;
use sockdrawer::observe::{Readiness, Status};
use sockdrawer::{Address, Pool};
use sockdrawer_catalog::openmetrics::{Format, Writer};
use sockdrawer_catalog::web::{Answer, Request, Web};
use std::sync::Arc;
use std::time::SystemTime;
use table::METRICS;

pub(crate) const PLACES: OperatorPlaces = OperatorPlaces { clients: 64, of_peer: 32, silent: 16, answers: 4 };

/// Starts what collectors ask, if there is to be one.
pub(crate) fn start(operator: &Arc<Operator>, document: &Document) -> Result<Option<Pool>, Failure> {
    let Some(at) = document.program.text("metrics") else { return Ok(None) };
    let at: Address = at.parse().map_err(|error| Failure::setting(format_args!("metrics: {error}")))?;
    let asked = operator.clone();
    let pages = move |request: &Request, _: &mut _| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/metrics") => page(&asked, request),
        ("GET", "/healthz") => Answer::text(200, "ok\n"),
        ("GET", "/readyz") => ready(&asked.server),
        (_, "/metrics" | "/healthz" | "/readyz") => {
            Answer::error(405, format_args!("{} takes GET", request.path)).field("Allow", "GET")
        }
        (_, path) => Answer::error(404, format_args!("nothing is at {path}: ask for /metrics, /healthz or /readyz")),
    };
    // A kept connection would ask this process for as long as it lives, also once a new build has taken over.
    let web = Web::new(pages).close_after_answer();
    operator.start_pool(document, program_settings::METRICS_POOL, web, Listening::new(at), &PLACES).map(Some)
}

/// Data that a page is made from.
struct View {
    version: String,
    ready: bool,
    totals: Totals,
    state: State,
    pools: Vec<(String, Status)>,
    began: SystemTime,
}

/// Returns all metrics, in the form that the request asks for.
pub(crate) fn page(operator: &Operator, request: &Request) -> Answer {
    let format = Format::accepted(request.field("Accept").unwrap_or_default());
    let ledger = &operator.ledger;
    let (totals, state, pools) = ledger.now(&operator.server);
    let ready = not_ready(&operator.server).is_none();
    let view = View { version: operator.version().to_owned(), ready, totals, state, pools, began: ledger.began };
    let mut writer = Writer::new(format);
    METRICS.iter().for_each(|metric| metric.write(&view, &mut writer));
    operator.server.known.metrics.iter().for_each(|family| family.write(&mut writer));
    Answer::new(200, format.content_type(), writer.finish())
}

/// Answers whether new connections are to be sent here.
pub(crate) fn ready(server: &Server) -> Answer {
    match not_ready(server) {
        None => Answer::text(200, "ready\n"),
        Some(why) => Answer::text(503, format!("not ready: {why}\n")),
    }
}

/// Returns the reason why the program is not ready, in a line; None: all of its pools take connections.
pub(crate) fn not_ready(server: &Server) -> Option<String> {
    if !server.hub.manager.is_main() {
        return Some("a new build has taken over".to_owned());
    }
    let state = server.state();
    if state.revision == 0 {
        return Some("the program starts".to_owned());
    }
    if state.ending {
        return Some("the program ends".to_owned());
    }
    let unready = |(name, pool): (&String, &Pool)| match pool.status().readiness {
        Readiness::Serving => None,
        readiness => Some(format!("pool {name} is {}", words::readiness(&readiness))),
    };
    state.pools.iter().find_map(unready)
}

#[cfg(test)]
mod tests;
