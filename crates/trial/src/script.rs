//! The exchanges of a protocol that is told by text: bytes to send, and the answers to expect, with a number that each answer shares with its
//! question.

use crate::exchange::{Dialogue, Exchange, Judgement};
use sockdrawer_catalog::Answer;
use sockdrawer_catalog::dialogue::{Reading, Reply, Template};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum of bytes of a wrong answer that are shown.
pub(crate) const SHOWN: usize = 100;

/// Exchanges of a protocol. In text, a line each:
///
/// ```text
/// # Once, at the beginning of each connection: what is sent, and the answer.
/// >> AUTH secret\n
/// << OK\n
/// # Then these, one after the other.
/// > PING {n}\n
/// < PONG {n}\n
/// ```
///
/// The bytes have the escapes of [`escapes`](sockdrawer_catalog::escapes); an answer may be a regular expression between slashes, as an
/// [`Expect`](sockdrawer_catalog::dialogue::Expect). `{n}` is the number of the question, which no other question of the trial has: an answer with
/// another number is wrong. `{c}` in its place is the number of the connection, which all of its questions share: what it said at its beginning can be asked for
/// again and again, such as by `>> SET key{c} {c}\n`, and then `> GET key{c}\n` answered by `< {c}\n`. Blank lines, lines that begin with `#` and spaces at both ends of a line are left out; `\x20` is a space.
///
/// An answer with `<<` alone is a greeting; `>>` without an answer is sent together with what follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    turns: Vec<Turn>,
    /// The number of turns at the beginning of a connection; the others are its exchanges.
    first: usize,
}

/// A part of a script: something to send and the answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) send: Option<Template>,
    pub(crate) expect: Option<Reply>,
}

impl Turn {
    fn is_of_connection(&self) -> bool {
        self.send.as_ref().is_some_and(Template::is_of_connection) || self.expect.as_ref().is_some_and(Reply::is_of_connection)
    }
}

/// The reason why exchanges make no [`Script`], in one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongScript(String);

impl fmt::Display for WrongScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongScript {}

impl Script {
    /// Makes a script of one exchange, and of what each connection sends and expects first, if anything.
    ///
    /// # Errors
    /// When an answer has a number and its question has none.
    pub fn new(first: (Option<Template>, Option<Reply>), send: Template, expect: Reply) -> Result<Script, WrongScript> {
        Script::default().and(first, send, expect)
    }

    fn and(mut self, first: (Option<Template>, Option<Reply>), send: Template, expect: Reply) -> Result<Script, WrongScript> {
        if let Some(send) = first.0 {
            self.sends(true, send)?;
        }
        if let Some(expect) = first.1 {
            self.expects(true, expect)?;
        }
        self.sends(false, send)?;
        self.expects(false, expect)?;
        Ok(self)
    }

    /// Makes clients that hear each other. Their connections begin as those of this script, then subscribe; what they publish comes to all of them.
    ///
    /// # Errors
    /// As [`Broadcast::new`].
    pub fn broadcast(
        &self,
        subscribe: (Option<Template>, Option<Reply>),
        publish: Template,
        message: Reply,
    ) -> Result<Broadcast, WrongScript> {
        let beginning = Script { turns: self.turns[..self.first].to_vec(), first: self.first };
        Broadcast::new(beginning.and(subscribe, publish, message)?)
    }

    /// Adds what a connection sends, at its beginning or in an exchange.
    fn sends(&mut self, first: bool, send: Template) -> Result<(), WrongScript> {
        self.begins(first)?;
        self.is_answered()?;
        self.add(first, Turn { send: Some(send), expect: None });
        Ok(())
    }

    /// Adds the answer to what was added last.
    fn expects(&mut self, first: bool, expect: Reply) -> Result<(), WrongScript> {
        self.begins(first)?;
        let in_exchanges = self.turns.len() > self.first;
        let asked = self.turns.last_mut().filter(|turn| turn.expect.is_none() && in_exchanges != first);
        if expect.has_number()
            && !expect.is_of_connection()
            && !asked
                .as_ref()
                .is_some_and(|turn| turn.send.as_ref().is_some_and(|send| send.has_number() && !send.is_of_connection()))
        {
            let line = format!(
                "`{expect}` has the number of a question without one: write {{n}} into what is sent too, or leave it out of the answer"
            );
            return Err(WrongScript(line));
        }
        match asked {
            Some(turn) => turn.expect = Some(expect),
            None if first => self.add(first, Turn { send: None, expect: Some(expect) }),
            None => {
                return Err(WrongScript(format!(
                    "nothing is sent before `{expect}`: write > and what is sent in the line before"
                )));
            }
        }
        Ok(())
    }

    fn add(&mut self, first: bool, turn: Turn) {
        self.turns.push(turn);
        self.first += usize::from(first);
    }

    fn begins(&self, first: bool) -> Result<(), WrongScript> {
        match first && self.turns.len() > self.first {
            true => Err(WrongScript(
                "what is for the beginning of a connection (>>, <<) stands before the first >: move it".to_owned(),
            )),
            false => Ok(()),
        }
    }

    fn is_answered(&self) -> Result<(), WrongScript> {
        match self.turns[self.first..].last() {
            Some(Turn { send: Some(send), expect: None }) => {
                Err(WrongScript(format!("nothing is expected after `{send}`: write < and the answer in the line that follows")))
            }
            _ => Ok(()),
        }
    }

    fn line(&mut self, line: &str) -> Result<(), WrongScript> {
        let (sign, text) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let (text, first) = (text.trim_start(), sign.len() == 2);
        match sign {
            ">" | ">>" => self.sends(first, text.parse().map_err(|why| WrongScript(format!("{why}")))?),
            "<" | "<<" => self.expects(first, text.parse().map_err(|why| WrongScript(format!("{why}")))?),
            _ => Err(WrongScript(format!(
                "`{sign}` is none of >, <, >> and <<: write > and a space before what is sent, < before its answer"
            ))),
        }
    }
}

impl FromStr for Script {
    type Err = WrongScript;

    fn from_str(text: &str) -> Result<Script, WrongScript> {
        let mut script = Script::default();
        let mut last = 0;
        let at = |number: usize, WrongScript(what)| WrongScript(format!("line {number}: {what}"));
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if !line.is_empty() && !line.starts_with('#') {
                script.line(line).map_err(|wrong| at(number, wrong))?;
                last = number;
            }
        }
        script.is_answered().map_err(|wrong| at(last, wrong))?;
        match script.turns.len() > script.first {
            true => Ok(script),
            false => Err(WrongScript("no exchange: write > and what is sent in a line, < and its answer in the next".to_owned())),
        }
    }
}

/// The first exchange, and the number of the others.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exchanges = &self.turns[self.first..];
        if let Some(Turn { send: Some(send), expect: Some(expect) }) = exchanges.first() {
            write!(f, "`{send}` answered by `{expect}`")?;
        }
        match exchanges.len() {
            0 | 1 => Ok(()),
            all => write!(f, " and {} more", all - 1),
        }
    }
}

/// The messages of clients that hear each other. In text it is a [`Script`] of one exchange: what a client publishes, and what all of them hear
/// of it.
///
/// ```
/// use sockdrawer_trial::Broadcast;
///
/// let news: Broadcast = r"
///     >> SUB news\n
///     << OK\n
///     > PUB news {n}\n
///     < MSG news {n}\n
/// ".parse()?;
/// # Ok::<(), sockdrawer_trial::WrongScript>(())
/// ```
///
/// The answer at the beginning shows that the server has subscribed the client, which has to hear all that is published from then on. The sender
/// itself may hear its messages or not, but all of them or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast {
    first: Vec<Turn>,
    publish: Template,
    message: Reply,
}

impl Broadcast {
    /// Makes clients that hear each other of a script.
    ///
    /// # Errors
    /// When the script has not one exchange, a number lacks in it, or no answer at the beginning shows that a client has subscribed.
    pub fn new(mut script: Script) -> Result<Broadcast, WrongScript> {
        let exchanges = script.turns.split_off(script.first);
        let [Turn { send: Some(publish), expect: Some(message) }] = &exchanges[..] else {
            return Err(WrongScript("clients that hear each other publish one message: write one > and one <".to_owned()));
        };
        if !message.has_number() || message.is_of_connection() {
            let line =
                format!("`{message}` has no number, by which messages are told apart: write {{n}} into it and into `{publish}`");
            return Err(WrongScript(line));
        }
        if script.turns.last().is_none_or(|turn| turn.expect.is_none()) {
            let line = "nothing tells when the server has subscribed a client: write what it sends then and its answer (--subscribe and --subscribe-expect, or >> and << in a script)";
            return Err(WrongScript(line.to_owned()));
        }
        Ok(Broadcast { first: script.turns, publish: publish.clone(), message: message.clone() })
    }

    /// Returns what a connection sends and expects before it has subscribed.
    pub(crate) fn first(&self) -> &[Turn] {
        &self.first
    }

    /// Returns what a client publishes.
    pub(crate) fn publish(&self) -> &Template {
        &self.publish
    }

    /// Returns what all clients hear of it.
    pub(crate) fn message(&self) -> &Reply {
        &self.message
    }
}

impl FromStr for Broadcast {
    type Err = WrongScript;

    fn from_str(text: &str) -> Result<Broadcast, WrongScript> {
        Broadcast::new(text.parse()?)
    }
}

/// The message that is published, and what all hear.
impl fmt::Display for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` heard by all as `{}`", self.publish, self.message)
    }
}

/// The [`Exchange`] of a [`Script`]. A copy shares the numbers with the original.
#[derive(Clone, Debug)]
pub struct Scripted {
    script: Arc<Script>,
    numbers: Arc<AtomicU64>,
    whole: bool,
    hears_others: bool,
}

impl Scripted {
    /// Makes clients that ask one exchange after the other, and after the last the first again.
    pub fn new(script: Script) -> Scripted {
        Scripted { script: Arc::new(script), numbers: Arc::default(), whole: false, hears_others: false }
    }

    /// Makes of these clients others for which all exchanges together are one: clients that come and go ask all of them.
    #[must_use]
    pub fn whole(&self) -> Scripted {
        Scripted { whole: true, ..self.clone() }
    }

    /// Says whether the server sends each of them what others say, too.
    #[must_use]
    pub fn hearing_others(self, hears_others: bool) -> Scripted {
        Scripted { hears_others, ..self }
    }
}

impl Exchange for Scripted {
    type Dialogue = Speaker;

    fn hears_others(&self) -> bool {
        self.hears_others
    }

    fn dialogue(&self) -> Speaker {
        Speaker { scripted: self.clone(), turn: 0, number: 0, connection: None, reading: Reading::default() }
    }
}

/// The dialogue of [`Scripted`].
#[derive(Debug)]
pub struct Speaker {
    scripted: Scripted,
    turn: usize,
    /// The number of the question under way.
    number: u64,
    /// The number of the connection, once it was asked for.
    connection: Option<u64>,
    reading: Reading,
}

impl Dialogue for Speaker {
    fn ask(&mut self, send: &mut dyn FnMut(&[u8])) {
        let turns = &self.scripted.script.turns;
        loop {
            let turn = &turns[self.turn];
            let next = || self.scripted.numbers.fetch_add(1, Ordering::Relaxed) + 1;
            self.number = if turn.is_of_connection() { *self.connection.get_or_insert_with(next) } else { next() };
            if let Some(text) = &turn.send {
                send(&text.bytes(self.number));
            }
            // The last one of a script expects an answer.
            if turn.expect.is_some() {
                break;
            }
            self.turn += 1;
        }
        self.reading = Reading::default();
    }

    fn judge(&mut self, came: &[u8]) -> Judgement {
        let script = &self.scripted.script;
        let Some(expect) = &script.turns[self.turn].expect else { unreachable!("a question waits for an answer") };
        match expect.take(&mut self.reading, came) {
            (_, Answer::Partial) => Judgement::More,
            (taken, Answer::Complete) if self.reading.number().is_none_or(|number| number == self.number) => {
                let (is_first, next) = (self.turn < script.first, self.turn + 1);
                let is_last = next == script.turns.len();
                self.turn = if is_last { script.first } else { next };
                if is_first || (self.scripted.whole && !is_last) { Judgement::Next(taken) } else { Judgement::Whole(taken) }
            }
            _ => Judgement::Wrong(came.len()),
        }
    }

    fn describe(&self, after: &str, came: &str) -> String {
        let expect = self.scripted.script.turns[self.turn].expect.as_ref();
        let expected = expect.map(ToString::to_string).unwrap_or_default();
        let number = expect.is_some_and(Reply::has_number).then(|| format!(", with the number {}", self.number));
        format!("{after} `{expected}` was expected{}, and {came} came", number.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Script {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn asked(speaker: &mut Speaker) -> String {
        let mut request = Vec::new();
        speaker.ask(&mut |bytes| request.extend_from_slice(bytes));
        String::from_utf8(request).expect("text")
    }

    #[test]
    fn questions_have_numbers_of_their_own_and_answers_must_have_them() {
        let scripted = Scripted::new(script("> PING {n}.\n< PONG {n}."));
        let (mut one, mut other) = (scripted.dialogue(), scripted.whole().dialogue());
        assert_eq!((asked(&mut one), asked(&mut other)), ("PING 1.".to_owned(), "PING 2.".to_owned()));
        assert_eq!((one.judge(b"PO"), one.judge(b"NG 1.x")), (Judgement::More, Judgement::Whole(5)));
        assert_eq!(asked(&mut one), "PING 3.");
        assert_eq!(one.judge(b"PONG 2."), Judgement::Wrong(7), "the answer to somebody else");
        assert_eq!(other.judge(b"x"), Judgement::Wrong(1));
        let odd = "after `PING 3.` `PONG {n}.` was expected, with the number 3, and `PONG 2.` came";
        assert_eq!(one.describe("after `PING 3.`", "`PONG 2.`"), odd);
    }

    #[test]
    fn a_connection_begins_once_and_goes_on_in_turn() {
        let text = "
            # A greeting, a login that is answered, and an option that is not.
            << hello {}.
            >> login {n}.
            << OK {n}.
            >> fast.

            > A {n}.
            < a {n}.
            > B.
            < /b+[.]/
        ";
        let scripted = Scripted::new(script(text));
        assert_eq!(script(text).to_string(), "`A {n}.` answered by `a {n}.` and 1 more");
        let (mut kept, mut churn) = (scripted.dialogue(), scripted.whole().dialogue());
        for speaker in [&mut kept, &mut churn] {
            assert_eq!(asked(speaker), "", "the server speaks first");
            assert_eq!(speaker.judge(b"hello {}."), Judgement::Next(9));
        }
        assert_eq!((asked(&mut kept).as_str(), kept.judge(b"OK 3.")), ("login 3.", Judgement::Next(5)));
        assert_eq!((asked(&mut kept).as_str(), kept.judge(b"a 5.")), ("fast.A 5.", Judgement::Whole(4)));
        assert_eq!((asked(&mut kept).as_str(), kept.judge(b"bb.")), ("B.", Judgement::Whole(3)));
        assert_eq!(asked(&mut kept), "A 7.", "the beginning was once");
        assert_eq!((asked(&mut churn).as_str(), churn.judge(b"OK 8.")), ("login 8.", Judgement::Next(5)));
        assert_eq!((asked(&mut churn).as_str(), churn.judge(b"a 10.")), ("fast.A 10.", Judgement::Next(5)));
        assert_eq!((asked(&mut churn).as_str(), churn.judge(b"b.")), ("B.", Judgement::Whole(2)));
    }

    #[test]
    fn a_connection_asks_again_for_what_it_said_at_its_beginning() {
        let scripted = Scripted::new(script(">> SET k{c} {c}.\n<< OK.\n> GET k{c}.\n< = {c}.\n> PING {n}.\n< PONG {n}."));
        let (mut one, mut other) = (scripted.dialogue(), scripted.dialogue());
        assert_eq!((asked(&mut one), asked(&mut other)), ("SET k1 1.".to_owned(), "SET k2 2.".to_owned()));
        for (speaker, number, ping) in [(&mut one, 1, 3), (&mut other, 2, 4)] {
            assert_eq!(speaker.judge(b"OK."), Judgement::Next(3));
            assert_eq!(asked(speaker), format!("GET k{number}."));
            assert_eq!(speaker.judge(format!("= {number}.").as_bytes()), Judgement::Whole(4));
            assert_eq!(asked(speaker), format!("PING {ping}."));
            speaker.judge(format!("PONG {ping}.").as_bytes());
        }
        assert_eq!(asked(&mut one), "GET k1.");
        assert_eq!(one.judge(b"= 2."), Judgement::Wrong(4), "of another connection");
    }

    #[test]
    fn exchanges_that_make_no_sense_are_refused_in_one_line() {
        for (text, says) in [
            ("", "no exchange: write >"),
            ("# nothing\n>> a\n<< b", "no exchange: write >"),
            ("> a\n> b\n< c", "line 2: nothing is expected after `a`: write <"),
            ("> a\n\n", "line 1: nothing is expected after `a`: write <"),
            ("< a", "line 1: nothing is sent before `a`: write >"),
            (">> a\n< b", "line 2: nothing is sent before `b`: write >"),
            ("> a\n< b\n< c", "line 3: nothing is sent before `c`: write >"),
            ("> a\n< b\n>> c", "line 3: what is for the beginning"),
            ("> a\n<< b", "line 2: what is for the beginning"),
            ("> a\n< b {n}.", "line 2: `b {n}.` has the number of a question without one"),
            ("<< b {n}.\n> a\n< b", "line 1: `b {n}.` has the number of a question without one"),
            ("> a\n< /(/", "line 2: `(` is no regular expression"),
            ("> \\q\n< b", r"line 1: `\q` begins no escape"),
            (">", "line 1: no bytes: write what is sent"),
            ("PING", "line 1: `PING` is none of >, <, >> and <<"),
            (">PING", "line 1: `>PING` is none of"),
        ] {
            let error = text.parse::<Script>().expect_err(text).to_string();
            assert!(error.starts_with(says) && error.lines().count() == 1, "{text}: {error}");
        }
        for (text, says) in [
            (">> a\n<< b\n> c\n< d", "`d` has no number, by which messages are told apart: write {n} into it and into `c`"),
            ("<< b\n> c {n}\n< d", "`d` has no number"),
            ("> c {n}\n< d {n}.", "nothing tells when the server has subscribed a client"),
            ("<< a\n>> b\n> c {n}\n< d {n}.", "nothing tells when the server has subscribed a client"),
            ("<< a\n> c {n}\n< d {n}.\n> e\n< f", "clients that hear each other publish one message"),
        ] {
            let error = text.parse::<Broadcast>().expect_err(text).to_string();
            assert!(error.starts_with(says) && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
