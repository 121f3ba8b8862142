//! Tests of an input that is taken whole and in pieces.

use super::*;

/// Returns all lines of `bytes`, and what is left.
fn lines(bytes: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut bytes = bytes.to_vec();
    let mut input = Input::new(&mut bytes);
    let lines = std::iter::from_fn(|| input.line().map(<[u8]>::to_vec)).collect();
    (lines, input.bytes().to_vec())
}

#[test]
fn pieces_are_held_while_more_is_taken() {
    let mut bytes = *b"abcdefgh";
    let mut input = Input::new(&mut bytes);
    let (one, two) = (input.take(2), input.take(0));
    let (three, four) = (input.exactly(3), input.exactly(4));
    assert_eq!((one, two, three, four), (&b"ab"[..], &b""[..], Some(&b"cde"[..]), None));
    assert_eq!((input.taken(), input.bytes(), input.is_empty()), (5, &b"fgh"[..], false));
    assert_eq!((input.take_all(), input.taken(), input.is_empty()), (&b"fgh"[..], 8, true));
    assert_eq!((input.take_all(), input.exactly(0), input.exactly(1)), (&b""[..], Some(&b""[..]), None));
}

#[test]
#[should_panic(expected = "a protocol took 3 bytes of its input, where 2 are left")]
fn more_than_there_is_cannot_be_taken() {
    Input::new(&mut [1, 2]).take(3);
}

#[test]
fn a_line_ends_with_a_line_break_and_perhaps_a_return() {
    assert_eq!(lines(b""), (vec![], vec![]));
    assert_eq!(lines(b"\n\r\n\n"), (vec![vec![]; 3], vec![]), "empty lines are lines");
    assert_eq!(lines(b"a\nb\r\nc"), (vec![b"a".to_vec(), b"b".to_vec()], b"c".to_vec()));
    assert_eq!(lines(b"a\rb\r\r\nc\r"), (vec![b"a\rb\r".to_vec()], b"c\r".to_vec()), "a return without a line break is no end");
    assert_eq!(lines(b"\xff\0\n"), (vec![b"\xff\0".to_vec()], vec![]), "a line has no encoding");
}

#[test]
fn what_was_searched_is_not_searched_again_unless_it_may_have_changed() {
    let mut bytes = *b"abcdef\ngh";
    let searched = |input: &mut Input<'_>| {
        let before = input_searched();
        input.line();
        input_searched() - before
    };
    let mut input = Input::searched(&mut bytes, 4);
    assert_eq!((searched(&mut input), input.bytes_without_line(), input.has_no_line()), (3, 0, false), "from the fifth byte on");
    assert_eq!((searched(&mut input), input.bytes_without_line(), input.has_no_line()), (2, 2, true));
    assert_eq!(searched(&mut input), 0, "nothing has come");
    input.take(1);
    assert_eq!((searched(&mut input), input.bytes_without_line()), (0, 1), "what is left of it needs no search either");
    input.bytes_mut()[0] = b'\n';
    assert_eq!((input.line(), input.is_empty()), (Some(&b""[..]), true), "bytes that were changed are searched again");
    let mut bytes = *b"abc\n";
    let mut input = Input::searched(&mut bytes, 2);
    input.take(3);
    assert_eq!(input.line(), Some(&b""[..]), "more was taken than was searched");
}

#[test]
fn a_delimiter_is_one_byte_or_more() {
    let mut bytes = *b"a\0\0bc\r\n\r\nd\r\n\r";
    let mut input = Input::new(&mut bytes);
    assert_eq!((input.until(b"\0"), input.until(b"\0"), input.until(b"\0")), (Some(&b"a"[..]), Some(&b""[..]), None));
    assert_eq!((input.until(b"\r\n\r\n"), input.until(b"\r\n\r\n")), (Some(&b"bc"[..]), None));
    assert_eq!((input.bytes(), input.taken()), (&b"d\r\n\r"[..], 9));
}

#[test]
fn a_search_for_another_delimiter_is_none_for_a_line() {
    let mut bytes = *b"ab\nc";
    let mut input = Input::new(&mut bytes);
    assert_eq!(input.until(b";"), None);
    assert_eq!((input.line(), input.line(), input.until(b"c")), (Some(&b"ab"[..]), None, Some(&b""[..])));
}

#[test]
#[should_panic(expected = "an empty delimiter: it has at least one byte")]
fn an_empty_delimiter_is_refused() {
    Input::new(&mut [1, 2]).until(b"");
}

#[test]
fn a_length_is_read_with_its_bytes_or_not_at_all() {
    for length in [0_usize, 1, 2, 255, 256, 1000] {
        let two = [&(length as u16).to_be_bytes()[..], &vec![7; length]].concat();
        let four = [&(length as u32).to_be_bytes()[..], &vec![7; length]].concat();
        for (bytes, prefix) in [(two, 2), (four, 4)] {
            for whole in 0..=bytes.len() {
                let mut part = bytes[..whole].to_vec();
                let mut input = Input::new(&mut part);
                let read = if prefix == 2 { input.prefixed_u16(1000) } else { input.prefixed_u32(1000) };
                let read = read.expect("short enough").map(|message| message.to_vec());
                let expected = (whole == bytes.len()).then(|| vec![7; length]);
                assert_eq!((read, input.taken()), (expected.clone(), if expected.is_some() { whole } else { 0 }));
            }
        }
    }
}

#[test]
fn a_length_above_the_maximum_is_an_error_at_once() {
    let mut bytes = [0, 0, 0, 6, 1, 2];
    assert_eq!(Input::new(&mut bytes).prefixed_u32(5), Err(TooLong { length: 6, max: 5 }));
    let mut huge = [0xff; 4];
    let mut input = Input::new(&mut huge);
    assert_eq!(input.prefixed_u32(usize::MAX), Ok(None), "not even the largest overflows");
    assert_eq!(input.prefixed_u32(64 * 1024).map_err(|error| error.length), Err(u32::MAX as usize));
    assert_eq!(input.prefixed_u16(65_534).map_err(|error| error.length), Err(65_535));
    assert_eq!((input.prefixed_u16(65_535), input.taken()), (Ok(None), 0));
    let mut none = [0, 0, 0, 0];
    let mut input = Input::new(&mut none);
    assert_eq!((input.prefixed_u32(0).map(|message| message.map(|bytes| bytes.len())), input.is_empty()), (Ok(Some(0)), true));
}
