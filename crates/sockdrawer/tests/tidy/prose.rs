//! Beginnings of comments: a comment begins with its subject, or a verb, so that it makes sense when it is read alone.

use crate::Finding;
use crate::source::File;
use std::collections::BTreeMap;

/// Beginnings of comments that are half a sentence: the reader has to look for the rest in the code.
const BEGINNINGS: &[&str] = &["What ", "Whether ", "How ", "Of ", "Those ", "One ", "So many ", "..."];

/// Comments by crate that begin so. `known` is how many each crate has still: more is a finding, and so is less, so that the numbers shrink only.
pub(crate) fn beginnings(files: &[File], known: &[(&str, usize)]) -> Vec<Finding> {
    let mut counts: BTreeMap<&str, Vec<(&File, usize)>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let name = file.path.strip_prefix("crates/").and_then(|path| path.split('/').next()).unwrap_or("elsewhere");
        counts.entry(name).or_default().extend(half(file).map(|line| (file, line)));
    }
    let most = |name: &str| known.iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| *count);
    let mut found = Vec::new();
    for (name, lines) in counts.iter().filter(|(name, lines)| lines.len() != most(name)) {
        let what = format!(
            "{} comments begin with half a sentence ({} in tests/tidy.rs, which may only shrink)",
            lines.len(),
            most(name)
        );
        let (file, line) = lines.last().map_or(("", 1), |(file, line)| (file.path.as_str(), *line));
        found.push(Finding {
            path: if file.is_empty() { (*name).to_owned() } else { file.to_owned() },
            line,
            what: format!("{name}: {what}"),
        });
    }
    found
}

/// Lines at which a comment begins so.
fn half(file: &File) -> impl Iterator<Item = usize> {
    let is_comment = |line: usize| file.line(line).trim_start().starts_with("//");
    let is_first = move |line: usize| !is_comment(line) || !is_comment(line - 1);
    let begins = |text: &str| {
        let text = text.trim_start_matches(['/', '!']).trim_start();
        BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
    };
    file.comments.iter().filter(move |comment| begins(&comment.text) && is_first(comment.line)).map(|comment| comment.line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_that_begin_in_the_middle_are_counted() {
        let text = "/// What it is.\n/// How it goes on.\nfn a() {}\n// Counts bytes.\nlet b = 1; // Of all.\n//! ... and more\n";
        let files = [File::new("crates/a/src/b.rs", text)];
        let found = |known: &[(&str, usize)]| beginnings(&files, known).len();
        assert_eq!((found(&[]), found(&[("a", 3)]), found(&[("a", 2)]), found(&[("a", 4)])), (1, 0, 1, 1));
    }
}
