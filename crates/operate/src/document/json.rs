//! JSON to a tree of tables with the place of each key and value, for text that serde_json has found to be right.

use super::read::{At, Entry, Tree};

/// Reads the members of the object that is the whole text. None: it is no object.
pub(super) fn members(text: &str) -> Option<Vec<Entry>> {
    let mut reader = JsonReader { text, at: 0 };
    match reader.value()? {
        (Tree::Table(entries), _) => Some(entries),
        _ => None,
    }
}

struct JsonReader<'a> {
    text: &'a str,
    at: usize,
}

impl JsonReader<'_> {
    /// Skips white space, and returns the next byte without taking it.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text[self.at..].trim_start_matches([' ', '\t', '\n', '\r']);
        self.at = self.text.len() - rest.len();
        rest.bytes().next()
    }

    /// Takes the next byte if it is this one.
    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self) -> Option<(Tree, At)> {
        let first = self.peek()?;
        let at = Some(self.at);
        let tree = match first {
            b'{' => Tree::Table(self.table()?),
            b'[' => Tree::List(self.list()?),
            b'"' => Tree::Text(self.string()?),
            _ => self.word(),
        };
        Some((tree, at))
    }

    fn table(&mut self) -> Option<Vec<Entry>> {
        let mut entries = Vec::new();
        self.at += 1;
        while !self.takes(b'}') {
            self.peek()?;
            let key_at = Some(self.at);
            let key = self.string()?;
            self.takes(b':');
            let (value, at) = self.value()?;
            entries.push((key, key_at, value, at));
            self.takes(b',');
        }
        Some(entries)
    }

    fn list(&mut self) -> Option<Vec<(Tree, At)>> {
        let mut all = Vec::new();
        self.at += 1;
        while !self.takes(b']') {
            all.push(self.value()?);
            self.takes(b',');
        }
        Some(all)
    }

    fn string(&mut self) -> Option<String> {
        let rest = &self.text[self.at..];
        let mut is_escaped = false;
        let end = rest.bytes().enumerate().skip(1).find_map(|(at, byte)| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends.then_some(at + 1)
        })?;
        self.at += end;
        serde_json::from_str(&rest[..end]).ok()
    }

    /// Reads a number, true, false or null.
    fn word(&mut self) -> Tree {
        let rest = &self.text[self.at..];
        let end = rest.find([',', '}', ']', ' ', '\t', '\n', '\r']).unwrap_or(rest.len());
        self.at += end;
        match &rest[..end] {
            "true" => Tree::Switch(true),
            "false" => Tree::Switch(false),
            "null" => Tree::Other("null"),
            number => Tree::Number(number.to_owned()),
        }
    }
}
