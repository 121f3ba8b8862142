//! Rust text as tokens and comments, enough for the rules: strings and comments cannot be mistaken for code. Not a parser: it
//! knows nothing of macros' insides beyond their tokens, and nothing of what a name resolves to.

/// File of the workspace.
pub(crate) struct File {
    /// Path relative to the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Tokens of a Rust file. A string or character literal is the token `"`.
    pub(crate) tokens: Vec<Token>,
    /// Comments of a Rust file.
    pub(crate) comments: Vec<Comment>,
}

/// A word, `::`, or one other character.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// Line of a comment.
pub(crate) struct Comment {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// `a::b::c`; `use a::{b, c}` is two of them.
pub(crate) struct Path {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// A function with a body, from the line of `fn` to the one of the last brace.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> File {
        let mut lexer = Lexer { rest: text, line: 1, tokens: Vec::new(), comments: Vec::new() };
        if path.ends_with(".rs") {
            lexer.run();
        }
        File { path: path.to_owned(), text: text.to_owned(), tokens: lexer.tokens, comments: lexer.comments }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns the line with this number, counting from 1.
    pub(crate) fn line(&self, number: usize) -> &str {
        self.text.lines().nth(number.wrapping_sub(1)).unwrap_or("")
    }

    /// Returns the text of the token at `index`, empty past the end.
    pub(crate) fn token(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &token.text)
    }

    /// Lines on which the macro `name!` is called.
    pub(crate) fn macro_lines(&self, name: &str) -> Vec<usize> {
        let calls = self.tokens.windows(2).filter(|pair| pair[0].text == name && pair[1].text == "!");
        calls.map(|pair| pair[0].line).collect()
    }

    /// Returns all functions that have a body, nested ones too.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let starts = (0..self.tokens.len()).filter(|&at| self.token(at) == "fn" && is_word(self.token(at + 1)));
        starts
            .filter_map(|at| {
                let last = self.end_of_item(at + 1)?;
                Some(Function { name: self.token(at + 1).to_owned(), first: self.tokens[at].line, last })
            })
            .collect()
    }

    /// Returns the first and last lines of the items under `#[cfg(test)]`.
    pub(crate) fn test_items(&self) -> Vec<(usize, usize)> {
        let marker = ["cfg", "(", "test", ")", "]"];
        let starts = (0..self.tokens.len()).filter(|&at| (0..5).all(|offset| self.token(at + offset) == marker[offset]));
        starts.filter_map(|at| Some((self.tokens[at].line, self.end_of_item(at + 5)?))).collect()
    }

    /// Lines that have code and are no test's.
    pub(crate) fn code_lines(&self) -> usize {
        let tests = self.test_items();
        let mut lines: Vec<usize> = self.tokens.iter().map(|token| token.line).collect();
        lines.dedup();
        lines.iter().filter(|line| !tests.iter().any(|(first, last)| (first..=last).contains(line))).count()
    }

    /// Returns the line of the brace that closes the first block after token `at`; `None` when `;` comes first.
    fn end_of_item(&self, at: usize) -> Option<usize> {
        let mut depth = 0;
        for token in &self.tokens[at..] {
            match token.text.as_str() {
                ";" if depth == 0 => return None,
                "(" | "[" | "{" => depth += 1,
                ")" | "]" => depth -= 1,
                "}" if depth == 1 => return Some(token.line),
                "}" => depth -= 1,
                _ => (),
            }
        }
        None
    }

    /// Returns all paths, those of `use` with their braces resolved. A name after `as` counts as a path of its own.
    pub(crate) fn paths(&self) -> Vec<Path> {
        let (mut at, mut paths) = (0, Vec::new());
        while at < self.tokens.len() {
            at = if is_word(self.token(at)) { self.path(at, "", &mut paths) } else { at + 1 };
        }
        paths
    }

    /// Reads the path or the use tree that begins at `at`; returns where it ends.
    fn path(&self, mut at: usize, prefix: &str, paths: &mut Vec<Path>) -> usize {
        let (line, mut text) = (self.tokens[at].line, prefix.to_owned());
        loop {
            match self.token(at) {
                "{" => return self.group(at + 1, &text, paths),
                segment if is_word(segment) || segment == "*" => text += segment,
                _ => break,
            }
            at += 1;
            if self.token(at) != "::" {
                break;
            }
            at += 1;
            text += "::";
        }
        // A turbofish leaves `a::` behind.
        paths.push(Path { text: text.trim_end_matches("::").to_owned(), line });
        at
    }

    fn group(&self, mut at: usize, prefix: &str, paths: &mut Vec<Path>) -> usize {
        while at < self.tokens.len() && self.token(at) != "}" {
            let begins = is_word(self.token(at)) || matches!(self.token(at), "{" | "*");
            at = if begins { self.path(at, prefix, paths) } else { at + 1 };
            if self.token(at) == "as" {
                at += 2;
            }
        }
        at + 1
    }
}

impl Path {
    /// Returns true where the path is `root` or something in it.
    pub(crate) fn is_under(&self, root: &str) -> bool {
        self.text.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    }
}

pub(crate) fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
    comments: Vec<Comment>,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(first) = self.rest.chars().next() {
            let length = if self.rest.starts_with("//") {
                let length = self.rest.find('\n').unwrap_or(self.rest.len());
                self.comment(length);
                length
            } else if self.rest.starts_with("/*") {
                let length = block_comment(self.rest);
                self.comment(length);
                length
            } else if let Some(length) = literal(self.rest) {
                self.token("\"");
                length
            } else if first.is_alphanumeric() || first == '_' {
                let length = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
                self.token(&self.rest[..length]);
                length
            } else if self.rest.starts_with("::") {
                self.token("::");
                2
            } else {
                if !first.is_whitespace() {
                    self.token(first.encode_utf8(&mut [0; 4]));
                }
                first.len_utf8()
            };
            self.line += self.rest[..length].matches('\n').count();
            self.rest = &self.rest[length..];
        }
    }

    fn token(&mut self, text: &str) {
        self.tokens.push(Token { text: text.to_owned(), line: self.line });
    }

    fn comment(&mut self, length: usize) {
        let lines = self.rest[..length].lines().enumerate();
        self.comments.extend(lines.map(|(offset, text)| Comment { text: text.to_owned(), line: self.line + offset }));
    }
}

/// Returns the length of the comment at the start of `text`; comments nest.
fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        let (step, change) = match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth += change;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the length of the string or character at the start of `text`, if there is one.
fn literal(text: &str) -> Option<usize> {
    let quote = text.find(|c: char| !matches!(c, 'b' | 'c' | 'r' | '#'))?;
    let (prefix, body) = text.split_at(quote);
    let hashes = prefix.trim_start_matches(['b', 'c', 'r']);
    let is_prefix = matches!(prefix.trim_end_matches('#'), "" | "b" | "c" | "r" | "br" | "cr");
    if !is_prefix || hashes.contains(|c| c != '#') {
        return None;
    }
    if let Some(string) = body.strip_prefix('"') {
        if prefix.contains('r') {
            return Some(quote + 1 + end_of(string, &format!("\"{hashes}")));
        }
        return hashes.is_empty().then(|| quote + 1 + quoted(string, '"'));
    }
    // A lifetime has a quote too, but none after its first character.
    let is_character = body.starts_with("'\\") || body.strip_prefix('\'')?.chars().nth(1) == Some('\'');
    (is_character && hashes.is_empty()).then(|| quote + 1 + quoted(&body[1..], '\''))
}

/// Returns the length up to and with `end`.
fn end_of(text: &str, end: &str) -> usize {
    text.find(end).map_or(text.len(), |at| at + end.len())
}

/// Returns the length up to and with the quote that no backslash precedes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        if character == quote && !escaped {
            return at + 1;
        }
        escaped = character == '\\' && !escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let file = File::new("a.rs", text);
        file.tokens.iter().map(|token| token.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn strings_characters_and_comments_are_not_code() {
        assert_eq!(
            words(r##"a("x\"y", r#"q"r"#, b"\\", 'a', '\'', b'"', 'b: loop {})"##),
            r#"a ( " , " , " , " , " , " , ' b : loop { } )"#
        );
        assert_eq!(words("a // b\n/* c /* d */ e */ f"), "a f");
        assert_eq!(words("r#fn rows bar c"), "r # fn rows bar c");
        let file = File::new("a.rs", "let a = \"\n\n\"; b // note");
        assert_eq!(file.tokens.last().map(|token| token.line), Some(3));
        assert_eq!((file.comments[0].line, file.comments[0].text.as_str()), (3, "// note"));
    }

    #[test]
    fn functions_end_with_their_own_brace() {
        let file =
            File::new("a.rs", "trait A { fn none(&self) -> [u8; 4]; }\nfn a(x: [u8; 4]) {\n if x { }\n}\nlet f: fn(u8);\n");
        let found: Vec<_> = file.functions().into_iter().map(|f| (f.name, f.first, f.last)).collect();
        assert_eq!(found, [("a".to_owned(), 2, 4)]);
    }

    #[test]
    fn use_trees_become_paths() {
        let file = File::new("a.rs", "use std::{sync::{Arc as A, mpsc::*}, io};\nlet x = ::b::c::<u8>(d::e);");
        let found: Vec<_> = file.paths().into_iter().map(|path| path.text).collect();
        for path in ["std::sync::Arc", "std::sync::mpsc::*", "std::io", "b::c", "d::e"] {
            assert!(found.iter().any(|text| text == path), "{path} is missing in {found:?}");
        }
        assert!(!found.iter().any(|text| text.contains('A') && text != "std::sync::Arc"), "{found:?}");
    }

    #[test]
    fn test_items_are_found() {
        let file = File::new("a.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n");
        assert_eq!(file.test_items(), [(2, 5)]);
    }
}
