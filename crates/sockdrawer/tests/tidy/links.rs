//! Links in Markdown.

use super::{Finding, finding};
use crate::source::File;

/// Target of a relative link.
pub(crate) enum Target {
    Missing,
    /// A folder, or a file that has no headings.
    Other,
    Markdown(String),
}

/// Finds relative links that lead to no file, and fragments that lead to no heading. Links to other hosts are not followed.
pub(crate) fn links(file: &File, target: &dyn Fn(&str) -> Target) -> Vec<Finding> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let all = prose(&file.text).flat_map(|(line, text)| targets(&text).into_iter().map(move |link| (line, link)));
    all.filter_map(|(line, link)| {
        let why = broken(file, &link, target)?;
        Some(finding(file, line, format!("the link {link:?} {why}")))
    })
    .collect()
}

fn broken(file: &File, link: &str, target: &dyn Fn(&str) -> Target) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    if path.starts_with('/') {
        return Some("begins with a slash, which means different things to different readers: make it relative to this file");
    }
    let found = if path.is_empty() {
        Target::Markdown(file.text.clone())
    } else {
        let Some(resolved) = resolve(&file.path, path) else { return Some("leaves the repository: give its full address") };
        target(&resolved)
    };
    match found {
        Target::Missing => Some("leads to no file: correct it or add the file"),
        Target::Markdown(text) if !fragment.is_empty() && !anchors(&text).contains(&fragment.to_owned()) => {
            Some("names a heading that is not there: correct the part after #")
        }
        Target::Markdown(_) | Target::Other => None,
    }
}

/// Returns `to`, seen from the folder of `from`; `None` when it is outside.
fn resolve(from: &str, to: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => (),
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Lines with their numbers, without fenced blocks and with the insides of backticks blanked.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fenced || fence {
            return None;
        }
        Some((index + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("``")))
    })
}

/// Returns the targets of `[text](target)` and of `[name]: target` in a line.
fn targets(line: &str) -> Vec<String> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
    let bare = |target: &str| target.split_whitespace().next().unwrap_or("").trim_matches(['<', '>']).to_owned();
    inline.chain(definition).map(bare).collect()
}

/// Returns the fragments that a page's headings have on code hosts: lower case, spaces become hyphens, punctuation goes; a
/// heading that comes again gets -1, -2 and so on.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut bases: Vec<String> = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if fenced || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let base: String = kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = bases.iter().filter(|other| **other == base).count();
        found.push(if before == 0 { base.clone() } else { format!("{base}-{before}") });
        bases.push(base);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Vec<String> {
        let file = File::new("docs/a.md", text);
        let found = links(&file, &|path| match path {
            "docs/b.md" => Target::Markdown("# The `b`, first\n```\n# code\n```\n## Twice\n## Twice\n".to_owned()),
            "ci/check" => Target::Other,
            _ => Target::Missing,
        });
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_links_pass() {
        let text = "# Here\n[b](b.md) [b](./b.md#the-b-first) [c](../ci/check#L3) [d](#here) [e](b.md#twice-1)\n[x]: b.md \"title\"\n\
            `[code](nowhere.md)` [out](https://example.org/#x)\n```\n[fenced](nowhere.md)\n```\n";
        assert_eq!(check(text), [""; 0]);
    }

    #[test]
    fn bad_links_are_found() {
        for (text, why) in [
            ("[a](c.md)", "no file"),
            ("[a](../../x.md)", "leaves"),
            ("[a](/docs/b.md)", "slash"),
            ("[a](b.md#code)", "heading"),
            ("[a](b.md#twice-2)", "heading"),
            ("[a](#there)", "heading"),
            ("[a](b.md) and ![b](b.png)", "no file"),
            ("[x]: c.md", "no file"),
        ] {
            let found = check(text);
            assert!(found.len() == 1 && found[0].contains(why), "{text}: {found:?}");
        }
        assert!(check("\n\n[a](c.md)")[0].starts_with("docs/a.md:3: "));
    }
}
