//! The catalog's clients for each workload, and the servers for runs without a target.

use crate::dialogue::Dialogue;
use crate::http::{Wanted, visits};
use crate::plan::{Plan, Workload};
use crate::shared::Shared;
use crate::tally::Recorder;
use crate::watched::Watched;
use sockdrawer::{Address, Behaviour, Config, Model};
use sockdrawer_catalog::{Client, Pace, acks, dialogue, echo, hello, http, ping};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// So many slow answers at once: they wait, and cost a stack each.
const MOST_WORKERS: usize = 128;

/// What the connections of a run do.
pub(crate) fn client(plan: &Plan, shared: &Arc<Shared>) -> Behaviour {
    let timeout = plan.timeout;
    let pace =
        || Pace { interval: shared.interval(), timeout, budget: shared.budget(), lifetime: plan.lifetime, seed: plan.seed };
    let (one, other) = (shared.clone(), shared.clone());
    let meter = move || Recorder::new(one.clone());
    let meter_of_messages = move || Recorder::of_messages(other.clone());
    match &plan.workload {
        Workload::Ping { .. } => Watched(Client::new(ping::Question, pace(), meter)).into(),
        Workload::Echo { size, .. } => Watched(Client::new(echo::Block::new(*size, plan.seed), pace(), meter)).into(),
        Workload::Dialogue(Dialogue { send, expect, .. }) => {
            let question = dialogue::Question::new(send.clone(), expect.clone());
            Watched(Client::new(question, pace(), meter)).into()
        }
        Workload::Hello => Watched(hello::Client { timeout, meter }).into(),
        Workload::Http(wanted) => Watched(http::Client::new(visits(plan, wanted, shared), meter)).into(),
        Workload::Acks(messages) => Watched(acks::Client::new(messages.options(plan, shared), meter_of_messages)).into(),
    }
}

/// A server for it in this process, on a free port. A short connection may end here a moment after its client began the next; of
/// those that stay people may want more while the run goes on.
pub(crate) fn server(plan: &Plan) -> Config {
    let has_slow = plan.http().is_some_and(Wanted::has_slow);
    let (behaviour, model): (Behaviour, Model) = match &plan.workload {
        Workload::Ping { .. } => (ping::Ping.into(), Model::Loops),
        Workload::Echo { .. } | Workload::Dialogue(_) => (echo::Echo.into(), Model::Loops),
        Workload::Hello => (hello::Hello.into(), Model::Loops),
        Workload::Http(_) => (http::Http { in_worker: has_slow, ..http::Http::default() }.into(), Model::Loops),
        Workload::Acks(messages) => messages.server(),
    };
    let workers = if has_slow { plan.connections.min(MOST_WORKERS) } else { 0 };
    let mut config =
        Config::accept(behaviour).model(model).workers(workers).listen(Address::Tcp((Ipv4Addr::LOCALHOST, 0).into()));
    config.limit = plan.is_short().then(|| plan.connections.saturating_mul(2));
    config
}
