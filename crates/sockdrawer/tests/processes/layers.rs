//! Handlers, delegates and async code under layers: what they read and write is plain, in every model that runs them.

mod ending;
mod facts;
mod models;
mod records;
mod streams;

use sockdrawer::Build;

pub(crate) const RECIPES: &[(&str, Build)] = &[
    ("records+answer", |_| Ok(models::answer().layered(records::Recording))),
    ("records+teller", |_| Ok(facts::teller().layered(records::Recording))),
    ("records+telling", |_| Ok(facts::telling().layered(records::Recording))),
    ("records+lender", |_| Ok(models::lender().layered(records::Recording))),
];

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("bytes_are_plain_in_every_model_that_runs_handlers", models::bytes_are_plain),
    ("a_handler_in_a_process_has_its_layer", models::in_processes),
    ("axum_serves_under_a_layer", models::axum),
    ("handlers_have_what_the_layers_know_in_every_model", facts::in_every_model),
    ("handshakes_are_counted_in_every_model", facts::counted_in_every_model),
    ("handlers_of_axum_have_what_the_layers_know", facts::in_axum),
    ("a_behaviour_keeps_what_it_is_under_a_layer", models::a_behaviour_keeps_what_it_is),
    ("a_program_has_no_layer", models::a_program_has_no_layer),
    ("a_slow_reader_gets_all", streams::a_slow_reader_gets_all),
    ("a_half_that_writes_ends_before_the_one_that_reads", streams::halves),
    ("unsent_records_are_sent_by_the_reader", streams::unsent_is_sent_by_the_reader),
    ("half_a_record_is_no_input", streams::half_a_record_is_no_input),
    ("a_look_at_half_a_record_finds_nothing", streams::a_look_at_half_a_record_finds_nothing),
    ("what_a_write_left_goes_with_the_connection", streams::what_a_write_left),
    ("the_filter_answers_by_itself_within_bounds", streams::answers_of_the_filter),
    ("a_cut_stream_and_a_forged_one_are_errors", ending::cut_and_forged),
    ("a_handler_starts_behind_the_handshake", ending::handshake),
    ("drains_purges_and_kills_reach_a_handler", ending::drains),
    ("a_panic_resets", ending::panics),
];
