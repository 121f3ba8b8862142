//! The checks of the fuzz targets, see `fuzz/`, with their seeds and every seed with one byte changed or its end missing.

mod fuzzed;

use std::path::Path;

/// Checks each seed of `target`, and inputs near it.
fn check_near(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let seeds: Vec<_> = std::fs::read_dir(&folder).expect("the seeds are beside the targets").collect();
    assert!(seeds.len() >= 4, "{}", folder.display());
    for seed in seeds {
        let mut seed = std::fs::read(seed.expect("it can be listed").path()).expect("a seed is a file");
        (0..=seed.len()).for_each(|end| check(&seed[..end]));
        for at in 0..seed.len() {
            for change in [1, 2, 4, 16, 32, 64, 128, 255] {
                seed[at] ^= change;
                check(&seed);
                seed[at] ^= change;
            }
        }
    }
}

#[test]
fn acks_near_its_seeds() {
    check_near("acks", fuzzed::acks::check);
}

#[test]
fn client_near_its_seeds() {
    check_near("client", fuzzed::client::check);
}

#[test]
fn hello_near_its_seeds() {
    check_near("hello", fuzzed::hello::check);
}

#[test]
fn http_near_its_seeds() {
    check_near("http", fuzzed::http::check);
}

#[test]
fn proxy_header_near_its_seeds() {
    check_near("proxy_header", fuzzed::proxy_header::check);
}
