//! Suite of behaviour over all models. A model leaves a test out only by refusing by name what the test needs; one table lists
//! what each model refuses.

mod common;

#[path = "models/admitting.rs"]
mod admitting;
#[path = "models/bench.rs"]
mod bench;
#[path = "models/changing.rs"]
mod changing;
#[path = "models/crashing.rs"]
mod crashing;
#[path = "models/deadlines.rs"]
mod deadlines;
#[path = "models/doors.rs"]
mod doors;
#[path = "models/ending.rs"]
mod ending;
#[path = "models/limiting.rs"]
mod limiting;
#[path = "models/listing.rs"]
mod listing;
#[path = "models/revising.rs"]
mod revising;
#[path = "models/runner.rs"]
mod runner;
#[path = "models/services.rs"]
mod services;
#[path = "models/serving.rs"]
mod serving;
#[path = "models/tagging.rs"]
mod tagging;
#[path = "models/working.rs"]
mod working;

use bench::{Bench, Outcome};
use sockdrawer::Model;

/// A test by its name.
pub(crate) type Test = (&'static str, fn(&Bench) -> Outcome);

/// The list of tests that every model is put to.
macro_rules! for_each_model {
    ($($module:ident::$test:ident,)*) => {
        const TESTS: &[Test] = &[$((concat!(stringify!($module), "::", stringify!($test)), $module::$test),)*];
    };
}

for_each_model! {
    serving::many_clients_get_every_byte,
    serving::a_message_may_come_in_any_two_parts,
    serving::a_client_that_finished_gets_its_answer,
    serving::a_server_that_finished_goes_on_receiving,
    serving::a_slow_reader_gets_everything,
    serving::a_flood_is_held_back_and_harms_nobody,
    serving::a_unix_socket_serves,
    serving::a_pool_that_connects,
    serving::counters_add_up,
    working::a_job_has_a_result,
    working::jobs_begin_in_the_order_they_came,
    working::a_panic_in_a_job_ends_the_job,
    working::a_timer_is_not_early,
    working::notes_reach_all_who_are_meant_in_order,
    crashing::a_panic_ends_one_connection,
    crashing::a_dead_part_is_replaced,
    crashing::too_many_deaths_end_the_pool,
    limiting::a_limit_is_reached_and_never_passed,
    limiting::who_is_rejected_sees_an_end,
    limiting::a_limit_below_use_closes_nothing,
    limiting::who_came_while_it_was_suspended_is_served,
    admitting::a_listener_has_a_limit_of_its_own,
    admitting::a_limit_holds_while_policies_are_swapped,
    admitting::the_accept_rate_is_kept,
    admitting::a_peer_has_as_many_as_it_may,
    admitting::rejects_are_counted_by_their_reasons,
    admitting::a_policy_of_its_own_decides,
    admitting::an_alarm_is_told_once,
    admitting::a_listener_is_suspended_and_refuses_by_itself,
    admitting::a_pool_refuses_and_goes_on,
    doors::connections_are_chosen_by_their_listener,
    doors::a_suspended_listener_is_replaced,
    doors::a_suspended_listener_is_removed,
    listing::connections_are_listed_as_they_are,
    listing::selectors_mean_what_they_say,
    listing::what_stays_is_listed_once,
    listing::who_is_killed_is_alone,
    tagging::operations_mean_connections_by_their_tags,
    tagging::connections_are_ended_by_their_tags,
    tagging::connections_are_listed_by_what_they_do,
    changing::old_connections_keep_their_behaviour,
    changing::settings_are_for_new_connections,
    changing::an_address_comes_and_goes_under_traffic,
    changing::an_address_comes_and_goes_at_the_limit,
    changing::sockets_are_replaced_under_traffic,
    changing::a_unix_path_is_passed_on_under_traffic,
    changing::a_unix_path_is_passed_on_at_the_limit,
    changing::sockets_are_replaced_at_the_limit,
    changing::behaviours_change_under_traffic,
    changing::an_adopted_connection_keeps_its_state,
    changing::a_refused_change_changes_nothing,
    revising::a_change_of_an_older_copy_is_refused,
    revising::of_changes_to_one_copy_one_wins,
    revising::updates_of_several_threads_are_all_made,
    revising::a_bound_of_generations_is_kept,
    ending::a_drain_answers_what_was_received,
    ending::a_drain_takes_no_longer_than_its_deadline,
    ending::a_drain_ends_as_many_as_it_is_to,
    ending::a_drain_keeps_its_rate,
    ending::a_shutdown_keeps_its_rate,
    ending::a_drain_without_time_ends_all_the_same,
    ending::a_purge_delivers_what_was_written,
    ending::a_shutdown_serves_who_waits,
    deadlines::a_shutdown_keeps_its_deadline,
    deadlines::a_drain_keeps_its_deadline,
    deadlines::a_purge_keeps_its_deadline,
    deadlines::who_asked_and_got_no_answer_was_cut,
    deadlines::connections_that_wait_at_the_deadline_are_reset_and_counted,
    ending::a_connection_that_is_idle_is_closed,
    ending::who_joins_learns_of_the_end,
    ending::the_last_handle_ends_the_pool,
}

/// Refusals of the models: the model, a part of the names of tests, and what the refusal must say.
const REFUSALS: &[(Model, &str, &str)] = &[
    (Model::Fork, "a_pool_that_connects", "make connections"),
    (Model::Fork, "notes_reach_all", "bring notes to connections"),
    (Model::Fork, "tagging::", "bring notes to connections"),
    (Model::Fork, "an_adopted_connection", "bring notes to connections"),
    (Model::Prefork, "a_pool_that_connects", "make connections"),
    (Model::Fork, "a_policy_of_its_own", "ask an admission policy"),
    (Model::Prefork, "a_policy_of_its_own", "ask an admission policy"),
    (Model::Prefork, "a_peer_has_as_many", "count the connections of a peer"),
    #[cfg(not(feature = "tokio"))]
    (Model::Tasks, "", "without the feature tokio"),
];

fn main() {
    // In a helper this is where it ends.
    sockdrawer::processes(&services::RECIPES);
    runner::run(TESTS, REFUSALS)
}
