//! Reports of what a new build takes over, and of what came of it: for people, and as JSON.

use crate::OWN_POOLS;
use serde::{Deserialize, Serialize};
use sockdrawer::upgrade::{Build, PoolTakeover, Replaced, Takeover, leaves_behind};
use sockdrawer_catalog::count::thousands;
use sockdrawer_catalog::time;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Returns what came of an upgrade, in words.
pub fn words(replaced: &Replaced) -> String {
    let Replaced { pid, prepared, gap, moved, moving, pauses: [median, p99, longest], staying, .. } = replaced;
    let short = |time: &Duration| time::short(time.as_secs_f64() * 1e6);
    let mut words = format!("prepared in {}; accepting paused for {}", short(prepared), short(gap));
    if *moved > 0 {
        let (in_all, median, p99, longest) = (short(moving), short(median), short(p99), short(longest));
        words += &format!("\nmoved {} in {in_all}, pause p50 {median}, p99 {p99}, max {longest}", thousands(*moved));
    }
    for why in &replaced.not_restored {
        words += &format!("\nsome came back: {why}");
    }
    let share = Share::moved(*moved, staying);
    let left = share.of - share.moved;
    for why in &share.staying {
        words += &format!("\n{why}");
    }
    words
        + &match left {
            0 => format!("\npid {pid} serves alone"),
            1 => format!("\npid {pid} serves; 1 connection is in an old process until it ends (`stays` bounds that)"),
            more => format!(
                "\npid {pid} serves; {} connections are in old processes until they end (`stays` bounds that)",
                thousands(more)
            ),
        }
}

/// Number of connections that moved, or could. Those of operators are not counted: they ask the new build from then on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Number of those that moved; before an upgrade, of those that can move.
    pub moved: u64,
    /// Number of those that moved and those that stay.
    pub of: u64,
    /// Number of those that stay and are not left behind: they end, or an upgrade before left them in an earlier process.
    #[serde(default)]
    pub excused: u64,
    /// Words about which others stay, and why, a line for each reason of a pool.
    pub staying: Vec<String>,
}

impl Share {
    /// Returns the share of a plan, or of what came of it.
    pub fn of(plan: &Takeover, replaced: Option<&Replaced>) -> Share {
        match replaced {
            None => {
                let own = plan.pools.iter().filter(|pool| !OWN_POOLS.contains(&&*pool.name));
                let stay = plan.pools.iter().map(|pool| (pool.name.clone(), pool.staying.clone())).collect();
                Share::moved(own.map(|pool| pool.moving).sum(), &stay)
            }
            Some(Replaced { moved, staying, .. }) => Share::moved(*moved, staying),
        }
    }

    fn moved(moved: u64, staying: &BTreeMap<String, BTreeMap<String, u64>>) -> Share {
        let of_users = staying.iter().filter(|(name, _)| !OWN_POOLS.contains(&&***name));
        let all = of_users.flat_map(|(name, reasons)| reasons.iter().map(move |(why, count)| (name, why, *count)));
        let (mut of, mut excused, mut lines) = (moved, 0, Vec::new());
        for (name, why, count) in all {
            of += count;
            excused += if leaves_behind(why) { 0 } else { count };
            lines.push(format!("{name}: {} stay ({why})", thousands(count)));
        }
        Share { moved, of, excused, staying: lines }
    }

    /// Says that this is less than so many of a hundred, without those that are not left behind.
    pub fn falls_short_of(&self, percent: f64) -> Option<String> {
        let Share { moved, of, excused, staying } = self;
        let of = of - excused;
        #[expect(clippy::cast_precision_loss, reason = "a share is compared, not counted")]
        let is_enough = *moved as f64 * 100.0 >= percent * of as f64;
        let why = if staying.is_empty() { String::new() } else { format!(": {}", staying.join(", ")) };
        let (moved, of) = (thousands(*moved), thousands(of));
        (!is_enough).then(|| format!("{moved} of {of} connections move, {percent}% were asked for{why}"))
    }
}

/// Plan of what a new build takes over, shown in lines.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The plan.
    pub of: &'a Takeover,
    /// True where there is no new build: what could move is shown.
    pub is_status: bool,
}

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Takeover { from, to, pools, dropped, .. } = self.of;
        match self.is_status {
            true => write!(f, "pid {}, version {}", from.pid, from.version)?,
            false => write!(f, "plan: {} (pid {}) to {} (pid {})", from.version, from.pid, to.version, to.pid)?,
        }
        for name in dropped {
            write!(f, "\n  {name}: lost, for the new build carries nothing of this name")?;
        }
        for pool in pools {
            let mut parts = vec![format!("{} can move", thousands(pool.moving))];
            parts.extend(pool.staying.iter().map(|(why, count)| format!("{} stay ({why})", thousands(*count))));
            write!(f, "\n  {}: {} connections: {}", pool.name, thousands(pool.connections), parts.join(", "))?;
            let mut parts = Vec::new();
            let listed =
                |what: &str, addresses: &[String]| (!addresses.is_empty()).then(|| format!("{what} {}", addresses.join(", ")));
            let taken_over = if self.is_status { "listens on" } else { "takes over" };
            parts.extend(listed(taken_over, &pool.taken_over));
            parts.extend(listed("also listens on", &pool.added));
            parts.extend(listed("gives up", &pool.given_up));
            parts.push(match pool.limits {
                _ if pool.ends => "ends once the new build stands".to_owned(),
                (before, now) if before == now => format!("limit {}", thousands(now)),
                (before, now) => format!("limit {} to {}", thousands(before), thousands(now)),
            });
            write!(f, "\n  {}: {}", pool.name, parts.join("; "))?;
        }
        Ok(())
    }
}

/// Report of a plan and of its result, for programs.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<PlanReport<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ResultReport<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<Share>,
}

#[derive(Debug, Serialize)]
struct PlanReport<'a> {
    from: BuildReport<'a>,
    to: BuildReport<'a>,
    pools: Vec<PoolReport<'a>>,
    /// The names of what only the old build carries.
    dropped: &'a [String],
}

#[derive(Debug, Serialize)]
struct BuildReport<'a> {
    version: &'a str,
    pid: u32,
}

#[derive(Debug, Serialize)]
struct PoolReport<'a> {
    name: &'a str,
    connections: u64,
    moving: u64,
    staying: &'a BTreeMap<String, u64>,
    taken_over: &'a [String],
    given_up: &'a [String],
    added: &'a [String],
    limit_before: u64,
    limit: u64,
    ends: bool,
}

#[derive(Debug, Serialize)]
struct ResultReport<'a> {
    pid: u32,
    prepared_us: u128,
    gap_us: u128,
    moved: u64,
    moving_us: u128,
    pause_us: Pauses,
    staying: u64,
    not_restored: &'a [String],
}

#[derive(Debug, Serialize)]
struct Pauses {
    p50: u128,
    p99: u128,
    max: u128,
}

impl<'a> Report<'a> {
    /// Makes the report of a plan, a result, or both.
    pub fn of(plan: Option<&'a Takeover>, replaced: Option<&'a Replaced>) -> Report<'a> {
        let share = plan.map(|plan| Share::of(plan, replaced));
        let build = |build: &'a Build| BuildReport { version: &build.version, pid: build.pid };
        let pool = |pool: &'a PoolTakeover| PoolReport {
            name: &pool.name,
            connections: pool.connections,
            moving: pool.moving,
            staying: &pool.staying,
            taken_over: &pool.taken_over,
            given_up: &pool.given_up,
            added: &pool.added,
            limit_before: pool.limits.0,
            limit: pool.limits.1,
            ends: pool.ends,
        };
        let plan = plan.map(|plan| PlanReport {
            from: build(&plan.from),
            to: build(&plan.to),
            pools: plan.pools.iter().map(pool).collect(),
            dropped: &plan.dropped,
        });
        let result = replaced.map(|replaced| {
            let [p50, p99, max] = replaced.pauses.map(|pause| pause.as_micros());
            ResultReport {
                pid: replaced.pid,
                prepared_us: replaced.prepared.as_micros(),
                gap_us: replaced.gap.as_micros(),
                moved: replaced.moved,
                moving_us: replaced.moving.as_micros(),
                pause_us: Pauses { p50, p99, max },
                staying: replaced.staying.values().flat_map(BTreeMap::values).sum(),
                not_restored: &replaced.not_restored,
            }
        });
        Report { plan, result, share }
    }
}
