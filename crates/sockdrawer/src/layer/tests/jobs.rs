//! Jobs of a filter's handshake.

use super::*;

/// A filter whose hello of a byte is answered by this many jobs, one after another; then bytes pass as they are.
#[derive(Clone, Copy)]
struct Slow {
    left: u8,
}
struct SlowLayer(Slow);

impl Filtering for SlowLayer {
    type Filter = Slow;
    fn filter(&self, _peer: &Peer) -> Slow {
        self.0
    }
}
impl Filter for Slow {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, back: &mut Output) -> Result<Progress, Refused> {
        if wire.is_empty() {
            return Ok(Progress::NeedMore);
        }
        match (wire.take(1), self.left) {
            (b"!", 0) => Ok(Progress::Work(Job::new(|| ()))),
            (byte, 0) => {
                plain.extend_from_slice(byte);
                Ok(Progress::Plain)
            }
            _ => {
                back.push(b"a");
                Ok(Progress::Work(Job::new(|| b'b')))
            }
        }
    }
    fn job_done(&mut self, result: JobResult, back: &mut Output) -> Result<Progress, Refused> {
        back.push(&[result.take::<u8>().map_err(|_| Refused::because("the job failed"))?]);
        self.left -= 1;
        Ok(if self.left == 0 { Progress::Established(None) } else { Progress::Work(Job::new(|| b'c')) })
    }
    fn encode(&mut self, plain: &[u8], wire: &mut Output) {
        wire.push(plain);
    }
    fn goodbye(&mut self, _wire: &mut Output) {}
}

fn slow(jobs: u8) -> Driver<Layer<SlowLayer, Commands>> {
    let mut connection = Driver::open(Layer::new(SlowLayer(Slow { left: jobs }), Commands));
    connection.receive(b"HPing");
    assert!(connection.has_job());
    assert_eq!((connection.sent(), connection.kept()), (b"a".to_vec(), &b"Ping"[..]), "wire bytes wait for the job");
    connection
}

#[test]
fn a_handshake_goes_on_when_its_jobs_are_done() {
    let mut connection = slow(2);
    connection.run_job();
    assert_eq!((connection.has_job(), connection.sent()), (true, b"b".to_vec()));
    connection.run_job();
    assert_eq!((connection.has_job(), connection.sent()), (false, b"cwelcome Pong".to_vec()));
    assert_eq!(connection.timer(), None, "the handshake is over");
    // From now on jobs are the inner protocol's.
    connection.receive(b"slow");
    connection.run_job();
    assert_eq!(connection.sent(), b"<done>");
    connection.receive(b"!");
    assert_eq!(connection.closed(), Some(Closed::Panicked), "an established filter has no jobs");
}

#[test]
fn a_handshake_ends_with_its_job_its_time_or_its_peer() {
    let mut refused = slow(1);
    refused.fail_job(JobError::QueueFull);
    assert_eq!(refused.closed(), Some(Closed::Aborted));
    let mut late = slow(1);
    late.advance(Duration::from_secs(10));
    assert_eq!(late.closed(), Some(Closed::Aborted));
    late.run_job();
    let mut ended = slow(2);
    ended.finish();
    assert_eq!(ended.closed(), None, "the end waits for the job, too");
    ended.run_job();
    ended.run_job();
    assert_eq!((ended.sent(), ended.closed()), (b"bcwelcome Pong<end>".to_vec(), Some(Closed::Orderly)));
    // A filter that is not prepared for a job.
    struct Careless;
    impl Filtering for Careless {
        type Filter = Careless;
        fn filter(&self, _peer: &Peer) -> Careless {
            Careless
        }
    }
    impl Filter for Careless {
        fn decode(&mut self, _wire: &mut Input<'_>, _plain: &mut Vec<u8>, _back: &mut Output) -> Result<Progress, Refused> {
            Ok(Progress::Work(Job::new(|| ())))
        }
        fn encode(&mut self, _plain: &[u8], _wire: &mut Output) {}
        fn goodbye(&mut self, _wire: &mut Output) {}
    }
    let mut careless = Driver::open(Layer::new(Careless, Commands));
    careless.run_job();
    assert_eq!(careless.closed(), Some(Closed::Aborted));
}
