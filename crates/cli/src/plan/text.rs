//! A plan as the text of a file that `--plan` reads as the same plan again.

use crate::values::{Source, Target, processes_text, proxy_header_text, stage_text};
use crate::workload::{Lines, told};
use sockdrawer_load::results::Threshold;
use sockdrawer_load::{End, Plan, Tls, Trust, WebSocket};

/// Returns the text of a plan. Its keys are the options of `load`, by their long names; `workload` and `targets` are its arguments.
pub(crate) fn text(plan: &Plan, thresholds: &[Threshold]) -> String {
    let mut lines = Lines::default();
    lines.add("workload", plan.workload.name());
    if !plan.targets.is_empty() {
        lines.add("targets", Target::texts(&plan.targets));
    }
    if let Some(tls) = &plan.tls {
        with_tls(tls, &mut lines);
    }
    if let Some(websocket) = &plan.websocket {
        with_websocket(websocket, &mut lines);
    }
    if plan.stages.is_empty() {
        lines.count("connections", plan.connections as u64);
    } else {
        lines.add("stage", plan.stages.iter().map(stage_text).collect::<Vec<_>>());
    }
    told(&plan.workload).keys(plan, &mut lines);
    if let Some(operations) = plan.operations {
        lines.count("operations", operations);
    }
    match plan.end {
        End::Never | End::AfterStages => {}
        End::AfterFirstConnect(time) => lines.time("duration", time),
        End::AfterLastConnect(time) => lines.time("hold", time),
    }
    if let Some(rate) = plan.connect_rate {
        lines.rate("connect-rate", rate);
    }
    lines.time("timeout", plan.timeout);
    if let Some(lifetime) = plan.lifetime {
        lines.time("lifetime", lifetime);
    }
    if plan.reconnect {
        lines.add("reconnect", true);
    }
    if plan.poisson {
        lines.add("poisson", true);
    }
    if !plan.sources.is_empty() {
        lines.add("source", Source::texts(&plan.sources));
    }
    if let Some((first, last)) = plan.local_ports {
        lines.add("local-ports", format!("{first}-{last}"));
    }
    if let Some(header) = plan.proxy_header {
        lines.add("proxy-protocol", proxy_header_text(header));
    }
    if !plan.server_pids.is_empty() {
        lines.add("server-pid", plan.server_pids.iter().map(|pid| i64::from(*pid)).collect::<Vec<_>>());
    }
    lines.add("processes", processes_text(plan.processes));
    lines.count("seed", plan.seed);
    if !thresholds.is_empty() {
        lines.add("threshold", thresholds.iter().map(ToString::to_string).collect::<Vec<_>>());
    }
    lines.0
}

fn with_websocket(websocket: &WebSocket, lines: &mut Lines) {
    let WebSocket { host, path, fields, subprotocols, text: _ } = websocket;
    lines.add("websocket", path.as_str());
    lines.add("header", [format!("Host: {host}")].into_iter().chain(fields.iter().cloned()).collect::<Vec<_>>());
    if !subprotocols.is_empty() {
        lines.add("subprotocol", subprotocols.clone());
    }
}

/// Files by their paths: what is in them may be secret.
fn with_tls(tls: &Tls, lines: &mut Lines) {
    lines.add("tls", true);
    match &tls.trust {
        Trust::System(_) => {}
        Trust::Authorities(file) => lines.add("ca", file.path().display().to_string()),
        Trust::Anybody => lines.add("insecure", true),
    }
    if let Some(name) = &tls.name {
        lines.add("sni", name.as_str());
    }
    if !tls.alpn.is_empty() {
        lines.add("alpn", tls.alpn.clone());
    }
    if let Some(version) = tls.version {
        lines.add("tls-version", version.to_string());
    }
    if let Some((chain, key)) = &tls.identity {
        lines.add("cert", chain.path().display().to_string());
        lines.add("key", key.path().display().to_string());
    }
    if !tls.resumes {
        lines.add("no-resume", true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{planned, planned_by};
    use std::path::PathBuf;

    /// Writes a file of this test's own. Only integration tests get a folder from cargo.
    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sockdrawer-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, text).expect("a file of this test can be written");
        path
    }

    #[test]
    fn every_plan_is_read_again_as_the_same_plan() {
        let plans = [
            "ping",
            "ping 127.0.0.1:9000-9015 [::1]:9 unix:@a -c 20k --connect-rate 0.5 --hold 1m --interval 0.25ms --seed 18446744073709551615",
            "ping --reconnect -d 5",
            "ping --interval 1s --poisson",
            "ping -n 7 --lifetime 30s --server-pid 7 --server-pid 8 --local-ports 5-6 --processes 3 --source 127.0.0.0/28,127.0.1.1",
            "echo --stage 30s:10k,2m:100k,1500ms:0 --size 4k --timeout 90s",
            "echo --stage 30s:1 --hold 5 -n 8",
            r#"echo 127.0.0.1:9 --send a"'\\\r\n\xff\0 --expect /\+[\w"']+\r\n/ --interval 1h"#,
            r"ping 127.0.0.1:9 --send é --expect \x2fx/",
            "ping 127.0.0.1:9 --proxy-protocol v1",
            "hello 127.0.0.1:9 --proxy-protocol v2,source=[2001:db8::7]:4321",
            "hello --tls",
            "ws://localhost:9/chat?a=b -H a:b --subprotocol x,y --send {} -c 5",
            "ping unix:@a --websocket /x",
            "echo 127.0.0.1:9 --tls --insecure --sni a.example --alpn h2,http/1.1 --tls-version 1.2 --no-resume",
            "https://localhost/a -c 7 --rate 1k --insecure",
            "hello -n 3 -d 4 --server-pid 7 --server-pid 4194304",
            "http",
            "http --path /a\"b --keep-alive",
            "http --mix fast=9,slow=1,/a=b=3 --close fin",
            "http://localhost:81/a?b#c -H A:b -H C:d=\"e\" --body {\"a\":'\\\\n'} -c 7 --rate 1k",
            "http http://127.0.0.1/ http://127.0.0.2/ -X DELETE --body @/dev/null --interval 7ms",
            "http 127.0.0.1:9 --body base64:QP8= -X PUT --close rst",
            "http --mix slow=2 --rate 12.5 --close rst",
            "acks --ack async=20,5ms --rate 3k -c 64",
            "acks --ack every=9 --batch 7 --window 700 --size 3 --interval 0",
        ];
        for (number, words) in plans.iter().enumerate() {
            let plan = planned(words).unwrap_or_else(|error| panic!("{words}: {error}"));
            let thresholds = [r"p99<50ms", "failed<0.1%"].map(|text| text.parse().expect("a threshold"));
            let text = text(&plan, &thresholds);
            let path = file(&format!("plan-{number}"), &text);
            let again = planned_by(&["--plan", path.to_str().expect("a path of text")]);
            assert_eq!(again.unwrap_or_else(|error| panic!("{text}: {error}")), plan, "{text}");
            std::fs::remove_file(path).expect("it was written");
        }
    }
}
