//! Pools that have processes, and what belongs to a process: a file for each subject. Each test runs in a process of its own.

#[path = "../common/mod.rs"]
mod common;

mod draining;
mod fork;
mod helpers;
mod layers;
mod ports;
mod prefork;
mod proxy_header;
mod spin;
mod stampede;
mod upgrades;

fn main() {
    helpers::may_forget();
    let recipes = [
        fork::RECIPES,
        helpers::RECIPES,
        layers::RECIPES,
        prefork::RECIPES,
        proxy_header::RECIPES,
        spin::RECIPES,
        stampede::RECIPES,
        upgrades::RECIPES,
    ];
    // In a helper this is where it ends.
    sockdrawer::processes(&recipes.concat());
    if helpers::is_victim() {
        return helpers::be_killed();
    }
    common::run_tests(&[
        // The tests that take longest begin first.
        ("upgrades", upgrades::TESTS),
        ("helpers", helpers::TESTS),
        ("draining", draining::TESTS),
        ("fork", fork::TESTS),
        ("layers", layers::TESTS),
        ("ports", ports::TESTS),
        ("prefork", prefork::TESTS),
        ("proxy_header", proxy_header::TESTS),
        ("spin", spin::TESTS),
        ("stampede", stampede::TESTS),
    ])
}
