//! A connection whose peer has to take what is written.

use crate::Seen;
use sockdrawer::tasks::Connection;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::{Arc, atomic::Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

pub(crate) struct Written {
    /// None: it was reset.
    connection: Option<Connection>,
    within: Duration,
    seen: Arc<Seen>,
    /// While a write waits for room: until then, and the bytes that the peer had not read when the time began.
    waits: Option<(Pin<Box<Sleep>>, usize)>,
}

impl Written {
    pub(crate) fn new(connection: Connection, within: Duration, seen: Arc<Seen>) -> Written {
        Written { connection: Some(connection), within, seen, waits: None }
    }

    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut Connection>, &mut Context<'_>) -> Poll<Result<T>>,
    ) -> Poll<Result<T>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Err(ErrorKind::NotConnected.into())) };
        let written = write(Pin::new(&mut *connection), cx);
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let (until, unread) = self.waits.get_or_insert_with(|| (Box::pin(sleep(self.within)), connection.unacknowledged()));
        loop {
            ready!(until.as_mut().poll(cx));
            let still_unread = connection.unacknowledged();
            if still_unread >= *unread {
                break;
            }
            *unread = still_unread;
            until.as_mut().reset(Instant::now() + self.within);
        }
        let why = format!("the peer took nothing of an answer within {:?}", self.within);
        connection.info().handle().report(format!("{why}: reset"));
        self.connection.take().into_iter().for_each(Connection::abort);
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, why)))
    }
}

impl AsyncRead for Written {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Err(ErrorKind::NotConnected.into())) };
        let before = buffer.filled().len();
        ready!(Pin::new(connection).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.seen.head.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Written {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.seen.head.store(false, Ordering::Relaxed);
        self.in_time(cx, |connection, cx| connection.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.in_time(cx, Connection::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.in_time(cx, Connection::poll_shutdown)
    }
}
