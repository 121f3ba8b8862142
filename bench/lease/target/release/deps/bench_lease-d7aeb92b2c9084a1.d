/work/main/bench/lease/target/release/deps/bench_lease-d7aeb92b2c9084a1.d: src/main.rs src/pools.rs

/work/main/bench/lease/target/release/deps/bench_lease-d7aeb92b2c9084a1: src/main.rs src/pools.rs

src/main.rs:
src/pools.rs:
