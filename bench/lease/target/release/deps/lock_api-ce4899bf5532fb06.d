/work/main/bench/lease/target/release/deps/lock_api-ce4899bf5532fb06.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/guard.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/mutex.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/remutex.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/rwlock.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/condvar.rs

/work/main/bench/lease/target/release/deps/liblock_api-ce4899bf5532fb06.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/guard.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/mutex.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/remutex.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/rwlock.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/condvar.rs

/work/main/bench/lease/target/release/deps/liblock_api-ce4899bf5532fb06.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/guard.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/mutex.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/remutex.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/rwlock.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/condvar.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/guard.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/mutex.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/remutex.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/rwlock.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lock_api-0.5.0/src/condvar.rs:
