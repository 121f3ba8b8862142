//! The load engine: what `sockdrawer load` runs, as a library. Clients are a [`sockdrawer::Pool`] on the connect side, so the
//! engine has no socket and no loop of its own; each loop counts and measures for itself, and the numbers are added when asked.
//!
//! It prints nothing: a [`Run`] tells its [`Progress`] and ends with a [`Report`].

mod agent;
pub mod budget;
mod cause;
mod cgroup;
mod control;
pub mod doctor;
mod errno;
mod figure;
mod found;
mod ladder;
mod latency;
mod ledger;
mod machine;
mod metrics;
mod moment;
mod numbers;
mod orders;
mod part;
mod plan;
mod proc;
mod rate;
mod reach;
mod report;
pub mod results;
mod run;
mod schedule;
mod search;
mod series;
mod server;
mod stop;
mod threshold;
mod tls;
mod wall;
mod websocket;
mod workload;

pub use agent::{
    AgentLost, AgentPort, Examined, Host, Hosts, OnAgentLoss, Place, ServerAgent, Ssh, agent, agent_on_stdio, join_run,
};
pub use cause::{Cause, cause};
pub use control::control;
pub use errno::errno_name;
pub use found::{Found, Try};
pub use ladder::{Ladder, Row, Rows, Rung};
pub use latency::{Latency, NoLatency, Percentiles};
pub use machine::Machine;
pub use metrics::{Metrics, metrics};
pub use numbers::{thousands, time};
pub use orders::{NoOrder, Order, Orders, Refused};
pub use part::AgentPart;
pub use plan::{End, Plan, Processes, ProxyHeader, Stage};
pub use rate::Rate;
pub use reach::reachable;
pub use report::{Action, Client, Connections, Report};
pub use run::{Observer, Run};
pub use search::{Search, Tries};
pub use series::{ClientSample, Counted, Done, Interval, PerSecond, Phase, Progress, Sample};
pub use server::{Server, ServerSample};
pub use stop::Stop;
pub use threshold::Judgement;
pub use tls::{PemFile, Tls, TlsVersion, Trust};
pub use wall::Wall;
pub use websocket::WebSocket;
pub use workload::{
    Acks, Agreed, ClosedWith, Errors, HandshakeCounts, Hello, Latencies, Life, Messages, Numbers, Operations, Properties,
    Question, Reading, RoundTrips, TlsReport, WebSocketReport, Workload, http,
};
