/work/main/bench/lease/target/release/deps/deadpool_runtime-324d80216429f524.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/deadpool-runtime-0.3.1/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/deadpool-runtime-0.3.1/src/../README.md

/work/main/bench/lease/target/release/deps/libdeadpool_runtime-324d80216429f524.rlib: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/deadpool-runtime-0.3.1/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/deadpool-runtime-0.3.1/src/../README.md

/work/main/bench/lease/target/release/deps/libdeadpool_runtime-324d80216429f524.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/deadpool-runtime-0.3.1/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/deadpool-runtime-0.3.1/src/../README.md

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/deadpool-runtime-0.3.1/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/deadpool-runtime-0.3.1/src/../README.md:
