//! Which steps are drawn how often.

use crate::policies::{By, Policy};
use crate::reference::{Intake, Reference, Step, Whom};
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

/// The most steps of one case.
const STEPS: usize = 40;

/// A case: how it begins, and its steps.
pub(crate) type Case =
    <proptest_state_machine::Sequential<Reference, Step, BoxedStrategy<Reference>, BoxedStrategy<Step>> as Strategy>::Value;

/// Returns a strategy for all cases of a model.
pub(crate) fn cases(model: sockdrawer::Model, lane: u8) -> impl Strategy<Value = Case> {
    proptest_state_machine::Sequential::new(
        (4..=STEPS).into(),
        move || Just(Reference::new(model, lane)).boxed(),
        Reference::allows,
        |state: &Reference| <Machine as ReferenceStateMachine>::transitions(state),
        |state: Reference, step: &Step| state.after(step),
    )
}

fn whom() -> impl Strategy<Value = Whom> {
    prop_oneof![Just(Whom::All), Just(Whom::Old), Just(Whom::New), (0..8_usize).prop_map(Whom::One)]
}

fn changes() -> BoxedStrategy<Step> {
    let limit = || prop_oneof![(0..4_usize).prop_map(Some), Just(None)];
    let one = || 0..3_usize;
    prop_oneof![
        3 => Just(Step::Protocol),
        1 => Just(Step::Settings),
        2 => Just(Step::Refused),
        2 => (0..4_usize).prop_map(Step::Loops),
        2 => Just(Step::Listen),
        2 => one().prop_map(Step::Unlisten),
        2 => one().prop_map(Step::Replace),
        2 => one().prop_map(Step::Renew),
        3 => admission(),
        3 => limit().prop_map(Step::Limit),
        1 => (one(), limit()).prop_map(|(place, limit)| Step::LimitAt(place, limit)),
        6 => intake().prop_map(Step::Intake),
        2 => (one(), intake()).prop_map(|(place, intake)| Step::IntakeAt(place, intake)),
        3 => whom().prop_map(Step::Adopt),
        3 => Just(Step::Upgrade),
        1 => Just(Step::GivenUpUpgrade),
    ]
    .boxed()
}

fn admission() -> impl Strategy<Value = Step> {
    let policy = prop_oneof![2 => Just(Policy::Wait), 1 => Just(Policy::Fin), 1 => Just(Policy::Bytes)];
    let by = prop_oneof![Just(By::Limits), Just(By::PerPeer), Just(By::Rate), Just(By::Own)];
    (policy, by).prop_map(|(policy, by)| Step::Admission(policy, by))
}

/// Draws an intake: a shut one is soon open again, or nothing would happen.
fn intake() -> impl Strategy<Value = Intake> {
    prop_oneof![4 => Just(Intake::Open), 2 => Just(Intake::Suspended), 1 => Just(Intake::Refusing)]
}

fn traffic() -> BoxedStrategy<Step> {
    let one = || 0..8_usize;
    prop_oneof![
        10 => one().prop_map(Step::Connect),
        1 => Just(Step::ConnectNowhere),
        3 => one().prop_map(Step::Close),
        1 => Just(Step::CloseWaiting),
        4 => one().prop_map(Step::Check),
        2 => one().prop_map(Step::Half),
        1 => one().prop_map(Step::Flood),
        1 => whom().prop_map(Step::Notify),
        1 => one().prop_map(Step::Speak),
        2 => Just(Step::SpeakToGone),
    ]
    .boxed()
}

fn endings() -> BoxedStrategy<Step> {
    let one = || 0..8_usize;
    prop_oneof![
        2 => whom().prop_map(Step::Purge),
        2 => whom().prop_map(Step::Drain),
        2 => one().prop_map(Step::Kill),
        1 => one().prop_map(Step::Crash),
        1 => Just(Step::Stop),
    ]
    .boxed()
}

/// The steps as proptest knows them.
pub(crate) struct Machine;

impl ReferenceStateMachine for Machine {
    type State = Reference;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Reference> {
        Just(Reference::new(sockdrawer::Model::Loops, 0)).boxed()
    }

    fn transitions(state: &Reference) -> BoxedStrategy<Step> {
        if !state.running {
            return prop_oneof![9 => Just(Step::Start), 1 => Just(Step::ConnectNowhere)].boxed();
        }
        prop_oneof![10 => traffic(), 10 => changes(), 3 => endings()].boxed()
    }

    fn preconditions(state: &Reference, step: &Step) -> bool {
        state.allows(step)
    }

    fn apply(state: Reference, step: &Step) -> Reference {
        state.after(step)
    }
}

impl StateMachineTest for Machine {
    type SystemUnderTest = crate::pool::Tested;
    type Reference = Machine;

    fn init_test(reference: &Reference) -> crate::pool::Tested {
        crate::pool::Tested::start(reference)
    }

    fn apply(mut tested: crate::pool::Tested, after: &Reference, step: Step) -> crate::pool::Tested {
        tested.apply(after, step);
        tested
    }

    fn check_invariants(tested: &crate::pool::Tested, reference: &Reference) {
        tested.compare(reference);
    }

    fn teardown(tested: crate::pool::Tested, reference: Reference) {
        tested.finish(&reference);
    }
}
