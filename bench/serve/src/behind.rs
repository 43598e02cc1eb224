//! The server behind a proxy, played by the load itself: one thread asks, answers what the proxy asks in turn, and
//! never sleeps.
//!
//! So nobody shares a core: the proxy has one, and all others that have a part in a request are this thread on the
//! other. It knows questions without bodies only.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::event::{Timespec, epoll};

const LISTENER: u64 = u64::MAX;
const END: &[u8] = b"\r\n\r\n";
/// What nginx would say.
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Sat, 14 Nov 2026 09:26:53 GMT\r\nContent-Type: text/plain\r\n\
    Content-Length: 28\r\nConnection: keep-alive\r\n\r\nhello from behind the proxy\n";
/// A question is never longer, nor are those of one turn.
const BUFFER: usize = 64 << 10;

pub struct Behind {
    listener: TcpListener,
    poll: rustix::fd::OwnedFd,
    /// By their numbers; those that were closed leave a gap.
    connections: Vec<Option<TcpStream>>,
    buffer: Vec<u8>,
}

impl Behind {
    pub fn listen(address: SocketAddr) -> Result<Self, String> {
        let listener = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| error.to_string())?;
        let behind = Self { listener, poll, connections: Vec::new(), buffer: vec![0; BUFFER] };
        behind.listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        behind.watch(&behind.listener, LISTENER)?;
        Ok(behind)
    }

    fn watch(&self, what: impl rustix::fd::AsFd, number: u64) -> Result<(), String> {
        epoll::add(&self.poll, what, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
            .map_err(|e| e.to_string())
    }

    /// Answers what was asked by now, and does not wait for more.
    pub fn answer(&mut self) -> Result<(), String> {
        let mut events =
            [const { epoll::Event { flags: epoll::EventFlags::IN, data: epoll::EventData::new_u64(0) } }; 64];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&self.poll, &mut events, Some(&at_once)).map_err(|error| error.to_string())?;
        for event in events.iter().take(count) {
            match event.data.u64() {
                LISTENER => self.accept()?,
                number => self.converse(number as usize)?,
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<(), String> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(|e| e.to_string())?;
                    self.watch(&stream, self.connections.len() as u64)?;
                    self.connections.push(Some(stream));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn converse(&mut self, number: usize) -> Result<(), String> {
        let Some(Some(stream)) = self.connections.get_mut(number) else { return Ok(()) };
        match stream.read(&mut self.buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Ok(0) | Err(_) => {
                self.connections[number] = None;
                Ok(())
            }
            Ok(bytes) => {
                let asked = &self.buffer[..bytes];
                if !asked.ends_with(END) {
                    return Err("a proxy sent a part of a question".to_owned());
                }
                let questions = asked.windows(END.len()).filter(|window| *window == END).count();
                stream.write_all(&ANSWER.repeat(questions)).map_err(|error| error.to_string())
            }
        }
    }
}
