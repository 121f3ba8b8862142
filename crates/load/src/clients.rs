//! The catalog's clients for each workload, and the servers for runs without a target.

use crate::http::visits;
use crate::plan::{Plan, Workload};
use crate::shared::Shared;
use crate::tally::Recorder;
use crate::watched::Watched;
use sockdrawer::{Address, Behaviour, Config};
use sockdrawer_catalog::{Pace, echo, hello, http, ping};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// So many slow answers at once: they wait, and cost a stack each.
const MOST_WORKERS: usize = 128;

/// What the connections of a run do.
pub(crate) fn client(plan: &Plan, shared: &Arc<Shared>) -> Behaviour {
    let timeout = plan.timeout;
    let pace = |interval: Duration| Pace { interval, timeout, budget: shared.budget() };
    let own = shared.clone();
    let meter = move || Recorder::new(own.clone());
    match plan.workload {
        Workload::Ping { interval } => Watched(ping::Client::new(pace(interval), meter)).into(),
        Workload::Echo { interval, size } => Watched(echo::Client::new(size, plan.seed, pace(interval), meter)).into(),
        Workload::Hello => Watched(hello::Client { timeout, meter }).into(),
        Workload::Http => Watched(http::Client::new(visits(plan, shared), meter)).into(),
    }
}

/// A server for it in this process, on a free port. It takes no more of the process's descriptors than the clients need from it;
/// a short connection may end here a moment after its client began the next.
pub(crate) fn server(plan: &Plan) -> Config {
    let limit = if plan.is_short() { plan.connections.saturating_mul(2) } else { plan.connections };
    let behaviour: Behaviour = match plan.workload {
        Workload::Ping { .. } => ping::Ping.into(),
        Workload::Echo { .. } => echo::Echo.into(),
        Workload::Hello => hello::Hello.into(),
        Workload::Http => http::Http { in_worker: plan.http.has_slow(), ..http::Http::default() }.into(),
    };
    let workers = if plan.http.has_slow() { plan.connections.min(MOST_WORKERS) } else { 0 };
    Config::accept(behaviour).workers(workers).limit(limit).listen(Address::Tcp((Ipv4Addr::LOCALHOST, 0).into()))
}
