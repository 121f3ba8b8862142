//! Each rule finds what it is there for, and nothing in good code.

use super::*;

#[track_caller]
fn expect(found: &[Finding], wanted: &[&str]) {
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    let all_there = lines.len() == wanted.len() && lines.iter().zip(wanted).all(|(line, part)| line.contains(part));
    assert!(all_there, "found {lines:#?}, wanted {wanted:#?}");
}

fn library(part: &str, text: &str) -> File {
    File::new(&format!("{LIBRARY}{part}"), text)
}

#[test]
fn long_files_and_functions_are_found() {
    let body = "    a();\n".repeat(69);
    let long = File::new("a.rs", &format!("\nfn f() {{\n{body}}}\n"));
    expect(&sizes(&long, &[]), &["a.rs:2: `f` has 71 lines, 70 are allowed"]);
    expect(&sizes(&long, &[("a.rs", "f", 71, "a table")]), &[]);
    expect(&sizes(&long, &[("b.rs", "f", 71, "a table")]), &["71 lines"]);
    let body = "    a();\n".repeat(68);
    expect(&sizes(&File::new("a.rs", &format!("fn f() {{\n{body}}}\n")), &[]), &[]);

    let file = File::new("a.rs", &"\n".repeat(601));
    expect(&sizes(&file, &[]), &["a.rs:1: 601 lines, 600 are allowed"]);
    expect(&sizes(&file, &[("a.rs", "", 601, "a table")]), &[]);
    expect(&sizes(&File::new("a.rs", &"\n".repeat(600)), &[]), &[]);
}

#[test]
fn allowances_that_nothing_needs_are_found() {
    let short = [File::new("a.rs", "fn f() {}\n")];
    expect(&unused_allowances(&short, &[("a.rs", "f", 80, "a table")]), &["allowance for \"f\""]);
    expect(&unused_allowances(&short, &[("a.rs", "", 700, "a table")]), &["allowance for \"\""]);
    expect(&unused_allowances(&short, &[("gone.rs", "", 700, "a table")]), &["gone.rs"]);
    let long = [File::new("a.rs", &format!("fn f() {{{}}}\n", "\n".repeat(700)))];
    expect(&unused_allowances(&long, &[("a.rs", "f", 800, "a table"), ("a.rs", "", 800, "a table")]), &[]);
}

#[test]
fn unsafe_stands_in_sys_and_says_why() {
    let block = "fn f() {\n    // SAFETY: it is.\n    let a =\n        unsafe { g() };\n}\n";
    expect(&unsafe_code(&library("sys/a.rs", block)), &[]);
    expect(&unsafe_code(&library("event_loop/a.rs", block)), &["event_loop/a.rs:4: `unsafe` outside"]);
    expect(&unsafe_code(&File::new("crates/cli/src/main.rs", block)), &["`unsafe` outside"]);

    expect(&unsafe_code(&library("sys/a.rs", "fn f() {\n    unsafe { g() };\n}\n")), &["a.rs:2: `unsafe` without `// SAFETY:`"]);
    let other_statement = "    // SAFETY: it is.\n    let a = unsafe { g() };\n    let b = unsafe { g() };\n";
    expect(&unsafe_code(&library("sys/a.rs", other_statement)), &["a.rs:3:"]);
    let other_arm = "    // SAFETY: it is.\n    A => unsafe { g() },\n    B => unsafe { g() },\n";
    expect(&unsafe_code(&library("sys/a.rs", other_arm)), &["a.rs:3:"]);
    expect(&unsafe_code(&library("sys/a.rs", "unsafe impl Send for A {}\n")), &["SAFETY"]);

    expect(&unsafe_code(&library("sys/a.rs", "/// Does.\nunsafe fn f() {}\n")), &["`unsafe fn` without"]);
    expect(&unsafe_code(&library("sys/a.rs", "/// # Safety\n/// None.\n#[inline]\npub unsafe extern \"C\" fn f() {}\n")), &[]);
    expect(&unsafe_code(&library("sys/a.rs", "struct A { call: unsafe fn(u8), other: unsafe extern \"C\" fn() }\n")), &[]);
    expect(&unsafe_code(&library("event_loop/a.rs", "#![deny(unsafe_code)] // unsafe\nlet a = \"unsafe\";\n")), &[]);
}

#[test]
fn imports_against_the_layers_are_found() {
    let exports = exports(&library("lib.rs", "pub use net::Address;\npub use crate::pool::{handle::Handle, Pool as P};\n"));
    let check = |part: &str, text: &str| layers(&library(part, text), &exports);
    for (part, above) in LAYERS.iter().flat_map(|(part, above)| above.iter().map(move |above| (part, above))) {
        let wanted = format!("`{part}` imports `{above}`");
        expect(&check(&format!("{part}/a.rs"), &format!("use crate::{above}::Thing;\n")), &[&wanted]);
        expect(&check(&format!("{part}.rs"), &format!("use super::{above};\n")), &[&wanted]);
        expect(&check(&format!("{part}/mod.rs"), &format!("let a = crate::{above}::call();\n")), &[&wanted]);
    }
    expect(&check("event_loop/a.rs", "use crate::{net::Address,\n    pool::plan};\n"), &["a.rs:2: `event_loop` imports `pool`"]);
    expect(&check("event_loop/a.rs", "use crate::{Address, Handle};\n"), &["`event_loop` imports `pool`"]);
    expect(&check("event_loop/a.rs", "use super::model;\n"), &[]);
    expect(&check("pool/a.rs", "use crate::{event_loop, model::Model};\n// use crate::pool\n"), &[]);
    expect(&check("model/a.rs", "use super::super::event_loop;\n"), &["`super::super`"]);
    expect(&check("lib.rs", "pub use pool::*;\npub use protocol::*;\n"), &["lib.rs:1: `pool::*`"]);
}

#[test]
fn import_circles_are_found() {
    let check = |sources: &[(&str, &str)], known: &[(&str, &str)]| {
        let files: Vec<File> = sources.iter().map(|(path, text)| File::new(&format!("crates/a/src/{path}"), text)).collect();
        circles::circles(&files, known)
    };
    let ring = |files: usize| -> Vec<(String, String)> {
        (0..files).map(|at| (format!("f{at}.rs"), format!("use crate::f{}::F;\n", (at + 1) % files))).collect()
    };
    let (three, four) = (ring(3), ring(4));
    let three: Vec<_> = three.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let four: Vec<_> = four.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    expect(&check(&three, &[]), &[]);
    expect(&check(&four, &[]), &["a: f0, f1, f2, f3:1: these modules import each other"]);
    expect(&check(&four, &[("a: f0, f1, f2, f3", "a reason")]), &[]);
    expect(&check(&three, &[("a: f0, f1, f2, f3", "a reason")]), &["this circle is gone"]);

    let folders = [("x/mod.rs", "mod b;\n"), ("x/b.rs", "use crate::y::Y;\n"), ("y.rs", "use super::x::X;\n")];
    expect(&check(&folders, &[]), &["a: x, y:1:"]);
    let root = [("lib.rs", "pub use x::b::X;\n"), folders[0], folders[1], ("y.rs", "use crate::X;\n")];
    expect(&check(&root, &[]), &["a: x, y:1:"]);
    let in_tests = [folders[0], folders[1], ("y.rs", "#[cfg(test)]\nmod tests {\n    use crate::x::X;\n}\n")];
    expect(&check(&in_tests, &[]), &[]);
    let family =
        [("x/mod.rs", "use b::B;\n"), ("x/b.rs", "use super::X;\n"), ("x/b/c.rs", "use crate::x::X;\nuse super::super::b::B;\n")];
    expect(&check(&family, &[]), &[]);
}

#[test]
fn protocol_imports_values_and_locks_alone() {
    let check = |text: &str| layers(&library("protocol.rs", text), &HashMap::new());
    expect(&check("use crate::sys::inline::{InlineCall, InlineValue};\npub(crate) struct A;\n"), &[]);
    expect(&check("use crate::net::Address;\nuse crate::sync::lock;\n"), &[]);
    expect(&check("use crate::net::Listen;\nuse crate::sys::poll;\n"), &["`crate::net::Listen`", "`crate::sys::poll`"]);
}

#[test]
fn system_calls_outside_sys_are_found() {
    let check = |part: &str, text: &str| layers(&library(part, text), &HashMap::new());
    expect(&check("sys/a.rs", "use rustix::event;\n"), &[]);
    expect(&check("event_loop/a.rs", "use rustix::event;\n"), &["`rustix::event` outside sys/"]);
    expect(&check("error.rs", "fn f(e: libc::c_int) {}\n"), &["`libc::c_int` outside sys/"]);
}

#[test]
fn std_sync_is_imported_through_sync() {
    let check = |part: &str, text: &str| layers(&library(part, text), &HashMap::new());
    for part in ["event_loop/a.rs", "model/a.rs", "pool/a.rs"] {
        expect(&check(part, "use std::sync::{Arc, Weak};\nuse crate::sync::Mutex;\n"), &[]);
        expect(&check(part, "use std::{io, sync::{Arc, Mutex}};\n"), &["`std::sync::Mutex`"]);
        expect(&check(part, "use std::sync;\n"), &["`std::sync`"]);
        expect(&check(part, "let a = core::sync::atomic::AtomicU8::new(0);\n"), &["`core::sync::atomic::AtomicU8::new`"]);
    }
    expect(&check("sync.rs", "pub use std::sync::Mutex;\n"), &[]);
    expect(&check("observe/a.rs", "use std::sync::Mutex;\n"), &[]);
}

#[test]
fn leftover_markers_are_found() {
    let found = markers(&File::new("a.rs", "todo!()\nunimplemented!()\ndbg!(a)\n// FIXME later\n/* a\nXXX */\n"));
    expect(&found, &["a.rs:1: `todo!`", "a.rs:2: `unimplemented!`", "a.rs:3: `dbg!`", "a.rs:4: FIXME", "a.rs:6: XXX"]);
    expect(&markers(&File::new("a.md", "\n- TODO: all\n")), &["a.md:2: TODO"]);
    expect(&markers(&File::new("a.rs", "let a = \"TODO\"; // a todo list\nmacro_rules! todo_list {}\n")), &[]);
}

#[test]
fn prints_of_the_library_are_found() {
    let text = "print!(\"\");\nprintln!();\neprint!(\"\");\neprintln!();\nlog::info!(\"\");\nuse tracing::warn;\nio::stderr();\n";
    let mut found = prints(&library("event_loop/a.rs", text));
    found.sort_by_key(|finding| finding.line);
    expect(&found, &["`print!`", "`println!`", "`eprint!`", "`eprintln!`", "`log::info`", "`tracing::warn`", "`io::stderr`"]);
    expect(&prints(&library("event_loop/a.rs", "/// println!();\nlet log = catalog::new(log);\n")), &[]);
    expect(&prints(&File::new("crates/cli/src/main.rs", text)), &[]);
}

#[test]
fn sleeps_of_tests_are_found() {
    let call = "fn a() {\n    std::thread::sleep(b);\n}\n";
    expect(&sleeps(&File::new("crates/a/tests/b.rs", call)), &["b.rs:2: a sleep in a test"]);
    expect(&sleeps(&library("a.rs", call)), &[]);
    expect(
        &sleeps(&library("a.rs", &format!("{call}#[cfg(test)]\nmod tests {{\n    use std::thread::sleep;\n}}\n"))),
        &["a.rs:6:"],
    );
    let reasoned = "fn a() {\n    // waits because: the kernel tells nobody.\n    std::thread::sleep(b);\n}\n";
    expect(&sleeps(&File::new("crates/a/tests/b.rs", reasoned)), &[]);
}

#[test]
fn white_space_at_ends_is_found() {
    let found = white_space(&File::new("a.md", "a\x20\nb\t\r\nc"));
    expect(&found, &["a.md:1: white space", "a.md:2: white space", "a.md:3: no line break"]);
    expect(&white_space(&File::new("a.md", "a\n\nb\n")), &[]);
    expect(&white_space(&File::new("a.md", "")), &[]);
}
