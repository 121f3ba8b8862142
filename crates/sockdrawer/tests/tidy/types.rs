//! Types that a reader holds in the head: few methods in few files, one name each, and traits that earn their indirection.
//!
//! Each rule has a list of the types that still break it. An entry that is too high is a finding as well, so that the lists shrink only.

use crate::Finding;
use crate::source::{File, is_word};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum of methods of a type in its inherent implementations, and of the files that these stand in.
const METHODS: usize = 40;
const FILES: usize = 2;

/// Types that still break a rule: the crate and the name, and how far.
pub(crate) struct Known<'a> {
    /// Methods of a type.
    pub(crate) methods: &'a [(&'a str, usize)],
    /// Files with inherent implementations of a type.
    pub(crate) files: &'a [(&'a str, usize)],
    /// Types of one name in a crate.
    pub(crate) names: &'a [(&'a str, usize)],
    /// Traits with one implementation or none, with the reason.
    pub(crate) traits: &'a [(&'a str, &'a str)],
}

/// The types of a crate, tests left out.
#[derive(Default)]
struct Types {
    defined: BTreeMap<String, usize>,
    methods: BTreeMap<String, usize>,
    files: BTreeMap<String, BTreeSet<String>>,
    traits: BTreeSet<String>,
    implemented: BTreeMap<String, usize>,
}

pub(crate) fn types(files: &[File], known: &Known<'_>) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Types> = BTreeMap::new();
    for file in files {
        if let Some(name) = crate_of(&file.path) {
            crates.entry(name).or_default().read(file);
        }
    }
    let counts = |of: &dyn Fn(&Types) -> BTreeMap<String, usize>| -> BTreeMap<String, usize> {
        crates
            .iter()
            .flat_map(|(name, types)| of(types).into_iter().map(move |(of, count)| (format!("{name}::{of}"), count)))
            .collect()
    };
    let files = counts(&|types| types.files.iter().map(|(name, files)| (name.clone(), files.len())).collect());
    let mut found = above(
        "methods: give the data it reaches owners of their own",
        METHODS,
        &counts(&|types| types.methods.clone()),
        known.methods,
    );
    found.extend(above("files with methods of it: split the type, not its text", FILES, &files, known.files));
    found.extend(above(
        "types of that name in its crate: name them apart",
        1,
        &counts(&|types| types.defined.clone()),
        known.names,
    ));
    let uses = |name: &String| crates.values().filter_map(|types| types.implemented.get(name)).sum();
    let lonely =
        counts(&|types| types.traits.iter().map(|name| (name.clone(), uses(name))).filter(|(_, uses)| *uses < 2).collect());
    let reasons: BTreeSet<&str> = known.traits.iter().map(|(name, _)| *name).collect();
    let without = lonely.keys().filter(|name| !reasons.contains(name.as_str()));
    found.extend(
        without.map(|name| finding(name, "a trait with one implementation: call the type, or give the reason in tests/tidy.rs")),
    );
    let gone = reasons.iter().filter(|name| !lonely.contains_key(**name));
    found.extend(gone.map(|name| finding(name, "no trait with one implementation any more: remove it from tests/tidy.rs")));
    found
}

fn finding(name: &str, what: impl Into<String>) -> Finding {
    Finding { path: name.to_owned(), line: 1, what: what.into() }
}

/// Returns findings for the counts above the maximum that are not known to be so far above it, and for the known ones that are
/// less by now.
fn above(what: &str, maximum: usize, counts: &BTreeMap<String, usize>, known: &[(&str, usize)]) -> Vec<Finding> {
    let listed = |name: &str| known.iter().find(|(of, _)| *of == name).map_or(maximum, |(_, count)| *count);
    let more = counts.iter().filter(|(name, count)| **count > listed(name));
    let more = more.map(|(name, count)| finding(name, format!("{count} {what} ({} is the most)", listed(name))));
    let less = known.iter().filter_map(|(name, listed)| {
        let count = counts.get(*name).copied().unwrap_or_default();
        (count < *listed)
            .then(|| finding(name, format!("it is {count} by now and no more {listed}: correct the list in tests/tidy.rs")))
    });
    more.chain(less).collect()
}

/// Modules that `#[cfg(test)]` stands before, beside those that are called tests.
const TESTS: &[&str] =
    &["event_loop/schedules", "event_loop/timer/growth", "sys/faulty", "documented_defaults", "upgrade/hostile", "upgrade/model"];

/// Returns the crate of a source file that is no test.
pub(crate) fn crate_of(path: &str) -> Option<&str> {
    let (name, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let inside = inside.strip_suffix(".rs")?;
    let is_named_so = || {
        let of_module =
            |module: &&&str| inside.strip_prefix(**module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        name == "sockdrawer" && TESTS.iter().any(|module| of_module(&module))
    };
    (!inside.split('/').any(|part| part == "tests") && !is_named_so()).then_some(name)
}

impl Types {
    fn read(&mut self, file: &File) {
        let tests = file.test_items();
        let mut at = 0;
        while at < file.tokens.len() {
            let line = file.tokens[at].line;
            let is_test = tests.iter().any(|(first, last)| (*first..=*last).contains(&line));
            let starts = at == 0 || matches!(file.token(at - 1), "}" | ";" | "{" | "]" | "unsafe" | "pub" | ")");
            match file.token(at) {
                _ if is_test => {}
                "struct" | "enum" | "union" | "trait" if starts && is_word(file.token(at + 1)) => {
                    let name = file.token(at + 1).to_owned();
                    if file.token(at) == "trait" {
                        self.traits.insert(name.clone());
                    }
                    *self.defined.entry(name).or_default() += 1;
                }
                "impl" if starts && file.token(at - usize::from(at > 0)) != ")" => at = self.implementation(file, at + 1),
                _ => {}
            }
            at += 1;
        }
    }

    /// Reads the head of an implementation and counts the functions of its block. Returns where the block begins.
    fn implementation(&mut self, file: &File, mut at: usize) -> usize {
        let (mut depth, mut name, mut of_trait) = (0_usize, String::new(), None);
        let ends = |at: usize, depth: usize| matches!(file.token(at), "{" | "") || (depth == 0 && file.token(at) == "where");
        while !ends(at, depth) {
            match file.token(at) {
                "<" => depth += 1,
                ">" if file.token(at - 1) != "-" => depth = depth.saturating_sub(1),
                "for" if depth == 0 => of_trait = Some(std::mem::take(&mut name)),
                word if depth == 0 && is_word(word) && word != "dyn" => word.clone_into(&mut name),
                _ => {}
            }
            at += 1;
        }
        if let Some(of_trait) = of_trait {
            *self.implemented.entry(of_trait).or_default() += 1;
            return at;
        }
        while !matches!(file.token(at), "{" | "") {
            at += 1;
        }
        self.files.entry(name.clone()).or_default().insert(file.path.clone());
        *self.methods.entry(name).or_default() += functions(file, at);
        at
    }
}

/// Functions that stand directly in the block that begins there.
fn functions(file: &File, block: usize) -> usize {
    let (mut depth, mut count) = (0, 0);
    for at in block..file.tokens.len() {
        match file.token(at) {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            "fn" if depth == 1 && is_word(file.token(at + 1)) => count += 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, known: &Known<'_>) -> Vec<String> {
        let files = [File::new("crates/a/src/b.rs", text), File::new("crates/a/src/c.rs", "impl B { fn c(&self) {} }\n")];
        types(&files, known).iter().map(ToString::to_string).collect()
    }

    const NONE: Known<'static> = Known { methods: &[], files: &[], names: &[], traits: &[] };

    #[test]
    fn methods_are_counted_over_files_without_tests() {
        let body = "fn m(&self) { fn inner() {} let f: fn(u8) = g; }\n".repeat(40);
        let text =
            format!("struct B;\nimpl<'a, T: Fn() -> u8> B<T> where T: Copy {{\n{body}}}\nimpl D for B {{ fn d() {{}} }}\n");
        assert_eq!(found(&text, &NONE), ["a::B:1: 41 methods: give the data it reaches owners of their own (40 is the most)"]);
        assert_eq!(found(&text, &Known { methods: &[("a::B", 41)], ..NONE }), [""; 0]);
        assert_eq!(
            found(&text, &Known { methods: &[("a::B", 42)], ..NONE }),
            ["a::B:1: it is 41 by now and no more 42: correct the list in tests/tidy.rs"]
        );
        let tests = format!("#[cfg(test)]\nmod tests {{\nimpl super::B {{\n{body}}}\n}}\n");
        assert_eq!(found(&tests, &NONE), [""; 0]);
    }

    #[test]
    fn names_are_one_types_and_traits_have_implementations() {
        assert_eq!(
            found("pub(crate) struct B;\nmod d { enum B { One } }\n", &NONE),
            ["a::B:1: 2 types of that name in its crate: name them apart (1 is the most)"]
        );
        let lonely = "trait T { fn t(&self); }\nimpl<A> x::T<A> for Vec<A> {}\n";
        assert_eq!(found(lonely, &NONE).len(), 1);
        assert_eq!(found(lonely, &Known { traits: &[("a::T", "a seam")], ..NONE }), [""; 0]);
        assert_eq!(found(&format!("{lonely}impl T for B {{}}\n"), &NONE), [""; 0]);
        assert_eq!(found("", &Known { traits: &[("a::T", "a seam")], ..NONE }).len(), 1);
    }
}
