//! Messages that are given away part by part.

use super::{REQUEST, frame, says, text};
use sockdrawer::testing::Driver;
use sockdrawer::{CannotRestore, CannotSave, Note, Peer, Saved, Saver, State, Step};
use sockdrawer_websocket::{Answer, Message, MessageProtocol, MessageService, Opening, Part, Socket, WebSocket};
use std::sync::{Arc, Mutex};

/// Hands on the parts of messages as they come.
#[derive(Clone, Default)]
struct Parts(Arc<Mutex<Vec<String>>>);

impl MessageService for Parts {
    type Protocol = Parts;

    fn open(&self, _opening: &mut Opening<'_>) -> Result<Parts, Answer> {
        Ok(self.clone())
    }

    fn restore(&self, _peer: &Peer, _from: &mut Saved<'_>) -> Result<Parts, CannotRestore> {
        Ok(self.clone())
    }

    fn state(&self) -> State {
        State::of("parts", 1)
    }
}

impl MessageProtocol for Parts {
    fn message(&mut self, _message: Message<'_>, _socket: &mut Socket<'_>) -> Step {
        panic!("parts were asked for")
    }

    fn part(&mut self, part: Part<'_>, socket: &mut Socket<'_>) -> Step {
        let (begin, end) = (if part.is_first { "<" } else { "" }, if part.is_last { ">" } else { "" });
        let kind = if matches!(part.message, Message::Text(_)) { "" } else { "#" };
        let bytes = String::from_utf8_lossy(part.message.bytes());
        self.0.lock().expect("no test panicked").push(format!("{kind}{begin}{bytes}{end}"));
        if part.message == Message::Text("wait") {
            socket.pause();
        }
        Step::Continue
    }

    fn notified(&mut self, _note: Note, socket: &mut Socket<'_>) -> Step {
        socket.resume();
        Step::Continue
    }

    fn save(&mut self, _to: &mut Saver) -> Result<(), CannotSave> {
        Ok(())
    }
}

#[test]
fn parts_are_given_away_as_they_come_whole_characters_of_texts_and_move() {
    let parts = Parts::default();
    let service = || WebSocket::new(parts.clone()).parts(true).max_message(3);
    let heard = || std::mem::take(&mut *parts.0.lock().expect("no test panicked"));
    let mut server = Driver::open(service());
    server.receive(REQUEST);
    server.receive(&text("whole"));
    server.receive(&[frame(0x02, b"abcd"), frame(0x89, b""), frame(0x00, b""), frame(0x80, b"")].concat());
    assert_eq!(heard(), ["<whole>", "#<abcd", "#>"]);
    let long = text("grüße");
    server.receive(&long[..long.len() - 4]);
    assert_eq!(heard(), ["<gr"], "half a character is none");
    let mut server = server.save_and_restore(service()).expect("it moves");
    server.receive(&long[long.len() - 4..]);
    assert_eq!(heard(), ["üße>"]);
    server.receive(&[frame(0x01, b"wait"), frame(0x00, b"ed"), frame(0x80, b" for"), text("next")].concat());
    assert_eq!(heard(), ["<wait"], "nothing comes while it is paused");
    server.notify(Note::from(&b"go on"[..]));
    assert_eq!(heard(), ["ed", " for>", "<next>"]);
    // The frame of one message, in as many parts as reads.
    let endless = [&[0x82, 0xff][..], &(1_u64 << 62).to_be_bytes(), &[0; 4], &[b'x'; 10]].concat();
    server.receive(&endless);
    (0..3).for_each(|_| server.receive(&[b'y'; 10]));
    assert_eq!((heard().len(), server.closed(), server.sent().ends_with(b"\x8a\0")), (4, None, true));
}

#[test]
fn texts_in_parts_are_checked_and_compressed_messages_are_joined() {
    let parts = Parts::default();
    let service = || WebSocket::new(parts.clone()).parts(true).max_message(1_000).deflate(true);
    let heard = || std::mem::take(&mut *parts.0.lock().expect("no test panicked"));
    let mut server = Driver::open(service());
    server.receive(REQUEST);
    server.sent();
    server.receive(&[frame(0x01, b"fine"), frame(0x80, b"\xff")].concat());
    assert_eq!((server.sent(), heard()), (says(1007, "text is not UTF-8"), vec!["<fine".to_owned()]));
    let request = String::from_utf8_lossy(REQUEST).replace("Host", "Sec-WebSocket-Extensions: permessage-deflate\r\nHost");
    let mut server = Driver::open(service());
    server.receive(request.as_bytes());
    // RFC 7692, 7.2.3.1.
    let hello = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    server.receive(&[frame(0x41, &hello[..3]), frame(0x80, &hello[3..])].concat());
    assert_eq!(heard(), ["<Hello>"]);
    server.sent();
    // It could not become a message of the maximum.
    server.receive(&frame(0xc2, &[0; 1_190]));
    assert_eq!(server.sent(), says(1009, "a message has more than 1000 bytes"));
}

#[test]
fn a_message_of_which_a_part_was_given_away_stays_with_a_service_of_parts() {
    let parts = Parts::default();
    let service = |gives_parts| WebSocket::new(parts.clone()).parts(gives_parts);
    let mut server = Driver::open(service(true));
    server.receive(REQUEST);
    let long = text("grüße");
    server.receive(&long[..10]);
    let stays = server.save_and_restore(service(false)).expect_err("its tail is no message");
    assert_eq!(stays.why, "part of a message was given away, and its service takes whole ones");
    let mut server = *stays.connection;
    server.receive(&long[10..]);
    assert_eq!(*parts.0.lock().expect("no test panicked"), ["<grü", "ße>"]);
    server.save_and_restore(service(false)).expect("a whole message holds nothing back");
}
