//! The filter of one connection: first the handshake, then the session.

use crate::handshake::{Handshake, HandshakeDone, Observer};
use crate::record::Content;
use crate::seam::{Pending, is_no_record, next_record};
use crate::session::{DECODE_ERROR, FATAL, Session};
use sockdrawer::layer::{Filter, HandshakeKind, Progress, Refused};
use sockdrawer::{CannotRestore, CannotSave, Input, Job, JobResult, Output, Peer, Saved, Saver};
use std::time::{Duration, Instant};

/// Bytes of records that rustls has not taken, on workers: a message may be as long as where a pool keeps them, by default.
const MAX_RECORDS: usize = 64 * 1024;

/// TLS on one connection, either end: made by [`Server`](crate::Server) and [`Client`](crate::Client).
pub struct TlsFilter {
    stage: Stage,
    /// Handshake as it was agreed on, until the layer asks for it.
    agreed: Option<Box<Handshake>>,
    /// The peer need not say that its stream ends.
    ignores_eof: bool,
}

// Nearly all connections are open, and a box for each would cost them an allocation.
#[allow(clippy::large_enum_variant)]
enum Stage {
    /// Boxed, as an established connection has no use for its memory.
    Handshake(Box<Shaking>),
    /// A worker has it.
    Working,
    Open(Session),
    /// A connection of the other side than this end of TLS is for: its bytes are plain. It is established when that was told.
    Clear {
        established: bool,
    },
    Failed,
}

/// Prints how far the connection is, and nothing secret.
impl std::fmt::Debug for TlsFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TlsFilter").field(&if matches!(self.stage, Stage::Open(_)) { "open" } else { "handshake" }).finish()
    }
}

/// A handshake that is under way.
struct Shaking {
    /// Connection that is not established yet; None once the handshake is over.
    pending: Option<Pending>,
    on_workers: bool,
    /// Records that went to a worker and were not taken by rustls: parts of a message.
    records: Vec<u8>,
    observer: Option<Observer>,
    began: Instant,
    cpu: Duration,
}

/// Result that a worker brings back.
struct Worked {
    shaking: Box<Shaking>,
    back: Output,
    outcome: Result<Option<(Session, Handshake)>, Refused>,
}

impl Shaking {
    fn advance(&mut self, wire: &mut Input<'_>, back: &mut Output) -> Result<Option<(Session, Handshake)>, Refused> {
        let before = self.observer.as_ref().map(|_| crate::handshake::cpu_time());
        let pending = self.pending.as_mut().ok_or_else(|| Refused::because("the TLS handshake is over"))?;
        let advanced = pending.advance(wire, back);
        let outcome = match advanced {
            Ok(true) => self.pending.take().map(Pending::finish).transpose(),
            Ok(false) => Ok(None),
            Err(refused) => Err(refused),
        };
        self.cpu += before.map_or(Duration::ZERO, |before| crate::handshake::cpu_time().saturating_sub(before));
        outcome
    }

    /// Goes on with the next record, on a worker.
    fn advance_there(mut self: Box<Self>) -> Job {
        Job::new(move || {
            let (mut records, mut back) = (std::mem::take(&mut self.records), Output::default());
            let mut wire = Input::new(&mut records);
            let outcome = self.advance(&mut wire, &mut back);
            let taken = wire.taken();
            records.drain(..taken);
            self.records = records;
            Box::new(Worked { shaking: self, back, outcome })
        })
    }

    fn tell(&mut self, outcome: Result<&Handshake, &Refused>) {
        if let Some(observer) = self.observer.take() {
            observer(&HandshakeDone { outcome, took: self.began.elapsed(), cpu: self.cpu });
        }
    }
}

/// The peer went away, or the time was up.
impl Drop for Shaking {
    fn drop(&mut self) {
        self.tell(Err(&Refused::because("the connection ended in the TLS handshake")));
    }
}

impl TlsFilter {
    pub(crate) fn new(pending: Result<Pending, Refused>, on_workers: bool, observer: Option<Observer>) -> TlsFilter {
        let pending = match pending {
            Ok(pending) => pending,
            Err(refused) => {
                let done = HandshakeDone { outcome: Err(&refused), took: Duration::ZERO, cpu: Duration::ZERO };
                observer.iter().for_each(|observer| observer(&done));
                return TlsFilter { stage: Stage::Failed, agreed: None, ignores_eof: false };
            }
        };
        let (records, began, cpu) = (Vec::new(), Instant::now(), Duration::ZERO);
        TlsFilter {
            stage: Stage::Handshake(Box::new(Shaking { pending: Some(pending), on_workers, records, observer, began, cpu })),
            agreed: None,
            ignores_eof: false,
        }
    }

    pub(crate) fn ignoring_eof(self, ignores_eof: bool) -> TlsFilter {
        TlsFilter { ignores_eof, ..self }
    }

    /// Makes the filter of a connection without TLS.
    pub(crate) fn clear() -> TlsFilter {
        TlsFilter { stage: Stage::Clear { established: false }, agreed: None, ignores_eof: false }
    }

    pub(crate) fn restore(from: &mut Saved<'_>) -> Result<TlsFilter, CannotRestore> {
        let saved = from.rest();
        if saved.is_empty() {
            return Ok(TlsFilter { stage: Stage::Clear { established: true }, agreed: None, ignores_eof: false });
        }
        let from = &mut Saved::new(saved);
        let stage = Stage::Open(Session::restore(from)?);
        // Behind the session of a connection whose service was not told of it yet.
        let agreed = match from.rest() {
            [] => None,
            rest => Some(Box::new(Handshake::restore(&mut Saved::new(rest))?)),
        };
        Ok(TlsFilter { stage, agreed, ignores_eof: false })
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn established(session: Session) -> TlsFilter {
        TlsFilter { stage: Stage::Open(session), agreed: None, ignores_eof: false }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        if let Stage::Open(session) = &mut self.stage { Some(session) } else { None }
    }

    /// Goes on after a step of the handshake, by its outcome.
    fn shaken(
        &mut self,
        mut shaking: Box<Shaking>,
        outcome: Result<Option<(Session, Handshake)>, Refused>,
    ) -> Result<Progress, Refused> {
        match outcome {
            Ok(None) => {
                self.stage = Stage::Handshake(shaking);
                Ok(Progress::NeedMore)
            }
            Ok(Some((session, handshake))) => {
                shaking.tell(Ok(&handshake));
                self.agreed = Some(Box::new(handshake));
                self.stage = Stage::Open(session);
                Ok(Progress::Established(None))
            }
            Err(refused) => {
                shaking.tell(Err(&refused));
                Err(refused)
            }
        }
    }

    /// Takes one record for a worker, where it is whole.
    fn work(&mut self, mut shaking: Box<Shaking>, wire: &mut Input<'_>) -> Result<Progress, Refused> {
        match next_record(wire.bytes()).and_then(|length| wire.exactly(length)) {
            Some(record) => {
                shaking.records.extend_from_slice(record);
                if shaking.records.len() > MAX_RECORDS {
                    let refused = Refused::because("a message of the TLS handshake in more than 64 KiB of records");
                    return self.shaken(shaking, Err(refused));
                }
                self.stage = Stage::Working;
                Ok(Progress::Work(shaking.advance_there()))
            }
            None => {
                self.stage = Stage::Handshake(shaking);
                Ok(Progress::NeedMore)
            }
        }
    }
}

impl Filter for TlsFilter {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused> {
        if let Stage::Open(session) = &mut self.stage {
            let progress = session.decode(wire, plain, back);
            if progress.is_err() {
                self.stage = Stage::Failed;
            }
            return progress;
        }
        match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Clear { established } => {
                self.stage = Stage::Clear { established: true };
                if established && wire.is_empty() {
                    return Ok(Progress::NeedMore);
                }
                plain.extend_from_slice(if established { wire.take_all() } else { &[] });
                Ok(if established { Progress::Plain } else { Progress::Established(None) })
            }
            Stage::Handshake(shaking) if is_no_record(wire.bytes()) => {
                // As rustls, which waits for five bytes.
                back.push(&[Content::ALERT.0, 3, 3, 0, 2, FATAL, DECODE_ERROR]);
                self.shaken(shaking, Err(Refused::because("the peer does not speak TLS")))
            }
            // A client's first message needs no worker.
            Stage::Handshake(shaking) if shaking.on_workers && !wire.is_empty() => self.work(shaking, wire),
            Stage::Handshake(shaking) if !shaking.records.is_empty() => {
                self.stage = Stage::Handshake(shaking);
                Ok(Progress::NeedMore)
            }
            Stage::Handshake(mut shaking) => {
                let outcome = shaking.advance(wire, back);
                self.shaken(shaking, outcome)
            }
            Stage::Working => {
                self.stage = Stage::Working;
                Ok(Progress::NeedMore)
            }
            _ => Err(Refused::because("this TLS connection has failed")),
        }
    }

    fn job_done(&mut self, result: JobResult, back: &mut Output) -> Result<Progress, Refused> {
        let lost = |error| Refused::because(format!("a step of the TLS handshake was not done: {error}"));
        let Worked { shaking, back: appended, outcome } = *result.take::<Box<Worked>>().map_err(lost)?;
        back.push(appended.bytes());
        self.shaken(shaking, outcome)
    }

    fn knows(&mut self, peer: Peer) -> Peer {
        match self.agreed.take() {
            Some(handshake) => peer.with_fact(*handshake),
            None => peer,
        }
    }

    fn handshake(&self) -> Option<HandshakeKind> {
        if let Stage::Clear { .. } = self.stage {
            return None;
        }
        Some(self.agreed.as_ref().map_or(HandshakeKind::Full, |agreed| agreed.kind))
    }

    fn timed_out(&mut self) {
        if let Stage::Handshake(shaking) = &mut self.stage {
            shaking.tell(Err(&Refused::because("the TLS handshake did not end in time")));
        }
    }

    fn passes(&self) -> bool {
        matches!(self.stage, Stage::Clear { established: true })
    }

    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        match &mut self.stage {
            Stage::Open(session) => session.encode(plain, wire),
            Stage::Clear { .. } => wire.push(plain),
            _ => {}
        }
    }

    fn goodbye(&mut self, wire: &mut Output) {
        if let Stage::Open(session) = &mut self.stage {
            session.goodbye(wire);
        }
    }

    fn truncated(&mut self) -> Result<(), Refused> {
        if self.ignores_eof || matches!(self.stage, Stage::Clear { .. }) {
            return Ok(());
        }
        Err(Refused::because("the peer ended the connection without TLS's close_notify: bytes may be missing"))
    }

    fn save(&mut self, to: &mut Saver) -> Result<(), CannotSave> {
        match &self.stage {
            Stage::Open(session) => {
                session.save(to);
                self.agreed.iter().for_each(|agreed| agreed.save(to));
            }
            Stage::Clear { .. } => {}
            Stage::Failed => return Err(CannotSave::because("its TLS connection has failed")),
            _ => return Err(CannotSave::because("its TLS handshake is under way")),
        }
        Ok(())
    }
}
