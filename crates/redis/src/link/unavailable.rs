//! Why there is no answer, in words: which server, what it said, and what to do about it.
//!
//! What a server said is quoted only by its first word and a bounded, escaped rest: it may be anything, and no key is
//! in it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::address::{Endpoint, endpoint};

/// The most bytes that are quoted of what a server said.
const QUOTED: usize = 160;

/// There is no answer. The rule's policy decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The server that was asked, as `host:port` or a path, or what stands for all of them.
    pub server: Arc<str>,
    /// What happened.
    pub why: Why,
}

/// What happened instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No answer came in this time. The request may have been carried out.
    Deadline(Duration),
    /// The connection was lost before the answer. The request may have been carried out.
    Lost(Arc<str>),
    /// Nothing was sent, since the server was found not to be usable, and why.
    Resting(Arc<str>),
    /// Nothing was sent, since too many requests wait already.
    Crowded,
    /// The server refused.
    Refused(Refusal),
    /// The server answered something that is no answer to what was asked. The request may have been carried out.
    Nonsense(Arc<str>),
    /// Nothing was sent, since no server is known for the keys.
    Homeless,
}

impl Unavailable {
    pub(super) fn new(server: &Arc<str>, why: Why) -> Self {
        Self { server: Arc::clone(server), why }
    }

    /// Whether the request may have been carried out all the same.
    pub fn may_have_run(&self) -> bool {
        match &self.why {
            Why::Deadline(_) | Why::Lost(_) | Why::Nonsense(_) => true,
            Why::Resting(_) | Why::Crowded | Why::Homeless => false,
            Why::Refused(refusal) => !refusal.word.proves_not_run(),
        }
    }

    /// A name for this kind, for metrics: one of few.
    pub fn kind(&self) -> &'static str {
        match &self.why {
            Why::Deadline(_) => "deadline",
            Why::Lost(_) => "lost",
            Why::Resting(_) => "resting",
            Why::Crowded => "crowded",
            Why::Refused(_) => "refused",
            Why::Nonsense(_) => "nonsense",
            Why::Homeless => "homeless",
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis at {}: {}", self.server, self.why)
    }
}

impl std::error::Error for Unavailable {}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(deadline) => write!(f, "no answer in {deadline:?}"),
            Self::Lost(how) => write!(f, "the connection was lost: {how}"),
            Self::Resting(why) => write!(f, "not asked for now: {why}"),
            Self::Crowded => f.write_str("too many requests wait for it"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Nonsense(what) => write!(f, "it answered nonsense: {what}"),
            Self::Homeless => f.write_str("no server is known for these keys"),
        }
    }
}

/// What follows is what was sent.
const WITH_ARGUMENTS: &[u8] = b", with args beginning with";

/// An error that a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its first word.
    pub word: Word,
    /// What it said, bounded and escaped.
    pub said: Arc<str>,
}

impl Refusal {
    pub(super) fn read(line: &[u8]) -> Self {
        let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        let word = WORDS
            .iter()
            .find(|(text, ..)| !text.is_empty() && text.as_bytes() == first)
            .map_or(Word::Other, |(_, word, _)| *word);
        let by_text = IN_OTHER_WORDS.iter().find(|(text, _)| line.starts_with(text.as_bytes()));
        let word = by_text.map_or(word, |(_, word)| *word);
        // Whoever does not know a command repeats what came with it, which may be a password.
        let repeated = line.windows(WITH_ARGUMENTS.len()).position(|part| part == WITH_ARGUMENTS);
        Self { word, said: quoted(repeated.and_then(|at| line.get(..at)).unwrap_or(line)) }
    }

    /// Where `MOVED` and `ASK` point to: a slot and a server. An empty host stands for the one that said so.
    pub(super) fn points_to(line: &[u8], said_by: &Endpoint) -> Option<(u16, Endpoint)> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split(' ').skip(1);
        let slot: u16 = words.next()?.parse().ok().filter(|slot| *slot < super::map::SLOTS)?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let host = match (host, said_by) {
            ("" | "?", Endpoint::Tcp(host, _)) => host,
            (host, _) => host.trim_start_matches('[').trim_end_matches(']'),
        };
        let text = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Some((slot, endpoint(&text, 0).ok()?))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it answered `{}`", self.said)?;
        match WORDS.iter().find(|(_, word, _)| *word == self.word) {
            Some((_, _, advice)) if !advice.is_empty() => write!(f, "; {advice}"),
            _ => Ok(()),
        }
    }
}

/// The first words of errors that mean something to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The script is not loaded.
    NoScript,
    /// The slot is at another server.
    Moved,
    /// The slot is on its way to another server, and these keys are there.
    Ask,
    /// The slot is on its way, and some of the keys are here.
    TryAgain,
    /// This is a replica.
    ReadOnly,
    /// It has just been started and reads its data.
    Loading,
    /// The Cluster does not serve this slot.
    ClusterDown,
    /// A replica that lost its primary.
    MasterDown,
    /// A script runs for too long.
    Busy,
    /// `maxmemory`.
    OutOfMemory,
    /// It cannot save to disk.
    Misconfigured,
    /// Too few replicas.
    NoReplicas,
    /// A login is needed.
    NoAuth,
    /// The login is wrong.
    WrongPass,
    /// The user may not do this.
    NoPermission,
    /// Keys of several slots.
    CrossSlot,
    /// `maxclients`.
    MaxClients,
    /// Any other.
    Other,
}

/// Errors that have no word of their own. A right that a command within a script lacks is told differently by each
/// version.
const IN_OTHER_WORDS: [(&str, Word); 3] = [
    ("ERR max number of clients", Word::MaxClients),
    ("ERR The user executing the script can't", Word::NoPermission),
    ("ERR ACL failure in script", Word::NoPermission),
];

/// The words as they are written, and what to do about them.
const WORDS: [(&str, Word, &str); 17] = [
    ("NOSCRIPT", Word::NoScript, ""),
    ("MOVED", Word::Moved, ""),
    ("ASK", Word::Ask, ""),
    ("TRYAGAIN", Word::TryAgain, ""),
    ("READONLY", Word::ReadOnly, "it is a replica: give the address of the primary, or of Sentinels"),
    ("LOADING", Word::Loading, "it will be asked again when it has read its data"),
    ("CLUSTERDOWN", Word::ClusterDown, "look at CLUSTER INFO: slots have no server, or no majority is left"),
    ("MASTERDOWN", Word::MasterDown, "it is a replica without its primary"),
    ("BUSY", Word::Busy, "somebody's script runs for too long: SCRIPT KILL ends it"),
    ("OOM", Word::OutOfMemory, "raise its maxmemory, or find out what else is stored there"),
    ("MISCONF", Word::Misconfigured, "it cannot save to disk and refuses to write: look at its log"),
    ("NOREPLICAS", Word::NoReplicas, "too few replicas are in step, see its min-replicas-to-write"),
    ("NOAUTH", Word::NoAuth, "it wants a password: give one in the address, or password_file"),
    ("WRONGPASS", Word::WrongPass, "user or password are wrong, or the user is off"),
    (
        "NOPERM",
        Word::NoPermission,
        "allow this user +evalsha +script|load +ping +role +info +cluster|nodes, what the script calls (+time +mget +exists +set \
         +setrange +del +pexpireat +lindex +llen +lset +ltrim +lpush +rpush), and our keys",
    ),
    ("CROSSSLOT", Word::CrossSlot, "it is a Cluster: write redis+cluster:// in the address"),
    ("", Word::MaxClients, "raise its maxclients, or find out who is connected"),
];

impl Word {
    /// Whether whoever answers this has not run the script, or not changed anything.
    pub fn proves_not_run(self) -> bool {
        // Anything else may come from the middle of the script, as does the lack of a right to one of the commands that
        // it calls.
        !matches!(self, Self::Other | Self::NoPermission)
    }
}

/// What can be shown of what somebody said: bounded, on one line, without anything that steers a terminal.
pub(super) fn quoted(bytes: &[u8]) -> Arc<str> {
    let shown = bytes.get(..QUOTED).unwrap_or(bytes);
    let mut text = shown.escape_ascii().to_string().replace("\\'", "'").replace("\\\"", "\"");
    if shown.len() < bytes.len() {
        text.push_str("...");
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_known_by_their_first_word() {
        let readonly = b"READONLY You can't write against a read only replica. script: 0a, on @user_script:1.";
        let refusal = Refusal::read(readonly);
        assert_eq!(refusal.word, Word::ReadOnly);
        assert!(refusal.to_string().contains("You can't write"), "{refusal}");
        assert!(refusal.to_string().ends_with("give the address of the primary, or of Sentinels"), "{refusal}");
        assert_eq!(Refusal::read(b"ERR max number of clients reached").word, Word::MaxClients);
        assert_eq!(Refusal::read(b"ERR anything").word, Word::Other);
        let in_script =
            b"ERR The user executing the script can't run this command or subcommand script: 0a, on @user_script:1.";
        assert_eq!(Refusal::read(in_script).word, Word::NoPermission);
        assert_eq!(Refusal::read(b"").word, Word::Other);
        assert_eq!(Refusal::read(b"READONLYX").word, Word::Other);
        for (text, word, _) in WORDS.iter().filter(|(text, ..)| !text.is_empty()) {
            assert_eq!(Refusal::read(text.as_bytes()).word, *word);
        }
    }

    #[test]
    fn what_was_sent_is_not_said() {
        let refusal = Refusal::read(b"ERR unknown command 'AUTH', with args beginning with: 'secret' ");
        assert_eq!(&*refusal.said, "ERR unknown command 'AUTH'");
    }

    #[test]
    fn what_was_said_is_bounded_and_escaped() {
        let refusal = Refusal::read(&[b"ERR \x1b[31m\n".as_slice(), &[b'x'; 1_000]].concat());
        assert!(refusal.said.starts_with("ERR \\x1b[31m\\nxxx"), "{}", refusal.said);
        assert!(refusal.said.ends_with("..."));
        assert!(refusal.said.len() < 4 * QUOTED);
    }

    #[test]
    fn redirections_say_where_to() {
        let here = Endpoint::Tcp("here".to_owned(), 1);
        let to = |line: &str| Refusal::points_to(line.as_bytes(), &here);
        let tcp = |host: &str, port| Endpoint::Tcp(host.to_owned(), port);
        assert_eq!(to("MOVED 6259 10.0.0.1:7001"), Some((6259, tcp("10.0.0.1", 7001))));
        assert_eq!(to("ASK 1 ::1:7001"), Some((1, tcp("::1", 7001))));
        assert_eq!(to("MOVED 1 :7001"), Some((1, tcp("here", 7001))));
        for nonsense in
            ["MOVED", "MOVED 1", "MOVED x a:1", "MOVED 16384 a:1", "MOVED 1 a", "MOVED 1 a:x", "MOVED 1 a:0"]
        {
            assert_eq!(to(nonsense), None, "{nonsense}");
        }
    }
}
