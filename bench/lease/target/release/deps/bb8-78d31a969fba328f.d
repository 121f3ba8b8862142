/work/main/bench/lease/target/release/deps/bb8-78d31a969fba328f.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/api.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/inner.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/internals.rs

/work/main/bench/lease/target/release/deps/libbb8-78d31a969fba328f.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/api.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/inner.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/internals.rs

/work/main/bench/lease/target/release/deps/libbb8-78d31a969fba328f.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/api.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/inner.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/internals.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/api.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/inner.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bb8-0.9.1/src/internals.rs:
