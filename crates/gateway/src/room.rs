//! How much to read at once from a connection: little, as heads need, until what comes keeps filling it, as bodies do.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _};

const SMALLEST: usize = 4 << 10;
const LARGEST: usize = 64 << 10;
/// With less room than this left, more is made.
const LEAST: usize = 1 << 10;

/// The room that a connection makes for what it reads.
#[derive(Debug)]
pub struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(SMALLEST)
    }
}

impl Room {
    /// Memory to begin with.
    pub fn first(&self) -> BytesMut {
        BytesMut::with_capacity(self.0)
    }

    /// Whether more was made than a head needs.
    pub fn has_grown(&self) -> bool {
        self.0 > SMALLEST
    }

    /// Reads what there is, behind what is in `input`; the number of bytes, zero at the end of the connection.
    pub fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        input: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let least = if self.has_grown() { self.0 } else { LEAST };
        if input.capacity() - input.len() < least {
            input.reserve(self.0);
        }
        let room = input.capacity() - input.len();
        // Nothing of it outlives the poll: a read that has not happened holds nothing.
        let read = ready!(pin!(stream.read_buf(input)).poll(cx))?;
        if read == room {
            self.0 = (self.0 * 2).min(LARGEST);
        }
        Poll::Ready(Ok(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_while_it_is_filled_and_not_beyond_a_bound() {
        let (mut room, mut input) = (Room::default(), BytesMut::new());
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut read = |stream: &mut &[u8]| {
            let Poll::Ready(Ok(read)) = room.poll_read(stream, &mut input, &mut context) else { return (0, false) };
            input.clear();
            (read, room.has_grown())
        };
        assert_eq!(read(&mut &[0; 100][..]), (100, false));
        assert_eq!(read(&mut &[][..]), (0, false));
        let plenty = vec![0; 4 * LARGEST];
        let reads: Vec<usize> = (0..9).map(|_| read(&mut &plenty[..]).0).collect();
        assert!(reads.is_sorted() && reads.iter().all(|read| (LEAST..=2 * LARGEST).contains(read)), "{reads:?}");
        assert!(reads.last() >= Some(&LARGEST) && read(&mut &plenty[..]).1);
    }
}
