//! What clients may ask about the server: `INFO`, `COMMAND`, `CONFIG`, `TIME` and the line about a client.

use std::fmt::Write as _;
use std::net::IpAddr;

use tollgate::Clock as _;

use super::commands::{COMMANDS, Known, find};
use super::parse::Command;
use super::reply::Replies;
use super::session::Session;
use crate::serve::{Address, Peer};

/// What clients that look at the version may expect: commands on connect and errors are as in this one.
const LIKE_REDIS: &str = "7.2.0";

/// `INFO [section ...]`.
pub(super) fn info(session: &Session, command: Command<'_>, replies: &mut Replies<'_>) {
    let settings = &session.house.settings;
    let meter = session.meter();
    let port = match settings.resp {
        Address::Tcp(address) => address.port(),
        _ => 0,
    };
    let server = format!(
        "tollgate_version:{}\r\nredis_version:{LIKE_REDIS}\r\nredis_mode:standalone\r\nprocess_id:{}\r\ntcp_port:{port}\r\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id()
    );
    let clients = format!("connected_clients:{}\r\nmaxclients:{}\r\n", meter.connections(), settings.max_connections);
    let stats = format!("total_commands_processed:{}\r\ntotal_error_replies:{}\r\n", meter.requests(), meter.errors());
    let sections = [("Server", server), ("Clients", clients), ("Stats", stats)];
    let is_wanted = |name: &str| {
        let all = ["all", "default", "everything"];
        command.len() == 1
            || command.after(1).iter().any(|wanted| {
                let is = |word: &str| wanted.eq_ignore_ascii_case(word.as_bytes());
                is(name) || all.into_iter().any(is)
            })
    };
    let mut text = String::new();
    for (name, lines) in sections.iter().filter(|(name, _)| is_wanted(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "# {name}\r\n{lines}");
    }
    replies.text(&text);
}

/// The line that `CLIENT INFO` and `CLIENT LIST` show.
pub(super) fn of_client(session: &Session) -> String {
    let address = match session.peer {
        Peer::Address(IpAddr::V4(address)) => format!("{address}:0"),
        Peer::Address(IpAddr::V6(address)) => format!("[{address}]:0"),
        Peer::Local => "unix:0".to_owned(),
    };
    let [library, version] = session.library.each_ref().map(|text| String::from_utf8_lossy(text));
    format!(
        "id={} addr={address} name={} db=0 flags=N user=default resp={} lib-name={library} lib-ver={version}\n",
        session.number,
        String::from_utf8_lossy(&session.name),
        if session.is_resp3 { 3 } else { 2 },
    )
}

/// `COMMAND [COUNT | LIST | INFO name ... | DOCS name ...]`.
pub(super) fn command(command: Command<'_>, replies: &mut Replies<'_>) {
    let Some(word) = command.get(1) else { return describe_all(replies) };
    let named = command.after(2);
    match word.to_ascii_lowercase().as_slice() {
        b"count" => replies.count(COMMANDS.len() as u64),
        b"list" => {
            replies.array(COMMANDS.len());
            COMMANDS.iter().for_each(|known| replies.bulk(known.name));
        }
        b"info" if named.is_empty() => describe_all(replies),
        b"info" => {
            replies.array(named.len());
            for name in named.iter() {
                match find(name) {
                    Some(known) => describe(known, replies),
                    None => replies.null(),
                }
            }
        }
        b"docs" => {
            let documented: Vec<&Known> = match named.is_empty() {
                true => COMMANDS.iter().collect(),
                false => named.iter().filter_map(find).collect(),
            };
            replies.map(documented.len());
            for known in documented {
                document(known, replies);
            }
        }
        _ => {
            let shown = word.get(..128).unwrap_or(word);
            replies.error([b"ERR unknown subcommand '", shown, b"' of COMMAND"].concat());
        }
    }
}

fn describe_all(replies: &mut Replies<'_>) {
    replies.array(COMMANDS.len());
    COMMANDS.iter().for_each(|known| describe(known, replies));
}

/// The ten fields that Redis has.
fn describe(known: &Known, replies: &mut Replies<'_>) {
    let key = i64::from(known.has_key());
    replies.array(10);
    replies.bulk(known.name);
    replies.integer(known.arity());
    replies.set(known.flags().len());
    known.flags().iter().for_each(|flag| replies.simple(flag));
    for place in [key, key, key] {
        replies.integer(place);
    }
    // Categories and hints, where keys are, and commands within commands.
    replies.set(0);
    replies.set(0);
    replies.set(0);
    replies.array(0);
}

fn document(known: &Known, replies: &mut Replies<'_>) {
    replies.bulk(known.name);
    replies.map(3);
    replies.bulk("summary");
    replies.bulk(known.summary);
    replies.bulk("since");
    replies.bulk("1.0.0");
    replies.bulk("group");
    replies.bulk(known.group());
}

/// `CONFIG GET` finds nothing; nothing can be set.
pub(super) fn config(command: Command<'_>, replies: &mut Replies<'_>) {
    match command.get(1).unwrap_or_default().to_ascii_lowercase().as_slice() {
        b"get" if command.len() > 2 => replies.map(0),
        _ => replies.error("ERR settings are changed by arguments of the service, not by CONFIG"),
    }
}

pub(super) fn time(session: &Session, replies: &mut Replies<'_>) {
    let micros = session.gate().engine().clock().now().as_micros();
    replies.array(2);
    replies.bulk((micros / 1_000_000).to_string());
    replies.bulk((micros % 1_000_000).to_string());
}
