//! A single runtime whose threads steal tasks from each other, as `#[tokio::main]` makes it.

use bench_peers::{arguments, listen, tasks};
use tokio::net::TcpListener;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (workload, port) = arguments()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listen(port)?)?;
        // In a task, not in block_on, whose thread is none of the workers: connections are made where they run.
        tokio::spawn(tasks::accept(listener, workload)).await?
    })?;
    Ok(())
}
