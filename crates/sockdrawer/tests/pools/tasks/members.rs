//! Async handlers as members of groups, with tags, and by their handles.

use super::{connect, only, runtime, start, tasks};
use crate::common::{PATIENCE, read};
use futures_core::Stream;
use sockdrawer::tasks::{Connection, Info, Notes};
use sockdrawer::{Behaviour, Group, Handle, Note, Selector};
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::sync::mpsc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn next(notes: &mut Notes) -> Option<Note> {
    poll_fn(|cx| Pin::new(&mut *notes).poll_next(cx)).await
}

/// Publishes to its group what comes, and sends what is published; `-` leaves the group.
async fn chat(mut connection: Connection, info: Info, room: Group) {
    info.handle().join(&room);
    let (mut bytes, mut notes) = ([0; 64], info.notes());
    // The membership is there once the loop has come to it.
    while room.is_empty() {
        tokio::task::yield_now().await;
    }
    connection.write_all(b"+").await.expect("open");
    loop {
        tokio::select! {
            count = connection.read(&mut bytes) => match count {
                Ok(count @ 1..) if bytes[..count] == *b"-" => info.handle().leave(&room),
                Ok(count @ 1..) => room.publish(&bytes[..count]).expect("there is room"),
                _ => return,
            },
            note = next(&mut notes) => {
                let Some(Note::Bytes(bytes)) = note else { return };
                connection.write_all(&bytes).await.expect("open");
            }
        }
    }
}

#[test]
fn handlers_are_members_of_groups_until_they_leave_or_end() {
    let room = Group::new();
    let of_handler = room.clone();
    let (pool, at) = start(tasks(Behaviour::task(move |connection, info| chat(connection, info, of_handler.clone()))));
    let mut clients: Vec<_> = (0..3).map(|_| connect(at)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(read(client, 1), Some(b"+".to_vec())));
    assert!(pool.wait(PATIENCE, |_| room.len() == 3), "{room:?}");
    clients[0].write_all(b"one").expect("open");
    clients.iter_mut().for_each(|client| assert_eq!(read(client, 3), Some(b"one".to_vec())));
    clients[1].write_all(b"-").expect("open");
    assert!(pool.wait(PATIENCE, |_| room.len() == 2), "{room:?}");
    clients[0].write_all(b"two").expect("open");
    for client in [0, 2] {
        assert_eq!(read(&mut clients[client], 3), Some(b"two".to_vec()));
    }
    drop(clients.pop());
    drop(clients.remove(0));
    assert!(pool.wait(PATIENCE, |status| status.connections == 1 && room.is_empty()), "{room:?}");
}

#[test]
fn a_handler_gives_its_handle_away_and_names_itself() {
    let (give, given) = mpsc::channel::<Handle>();
    let handler = move |mut connection: Connection, info: Info| {
        let give = give.clone();
        async move {
            assert!(info.handle().tag("ann"));
            give.send(info.handle().clone()).expect("it is taken");
            while let Some(Note::Bytes(bytes)) = info.note().await {
                connection.write_all(&bytes).await.expect("open");
            }
        }
    };
    let (pool, at) = start(tasks(Behaviour::task(handler)));
    let mut client = connect(at);
    let handle = given.recv_timeout(PATIENCE).expect("it runs");
    handle.notify(Note::from(std::sync::Arc::<[u8]>::from(&b"hello"[..]))).expect("there is room");
    assert_eq!(read(&mut client, 5), Some(b"hello".to_vec()));
    assert_eq!(only(&pool).tag.as_deref(), Some("ann"));
    assert!(!handle.is_gone());
    assert_eq!(pool.kill(&Selector::Tag("ann".into())).cut, 1);
    assert!(pool.wait(PATIENCE, |status| status.connections == 0));
    assert!(handle.is_gone());
}

#[test]
fn connections_of_a_listener_have_handles_too() {
    let (pool, at) = start(tasks(Behaviour::listener()));
    let (room, mut client) = (Group::new(), connect(at));
    let runtime = runtime();
    let mut listener = pool.listener();
    let mut connection = runtime.block_on(listener.accept()).expect("one has come");
    connection.info().handle().join(&room);
    assert!(pool.wait(PATIENCE, |_| room.len() == 1));
    room.publish(&b"hello"[..]).expect("there is room");
    runtime.block_on(async {
        let info = connection.info().clone();
        let Some(Note::Bytes(bytes)) = next(&mut info.notes()).await else { panic!("a note") };
        connection.write_all(&bytes).await.expect("open");
    });
    assert_eq!(read(&mut client, 5), Some(b"hello".to_vec()));
    drop(connection);
    assert!(pool.wait(PATIENCE, |_| room.is_empty()));
}
