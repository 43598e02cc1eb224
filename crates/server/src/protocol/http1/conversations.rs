//! Whole conversations with clients of HTTP/1, over sockets: what each is told for what it says.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::serve::Drain;

type Reply = UnsyncBoxBody<Bytes, std::io::Error>;

fn reply(text: impl Into<Bytes>) -> Reply {
    http_body_util::Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body whose length is not known, and which may break off.
fn pieces(pieces: &'static [&'static str], breaks: bool) -> Reply {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        for piece in pieces {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _ = sender.send(Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
        }
        if breaks {
            let _ = sender.send(Err(std::io::ErrorKind::Other.into()));
        }
    });
    Received(receiver).boxed_unsync()
}

type Next = Option<std::io::Result<Frame<Bytes>>>;

struct Received(tokio::sync::mpsc::UnboundedReceiver<std::io::Result<Frame<Bytes>>>);

impl HttpBody for Received {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next> {
        self.0.poll_recv(cx)
    }
}

/// More than sockets hold.
const LONG: usize = 16 << 20;

async fn answer(request: Request<Body>) -> Response<Reply> {
    let (head, body) = request.into_parts();
    if let Some(why) = head.extensions.get::<Malformed>() {
        let mut answer = Response::new(reply(why.told()));
        *answer.status_mut() = why.status();
        return answer;
    }
    match head.uri.path() {
        // Nothing of the body is read.
        "/early" => Response::new(reply("early")),
        "/pieces" => Response::new(pieces(&["one", "two"], false)),
        "/breaks" => Response::new(pieces(&["one"], true)),
        // What comes is sent back as it comes.
        "/echo" => Response::new(Echo(body).boxed_unsync()),
        "/long" => Response::new(reply(vec![b'x'; LONG])),
        "/bare" => Response::builder().status(StatusCode::NO_CONTENT).body(reply("never seen")).unwrap(),
        path => {
            let path = path.to_owned();
            let body = body.collect().await.map(|body| body.to_bytes());
            let said = body.map_or("broken".into(), |body| String::from_utf8_lossy(&body).into_owned());
            Response::new(reply(format!("{path}:{said}")))
        }
    }
}

/// A body of a request as that of an answer whose length is not told.
struct Echo(Body);

impl HttpBody for Echo {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next> {
        Pin::new(&mut self.get_mut().0).poll_frame(cx)
    }
}

/// A client, and its server with this patience.
async fn client(patience: Duration) -> TcpStream {
    client_saying("", patience, Drain::new()).await
}

/// A client that has said this before its server, which hears of its end by `drain`, looks.
async fn client_saying(said: &str, patience: Duration, drain: Drain) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    client.write_all(said.as_bytes()).await.unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let manners = Manners { patience, write_timeout: patience, rests: false, asks: true };
        serve(manners, Vec::new(), Stream::Tcp(stream), drain.listen(), &answer).await;
    });
    client
}

/// All that comes back for what is said in pieces of this size, without dates.
async fn told(said: &str, piece: usize) -> String {
    let mut client = client(Duration::from_secs(10)).await;
    client.set_nodelay(true).unwrap();
    for piece in said.as_bytes().chunks(piece) {
        let _ = client.write_all(piece).await;
        tokio::task::yield_now().await;
    }
    let mut all = Vec::new();
    let _ = client.read_to_end(&mut all).await;
    undated(&String::from_utf8(all).unwrap())
}

fn undated(text: &str) -> String {
    text.split_inclusive("\r\n").filter(|line| !line.starts_with("date: ")).collect()
}

fn ok(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}\r\n{body}")
}

const LAST: &str = "GET /z HTTP/1.1\r\nConnection: close\r\n\r\n";

/// The answer to [`LAST`].
fn last() -> String {
    ok("content-length: 3\r\nconnection: close\r\n", "/z:")
}

#[tokio::test]
async fn requests_are_answered_in_order_however_they_come() {
    let said = format!(
        "GET /a HTTP/1.1\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello\r\n\
         POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n\
         HEAD /d HTTP/1.1\r\n\r\nGET /bare HTTP/1.1\r\n\r\nGET /pieces HTTP/1.1\r\n\r\n{LAST}GET /never HTTP/1.1\r\n\r\n"
    );
    let expected = [
        ok("content-length: 3\r\n", "/a:"),
        ok("content-length: 8\r\n", "/b:hello"),
        ok("content-length: 8\r\n", "/c:abcde"),
        ok("content-length: 3\r\n", ""),
        "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        ok("transfer-encoding: chunked\r\n", "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        last(),
    ]
    .concat();
    for piece in [1, 2, 3, 10, 50, said.len()] {
        assert_eq!(told(&said, piece).await, expected, "{piece}");
    }
}

#[tokio::test]
async fn clients_of_old_are_answered_as_of_old() {
    assert_eq!(told("GET /a HTTP/1.0\r\n\r\n", 100).await, "HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\n/a:");
    let kept =
        "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /pieces HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let expected =
        "HTTP/1.0 200 OK\r\ncontent-length: 3\r\nconnection: keep-alive\r\n\r\n/a:HTTP/1.0 200 OK\r\n\r\nonetwo";
    assert_eq!(told(kept, 100).await, expected);
}

#[tokio::test]
async fn who_waits_to_be_told_to_go_on_is_told_when_somebody_reads() {
    let head = |path: &str| {
        format!("POST {path} HTTP/1.1\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    };
    let mut waiting = client(Duration::from_secs(10)).await;
    waiting.write_all(head("/p").as_bytes()).await.unwrap();
    let mut go_on = [0; 25];
    waiting.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    waiting.write_all(b"hello").await.unwrap();
    let mut rest = String::new();
    waiting.read_to_string(&mut rest).await.unwrap();
    assert_eq!(undated(&rest), ok("content-length: 8\r\nconnection: close\r\n", "/p:hello"));
    // Whoever is answered without being read is not told so, and has nothing to send; whoever sent it all the same goes
    // on.
    assert_eq!(told(&head("/early"), 1_000).await, ok("content-length: 5\r\nconnection: close\r\n", "early"));
    let sent = head("/p").replace("Connection: close\r\n", "") + "hello" + LAST;
    assert_eq!(told(&sent, 1_000).await, ok("content-length: 8\r\n", "/p:hello") + &last());
}

#[tokio::test]
async fn an_answer_before_the_body_is_read_goes_on_if_the_rest_is_there() {
    for framed in ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"] {
        let said = format!("POST /early HTTP/1.1\r\n{framed}{LAST}");
        assert_eq!(told(&said, 1_000).await, ok("content-length: 5\r\n", "early") + &last());
    }
    // What is not there is not waited for, and is no request when it comes.
    let said = "POST /early HTTP/1.1\r\nContent-Length: 500000\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n";
    assert_eq!(told(said, 1_000).await, ok("content-length: 5\r\nconnection: close\r\n", "early"));
    // However much is sent, the answer arrives.
    let much = format!("POST /early HTTP/1.1\r\nContent-Length: 900000\r\n\r\n{}", "x".repeat(900_000));
    assert_eq!(told(&much, much.len()).await, ok("content-length: 5\r\nconnection: close\r\n", "early"));
}

#[tokio::test]
async fn bodies_stream_both_ways_at_once() {
    let mut client = client(Duration::from_secs(10)).await;
    client.write_all(b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    let mut heard = String::new();
    for piece in ["one", "two", "three"] {
        client.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).await.unwrap();
        while !heard.ends_with(&format!("{piece}\r\n")) {
            let mut bytes = [0; 100];
            let read = client.read(&mut bytes).await.unwrap();
            heard.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
    }
    client.write_all(format!("0\r\n\r\n{LAST}").as_bytes()).await.unwrap();
    client.read_to_string(&mut heard).await.unwrap();
    let echoed = ok("transfer-encoding: chunked\r\n", "3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n");
    assert_eq!(undated(&heard), echoed + &last());
    // One that is long goes through whole.
    let long = "0123456789".repeat(100_000);
    let said = format!("POST /echo HTTP/1.0\r\nContent-Length: {}\r\n\r\n{long}", long.len());
    let heard = told(&said, 10_000).await;
    assert!(heard == format!("HTTP/1.0 200 OK\r\n\r\n{long}"), "{} bytes", heard.len());
}

#[tokio::test]
async fn what_breaks_off_is_seen_to() {
    let broken = told("GET /breaks HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\n\r\n", 100).await;
    assert_eq!(broken, ok("transfer-encoding: chunked\r\n", "3\r\none\r\n"), "without an end");
    let said = "POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\nGET /a HTTP/1.1\r\n\r\n";
    assert_eq!(told(said, 100).await, ok("content-length: 9\r\nconnection: close\r\n", "/p:broken"));
    let said = "GET /a HTTP/1.1\r\n\r\nGET / HTTP/1.1\nHost: a\r\n\r\nGET /b HTTP/1.1\r\n\r\n";
    let refused = told(said, 100).await;
    assert!(
        refused.starts_with(&ok("content-length: 3\r\n", "/a:")) && refused.contains("400 Bad Request\r\n"),
        "{refused}"
    );
    assert!(refused.ends_with("end lines with CR LF"), "{refused}");
    let nonsense = told("GET /a HTTP/1.1\r\n\r\n\x16\x03\x01", 100).await;
    let why = Malformed::NoHttp.told();
    let length = why.len();
    let told = format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{why}");
    assert_eq!(nonsense, ok("content-length: 3\r\n", "/a:") + &told);
}

#[tokio::test]
async fn who_says_nothing_is_left() {
    for said in ["", "GET /a HTT", "GET /a HTTP/1.1\r\n\r\n", "GET /a HTTP/1.1\r\n\r\nGET"] {
        let mut client = client(Duration::from_millis(200)).await;
        client.write_all(said.as_bytes()).await.unwrap();
        let mut heard = String::new();
        let read = tokio::time::timeout(Duration::from_secs(10), client.read_to_string(&mut heard));
        read.await.expect("it is left in time").unwrap();
        assert_eq!(heard.starts_with("HTTP/1.1 200 OK"), said.contains("\r\n\r\n"), "{said}: {heard}");
    }
}

/// A task that did so much at once is made to pause, and what it waits for is not told of it then. Whenever that
/// happens, a client that says nothing more is left.
#[tokio::test]
async fn who_asks_much_at_once_and_then_says_nothing_is_left() {
    let mut all = tokio::task::JoinSet::new();
    for number in 110..140 {
        all.spawn(async move {
            // So many come with the first read, which the next is cut by.
            let bytes = 4_091;
            let mut said = String::new();
            for left in (1..=number).rev() {
                let length = (bytes - said.len()) / left;
                said += &format!("GET /{:x<1$} HTTP/1.1\r\n\r\n", "", length - 18);
            }
            said += "GET /a HTTP/1.1\r\n\r\nGET";
            let mut client = client_saying(&said, Duration::from_millis(200), Drain::new()).await;
            let mut heard = String::new();
            let read = tokio::time::timeout(Duration::from_secs(10), client.read_to_string(&mut heard)).await;
            (number, heard.matches("HTTP/1.1 200 OK").count(), read.is_err())
        });
    }
    for (number, answers, is_kept) in all.join_all().await {
        assert_eq!((answers, is_kept), (number + 1, false), "{number}");
    }
}

#[tokio::test]
async fn what_was_answered_last_arrives_whole_whatever_else_was_asked() {
    for (line, phase) in [("Connection: close\r\n", Phase::Serving), ("", Phase::Leaving)] {
        let drain = Drain::new();
        drain.enter(phase);
        let said = format!("GET /long HTTP/1.1\r\n{line}\r\n") + &"GET /never HTTP/1.1\r\n\r\n".repeat(1_000);
        let mut client = client_saying(&said, Duration::from_secs(10), drain).await;
        let mut heard = String::new();
        let read = client.read_to_string(&mut heard).await;
        let expected = ok(&format!("content-length: {LONG}\r\nconnection: close\r\n"), &"x".repeat(LONG));
        assert!(read.is_ok() && undated(&heard) == expected, "{phase:?}: {read:?}, {} bytes", heard.len());
    }
}
