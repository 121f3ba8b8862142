//! A regular expression as an automaton: a byte is one step, so an answer needs no memory and is judged as soon as it comes.

use super::WrongExpect;
use crate::pace::Answer;
use regex_automata::dfa::dense::{self, DFA};
use regex_automata::dfa::{Automaton, StartKind};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};
use std::fmt;
use std::sync::Arc;

/// An automaton larger than this would not be one answer's; each of three steps of building one is bounded by it.
const MAX_MEMORY: usize = 16 * 1024 * 1024;

/// A regular expression over bytes, anchored at the start of the answer: what cannot become a match any more is wrong at once.
///
/// The syntax is that of the crate [regex](https://docs.rs/regex/latest/regex/#syntax) without Unicode classes; `.` is any byte
/// but a line feed, `(?s)` before it makes it any byte. What looks at the bytes that follow, as `$` and `\b` do, is refused:
/// they may not have come yet.
#[derive(Clone)]
pub struct Pattern {
    text: Arc<str>,
    automaton: Arc<DFA<Vec<u32>>>,
    start: StateID,
}

impl Pattern {
    /// Reads what stands between the slashes.
    ///
    /// # Errors
    /// When it is no regular expression, or none that an answer can be measured with.
    pub fn new(text: &str) -> Result<Pattern, WrongExpect> {
        let wrong = |why: &str| WrongExpect::Pattern { pattern: text.to_owned(), why: why.to_owned() };
        let bytes = syntax::Config::new().unicode(false).utf8(false);
        // It is anchored anyway, and every other look is refused.
        let parsed = syntax::parse_with(text.strip_prefix('^').unwrap_or(text), &bytes)
            .map_err(|error| wrong(error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ")))?;
        match parsed.properties().minimum_len() {
            _ if !parsed.properties().look_set().is_empty() => {
                return Err(wrong("it looks at what follows, which may not have come yet: leave out $, ^ and \\b"));
            }
            None => return Err(wrong("it matches nothing")),
            Some(0) => return Err(wrong("it matches an answer without bytes: write what must come")),
            Some(_) => {}
        }
        let too_large = || wrong("it makes too large an automaton: write a shorter one, or smaller repetitions");
        let nfa = thompson::Config::new().utf8(false).which_captures(WhichCaptures::None).nfa_size_limit(Some(MAX_MEMORY));
        let nfa = thompson::Compiler::new().configure(nfa).build_from_hir(&parsed).map_err(|_| too_large())?;
        let dfa = dense::Config::new()
            .start_kind(StartKind::Anchored)
            .accelerate(false)
            .dfa_size_limit(Some(MAX_MEMORY))
            .determinize_size_limit(Some(MAX_MEMORY));
        let automaton = dense::Builder::new().configure(dfa).build_from_nfa(&nfa).map_err(|_| too_large())?;
        let start = automaton.start_state_forward(&Input::new("").anchored(Anchored::Yes)).map_err(|_| too_large())?;
        Ok(Pattern { text: text.into(), automaton: Arc::new(automaton), start })
    }

    /// Reads what stands between two places of a number.
    ///
    /// # Errors
    /// As [`Pattern::new`], and for alternatives that would reach over the number.
    pub(super) fn between(text: &str) -> Result<Pattern, WrongExpect> {
        let pattern = Pattern::new(text)?;
        // A byte that follows belongs to the last alternative alone.
        let parsed = |text: &str| syntax::parse_with(text, &syntax::Config::new().unicode(false).utf8(false)).ok();
        match (parsed(&format!(r"{text}\x00")), parsed(&format!(r"(?:{text})\x00"))) {
            (Some(bare), Some(grouped)) if bare == grouped => Ok(pattern),
            _ => {
                let why = "its alternatives reach over {n}: put the alternatives into ( and )".to_owned();
                Err(WrongExpect::Pattern { pattern: text.to_owned(), why })
            }
        }
    }

    pub(super) fn start(&self) -> StateID {
        self.start
    }

    /// Goes on from `state` with these bytes, up to the first match. Returns how many bytes that is.
    pub(super) fn step(&self, state: &mut StateID, bytes: &[u8]) -> (usize, Answer) {
        for (index, byte) in bytes.iter().enumerate() {
            *state = self.automaton.next_state(*state, *byte);
            // An automaton of this kind tells a match one byte later. The match before the first byte was told at the end of
            // the bytes before, so `index` is not 0 then.
            if self.automaton.is_match_state(*state) {
                return (index, Answer::Complete);
            }
            if self.automaton.is_dead_state(*state) {
                return (index, Answer::Wrong);
            }
        }
        let ends = self.automaton.is_match_state(self.automaton.next_eoi_state(*state));
        (bytes.len(), if ends { Answer::Complete } else { Answer::Partial })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}
