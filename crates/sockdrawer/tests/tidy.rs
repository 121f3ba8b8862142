//! The rules of this repository that neither rustfmt nor clippy knows. All findings of all files are reported at once.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/known.rs"]
mod known;
#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/readme.rs"]
mod readme;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/types.rs"]
mod types;

use links::{Target, links};
use source::{File, Path};
use std::collections::HashMap;
use std::fmt;
use std::path::Path as FilePath;

const LIBRARY: &str = "crates/sockdrawer/src/";
const SYS: &str = "crates/sockdrawer/src/sys/";

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

/// Files and functions that may be longer: the file, the function in it (empty for the file itself), its limit and the reason.
const LONG: &[(&str, &str, usize, &str)] = &[];

/// Files in which `unsafe` may stand outside `sys/`, and why.
const UNSAFE: &[(&str, &str)] = &[(
    "crates/sockdrawer/tests/allocations.rs",
    "GlobalAlloc, the only way to count what a thread allocates, is unsafe to implement",
)];

/// Modules that still import each other in a circle, and why. May only shrink.
const CIRCLES: &[(&str, &str)] = &[
    ("load::workload: http, recorder, tally", "the tally of all workloads holds the figures of http"),
    ("sockdrawer: net, sys", "system calls take addresses and options of net, which listens by itself"),
    ("sockdrawer: pool, tasks", "a pool of tasks hands out its listener, which holds the pool"),
    ("sockdrawer::event_loop: slot, slots, timer", "the timer's list runs through the slots"),
];

/// Parts of the library, each with the parts that it may not import.
const LAYERS: &[(&str, &[&str])] = &[
    ("sys", &["event_loop", "model", "pool", "upgrade"]),
    ("config", &["event_loop", "model", "pool", "upgrade"]),
    ("error", &["event_loop", "model", "pool", "upgrade"]),
    ("net", &["event_loop", "model", "pool", "upgrade"]),
    ("layer", &["event_loop", "model", "pool", "upgrade"]),
    ("limit", &["event_loop", "model", "pool", "upgrade"]),
    ("listen", &["event_loop", "model", "pool", "upgrade"]),
    ("observe", &["event_loop", "model", "pool", "upgrade"]),
    ("operation", &["event_loop", "model", "pool", "upgrade"]),
    ("event_loop", &["model", "pool", "upgrade"]),
    ("model", &["pool", "upgrade"]),
    ("ipc", &["event_loop", "model", "pool", "upgrade"]),
    ("pool", &["upgrade"]),
];

/// A broken rule.
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

pub(crate) fn finding(file: &File, line: usize, what: impl Into<String>) -> Finding {
    Finding { path: file.path.clone(), line, what: what.into() }
}

#[test]
fn the_workspace_is_tidy() {
    let root = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    collect(&root, "", &mut files);
    let library = files.iter().find(|file| file.path == "crates/sockdrawer/src/lib.rs").expect("the walk finds the library");
    let exports = exports(library);
    let target = |path: &str| {
        let full = root.join(path);
        match std::fs::read_to_string(&full) {
            Ok(text) if path.ends_with(".md") => Target::Markdown(text),
            _ if full.exists() => Target::Other,
            _ => Target::Missing,
        }
    };
    let mut found = unused_allowances(&files, LONG);
    found.extend(circles::circles(&files, CIRCLES));
    found.extend(types::types(&files, &known::TYPES));
    found.extend(prose::beginnings(&files, known::HALF_SENTENCES));
    found.extend(examples(&files));
    for file in &files {
        found.extend(sizes(file, LONG));
        found.extend(unsafe_code(file));
        found.extend(layers(file, &exports));
        found.extend(markers(file));
        found.extend(prints(file));
        found.extend(sleeps(file));
        found.extend(white_space(file));
        found.extend(links(file, &target));
    }
    let report: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(report.is_empty(), "{} findings:\n{}", report.len(), report.join("\n"));
}

/// Checks that the library grows on purpose: a change by more than a few hundred lines of code says why, and raises the number.
#[test]
fn the_library_is_as_long_as_it_was() {
    let mut files = Vec::new();
    collect(&FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../.."), LIBRARY.trim_end_matches('/'), &mut files);
    let lines: usize = files.iter().filter(|file| types::crate_of(&file.path).is_some()).map(File::code_lines).sum();
    println!("the library has {lines} lines of code");
    let (least, most) = (known::LIBRARY_LINES.saturating_sub(300), known::LIBRARY_LINES + 300);
    let says = "say in the commit why, and set LIBRARY_LINES in tests/tidy/known.rs";
    assert!(
        (least..=most).contains(&lines),
        "{lines} lines of code, {} when they were counted last: {says}",
        known::LIBRARY_LINES
    );
}

/// Collects all Rust and Markdown files below `folder`, without build output and hidden folders.
fn collect(root: &FilePath, folder: &str, files: &mut Vec<File>) {
    let entries = std::fs::read_dir(root.join(folder)).expect("the workspace can be read");
    let mut entries: Vec<_> = entries.map(|entry| entry.expect("the workspace can be read")).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().into_string().expect("names in this repository are UTF-8");
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type().expect("the workspace can be read");
        if kind.is_dir() && name != "target" && !name.starts_with('.') {
            collect(root, &path, files);
        } else if kind.is_file() && (name.ends_with(".rs") || name.ends_with(".md")) {
            let text = std::fs::read_to_string(entry.path()).expect("sources are UTF-8");
            files.push(File::new(&path, &text));
        }
    }
}

type Allowances = [(&'static str, &'static str, usize, &'static str)];

/// Files and functions that a reader takes in at once.
fn sizes(file: &File, long: &Allowances) -> Vec<Finding> {
    if !file.is_rust() {
        return Vec::new();
    }
    let limit = |function: &str, usual: usize| {
        let allowed = long.iter().find(|(path, name, ..)| *path == file.path && *name == function);
        allowed.map_or(usual, |(_, _, limit, _)| *limit)
    };
    let mut found = Vec::new();
    let lines = file.text.lines().count();
    if lines > limit("", FILE_LINES) {
        let limit = limit("", FILE_LINES);
        found.push(finding(file, 1, format!("{lines} lines, {limit} are allowed: split the file")));
    }
    for function in file.functions() {
        let (lines, limit) = (function.last - function.first + 1, limit(&function.name, FUNCTION_LINES));
        if lines > limit {
            let what = format!("`{}` has {lines} lines, {limit} are allowed: split it", function.name);
            found.push(finding(file, function.first, what));
        }
    }
    found
}

/// Finds allowances that nothing needs any more: they would hide the next long function.
fn unused_allowances(files: &[File], long: &Allowances) -> Vec<Finding> {
    let usual = |function: &str| if function.is_empty() { FILE_LINES } else { FUNCTION_LINES };
    let needed = |path: &str, function: &str| {
        files.iter().filter(|file| file.path == path).any(|file| match function {
            "" => file.text.lines().count() > FILE_LINES,
            _ => file.functions().iter().any(|f| f.name == function && f.last - f.first + 1 > usual(function)),
        })
    };
    let unused = long.iter().filter(|(path, function, ..)| !needed(path, function));
    unused
        .map(|(path, function, ..)| Finding {
            path: (*path).to_owned(),
            line: 1,
            what: format!("the allowance for {function:?} is not needed: remove it from LONG in tests/tidy.rs"),
        })
        .collect()
}

/// Finds examples with one name: Cargo puts the examples of all crates into one folder, where one replaces the other.
fn examples(files: &[File]) -> Vec<Finding> {
    let (mut known, mut found) = (HashMap::new(), Vec::new());
    for file in files {
        let name = file.path.split_once("/examples/").and_then(|(_, name)| name.strip_suffix(".rs"));
        let Some(name) = name.filter(|name| !name.contains('/')) else { continue };
        if let Some(first) = known.insert(name, &file.path) {
            found.push(finding(file, 1, format!("{first} is an example of that name: name one of them another way")));
        }
    }
    found
}

/// Finds `unsafe` outside `sys/`, or without a word on why it is sound.
fn unsafe_code(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, token) in file.tokens.iter().enumerate().filter(|(_, token)| token.text == "unsafe") {
        if !file.path.starts_with(SYS) && !UNSAFE.iter().any(|(path, _)| *path == file.path) {
            found.push(finding(file, token.line, format!("`unsafe` outside {SYS}: move it there behind a safe function")));
            continue;
        }
        let mut next = at + 1;
        while matches!(file.token(next), "extern" | "\"") {
            next += 1;
        }
        let is_function = file.token(next) == "fn";
        // `unsafe fn(u8)` is a type and promises nothing yet.
        if is_function && file.token(next + 1) == "(" {
            continue;
        }
        let reason = comment_above(file, token.line);
        if is_function && !reason.contains("# Safety") && !reason.contains("SAFETY:") {
            found.push(finding(file, token.line, "`unsafe fn` without `# Safety`: write down what the caller promises"));
        } else if !is_function && !reason.contains("SAFETY:") {
            found.push(finding(file, token.line, "`unsafe` without `// SAFETY:` above: write down why it is sound"));
        }
    }
    found
}

/// Returns the comment above the statement or item that line `number` belongs to.
fn comment_above(file: &File, number: usize) -> String {
    let mut comment = String::new();
    for number in (1..number).rev() {
        let line = file.line(number).trim();
        if line.starts_with("//") {
            comment.push_str(line);
        } else if !comment.is_empty() || line.is_empty() || (line.ends_with([';', ',', '{', '}']) && !line.starts_with("#[")) {
            break;
        }
    }
    comment
}

/// Returns the names that the library's root exports, and the part each comes from: `crate::Name` is an import of that part too.
fn exports(library: &File) -> HashMap<String, String> {
    let all = library.paths().into_iter();
    all.filter_map(|path| {
        let inside = path.text.trim_start_matches("crate::").trim_start_matches("self::");
        let (part, rest) = inside.split_once("::")?;
        Some((rest.rsplit("::").next()?.to_owned(), part.to_owned()))
    })
    .collect()
}

/// Finds imports of a part from a part that it may not import.
fn layers(file: &File, exports: &HashMap<String, String>) -> Vec<Finding> {
    let Some(inside) = file.path.strip_prefix(LIBRARY) else { return Vec::new() };
    let (part, below) = inside.split_once('/').unwrap_or((inside.trim_end_matches(".rs"), "mod.rs"));
    let forbidden = LAYERS.iter().find(|(name, _)| *name == part).map_or(&[][..], |(_, parts)| *parts);
    let mut found = Vec::new();
    for path in file.paths() {
        let mut broken = |what: String| found.push(finding(file, path.line, what));
        // From a part's root file, `super` is the crate.
        let from_root = ["crate::", "super::"][..1 + usize::from(below == "mod.rs")].iter();
        let imported = from_root.filter_map(|root| path.text.strip_prefix(root)?.split("::").next()).next();
        let imported = imported.map(|name| exports.get(name).map_or(name, String::as_str));
        if let Some(imported) = imported.filter(|name| forbidden.contains(name)) {
            broken(format!("`{part}` imports `{imported}`, which is above it: pass what is needed as an argument"));
        }
        // Values and locks: nothing that knows sockets, a clock or a loop.
        let is_plain = ["crate::sys::inline", "crate::sync", "crate::net::Address"].iter().any(|plain| path.is_under(plain));
        if part == "protocol" && path.text.starts_with("crate::") && !is_plain {
            broken(format!("`protocol` imports `{}`: it may import values and locks alone", path.text));
        }
        if part == "lib" && forbidden_globs(&path) {
            broken(format!("`{}` hides which part a name comes from: list the names", path.text));
        }
        if path.text.starts_with("super::super::") {
            broken("`super::super` hides which part is imported: begin the path with `crate::`".to_owned());
        }
        if part != "sys" && (path.is_under("rustix") || path.is_under("libc")) {
            broken(format!("`{}` outside sys/: add a function to sys/ and call it", path.text));
        }
        let is_shared = path.is_under("std::sync::Arc") || path.is_under("std::sync::Weak");
        let is_sync = ["std::sync", "core::sync", "alloc::sync"].iter().any(|root| path.is_under(root));
        if matches!(part, "event_loop" | "model" | "pool" | "upgrade") && is_sync && !is_shared {
            broken(format!("`{}`: import it through `crate::sync`, so that tests can replace it", path.text));
        }
    }
    found
}

fn forbidden_globs(path: &Path) -> bool {
    ["event_loop::*", "model::*", "pool::*"].iter().any(|glob| path.text == *glob || path.text.ends_with(&format!("::{glob}")))
}

/// Finds work that is left for later without being written down as an issue.
fn markers(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in ["todo", "unimplemented", "dbg"] {
        let lines = file.macro_lines(name).into_iter();
        found.extend(lines.map(|line| finding(file, line, format!("`{name}!` is left over: finish it or remove it"))));
    }
    let lines: Vec<(usize, &str)> = if file.is_rust() {
        file.comments.iter().map(|comment| (comment.line, comment.text.as_str())).collect()
    } else {
        file.text.lines().enumerate().map(|(index, text)| (index + 1, text)).collect()
    };
    for (line, text) in lines {
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some(marker) = words.find(|word| matches!(*word, "TODO" | "FIXME" | "XXX")) {
            found.push(finding(file, line, format!("{marker} is left over: do it, or open an issue")));
        }
    }
    found
}

/// Finds prints: the library reports by events and errors; what is printed is the program's choice, and its tests' own.
fn prints(file: &File) -> Vec<Finding> {
    if !file.path.starts_with(LIBRARY) {
        return Vec::new();
    }
    let (mut found, tests) = (Vec::new(), file.test_items());
    for name in ["print", "println", "eprint", "eprintln"] {
        let lines = file.macro_lines(name).into_iter();
        let lines = lines.filter(|line| !tests.iter().any(|(first, last)| (*first..=*last).contains(line)));
        found.extend(lines.map(|line| finding(file, line, format!("`{name}!` in the library: report an event instead"))));
    }
    let outlets = ["log", "tracing", "io::stdout", "io::stderr", "std::io::stdout", "std::io::stderr"];
    for path in file.paths().iter().filter(|path| path.text.contains("::")) {
        if outlets.iter().any(|outlet| path.is_under(outlet)) {
            found.push(finding(file, path.line, format!("`{}` in the library: report an event instead", path.text)));
        }
    }
    found
}

/// Finds sleeps: a test that sleeps is slow where it passes and fails where the machine is slower.
fn sleeps(file: &File) -> Vec<Finding> {
    let is_test = file.path.split('/').any(|part| part == "tests");
    let items = file.test_items();
    let paths = file.paths().into_iter();
    paths
        .filter(|path| path.text.ends_with("thread::sleep") || path.text.ends_with("time::sleep"))
        .filter(|path| is_test || items.iter().any(|(first, last)| (*first..=*last).contains(&path.line)))
        .filter(|path| ![path.line, path.line - 1].iter().any(|line| file.line(*line).contains("// waits because:")))
        .map(|path| finding(file, path.line, "a sleep in a test: wait for the event, or say `// waits because:` why none exists"))
        .collect()
}

/// Finds white space at the end of a line, and a file without a line break at its end.
fn white_space(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, line) in file.text.split('\n').enumerate() {
        if line.ends_with(char::is_whitespace) {
            found.push(finding(file, index + 1, "white space at the end of the line: remove it"));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        found.push(finding(file, file.text.lines().count(), "no line break at the end of the file: add one"));
    }
    found
}
