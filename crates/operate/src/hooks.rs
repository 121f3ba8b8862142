//! Code of a program's own that runs at moments of its life, on one thread, in order.

use crate::hub::Hub;
use serde_json::json;
use sockdrawer::Drained;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// The end of the program waits for hooks, those of the drain included, at most so long.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// A moment in the life of a program, for [`Operated::hook`](crate::Operated::hook).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// All pools are there, and a predecessor has not been replaced yet: nothing can be changed now. An error ends this program; a predecessor goes on.
    Started,
    /// The configuration was changed: a reload, a rollback, a change by the control socket.
    Changed,
    /// A new build is about to take over, whoever started it; not in a rehearsal. An error refuses that.
    Upgrading,
    /// A new build has taken over. What stays here goes on here until it ends.
    Replaced,
    /// A new build was given what this one [carries](crate::Operated::carry), and has not taken over, or died soon after: this process goes on with what it has.
    TakenBack,
    /// This build has taken over, and the process before it has no connections any more of pools that both have.
    ServesAlone,
    /// The program ends: its pools stop to accept and connections are asked to end, at this moment. A hook holds that up in no way.
    Draining,
    /// No connection is left, or their time was over.
    Drained(Drained),
}

pub(crate) type Hook = Box<dyn Fn(&Moment) -> Result<(), String> + Send>;

/// Takes what the first hook says that fails.
type Answer = Box<dyn FnOnce(Result<(), String>) + Send>;

/// A moment that hooks are told of; None: only the answer is wanted, once they are done with all before.
struct ToldMoment(Option<Moment>, Option<Answer>);

/// The way to the thread of the hooks.
#[derive(Clone)]
pub(crate) struct Hooks(Sender<ToldMoment>);

/// Moments, as that thread is told of them.
pub(crate) struct Moments(Receiver<ToldMoment>);

impl Hooks {
    pub(crate) fn new() -> (Hooks, Moments) {
        let (told, moments) = mpsc::channel();
        (Hooks(told), Moments(moments))
    }

    pub(crate) fn tell(&self, moment: Moment) {
        // Without hooks there is no thread.
        let _ = self.0.send(ToldMoment(Some(moment), None));
    }

    /// Tells them, and waits for what the first says that fails.
    pub(crate) fn ask(&self, moment: Moment) -> Result<(), String> {
        self.answers(Some(moment)).recv().unwrap_or(Ok(()))
    }

    /// Tells them; `answer` is called on their thread. Returns false where there are no hooks: then it is not called.
    pub(crate) fn ask_then(&self, moment: Moment, answer: impl FnOnce(Result<(), String>) + Send + 'static) -> bool {
        self.0.send(ToldMoment(Some(moment), Some(Box::new(answer)))).is_ok()
    }

    fn answers(&self, moment: Option<Moment>) -> Receiver<Result<(), String>> {
        let (answer, answered) = mpsc::channel();
        // The asking thread may be gone.
        let answer = Box::new(move |result| drop(answer.send(result)));
        let _ = self.0.send(ToldMoment(moment, Some(answer)));
        answered
    }

    /// Waits until they are done with all that they were told, but not for ever. Whether they are.
    pub(crate) fn finish(&self) -> bool {
        self.answers(None).recv_timeout(ENDS_WITHIN) != Err(mpsc::RecvTimeoutError::Timeout)
    }
}

impl Moments {
    /// Runs these hooks, until the program has ended.
    pub(crate) fn serve(self, hooks: &[Hook], hub: &Hub) {
        while let Ok(ToldMoment(moment, answer)) = self.0.recv() {
            let run = |hook: &Hook, moment: &Moment| {
                catch_unwind(AssertUnwindSafe(|| hook(moment))).unwrap_or_else(|_| Err("it panicked".to_owned()))
            };
            let done = moment.iter().flat_map(|moment| hooks.iter().map(move |hook| (hook, moment)));
            let result = done.map(|(hook, moment)| run(hook, moment)).find(Result::is_err).unwrap_or(Ok(()));
            match (answer, result) {
                (Some(answer), result) => answer(result),
                (None, Err(why)) => hub.note_or_print("HookFailed", &json!(why), format_args!("a hook failed: {why}")),
                (None, Ok(())) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::Manager;
    use std::sync::{Arc, Mutex};

    fn served(hooks: Vec<Hook>) -> Hooks {
        let (told, moments) = Hooks::new();
        let hub = Hub::new(None, Manager::of_environment(false), |_| ());
        std::thread::spawn(move || moments.serve(&hooks, &hub));
        told
    }

    #[test]
    fn hooks_run_in_order_and_the_first_that_fails_is_the_answer() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let hook = |name: &'static str, refuses: bool| -> Hook {
            let seen = seen.clone();
            Box::new(move |moment: &Moment| {
                seen.lock().expect("no panic").push((name, moment.clone()));
                if refuses && *moment == Moment::Upgrading { Err(format!("{name} refuses")) } else { Ok(()) }
            })
        };
        let hooks = served(vec![hook("one", false), hook("two", true), hook("three", true)]);
        assert_eq!(hooks.ask(Moment::Started), Ok(()));
        assert_eq!(hooks.ask(Moment::Upgrading), Err("two refuses".to_owned()));
        hooks.tell(Moment::Draining);
        assert!(hooks.finish());
        let names = |of: Moment| seen.lock().expect("no panic").iter().filter(|(_, moment)| *moment == of).count();
        assert_eq!([Moment::Started, Moment::Upgrading, Moment::Draining].map(names), [3, 2, 3]);
    }

    #[test]
    fn a_hook_that_panics_fails_and_is_called_again() {
        let panics: Hook = Box::new(|moment| if *moment == Moment::Upgrading { panic!("a test") } else { Ok(()) });
        let hooks = served(vec![panics]);
        assert_eq!(hooks.ask(Moment::Upgrading), Err("it panicked".to_owned()));
        assert_eq!(hooks.ask(Moment::Started), Ok(()));
    }

    #[test]
    fn without_hooks_nothing_is_waited_for() {
        let hooks = served(Vec::new());
        assert_eq!(hooks.ask(Moment::Started), Ok(()));
        assert!(hooks.finish());
    }
}
