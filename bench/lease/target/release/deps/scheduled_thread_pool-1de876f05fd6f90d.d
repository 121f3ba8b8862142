/work/main/bench/lease/target/release/deps/scheduled_thread_pool-1de876f05fd6f90d.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/scheduled-thread-pool-0.2.8/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/scheduled-thread-pool-0.2.8/src/builder.rs

/work/main/bench/lease/target/release/deps/libscheduled_thread_pool-1de876f05fd6f90d.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/scheduled-thread-pool-0.2.8/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/scheduled-thread-pool-0.2.8/src/builder.rs

/work/main/bench/lease/target/release/deps/libscheduled_thread_pool-1de876f05fd6f90d.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/scheduled-thread-pool-0.2.8/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/scheduled-thread-pool-0.2.8/src/builder.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/scheduled-thread-pool-0.2.8/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/scheduled-thread-pool-0.2.8/src/builder.rs:
