//! Jobs, which are work too slow for a loop, and their results.

use crate::sys::inline::{InlineCall, InlineValue};
use std::any::{Any, type_name};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Work too slow for a loop. It runs on a worker; with 0 workers it runs in the loop.
pub struct Job(Call);

enum Call {
    Inline(InlineCall),
    Boxed(Box<dyn FnOnce() -> InlineValue + Send>),
}

impl Job {
    /// Returns a job of up to 96 bytes of captures and 96 bytes of result, which costs no allocation. Larger ones do not compile.
    pub fn new<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Job {
        Job(Call::Inline(InlineCall::new(job)))
    }

    /// Returns a job with captures of any size, in a box. A larger result must be boxed by the job.
    pub fn boxed<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Job {
        Job(Call::Boxed(Box::new(move || InlineValue::new(job()))))
    }

    pub(crate) fn run(self) -> JobResult {
        let run = AssertUnwindSafe(|| match self.0 {
            Call::Inline(call) => call.call(),
            Call::Boxed(call) => call(),
        });
        match catch_unwind(run) {
            Ok(value) => JobResult(Ok(value)),
            Err(payload) => JobResult(Err(Failure { error: JobError::Panicked, panic: Some(payload) })),
        }
    }
}

/// The result of a job.
pub struct JobResult(Result<InlineValue, Failure>);

struct Failure {
    error: JobError,
    panic: Option<Box<dyn Any + Send>>,
}

impl JobResult {
    /// Returns the result of a job that was not run.
    pub(crate) fn refused(error: JobError) -> JobResult {
        JobResult(Err(Failure { error, panic: None }))
    }

    /// Returns the payload of the job's panic, for the caller that counts panics.
    pub(crate) fn take_panic(&mut self) -> Option<Box<dyn Any + Send>> {
        self.0.as_mut().err()?.panic.take()
    }

    /// Returns the value that the job returned.
    ///
    /// # Errors
    /// When it panicked or was never run.
    ///
    /// # Panics
    /// When `T` is not the type the job returned: a bug of the protocol.
    #[track_caller]
    pub fn take<T: 'static>(self) -> Result<T, JobError> {
        match self.0.map_err(|failure| failure.error)?.take() {
            Ok(value) => Ok(value),
            Err(other) => {
                panic!(
                    "a job's result is a {}, and was taken as a {}: take what the job returns",
                    other.type_name(),
                    type_name::<T>()
                )
            }
        }
    }
}

impl std::fmt::Debug for JobResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JobResult({:?})", self.0.as_ref().map(|_| ()).map_err(|failure| failure.error))
    }
}

/// Reason why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The job panicked; its worker lives on.
    #[error("the job panicked")]
    Panicked,
    /// The workers' queue is full; the job was not run.
    #[error("the workers' queue is full")]
    QueueFull,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_another_type_names_both() {
        let panic = catch_unwind(AssertUnwindSafe(|| Job::new(|| 7_u32).run().take::<String>())).expect_err("a u32 is no String");
        let text = panic.downcast::<String>().expect("a text");
        assert!(text.starts_with("a job's result is a u32, and was taken as a alloc::string::String"), "{text}");
    }
}
