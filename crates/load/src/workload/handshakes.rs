//! Results of handshakes.

use super::errors::{Errors, Seen};
use crate::latency::Latency;
use crate::numbers::{float, per_second, thousands, time};
use serde::{Deserialize, Serialize};
use sockdrawer_tls::{Handshake, HandshakeKind, Protocol};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Reasons in words that are told apart; a server can say what it likes, and the others are one.
const MAX_REASONS: usize = 32;
const OTHER: &str = "another reason";

/// Handshakes of a process, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Handshakes {
    pub(crate) counts: HandshakeCounts,
    /// Times from connected to established.
    pub(crate) took: Latency,
    /// CPU time of the handshakes that were established.
    cpu: Duration,
    agreed: BTreeMap<(bool, String, Option<String>), u64>,
    /// Reasons why handshakes failed, and why connections ended that were established.
    failed: BTreeMap<String, Seen>,
    broken: BTreeMap<String, Seen>,
}

/// Handshakes that are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HandshakeCounts {
    /// Handshakes with certificates and a signature.
    pub full: u64,
    /// Handshakes by the ticket of an earlier connection, without certificates.
    pub resumed: u64,
    /// Handshakes that failed; the connections are among those that failed.
    pub failed: u64,
}

impl HandshakeCounts {
    pub(crate) fn add(&mut self, other: &HandshakeCounts) {
        self.full += other.full;
        self.resumed += other.resumed;
        self.failed += other.failed;
    }

    /// Returns the number of handshakes that ended well.
    pub(crate) fn established(&self) -> u64 {
        self.full + self.resumed
    }
}

impl Handshakes {
    pub(crate) fn succeeded(&mut self, handshake: &Handshake, took: Duration, cpu: Duration) {
        match handshake.kind {
            HandshakeKind::Resumed => self.counts.resumed += 1,
            _ => self.counts.full += 1,
        }
        self.took.record(took);
        self.cpu += cpu;
        let alpn = handshake.alpn.as_deref().map(|alpn| String::from_utf8_lossy(alpn).into_owned());
        *self.agreed.entry((handshake.protocol == Protocol::Tls13, handshake.suite.clone(), alpn)).or_default() += 1;
    }

    /// Counts a WebSocket that was opened.
    pub(crate) fn opened(&mut self, took: Duration) {
        self.counts.full += 1;
        self.took.record(took);
    }

    pub(crate) fn failed(&mut self, why: &str) {
        self.counts.failed += 1;
        note(&mut self.failed, why, &Seen::now());
    }

    pub(crate) fn broke(&mut self, why: &str) {
        note(&mut self.broken, why, &Seen::now());
    }

    pub(crate) fn add(&mut self, other: &Handshakes) {
        self.counts.add(&other.counts);
        self.took.add(&other.took);
        self.cpu += other.cpu;
        for (agreed, count) in &other.agreed {
            *self.agreed.entry(agreed.clone()).or_default() += count;
        }
        other.failed.iter().for_each(|(why, seen)| note(&mut self.failed, why, seen));
        other.broken.iter().for_each(|(why, seen)| note(&mut self.broken, why, seen));
    }

    pub(crate) fn seen(&mut self) -> impl Iterator<Item = &mut Seen> {
        self.failed.values_mut().chain(self.broken.values_mut())
    }

    /// Returns the errors of failed handshakes, and of what ended connections after them, by the names of these phases.
    pub(crate) fn errors(&self, [shaking, open]: [&'static str; 2], start: Instant) -> impl Iterator<Item = Errors> {
        let of = move |phase: &'static str, (why, seen): (&String, &Seen)| seen.errors(phase, why.clone(), start);
        let failed = self.failed.iter().map(move |one| of(shaking, one));
        failed.chain(self.broken.iter().map(move |one| of(open, one)))
    }

    pub(crate) fn report(&self, seconds: f64) -> TlsReport {
        let established = self.counts.established();
        let agreed = self.agreed.iter().map(|((is_13, suite, alpn), handshakes)| Agreed {
            version: if *is_13 { "1.3" } else { "1.2" }.to_owned(),
            suite: suite.clone(),
            alpn: alpn.clone(),
            handshakes: *handshakes,
        });
        TlsReport {
            handshakes: self.counts,
            per_second: if seconds > 0.0 { float(established) / seconds } else { 0.0 },
            cpu_us: (established > 0).then(|| self.cpu.as_secs_f64() * 1e6 / float(established)),
            agreed: agreed.collect(),
        }
    }
}

fn note(reasons: &mut BTreeMap<String, Seen>, why: &str, seen: &Seen) {
    let why = if reasons.len() < MAX_REASONS || reasons.contains_key(why) { why } else { OTHER };
    reasons.entry(why.to_owned()).or_default().add(seen);
}

/// TLS of the clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TlsReport {
    /// Handshakes; full + resumed = the connections that were established.
    pub handshakes: HandshakeCounts,
    /// Handshakes that ended well, per second.
    pub per_second: f64,
    /// CPU time of this side for one that ended well, in microseconds; null where none did.
    pub cpu_us: Option<f64>,
    /// Agreements of both ends, and the handshakes of each.
    pub agreed: Vec<Agreed>,
}

/// Agreement of both ends in a handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Agreed {
    /// The version: 1.2 or 1.3.
    pub version: String,
    /// The cipher suite.
    pub suite: String,
    /// The application's protocol (ALPN); null where none was agreed on.
    pub alpn: Option<String>,
    /// Handshakes that did so.
    pub handshakes: u64,
}

/// Writes the report for people.
impl fmt::Display for TlsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HandshakeCounts { full, resumed, failed } = self.handshakes;
        let [full, resumed, failed] = [full, resumed, failed].map(thousands);
        write!(f, "handshakes   {full} full, {resumed} resumed, {failed} failed, {}/s", per_second(self.per_second))?;
        if let Some(cpu) = self.cpu_us {
            write!(f, ", {} of CPU each in the client", time(cpu))?;
        }
        for Agreed { version, suite, alpn, handshakes } in &self.agreed {
            let alpn = alpn.as_ref().map_or_else(String::new, |alpn| format!(", ALPN {alpn}"));
            write!(f, "\nTLS          {version}, {suite}{alpn}: {}", thousands(*handshakes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Recent;
    use super::super::Tally;
    use super::*;
    use crate::moment::Ahead;

    fn failed(why: &[&str]) -> Recent {
        let mut handshakes = Handshakes::default();
        why.iter().for_each(|why| handshakes.failed(why));
        Recent { tls: Some(handshakes), websocket: None }
    }

    #[test]
    fn failed_handshakes_are_failed_connections_with_their_reasons() {
        let (mut sum, mut other) = (Tally::default(), Tally::default());
        sum.add_handshakes(failed(&["a", "b"]));
        other.add_handshakes(failed(&["b"]));
        sum.add(&other);
        assert_eq!((sum.numbers.failed, sum.tls.as_ref().map(|tls| tls.counts.failed)), (3, Some(3)));
        sum.correct(Ahead::default());
        let errors: Vec<_> =
            sum.errors(Instant::now()).into_iter().map(|error| (error.phase, error.errno, error.count)).collect();
        assert_eq!(errors, [("handshake".into(), "a".to_owned(), 1), ("handshake".into(), "b".to_owned(), 2)]);
    }

    #[test]
    fn a_server_with_many_words_has_few_reasons() {
        let mut handshakes = Handshakes::default();
        (0..100).for_each(|number| handshakes.failed(&number.to_string()));
        assert_eq!((handshakes.failed.len(), handshakes.failed[OTHER].count), (MAX_REASONS + 1, 100 - MAX_REASONS as u64));
    }
}
