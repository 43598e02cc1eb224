//! What clients send when they connect: which version they speak, the password, and who they are. Errors are worded as
//! in Redis.

use super::info;
use super::parse::Command;
use super::reply::Replies;
use super::session::{Session, Speech};

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

pub(super) fn ping(command: Command<'_>, replies: &mut Replies<'_>) {
    match (command.get(1), command.len()) {
        (None, _) => replies.simple("PONG"),
        (Some(message), 2) => replies.bulk(message),
        _ => replies.error("ERR wrong number of arguments for 'ping' command"),
    }
}

pub(super) fn select(command: Command<'_>, replies: &mut Replies<'_>) {
    match number(command.get(1).unwrap_or_default()) {
        Some(0) => replies.simple("OK"),
        Some(_) => replies.error("ERR DB index is out of range"),
        None => replies.error("ERR value is not an integer or out of range"),
    }
}

pub(super) fn auth(session: &mut Session, command: Command<'_>, replies: &mut Replies<'_>) {
    let (user, password) = match (command.get(1), command.get(2), command.len()) {
        (Some(password), None, _) => (None, password),
        (Some(user), Some(password), 3) => (Some(user), password),
        _ => return replies.error("ERR syntax error"),
    };
    if user.is_none() && session.house.settings.resp_password.is_none() {
        return replies.error(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
        );
    }
    match session.hear_password(user, password) {
        true => replies.simple("OK"),
        false => replies.error(WRONG_PASSWORD),
    }
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`: nothing is changed if any of it is wrong.
pub(super) fn hello(session: &mut Session, command: Command<'_>, out: &mut Vec<u8>) {
    let mut replies = Replies::new(out, session.is_resp3);
    let mut is_resp3 = session.is_resp3;
    if let Some(version) = command.get(1) {
        is_resp3 = match number(version) {
            Some(2) => false,
            Some(3) => true,
            Some(_) => return replies.error("NOPROTO unsupported protocol version"),
            None => return replies.error("ERR Protocol version is not an integer or out of range"),
        };
    }
    let mut name = None;
    let mut credentials = None;
    let mut rest = command.after(2);
    while let Some(option) = rest.get(0) {
        if let (true, Some(user), Some(password)) = (option.eq_ignore_ascii_case(b"auth"), rest.get(1), rest.get(2)) {
            credentials = Some((user, password));
            rest = rest.after(3);
        } else if let (true, Some(given)) = (option.eq_ignore_ascii_case(b"setname"), rest.get(1)) {
            if !is_name(given) {
                return replies.error(BAD_NAME);
            }
            name = Some(given);
            rest = rest.after(2);
        } else {
            return replies.error([b"ERR Syntax error in HELLO option '", option, b"'"].concat());
        }
    }
    if let Some((user, password)) = credentials
        && !session.hear_password(Some(user), password)
    {
        return replies.error(WRONG_PASSWORD);
    }
    if !session.is_trusted() {
        return replies.error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        );
    }
    session.is_resp3 = is_resp3;
    if let Some(name) = name {
        session.name = name.to_vec();
    }
    let mut replies = Replies::new(out, is_resp3);
    replies.map(7);
    replies.bulk("server");
    replies.bulk("tollgate");
    replies.bulk("version");
    replies.bulk(env!("CARGO_PKG_VERSION"));
    replies.bulk("proto");
    replies.integer(if is_resp3 { 3 } else { 2 });
    replies.bulk("id");
    replies.count(session.number);
    replies.bulk("mode");
    replies.bulk("standalone");
    replies.bulk("role");
    replies.bulk("master");
    replies.bulk("modules");
    replies.array(0);
}

const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

/// The longest name of a client or its library.
const MOST_NAME: usize = 256;

fn is_name(name: &[u8]) -> bool {
    name.len() <= MOST_NAME && name.iter().all(u8::is_ascii_graphic)
}

pub(super) fn client(session: &mut Session, command: Command<'_>, replies: &mut Replies<'_>) {
    let word = command.get(1).unwrap_or_default();
    let lower = word.to_ascii_lowercase();
    let argument = command.get(2).unwrap_or_default();
    match (lower.as_slice(), command.len()) {
        (b"setname", 3) if !is_name(argument) => replies.error(BAD_NAME),
        (b"setname", 3) => {
            session.name = argument.to_vec();
            replies.simple("OK");
        }
        (b"getname", 2) if session.name.is_empty() => replies.null(),
        (b"getname", 2) => replies.bulk(&session.name),
        (b"id", 2) => replies.count(session.number),
        (b"setinfo", 4) => set_info(session, argument, command.get(3).unwrap_or_default(), replies),
        (b"info", 2) => replies.text(&info::of_client(session)),
        // Of others nobody needs to know.
        (b"list", _) => replies.text(&info::of_client(session)),
        (b"no-evict" | b"no-touch", 3) if is_one_of(argument, &["on", "off"]) => replies.simple("OK"),
        (b"reply", 3) if is_one_of(argument, &["on", "off", "skip"]) => reply(session, argument, replies),
        (b"no-evict" | b"no-touch" | b"reply", 3) => replies.error("ERR syntax error"),
        (b"setname" | b"getname" | b"id" | b"setinfo" | b"info" | b"no-evict" | b"no-touch" | b"reply", _) => {
            let name = String::from_utf8_lossy(&lower);
            replies.error(format!("ERR wrong number of arguments for 'client|{name}' command"));
        }
        _ => {
            let shown = word.get(..128).unwrap_or(word);
            replies.error([b"ERR unknown subcommand '", shown, b"' of CLIENT"].concat());
        }
    }
}

fn set_info(session: &mut Session, option: &[u8], value: &[u8], replies: &mut Replies<'_>) {
    let place = match option.to_ascii_lowercase().as_slice() {
        b"lib-name" => 0,
        b"lib-ver" => 1,
        _ => {
            let shown = option.get(..128).unwrap_or(option);
            return replies.error([b"ERR Unrecognized option '", shown, b"'"].concat());
        }
    };
    if !is_name(value) {
        let name = if place == 0 { "lib-name" } else { "lib-ver" };
        return replies.error(format!("ERR {name} cannot contain spaces, newlines or special characters."));
    }
    if let Some(place) = session.library.get_mut(place) {
        *place = value.to_vec();
    }
    replies.simple("OK");
}

fn reply(session: &mut Session, argument: &[u8], replies: &mut Replies<'_>) {
    session.speech = match argument.to_ascii_lowercase().as_slice() {
        b"on" => {
            replies.simple("OK");
            Speech::Always
        }
        b"off" => Speech::Never,
        _ if session.speech == Speech::Never => Speech::Never,
        _ => Speech::SkipNext,
    };
}

fn is_one_of(argument: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| argument.eq_ignore_ascii_case(word.as_bytes()))
}

fn number(argument: &[u8]) -> Option<i64> {
    std::str::from_utf8(argument).ok()?.parse().ok()
}
