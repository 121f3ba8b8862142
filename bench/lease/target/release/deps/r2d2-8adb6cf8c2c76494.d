/work/main/bench/lease/target/release/deps/r2d2-8adb6cf8c2c76494.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/config.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/event.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/extensions.rs

/work/main/bench/lease/target/release/deps/libr2d2-8adb6cf8c2c76494.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/config.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/event.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/extensions.rs

/work/main/bench/lease/target/release/deps/libr2d2-8adb6cf8c2c76494.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/config.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/event.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/extensions.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/config.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/event.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/r2d2-0.8.10/src/extensions.rs:
