//! The commands that are known: their names, how many arguments they take, and what clients are told about them.

use crate::gate::Ask;

/// What a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Throttle,
    Ping,
    Echo,
    Hello,
    Auth,
    Client,
    Select,
    Command,
    Info,
    Config,
    Time,
    Quit,
    Reset,
    Multi,
    Exec,
    Discard,
    Question(Verb),
    Settle { keep: bool },
    Help,
}

/// What is asked of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Ask(Ask),
    /// The time is in the question.
    Refund,
    /// For so long as the first argument says.
    Reserve,
    Explain,
}

/// A command that is known.
#[derive(Debug)]
pub(super) struct Known {
    /// In small letters.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// How many arguments with the name: exactly, or at least if negative.
    arity: i64,
    pub(super) summary: &'static str,
    /// How it is written, for `TG.HELP`.
    pub(super) usage: &'static str,
}

const fn known(name: &'static str, kind: Kind, arity: i64, summary: &'static str) -> Known {
    Known { name, kind, arity, summary, usage: "" }
}

const fn own(name: &'static str, kind: Kind, arity: i64, usage: &'static str, summary: &'static str) -> Known {
    Known { name, kind, arity, summary, usage }
}

/// All of them; those that are asked for most come first.
pub(super) static COMMANDS: [Known; 27] = [
    own(
        "cl.throttle",
        Kind::Throttle,
        -1,
        "CL.THROTTLE key max_burst count period [quantity]",
        "Asks and charges under a limit that comes with the question, as redis-cell does",
    ),
    own(
        "tg.check",
        Kind::Question(Verb::Ask(Ask::Spend)),
        -2,
        "TG.CHECK [option ...] FOR key value [key value ...]",
        "Asks the rules, and charges if they allow it",
    ),
    known("ping", Kind::Ping, -1, "Answers PONG, or the argument"),
    own(
        "tg.peek",
        Kind::Question(Verb::Ask(Ask::Peek)),
        -2,
        "TG.PEEK [option ...] FOR key value [key value ...]",
        "Asks the rules without charging",
    ),
    own(
        "tg.force",
        Kind::Question(Verb::Ask(Ask::Force)),
        -2,
        "TG.FORCE [option ...] FOR key value [key value ...]",
        "Charges in any case, for costs that are known only afterwards",
    ),
    own(
        "tg.refund",
        Kind::Question(Verb::Refund),
        -2,
        "TG.REFUND [AT microseconds] [option ...] FOR key value [key value ...]",
        "Gives back what was charged at that time, or now",
    ),
    own(
        "tg.reserve",
        Kind::Question(Verb::Reserve),
        -3,
        "TG.RESERVE hold_ms [option ...] FOR key value [key value ...]",
        "Charges until it is committed or cancelled, at most for that time",
    ),
    own(
        "tg.commit",
        Kind::Settle { keep: true },
        -2,
        "TG.COMMIT reservation [actual ...]",
        "Keeps what was reserved, or what was needed after all; 0 if there is no such reservation",
    ),
    own(
        "tg.cancel",
        Kind::Settle { keep: false },
        2,
        "TG.CANCEL reservation",
        "Gives back what was reserved; 0 if there is no such reservation",
    ),
    own(
        "tg.renew",
        Kind::Question(Verb::Ask(Ask::Renew)),
        -2,
        "TG.RENEW LEASE number [option ...] FOR key value [key value ...]",
        "Holds the slots of a lease longer",
    ),
    own(
        "tg.release",
        Kind::Question(Verb::Ask(Ask::Release)),
        -2,
        "TG.RELEASE LEASE number [option ...] FOR key value [key value ...]",
        "Gives the slots of a lease back",
    ),
    own(
        "tg.explain",
        Kind::Question(Verb::Explain),
        -2,
        "TG.EXPLAIN [option ...] FOR key value [key value ...]",
        "Says which rules apply, and why others do not",
    ),
    own("tg.help", Kind::Help, -1, "TG.HELP", "Shows this"),
    known("hello", Kind::Hello, -1, "Chooses the version of the protocol"),
    known("auth", Kind::Auth, -2, "Says the password"),
    known("client", Kind::Client, -2, "Names the connection and tells about it"),
    known("select", Kind::Select, 2, "Accepts database 0"),
    known("echo", Kind::Echo, 2, "Answers its argument"),
    known("command", Kind::Command, -1, "Lists the commands"),
    known("info", Kind::Info, -1, "Tells about the server"),
    known("config", Kind::Config, -2, "Has nothing to tell: settings are arguments of the service"),
    known("time", Kind::Time, 1, "Tells the time that decisions are made by"),
    known("reset", Kind::Reset, 1, "Makes the connection as good as new"),
    known("multi", Kind::Multi, 1, "Keeps the commands that follow until EXEC"),
    known("exec", Kind::Exec, 1, "Answers the commands since MULTI, in order"),
    known("discard", Kind::Discard, 1, "Forgets the commands since MULTI"),
    known("quit", Kind::Quit, -1, "Closes the connection"),
];

/// What `TG.HELP` says beside the commands.
pub(super) const OPTIONS: [&str; 10] = [
    "Options, before FOR:",
    "    DOMAIN name      whose rules are asked; needed if the rules have several domains",
    "    COST number      what it costs in requests (1)",
    "    UNIT name number what it costs in another unit; may be repeated",
    "    LEASE number     whose slots it takes, for limits on concurrency",
    "Instead of FOR, one or more times, as Envoy asks:",
    "    DESCRIPTOR number key value [key value ...]   so many keys, each with its value",
    "Replies are maps: allowed (1 or 0), rule, limit, remaining, retry_after_ms (-1: never), reset_after_ms, delay_ms,",
    "    at_us (when it was charged, for TG.REFUND AT); reservation for TG.RESERVE; descriptors for descriptors.",
    "Names of commands and options may be written in small letters.",
];

impl Known {
    /// Whether a command of so many arguments, its name included, makes sense.
    pub(super) fn takes(&self, arguments: usize) -> bool {
        let given = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 { given >= -self.arity } else { given == self.arity }
    }

    pub(super) fn arity(&self) -> i64 {
        self.arity
    }

    /// Whether it may be asked before the password is said.
    pub(super) fn is_for_strangers(&self) -> bool {
        matches!(self.kind, Kind::Auth | Kind::Hello | Kind::Quit | Kind::Reset)
    }

    /// Whether `MULTI` may keep it for later. What is answered at length may not, since all replies are made before any
    /// is written.
    pub(super) fn is_for_transactions(&self) -> bool {
        !matches!(
            self.kind,
            Kind::Command | Kind::Info | Kind::Config | Kind::Help | Kind::Hello | Kind::Question(Verb::Explain)
        )
    }

    /// Whether it ends or begins what `MULTI` keeps.
    pub(super) fn bounds_transactions(&self) -> bool {
        matches!(self.kind, Kind::Multi | Kind::Exec | Kind::Discard | Kind::Reset | Kind::Quit)
    }

    pub(super) fn flags(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Throttle => &["write", "module"],
            Kind::Question(Verb::Explain | Verb::Ask(Ask::Peek)) | Kind::Help => &["readonly", "module"],
            Kind::Question(_) | Kind::Settle { .. } => &["write", "module"],
            _ if self.is_for_strangers() => &["noscript", "loading", "stale", "fast", "no_auth"],
            _ => &["loading", "stale", "fast"],
        }
    }

    /// Whether its first argument is a key.
    pub(super) fn has_key(&self) -> bool {
        self.kind == Kind::Throttle
    }

    pub(super) fn group(&self) -> &'static str {
        match self.kind {
            _ if !self.usage.is_empty() => "module",
            Kind::Ping
            | Kind::Echo
            | Kind::Hello
            | Kind::Auth
            | Kind::Client
            | Kind::Select
            | Kind::Quit
            | Kind::Reset => "connection",
            _ => "server",
        }
    }
}

#[inline]
pub(super) fn find(name: &[u8]) -> Option<&'static Known> {
    COMMANDS.iter().find(|known| known.name.as_bytes().eq_ignore_ascii_case(name))
}
