//! The check of the fuzz target `websocket`, see `fuzz/`, with its seeds and every seed with one byte changed or its end missing.

mod fuzzed;

use std::path::Path;

#[test]
fn streams_near_the_seeds_are_answered_as_the_reference_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/websocket");
    let seeds: Vec<_> = std::fs::read_dir(&folder).expect("the seeds are beside the targets").collect();
    assert!(seeds.len() >= 4, "{}", folder.display());
    for seed in seeds {
        let mut seed = std::fs::read(seed.expect("it can be listed").path()).expect("a seed is a file");
        (0..=seed.len()).for_each(|end| fuzzed::check(&seed[..end]));
        for at in 0..seed.len() {
            for change in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                seed[at] ^= change;
                fuzzed::check(&seed);
                seed[at] ^= change;
            }
        }
    }
}
