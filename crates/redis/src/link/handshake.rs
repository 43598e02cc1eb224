//! From nothing to a connection that can be asked: stream, login, database, role, script. Never on the path of a
//! caller.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::address::{Endpoint, Login, Password, TlsFiles};
use super::names::Names;
use super::resp::{Scan, Value, command, value};
use super::stream::{Stream, open};
use super::unavailable::{Refusal, quoted};

/// The most bytes of a password file.
const MOST_PASSWORD: usize = 4096;

/// What is needed to be let in.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) login: Login,
    pub(super) database: u32,
    pub(super) tls: Option<TlsFiles>,
    pub(super) names: Arc<Names>,
    /// For one attempt, from the lookup of the name to the last answer.
    pub(super) timeout: Duration,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoConnection {
    Io(io::Error),
    Refused(Refusal),
    /// It is no primary, and should be one. What it is.
    NotPrimary(Arc<str>),
    Other(String),
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "there is no connection: {error}"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::NotPrimary(role) => write!(f, "it is not the primary but `{role}`"),
            Self::Other(what) => f.write_str(what),
        }
    }
}

impl From<io::Error> for NoConnection {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connection that is logged in, for one question after the other.
pub(super) struct Connection {
    pub(super) stream: Box<dyn Stream>,
    pub(super) inbox: BytesMut,
    scan: Scan,
}

impl Connection {
    /// Connects to `endpoint` and logs in, within the time that `access` gives.
    pub(super) async fn open(endpoint: &Endpoint, access: &Access) -> Result<Self, NoConnection> {
        let password = password(&access.login.password).await?;
        let stream = open(endpoint, access.tls.as_ref(), &access.names, access.timeout / 2).await?;
        let mut connection = Self { stream, inbox: BytesMut::with_capacity(16 << 10), scan: Scan::default() };
        let database = access.database.to_string();
        let mut commands: Vec<Vec<&[u8]>> = Vec::new();
        if let Some(password) = &password {
            let user = access.login.user.as_deref().map(str::as_bytes);
            commands.push([Some(&b"AUTH"[..]), user, Some(password.as_bytes())].into_iter().flatten().collect());
        }
        if access.database != 0 {
            commands.push(vec![b"SELECT", database.as_bytes()]);
        }
        // So that what it says at once, such as that it is full or wants a password, is heard here.
        commands.push(vec![b"PING"]);
        for answer in connection.ask(&commands).await? {
            if let Value::Error(line) = answer {
                return Err(NoConnection::Refused(Refusal::read(&line)));
            }
        }
        Ok(connection)
    }

    /// Sends `commands` and waits for all answers.
    pub(super) async fn ask(&mut self, commands: &[Vec<&[u8]>]) -> Result<Vec<Value>, NoConnection> {
        let mut out = Vec::new();
        for words in commands {
            command(&mut out, words);
        }
        let sent = self.stream.write_all(&out).await;
        let flushed = self.stream.flush().await;
        let mut answers = Vec::with_capacity(commands.len());
        for _ in commands {
            match self.answer().await {
                // A server that is full says so and closes: that is better to know than that nothing could be sent.
                Ok(Value::Error(line)) if sent.is_err() || flushed.is_err() => {
                    return Err(NoConnection::Refused(Refusal::read(&line)));
                }
                Ok(answer) => answers.push(answer),
                Err(NoConnection::Io(_)) if let Some(Value::Error(line)) = answers.last() => {
                    return Err(NoConnection::Refused(Refusal::read(line)));
                }
                Err(error) => return Err(error),
            }
        }
        sent?;
        flushed?;
        Ok(answers)
    }

    /// The next answer.
    pub(super) async fn answer(&mut self) -> Result<Value, NoConnection> {
        loop {
            let nonsense = |why| NoConnection::Other(format!("it answered nonsense: {why}"));
            match self.scan.end(&self.inbox).map_err(nonsense)? {
                Some(length) => return value(&self.inbox.split_to(length)).map_err(nonsense),
                None if self.stream.read_buf(&mut self.inbox).await? == 0 => {
                    return Err(NoConnection::Io(io::ErrorKind::UnexpectedEof.into()));
                }
                None => {}
            }
        }
    }

    /// Loads the script and says what Redis calls it.
    pub(super) async fn load(&mut self, script: &str) -> Result<Arc<[u8]>, NoConnection> {
        match self.ask(&[vec![b"SCRIPT", b"LOAD", script.as_bytes()]]).await?.pop() {
            Some(Value::Bulk(sha)) if sha.len() == 40 && sha.iter().all(u8::is_ascii_hexdigit) => Ok(sha.into()),
            Some(Value::Error(line)) => Err(NoConnection::Refused(Refusal::read(&line))),
            _ => Err(NoConnection::Other("it answered nonsense to SCRIPT LOAD".to_owned())),
        }
    }

    /// Makes sure that this is a primary, and says whether it wants replicas before it writes.
    pub(super) async fn primary(&mut self) -> Result<bool, NoConnection> {
        let answers = self.ask(&[vec![b"ROLE"], vec![b"INFO", b"replication"]]).await?;
        match answers.first() {
            Some(Value::Error(line)) => return Err(NoConnection::Refused(Refusal::read(line))),
            Some(Value::Array(role)) => match role.first().and_then(Value::bytes) {
                Some(b"master") => {}
                Some(other) => return Err(NoConnection::NotPrimary(quoted(other))),
                None => return Err(NoConnection::Other("it answered nonsense to ROLE".to_owned())),
            },
            _ => return Err(NoConnection::Other("it answered nonsense to ROLE".to_owned())),
        }
        let information = answers.get(1).and_then(Value::text).unwrap_or_default();
        // Shown only where min-replicas-to-write is set.
        Ok(information.contains("min_slaves_good_slaves:"))
    }
}

async fn password(from: &Password) -> Result<Option<String>, NoConnection> {
    match from {
        Password::None => Ok(None),
        Password::Given(secret) => Ok(Some(secret.reveal().to_owned())),
        Password::File(path) => {
            let wrong = |what: &str| NoConnection::Other(format!("the password file {}: {what}", path.display()));
            let file = path.clone();
            let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(file)).await;
            let text = read.map_err(io::Error::other)?.map_err(|error| wrong(&error.to_string()))?;
            let text = text.trim();
            if text.is_empty() || text.len() > MOST_PASSWORD {
                return Err(wrong("it is empty or too long"));
            }
            Ok(Some(text.to_owned()))
        }
    }
}
