//! A runtime of one thread for each core, each with a listening socket of its own.

use bench_peers::{arguments, listen, on_each_cpu, tasks};
use tokio::net::TcpListener;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (workload, port) = arguments()?;
    on_each_cpu(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { tasks::accept(TcpListener::from_std(listen(port)?)?, workload).await })
    })?;
    Ok(())
}
