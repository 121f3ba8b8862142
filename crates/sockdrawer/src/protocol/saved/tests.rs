//! Values on their way from one type to another.

use super::*;
use serde::Deserialize;
use std::collections::VecDeque;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Mode {
    Idle,
    Busy(u16),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Session {
    user: String,
    modes: Vec<Mode>,
    small: u16,
    signed: i16,
}

fn session() -> Session {
    Session { user: "ada".to_owned(), modes: vec![Mode::Busy(300), Mode::Idle], small: 60_000, signed: -30_000 }
}

fn saved(value: &impl Serialize) -> Vec<u8> {
    let mut to = Saver::default();
    to.value(value).expect("it can be saved");
    to.written().to_vec()
}

/// Returns the error's text, without the module of the type.
fn refused<T: DeserializeOwned + std::fmt::Debug>(bytes: &[u8]) -> String {
    let text = Saved::new(bytes).value::<T>().expect_err("it is no such value").to_string();
    text.replace(concat!(module_path!(), "::"), "")
}

#[test]
fn values_and_what_a_layer_writes_come_back_in_order() {
    let mut to = Saver::default();
    to.value(&session()).expect("it can be saved");
    to.u64(7);
    to.value("text").expect("it can be saved");
    to.value(&()).expect("it can be saved");
    to.bytes(b"of a layer");
    let mut from = Saved::new(to.written());
    assert_eq!((from.value(), from.u64(), from.value::<String>()), (Ok(session()), Ok(7), Ok("text".to_owned())));
    assert_eq!((from.value(), from.bytes()), (Ok(()), Ok(&b"of a layer"[..])));
    assert!(from.value::<()>().is_err(), "no more was written");
}

#[test]
fn the_compatible_changes_are_compatible() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum State {
        Free,
        Working(u64),
        Asleep,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Renamed {
        name: Cow<'static, str>,
        states: VecDeque<State>,
        wider: Box<u64>,
        signed: i64,
    }
    let newer: Renamed = Saved::new(&saved(&session())).value().expect("compatible");
    let states = VecDeque::from([State::Working(300), State::Free]);
    assert_eq!(newer, Renamed { name: "ada".into(), states, wider: Box::new(60_000), signed: -30_000 });
    assert_eq!(Saved::new(&saved(&newer)).value(), Ok(session()), "and back");
    let larger = Renamed { wider: Box::new(70_000), ..newer };
    assert!(Saved::new(&saved(&larger)).value::<Session>().is_err(), "too large for the older build");
    let newest = Renamed { states: VecDeque::from([State::Asleep]), ..larger };
    assert!(Saved::new(&saved(&newest)).value::<Session>().is_err(), "a variant that the older build does not know");
}

#[test]
fn the_other_changes_are_errors() {
    let bytes = saved(&("ada", 7_u16));
    assert!(refused::<(String, u16, u16)>(&bytes).starts_with("the saved state is no (alloc::string::String, u16, u16): "));
    assert!(refused::<String>(&bytes).ends_with(": 1 bytes are left over"), "{}", refused::<String>(&bytes));
    assert!(Saved::new(&saved(&200_u8)).value::<u16>().is_err(), "a byte is not widened");
}

#[test]
fn bytes_that_are_no_state_are_errors() {
    let whole = saved(&session());
    for length in 0..whole.len() {
        assert!(Saved::new(&whole[..length]).value::<Session>().is_err(), "cut after {length} bytes");
    }
    for at in 0..8 {
        let mut huge = whole.clone();
        huge[at] = 0xff;
        assert!(Saved::new(&huge).value::<Session>().is_err(), "its length is another");
    }
    // A text of 2^63 bytes, of which none is there.
    let mut to = Saver::default();
    to.bytes(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    assert!(refused::<String>(to.written()).starts_with("the saved state is no alloc::string::String: "));
    assert!(refused::<Vec<Session>>(to.written()).contains("Session>: "));
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    struct Unwritable;
    impl Serialize for Unwritable {
        fn serialize<S: serde::Serializer>(&self, _to: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("it is locked"))
        }
    }
    let mut to = Saver::default();
    let error = to.value(&("before", Unwritable)).expect_err("it cannot").to_string();
    assert!(error.starts_with("its state, a (&str, ") && error.contains(" cannot be saved: "), "{error}");
    assert_eq!(to.written(), b"");
}
