#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sockdrawer_fuzz::hello(input));
