/work/main/bench/lease/target/release/deps/sockdrawer_lease-ff0be00053bfe246.d: /work/main/crates/lease/src/lib.rs /work/main/crates/lease/src/connect.rs /work/main/crates/lease/src/engine/mod.rs /work/main/crates/lease/src/engine/free.rs /work/main/crates/lease/src/engine/health.rs /work/main/crates/lease/src/engine/held.rs /work/main/crates/lease/src/engine/ids.rs /work/main/crates/lease/src/engine/jobs.rs /work/main/crates/lease/src/engine/line.rs /work/main/crates/lease/src/engine/lives.rs /work/main/crates/lease/src/engine/reports.rs /work/main/crates/lease/src/engine/rules.rs /work/main/crates/lease/src/engine/serve.rs /work/main/crates/lease/src/engine/slot.rs /work/main/crates/lease/src/engine/supply.rs /work/main/crates/lease/src/engine/target.rs /work/main/crates/lease/src/engine/targets.rs /work/main/crates/lease/src/engine/timers.rs /work/main/crates/lease/src/engine/usual.rs /work/main/crates/lease/src/error.rs /work/main/crates/lease/src/gone.rs /work/main/crates/lease/src/histogram.rs /work/main/crates/lease/src/lease.rs /work/main/crates/lease/src/policy.rs /work/main/crates/lease/src/pool.rs /work/main/crates/lease/src/random.rs /work/main/crates/lease/src/request.rs /work/main/crates/lease/src/runners.rs /work/main/crates/lease/src/settings.rs /work/main/crates/lease/src/shared.rs /work/main/crates/lease/src/stats.rs /work/main/crates/lease/src/sync.rs /work/main/crates/lease/src/workers.rs

/work/main/bench/lease/target/release/deps/libsockdrawer_lease-ff0be00053bfe246.rlib: /work/main/crates/lease/src/lib.rs /work/main/crates/lease/src/connect.rs /work/main/crates/lease/src/engine/mod.rs /work/main/crates/lease/src/engine/free.rs /work/main/crates/lease/src/engine/health.rs /work/main/crates/lease/src/engine/held.rs /work/main/crates/lease/src/engine/ids.rs /work/main/crates/lease/src/engine/jobs.rs /work/main/crates/lease/src/engine/line.rs /work/main/crates/lease/src/engine/lives.rs /work/main/crates/lease/src/engine/reports.rs /work/main/crates/lease/src/engine/rules.rs /work/main/crates/lease/src/engine/serve.rs /work/main/crates/lease/src/engine/slot.rs /work/main/crates/lease/src/engine/supply.rs /work/main/crates/lease/src/engine/target.rs /work/main/crates/lease/src/engine/targets.rs /work/main/crates/lease/src/engine/timers.rs /work/main/crates/lease/src/engine/usual.rs /work/main/crates/lease/src/error.rs /work/main/crates/lease/src/gone.rs /work/main/crates/lease/src/histogram.rs /work/main/crates/lease/src/lease.rs /work/main/crates/lease/src/policy.rs /work/main/crates/lease/src/pool.rs /work/main/crates/lease/src/random.rs /work/main/crates/lease/src/request.rs /work/main/crates/lease/src/runners.rs /work/main/crates/lease/src/settings.rs /work/main/crates/lease/src/shared.rs /work/main/crates/lease/src/stats.rs /work/main/crates/lease/src/sync.rs /work/main/crates/lease/src/workers.rs

/work/main/bench/lease/target/release/deps/libsockdrawer_lease-ff0be00053bfe246.rmeta: /work/main/crates/lease/src/lib.rs /work/main/crates/lease/src/connect.rs /work/main/crates/lease/src/engine/mod.rs /work/main/crates/lease/src/engine/free.rs /work/main/crates/lease/src/engine/health.rs /work/main/crates/lease/src/engine/held.rs /work/main/crates/lease/src/engine/ids.rs /work/main/crates/lease/src/engine/jobs.rs /work/main/crates/lease/src/engine/line.rs /work/main/crates/lease/src/engine/lives.rs /work/main/crates/lease/src/engine/reports.rs /work/main/crates/lease/src/engine/rules.rs /work/main/crates/lease/src/engine/serve.rs /work/main/crates/lease/src/engine/slot.rs /work/main/crates/lease/src/engine/supply.rs /work/main/crates/lease/src/engine/target.rs /work/main/crates/lease/src/engine/targets.rs /work/main/crates/lease/src/engine/timers.rs /work/main/crates/lease/src/engine/usual.rs /work/main/crates/lease/src/error.rs /work/main/crates/lease/src/gone.rs /work/main/crates/lease/src/histogram.rs /work/main/crates/lease/src/lease.rs /work/main/crates/lease/src/policy.rs /work/main/crates/lease/src/pool.rs /work/main/crates/lease/src/random.rs /work/main/crates/lease/src/request.rs /work/main/crates/lease/src/runners.rs /work/main/crates/lease/src/settings.rs /work/main/crates/lease/src/shared.rs /work/main/crates/lease/src/stats.rs /work/main/crates/lease/src/sync.rs /work/main/crates/lease/src/workers.rs

/work/main/crates/lease/src/lib.rs:
/work/main/crates/lease/src/connect.rs:
/work/main/crates/lease/src/engine/mod.rs:
/work/main/crates/lease/src/engine/free.rs:
/work/main/crates/lease/src/engine/health.rs:
/work/main/crates/lease/src/engine/held.rs:
/work/main/crates/lease/src/engine/ids.rs:
/work/main/crates/lease/src/engine/jobs.rs:
/work/main/crates/lease/src/engine/line.rs:
/work/main/crates/lease/src/engine/lives.rs:
/work/main/crates/lease/src/engine/reports.rs:
/work/main/crates/lease/src/engine/rules.rs:
/work/main/crates/lease/src/engine/serve.rs:
/work/main/crates/lease/src/engine/slot.rs:
/work/main/crates/lease/src/engine/supply.rs:
/work/main/crates/lease/src/engine/target.rs:
/work/main/crates/lease/src/engine/targets.rs:
/work/main/crates/lease/src/engine/timers.rs:
/work/main/crates/lease/src/engine/usual.rs:
/work/main/crates/lease/src/error.rs:
/work/main/crates/lease/src/gone.rs:
/work/main/crates/lease/src/histogram.rs:
/work/main/crates/lease/src/lease.rs:
/work/main/crates/lease/src/policy.rs:
/work/main/crates/lease/src/pool.rs:
/work/main/crates/lease/src/random.rs:
/work/main/crates/lease/src/request.rs:
/work/main/crates/lease/src/runners.rs:
/work/main/crates/lease/src/settings.rs:
/work/main/crates/lease/src/shared.rs:
/work/main/crates/lease/src/stats.rs:
/work/main/crates/lease/src/sync.rs:
/work/main/crates/lease/src/workers.rs:
