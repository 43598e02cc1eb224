//! `tollgate inspect`: what is stored in Redis, in words.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use tollgate::Presence;
use tollgate_redis::link::{self, RedisLink};
use tollgate_redis::{Stored, Visitor, counted_by, inspect, visiting_script};
use tollgate_rules::{Limits, Network, RuleSet, Value, parse_address};

use super::load::load;
use crate::terminal::{self, ColorArg};

/// How long to wait for Redis: somebody is looking.
const PATIENCE: Duration = Duration::from_secs(5);

/// Show what is stored in Redis, in words
///
/// Each key is told with the algorithm that it belongs to, the values it is counted by, its state, and for how long it
/// is kept. Nothing is changed. With the rules at hand, keys are told by the names of their rules.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate inspect --store redis://127.0.0.1
  tollgate inspect --store redis://127.0.0.1 --rules rules.yaml --for alice
  tollgate inspect --store redis://127.0.0.1 '\"tg1:{2d1}:\\x8a...\"'     A key as redis-cli prints it")]
pub(crate) struct InspectArgs {
    /// Keys to show, as redis-cli prints them. None: whatever is there
    #[arg(value_name = "KEY")]
    keys: Vec<String>,

    /// Where Redis is
    #[arg(long, value_name = "URL", env = "TOLLGATE_STORE", hide_env_values = true)]
    store: String,

    /// Files or directories of rules, to call limits by their names
    #[arg(long, value_name = "PATH", env = "TOLLGATE_RULES", value_delimiter = ',')]
    rules: Vec<PathBuf>,

    /// Only what is counted by this value, such as a user, an address or a network
    #[arg(long = "for", value_name = "VALUE", conflicts_with = "keys")]
    value: Option<String>,

    /// How many keys to show
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "keys")]
    most: usize,

    #[command(flatten)]
    color: ColorArg,
}

pub(crate) fn run(args: &InspectArgs, out: &mut impl Write, err: &mut impl Write) -> anyhow::Result<ExitCode> {
    if args.store == "memory" {
        bail!("--store memory: only what servers keep in Redis can be shown");
    }
    let keys: Vec<Vec<u8>> = args.keys.iter().map(|key| unquoted(key)).collect::<Result<_, _>>()?;
    let loaded = load(&args.rules);
    if loaded.diagnostics.has_errors() {
        writeln!(err, "{}\n", loaded.diagnostics.render(terminal::color_on_stderr(args.color.color)))?;
        return Ok(ExitCode::FAILURE);
    }
    let names = names(&loaded.rules);
    // What is wrong is said without the text, which may hold a password.
    let address: link::Address = args.store.parse().map_err(|wrong| anyhow::anyhow!("--store: {wrong}"))?;
    let settings = link::Settings { deadline: PATIENCE, ..link::Settings::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let visitor = Visitor::new(RedisLink::open(address, visiting_script(), settings)?);
    runtime.block_on(async {
        wait_for(visitor.link()).await?;
        let is_wanted = |key: &[u8]| match &args.value {
            Some(value) => counted_by(key).is_some_and(|(_, values)| values.iter().any(|one| is_for(value, one))),
            None => true,
        };
        let (keys, is_scan) = match keys {
            keys if keys.is_empty() => (visitor.keys(args.most.saturating_add(1), is_wanted).await?, true),
            keys => (keys, false),
        };
        let (bold, plain) = if terminal::color_on_stdout(args.color.color) { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let shown = if is_scan { args.most.min(keys.len()) } else { keys.len() };
        for key in keys.iter().take(shown) {
            writeln!(out, "{bold}\"{}\"{plain}", key.escape_ascii())?;
            if let Some(name) = counted_by(key).and_then(|(limit, _)| names.get(&limit)) {
                writeln!(out, "  {name}")?;
            }
            show(&visitor.read(key).await?, key, out)?;
        }
        out.flush()?;
        match (is_scan, keys.len()) {
            (true, 0) => writeln!(err, "There is nothing of tollgate's.")?,
            (true, found) if found > shown => writeln!(err, "There are more; --most N shows more.")?,
            _ => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Whether what is counted by `counted` concerns `wanted`: the same text, the same network, or the network that an
/// address is in.
fn is_for(wanted: &str, counted: &[u8]) -> bool {
    match Value::network_in(counted) {
        Some(network) => {
            let is_inside = parse_address(wanted).is_some_and(|address| network.contains(address));
            is_inside || Network::parse(wanted) == Some(network)
        }
        None => counted == wanted.as_bytes(),
    }
}

fn show(stored: &Stored, key: &[u8], out: &mut impl Write) -> anyhow::Result<()> {
    let value = match stored {
        Stored::Value(value, _) => Some(value.as_slice()),
        Stored::Nothing | Stored::Other(_) => None,
    };
    let words = inspect(key, value);
    let mut lines = words.lines();
    match stored {
        Stored::Other(kind) => {
            writeln!(out, "  {}", lines.next().unwrap_or_default())?;
            writeln!(out, "  not a value of tollgate's but a {kind}: it counts as nothing and will be overwritten")?;
        }
        _ => lines.try_for_each(|line| writeln!(out, "  {}", line.trim_start()))?,
    }
    match stored {
        Stored::Value(_, Some(left)) => writeln!(out, "  kept for {} more", roughly(*left))?,
        Stored::Value(_, None) => writeln!(out, "  kept for ever, which tollgate never asks for")?,
        Stored::Nothing | Stored::Other(_) => {}
    }
    Ok(())
}

/// A time in its two largest units.
fn roughly(millis: u64) -> String {
    let seconds = millis.div_ceil(1_000);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}min {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Waits until Redis can be asked, or says why it cannot.
async fn wait_for(link: &RedisLink) -> anyhow::Result<()> {
    let connected = async {
        while !link.is_serving() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, connected).await.is_err() {
        let health = link.health();
        let why = health.first().map(|health| format!("{}: {}", health.server, health.why));
        bail!("Redis cannot be asked: {}", why.unwrap_or_else(|| "nobody knows where it is".to_owned()));
    }
    Ok(())
}

/// What each limit is called: its rule and what it allows.
fn names(rules: &RuleSet) -> HashMap<u64, String> {
    let mut names = HashMap::from([(Presence::number(), "the servers that share this Redis".to_owned())]);
    for compiled in rules.rules() {
        let rule = compiled.rule();
        let texts: Vec<String> = match &rule.limits {
            Limits::None => Vec::new(),
            Limits::Own(limits) => limits.iter().map(|limit| limit.text.to_string()).collect(),
            Limits::Lyft(limit) => {
                limit.rate.iter().map(|rate| format!("{}/{}", rate.requests_per_unit, rate.unit.name())).collect()
            }
        };
        for (index, text) in texts.into_iter().enumerate() {
            names.insert(compiled.limit_id(index), format!("{}: {text}", rule.name));
        }
    }
    names
}

/// A key as redis-cli prints it, or as it is.
fn unquoted(text: &str) -> anyhow::Result<Vec<u8>> {
    let Some(quoted) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return Ok(text.as_bytes().to_vec());
    };
    let (mut key, mut rest) = (Vec::new(), quoted.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            key.push(byte);
            continue;
        }
        key.push(match rest.next() {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'a') => 7,
            Some(b'b') => 8,
            Some(b'x') => {
                let digits =
                    [rest.next(), rest.next()].map(|digit| digit.and_then(|digit| (digit as char).to_digit(16)));
                match digits {
                    [Some(high), Some(low)] => (high * 16 + low) as u8,
                    _ => bail!("{text}: behind \\x there have to be two digits"),
                }
            }
            Some(other) => other,
            None => bail!("{text}: it ends with a backslash"),
        });
    }
    Ok(key)
}
