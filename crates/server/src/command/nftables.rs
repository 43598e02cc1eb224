//! `tollgate nftables`: rules that count by address, for the kernel to enforce before anybody reads a byte.
//!
//! A packet shows where it comes from and whether it opens a connection, and nothing of requests. So a limit on
//! requests becomes one on new connections, each of which carries a request at least: whoever opens more connections
//! than that is over the limit in any case, and the rest is for the gateway to see. It is made so loose that nothing is
//! dropped which the rule would let through. What cannot be said of packets is left out, by name and with the reason.

use std::fmt::Write as _;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tollgate::Micros;
use tollgate::rules::{
    Condition, Counted, Entry, KeyPattern, Limits, Mode, Network, OnLimit, Pattern, Rule, RuleLimit, Source, Unit,
};
use tollgate_core::{Algorithm, LeakyForm, Rate, Refill, Window};
use tollgate_rules::read_settings;

use super::load::{Loaded, load};
use crate::serve::{parse_network, parse_rate};
use crate::terminal::{self, ColorArg};

/// Print a ruleset for nftables that enforces rules by address in the kernel
///
/// Limits on requests become limits on new connections, which are refused before anything is read of them. Only what is
/// over a limit in any case is dropped, so that the gateway still decides about all the rest. Rules that nothing of a
/// packet tells about are named in comments, with the reason.
///
/// The ruleset has a set of offenders, which the gateway fills with --ban-after.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate nftables gateway.yaml --ports 80,443 > tollgate.nft
  nft -c -f tollgate.nft                       Look whether the kernel takes it
  nft -f tollgate.nft                          Put it in force, in place of the one before")]
pub(crate) struct NftablesArgs {
    /// Files, directories of files, or - for standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// The ports that the limits are for
    #[arg(long, value_name = "PORT", value_delimiter = ',', default_value = "8000")]
    ports: Vec<u16>,

    /// Addresses and networks that nothing is refused from, such as proxies
    #[arg(long, value_name = "NET", value_delimiter = ',', value_parser = parse_network)]
    except: Vec<Network>,

    /// The most connections of one address
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections_per_address: Option<u32>,

    /// How many connections an address may open, such as 20/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    connection_rate: Option<Rate>,

    #[command(flatten)]
    color: ColorArg,
}

pub(crate) fn run(args: &NftablesArgs, out: &mut impl Write, err: &mut impl Write) -> anyhow::Result<ExitCode> {
    let Loaded { rules, diagnostics, .. } = load(&args.paths);
    if diagnostics.has_errors() {
        writeln!(err, "{}", diagnostics.render(terminal::color_on_stderr(args.color.color)).trim_end())?;
        return Ok(ExitCode::FAILURE);
    }
    let rules: Vec<&Rule> = rules.rules().iter().map(tollgate::rules::CompiledRule::rule).collect();
    let trusted = trusted_proxies(diagnostics.sources());
    out.write_all(ruleset(args, &trusted, &rules).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// How many addresses are remembered for each limit; those beyond are not limited by the kernel.
const ADDRESSES: u32 = 65_536;
/// Whoever has one of these gets as much of IPv6.
const CUSTOMER: Width = Width { v4: 32, v6: 64 };

/// How many bits of an address are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Width {
    v4: u8,
    v6: u8,
}

/// A limit that packets can be told to hold to.
#[derive(Debug, PartialEq, Eq)]
struct Meter {
    width: Width,
    what: What,
    /// Whom it is not for.
    except: Vec<Network>,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    /// New connections.
    Rate { rate: Rate, burst: u64 },
    /// Connections at the same time.
    Count(u64),
}

/// The proxies that the gateway of these files trusts: they come for others, so nothing is refused from them.
fn trusted_proxies(sources: &[Source]) -> Vec<Network> {
    // What is wrong with settings is told when a gateway starts with them.
    let settings = sources.iter().filter_map(|source| read_settings(source, Some("settings")).ok()).flatten();
    let trusted = settings.filter(|setting| setting.name.replace('-', "_") == "trusted_proxies");
    let mut networks = Vec::new();
    for setting in trusted {
        let values = setting.values.iter().map(ToString::to_string);
        let texts = values.flat_map(|value| value.split(',').map(|text| text.trim().to_owned()).collect::<Vec<_>>());
        networks.extend(texts.filter_map(|text| parse_network(&text).ok()));
    }
    networks
}

fn ruleset(args: &NftablesArgs, trusted: &[Network], rules: &[&Rule]) -> String {
    let (mut sets, mut chain) = (String::new(), String::new());
    let mut number = 0;
    let mut add = |chain: &mut String, about: &str, meter: Result<Meter, String>| match meter {
        Err(why) => drop(writeln!(chain, "\t\t# not here: {about}: {why}")),
        Ok(meter) => {
            number += 1;
            let _ = writeln!(chain, "\t\t# {about}");
            meter.write(number, &mut sets, chain);
        }
    };
    let own = [
        args.max_connections_per_address.map(|most| ("connections of an address", What::Count(most.into()))),
        args.connection_rate.map(|rate| ("new connections of an address", What::Rate { rate, burst: rate.units })),
    ];
    for (about, what) in own.into_iter().flatten() {
        add(&mut chain, about, Ok(Meter { width: CUSTOMER, what, except: Vec::new() }));
    }
    for rule in rules {
        for (limit, meter) in meters(rule, rules) {
            add(&mut chain, &format!("{} {limit}", rule.name.escape_debug()), meter);
        }
    }
    let ports: Vec<String> = args.ports.iter().map(u16::to_string).collect();
    let mut except = String::new();
    let exempt: Vec<Network> = args.except.iter().chain(trusted).copied().collect();
    for (family, networks) in by_family(&exempt) {
        if !networks.is_empty() {
            let _ = writeln!(except, "\t\t{family} saddr {{ {} }} accept", networks.join(", "));
        }
    }
    format!(
        "#!/usr/sbin/nft -f\n\
         # Made by `tollgate nftables`. What is over a limit in any case is refused here; the gateway decides about the rest.\n\
         # Loading it again replaces it as a whole, offenders included.\n\n\
         table inet tollgate\ndelete table inet tollgate\n\n\
         table inet tollgate {{\n\
         \t# Filled by `tollgate gateway --ban-after`.\n\
         {}{}{sets}\n\
         \tchain limits {{\n{chain}\t}}\n\n\
         \tchain input {{\n\
         \t\ttype filter hook input priority filter - 10; policy accept;\n\
         \t\tiif \"lo\" accept\n{except}\
         \t\tip saddr @offenders drop\n\
         \t\tip6 saddr @offenders6 drop\n\
         \t\ttcp dport {{ {} }} ct state new jump limits\n\
         \t}}\n}}\n",
        offenders("offenders", "ipv4_addr"),
        offenders("offenders6", "ipv6_addr"),
        ports.join(", "),
    )
}

fn offenders(name: &str, kind: &str) -> String {
    format!("\tset {name} {{\n\t\ttype {kind}\n\t\tsize {ADDRESSES}\n\t\tflags interval, timeout\n\t}}\n")
}

/// Networks as each version of the protocol writes them.
fn by_family(networks: &[Network]) -> [(&'static str, Vec<String>); 2] {
    let is_inside = |(at, inner): (usize, &Network)| {
        let covers = |(other, outer): (usize, &Network)| {
            let is_before = outer.length() < inner.length() || (outer == inner && other < at);
            is_before && outer.contains(first_of(*inner))
        };
        networks.iter().enumerate().any(covers)
    };
    // One that is inside another adds nothing.
    let apart: Vec<String> =
        networks.iter().enumerate().filter(|one| !is_inside(*one)).map(|(_, network)| network.to_string()).collect();
    let of = |is_v4: bool| apart.iter().filter(|text| text.contains(':') != is_v4).cloned().collect();
    [("ip", of(true)), ("ip6", of(false))]
}

fn first_of(network: Network) -> IpAddr {
    let [bits @ .., _] = network.to_bytes();
    IpAddr::V6(Ipv6Addr::from(bits))
}

impl Meter {
    fn write(&self, number: u32, sets: &mut String, chain: &mut String) {
        let Width { v4, v6 } = self.width;
        let mask = |bits: u8, most: u8, mask: IpAddr| if bits < most { format!(" & {mask}") } else { String::new() };
        let v4_mask = IpAddr::V4(Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(v4)).unwrap_or(0)));
        let v6_mask = IpAddr::V6(Ipv6Addr::from_bits(u128::MAX.checked_shl(128 - u32::from(v6)).unwrap_or(0)));
        let families = [("ip", "ipv4_addr", mask(v4, 32, v4_mask)), ("ip6", "ipv6_addr", mask(v6, 128, v6_mask))];
        for ((family, kind, mask), (_, except)) in families.into_iter().zip(by_family(&self.except)) {
            let name = format!("limit{number}_{family}");
            let unless = match &*except {
                [] => String::new(),
                networks => format!("{family} saddr != {{ {} }} ", networks.join(", ")),
            };
            let (flags, statement) = match self.what {
                What::Rate { rate, burst } => {
                    let (units, per) = per_unit(rate);
                    // Only one that has refilled is forgotten.
                    let refill =
                        u128::from(rate.period.as_micros()) * u128::from(burst) / u128::from(rate.units.max(1));
                    let seconds = refill.div_ceil(1_000_000).clamp(60, 604_800);
                    let limit = format!("limit rate over {units}/{per} burst {burst} packets");
                    let statement = format!("update @{name} {{ {family} saddr{mask} {limit} }} drop");
                    (format!("flags dynamic, timeout\n\t\ttimeout {seconds}s"), statement)
                }
                What::Count(most) => {
                    let statement = format!("add @{name} {{ {family} saddr{mask} ct count over {most} }}");
                    ("flags dynamic".to_owned(), format!("{statement} reject with tcp reset"))
                }
            };
            let _ = writeln!(sets, "\tset {name} {{\n\t\ttype {kind}\n\t\tsize {ADDRESSES}\n\t\t{flags}\n\t}}");
            let _ = writeln!(chain, "\t\t{unless}{statement}");
        }
    }
}

/// A rate in a unit that nftables knows: exactly if one does it, else a little above.
fn per_unit(rate: Rate) -> (u64, &'static str) {
    const UNITS: [(&str, u64); 5] =
        [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400), ("week", 604_800)];
    let amount = |seconds: u64| u128::from(rate.units) * u128::from(seconds) * 1_000_000;
    let period = u128::from(rate.period.as_micros().max(1));
    let exact = UNITS.iter().find(|(_, seconds)| amount(*seconds) % period == 0 && amount(*seconds) >= period);
    let (name, seconds) = exact.unwrap_or(&UNITS[4]);
    (u64::try_from(amount(*seconds).div_ceil(period)).unwrap_or(u64::MAX).max(1), name)
}

/// The limits of a rule as people wrote them, each as one for packets, or why there is none.
fn meters(rule: &Rule, all: &[&Rule]) -> Vec<(String, Result<Meter, String>)> {
    let reach = reach(rule, all);
    let meter = |what: Result<What, String>| {
        let ((width, except), what) = (reach.clone()?, what?);
        Ok(Meter { width, what, except })
    };
    match &rule.limits {
        Limits::None => vec![("unlimited".to_owned(), Err("it limits nothing".to_owned()))],
        Limits::Own(limits) => limits.iter().map(|limit| (limit.text.to_string(), meter(what(limit)))).collect(),
        Limits::Lyft(limit) => match &limit.rate {
            None => vec![("unlimited".to_owned(), Err("it limits nothing".to_owned()))],
            Some(rate) => {
                let (units, period) = (u64::from(rate.requests_per_unit), rate.unit.length());
                let text = format!("{units}/{}", rate.unit.name());
                vec![(text, meter(window(units, period)))]
            }
        },
    }
}

/// Whom a rule is for, if packets show it: how many bits of their addresses count, and which are exempt.
fn reach(rule: &Rule, all: &[&Rule]) -> Result<(Width, Vec<Network>), String> {
    if rule.mode != Mode::Enforce || rule.quota_mode {
        return Err("it denies nothing by itself".to_owned());
    }
    let mut width = None;
    for entry in &rule.entries {
        match (&entry.key, &entry.value, entry.counted) {
            (KeyPattern::Exact(key), Pattern::Any, Counted::ByValue) if &**key == "ip" => {
                width = Some(Width { v4: 32, v6: 128 });
            }
            (KeyPattern::Exact(key), Pattern::Any, Counted::ByNetwork { v4: v4 @ 1.., v6: v6 @ 1.. })
                if &**key == "ip" =>
            {
                width = Some(Width { v4, v6 });
            }
            (KeyPattern::Exact(key), ..) if &**key == "ip" => {
                return Err("it is not for every address by itself".to_owned());
            }
            (KeyPattern::Exact(key), ..) => return Err(format!("packets do not show its `{}`", key.escape_debug())),
            _ => return Err("packets do not show what it asks for".to_owned()),
        }
    }
    let width = width.ok_or("it does not count by `ip`")?;
    let mut except = Vec::new();
    for group in rule.exceptions() {
        let networks = match &**group {
            [Condition { key, value }] if &**key == "ip" => networks_of(value),
            _ => None,
        };
        except.extend(networks.ok_or("packets do not show what is exempt from it")?);
    }
    // Rules for some addresses take the place of those for any.
    for other in all.iter().filter(|other| other.domain == rule.domain && !other.is_beside()) {
        if let [Entry { key: KeyPattern::Exact(key), value, .. }] = &*other.entries
            && &**key == "ip"
            && *value != Pattern::Any
        {
            except.extend(networks_of(value).ok_or("another rule takes some of its addresses")?);
        }
    }
    Ok((width, except))
}

/// The addresses of a pattern, if it is made of such.
fn networks_of(pattern: &Pattern) -> Option<Vec<Network>> {
    match pattern {
        Pattern::Networks(networks) => Some(networks.to_vec()),
        // What is no address is none of a packet's.
        Pattern::Exact(text) => Some(Network::parse(text).into_iter().collect()),
        Pattern::OneOf(texts) => Some(texts.iter().filter_map(|text| Network::parse(text)).collect()),
        Pattern::AnyOf(patterns) => {
            let each: Option<Vec<_>> = patterns.iter().map(networks_of).collect();
            each.map(|each| each.concat())
        }
        Pattern::Any | Pattern::Glob(_) | Pattern::Not(_) => None,
    }
}

fn what(limit: &RuleLimit) -> Result<What, String> {
    let is_connections = matches!(&limit.unit, Unit::Named(name) if &**name == "connections");
    if let (Unit::Named(name), false) = (&limit.unit, is_connections) {
        return Err(format!("it counts {}", name.escape_debug()));
    }
    if !matches!(limit.on_limit, OnLimit::Reject | OnLimit::RejectSlowly(_)) {
        return Err("what is over it waits".to_owned());
    }
    if limit.limit.softness().is_some() {
        return Err("it may be exceeded for a while".to_owned());
    }
    Ok(match limit.limit.algorithm() {
        Algorithm::TokenBucket(bucket) => {
            let at_once = if bucket.refill == Refill::Interval { bucket.rate.units } else { 0 };
            let burst = bucket.capacity.saturating_add(bucket.loan).saturating_add(at_once);
            return rate(bucket.rate, burst);
        }
        Algorithm::LeakyBucket(bucket) => {
            let burst = match bucket.form {
                LeakyForm::Queue { length, .. } => length.saturating_add(1),
                LeakyForm::Meter { capacity } => capacity,
            };
            return rate(bucket.rate, burst);
        }
        Algorithm::SlidingLog(log) => return rate(Rate::new(log.limit, log.window), log.limit),
        Algorithm::SlidingCounter(counter) => return window(counter.limit, counter.window),
        Algorithm::FixedWindow(fixed) => return window(fixed.limit, length(&fixed.window)?),
        Algorithm::Pacing(pacing) => return window(pacing.budget, length(&pacing.window)?),
        Algorithm::Concurrency(slots) if is_connections => What::Count(slots.slots),
        Algorithm::Concurrency(_) => {
            return Err(
                "it counts requests, and a connection may wait for the next one; see --max-connections-per-address"
                    .to_owned(),
            );
        }
    })
}

fn length(window: &Window) -> Result<Micros, String> {
    match window {
        Window::Clock { length, .. } | Window::FirstEvent { length } => Ok(*length),
        Window::Calendar(_) => Err("the kernel has no calendar".to_owned()),
    }
}

/// Where one window ends and the next begins, what both allow may come together.
fn window(units: u64, period: Micros) -> Result<What, String> {
    rate(Rate::new(units, period), units.saturating_mul(2))
}

fn rate(rate: Rate, burst: u64) -> Result<What, String> {
    match (rate.units, u32::try_from(burst)) {
        (0, _) => Err("it lets nothing through".to_owned()),
        (_, Ok(burst)) => Ok(What::Rate { rate, burst: u64::from(burst.max(1)) }),
        (_, Err(_)) => Err("it is larger than the kernel counts".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact_where_a_unit_does_it_and_never_below() {
        for (units, seconds, expected) in [
            (100, 1, (100, "second")),
            (5, 60, (5, "minute")),
            (300, 3 * 3_600, (100, "hour")),
            (5, 3 * 3_600, (40, "day")),
            (1, 86_400, (1, "day")),
            (120, 60, (2, "second")),
            (7, 780, (5_428, "week")),
            (1, 30 * 86_400, (1, "week")),
        ] {
            assert_eq!(per_unit(Rate::new(units, Micros::from_secs(seconds))), expected, "{units} in {seconds} s");
        }
        assert_eq!(per_unit(Rate::new(1, Micros::from_millis(100))), (10, "second"));
    }

    #[test]
    fn networks_that_are_in_others_are_left_out() {
        let networks = ["10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8", "2001:db8::/32", "2001:db8:1::/48", "10.0.0.0/7"];
        let networks = networks.map(|text| Network::parse(text).unwrap());
        let [(_, v4), (_, v6)] = by_family(&networks);
        assert_eq!((v4, v6), (vec!["10.0.0.0/7".to_owned()], vec!["2001:db8::/32".to_owned()]));
        let [(_, v4), _] = by_family(&networks[..3]);
        assert_eq!(v4, ["10.0.0.0/8"]);
    }
}
