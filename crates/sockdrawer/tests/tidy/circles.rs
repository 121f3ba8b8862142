//! Modules that import each other in a circle.

use crate::Finding;
use crate::source::File;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of files beside each other that may form a circle: a reader takes them in together.
const FILES: usize = 3;

/// The modules of one folder: what each of them, with all below it, imports from its neighbours.
type Neighbours = BTreeMap<String, BTreeSet<String>>;

/// Circles of more than three neighbouring files, and all in which a folder takes part. A module and those below it belong
/// together and may import each other. `known` are circles that are still there, each with a reason; one that is gone is a
/// finding as well, so that the list shrinks only. Names that a module on the way re-exports count as that module's, and
/// what tests import is left out.
pub(crate) fn circles(files: &[File], known: &[(&str, &str)]) -> Vec<Finding> {
    let modules: BTreeMap<String, &File> = files.iter().filter_map(|file| Some((module(&file.path)?, file))).collect();
    let mut folders: BTreeMap<String, Neighbours> = BTreeMap::new();
    for (name, file) in &modules {
        for imported in imports(name, file, &modules) {
            let Some((folder, from, to)) = neighbours(name, &imported) else { continue };
            if from != to && is_module(&modules, &format!("{folder}::{to}")) {
                folders.entry(folder).or_default().entry(from).or_default().insert(to);
            }
        }
    }
    let mut found = BTreeSet::new();
    for (folder, imports) in &folders {
        for start in imports.keys() {
            let reached = reached(imports, start);
            let circle: Vec<&str> =
                reached.iter().filter(|other| self::reached(imports, other).contains(start)).map(String::as_str).collect();
            let holds_folder =
                circle.iter().any(|part| modules.keys().any(|name| name.starts_with(&format!("{folder}::{part}::"))));
            if circle.len() > FILES || (circle.len() > 1 && holds_folder) {
                found.insert(format!("{folder}: {}", circle.join(", ")));
            }
        }
    }
    let finding = |circle: &str, what| Finding { path: circle.to_owned(), line: 1, what };
    let gone = known.iter().filter(|(circle, _)| !found.contains(*circle));
    let gone = gone.map(|(circle, _)| finding(circle, "this circle is gone: remove it from CIRCLES in tests/tidy.rs".to_owned()));
    let new = found.iter().filter(|circle| !known.iter().any(|(listed, _)| listed == circle));
    let new = new.map(|circle| {
        finding(circle, "these modules import each other in a circle: move what they share below them all".to_owned())
    });
    gone.chain(new).collect()
}

/// Returns the module of a source file, with its crate's name in front: `cli::workload::http`.
fn module(path: &str) -> Option<String> {
    let (package, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let inside = inside.strip_suffix(".rs")?;
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    if inside.split('/').any(|part| part == "tests") {
        return None;
    }
    if matches!(inside, "lib" | "main") {
        return Some(package.to_owned());
    }
    Some(format!("{package}::{}", inside.replace('/', "::")))
}

fn is_module(modules: &BTreeMap<String, &File>, name: &str) -> bool {
    modules.contains_key(name) || modules.keys().any(|other| other.strip_prefix(name).is_some_and(|rest| rest.starts_with("::")))
}

/// Returns what the module imports outside tests, as full paths.
fn imports(name: &str, file: &File, modules: &BTreeMap<String, &File>) -> Vec<String> {
    let tests = file.test_items();
    let (package, _) = name.split_once("::").unwrap_or((name, ""));
    let exports = modules.get(package).map(|root| crate::exports(root)).unwrap_or_default();
    let paths = file.paths().into_iter().filter(|path| !tests.iter().any(|(first, last)| (*first..=*last).contains(&path.line)));
    let full = paths.filter_map(|path| {
        if let Some(rest) = path.text.strip_prefix("crate::") {
            return Some(format!("{package}::{}", exports.get(rest).map_or(rest, String::as_str)));
        }
        let (mut from, mut rest) = (name, path.text.as_str());
        while let Some(above) = rest.strip_prefix("super::") {
            (from, rest) = (from.rsplit_once("::")?.0, above);
        }
        (from != name).then(|| format!("{from}::{rest}"))
    });
    full.collect()
}

/// Returns the folder that two modules have in common, and the part of it that each stands in; `None` if one is above the other.
fn neighbours(one: &str, other: &str) -> Option<(String, String, String)> {
    let (mut ones, mut others, mut folder) = (one.split("::"), other.split("::"), Vec::new());
    loop {
        let (a, b) = (ones.next()?, others.next()?);
        if a != b {
            return Some((folder.join("::"), a.to_owned(), b.to_owned()));
        }
        folder.push(a);
    }
}

/// Returns all that `start` imports, also by way of others.
fn reached(imports: &Neighbours, start: &str) -> BTreeSet<String> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![start]);
    while let Some(name) = left.pop() {
        for next in imports.get(name).into_iter().flatten() {
            if reached.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    reached
}
