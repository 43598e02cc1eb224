//! What happens between nodes and one server.

use std::time::Duration;

use super::{Bench, CALM, ms};
use crate::chaos::Plan;
use crate::chaos::node::Maker;
use crate::chaos::record::{Excuse, History};
use crate::chaos::session::Session;
use crate::redis::{Fault, FaultProxy, Meaning, Name, RedisServer, free_port};

/// A server with a network in front of it, and nodes that see the one through the other.
struct Through<M: Maker> {
    server: RedisServer,
    proxy: FaultProxy,
    session: Session<M>,
}

impl<M: Maker> Through<M> {
    fn start(bench: &Bench<M>, plan: Plan) -> Self {
        let server = RedisServer::start(&[]);
        let proxy = FaultProxy::start(server.address());
        let session = bench.session_with(&[format!("redis://{}", proxy.address())], plan);
        Self { server, proxy, session }
    }

    fn harm(&mut self, what: &str, excuse: Excuse, fault: Fault, span: Duration) {
        let proxy = &self.proxy;
        self.session.fault(what, excuse, |session| {
            proxy.set(fault);
            session.rest(span);
            proxy.set(Fault::None);
        });
        self.session.rest(CALM);
    }

    fn finish(self) -> History {
        self.session.finish(&[&self.server])
    }
}

fn harmed<M: Maker>(bench: &Bench<M>, faults: Vec<(&str, Fault)>) -> History {
    let mut through = Through::start(bench, bench.plan.clone());
    for (what, fault) in faults {
        through.harm(what, Excuse::ALONE, fault, bench.fault);
    }
    through.finish()
}

pub(super) fn blackhole<M: Maker>(bench: &Bench<M>) -> History {
    harmed(bench, vec![("packets lost", Fault::Blackhole)])
}

pub(super) fn slow<M: Maker>(bench: &Bench<M>) -> History {
    let by = bench.plan.deadline * 10;
    let late = Fault::Delay { by, jitter: by / 5 };
    harmed(bench, vec![("slow", late), ("slow now and then", Fault::Hiccup { of_1000: 50, by: by * 4 })])
}

pub(super) fn answers_lost<M: Maker>(bench: &Bench<M>) -> History {
    harmed(bench, vec![("answers lost", Fault::CloseBeforeReply { every: 10 })])
}

pub(super) fn refusals<M: Maker>(bench: &Bench<M>) -> History {
    let lines = [
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots",
        "NOREPLICAS Not enough good replicas to write.",
        "READONLY You can't write against a read only replica.",
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair or user is disabled.",
        "NOPERM this user has no permissions",
        "ERR max number of clients reached",
        "EXECABORT Transaction discarded",
        "ERR something that nobody has heard of",
    ];
    let mut through = Through::start(bench, bench.plan.clone());
    for line in lines {
        let (proxy, said) = (&through.proxy, format!("-{line}\r\n").into_bytes());
        through.session.fault(line, Excuse::ALONE, |session| {
            proxy.set(Fault::Say(said));
            session.rest(ms(120));
            proxy.set(Fault::None);
        });
    }
    through.session.rest(CALM);
    through.finish()
}

pub(super) fn flapping<M: Maker>(bench: &Bench<M>) -> History {
    let mut through = Through::start(bench, bench.plan.clone());
    let proxy = &through.proxy;
    let turns = bench.fault.as_millis() / 200;
    through.session.fault("comes and goes", Excuse::ALONE, |session| {
        for _ in 0..turns {
            proxy.set(Fault::Reset);
            session.rest(ms(200));
            proxy.set(Fault::None);
            session.rest(ms(200));
        }
    });
    through.session.rest(CALM);
    through.finish()
}

pub(super) fn forgotten<M: Maker>(bench: &Bench<M>) -> History {
    let mut through = Through::start(bench, bench.plan.clone());
    let proxy = &through.proxy;
    through.session.fault("connections forgotten", Excuse::ALONE, |session| {
        proxy.forget_connections();
        session.rest(ms(300));
    });
    through.session.rest(CALM);
    through.finish()
}

/// Nobody may connect more than ten times a second on average, as short as the time may be.
pub(super) fn herd<M: Maker>(bench: &Bench<M>) -> History {
    let plan = Plan { nodes: 8, servers_told: 8, ..bench.plan.clone() };
    let mut through = Through::start(bench, plan);
    let (server, proxy) = (&mut through.server, &through.proxy);
    let mut connections = 0;
    let begun = through.session.moment();
    through.session.fault("restarted", Excuse::LOSS, |session| {
        let before = proxy.accepted();
        server.kill();
        session.rest(bench.fault);
        connections = proxy.accepted() - before;
        server.restart();
    });
    let tenths = (through.session.moment() - begun) / 100_000 + 3;
    through.session.rest(CALM);
    let mut history = through.finish();
    if connections > 8 * tenths {
        history.complaints.push(format!("{connections} connections of 8 nodes in {tenths} tenths of a second"));
    }
    history
}

/// Whoever does not wait for the answer leaves it to nobody else: it would be a wrong one.
pub(super) fn impatience<M: Maker>(bench: &Bench<M>) -> History {
    let mut through = Through::start(bench, Plan { impatient: 3, ..bench.plan.clone() });
    through.harm("answers take a while", Excuse::ALONE, Fault::Delay { by: ms(1), jitter: ms(1) }, bench.fault);
    through.finish()
}

/// The name of a server that is restarted is unknown, then not even that is said, then it leads to another server.
pub(super) fn names<M: Maker>(bench: &Bench<M>) -> History {
    let (mut first, mut second) = (RedisServer::start(&[]), RedisServer::absent(free_port(), &[]));
    let name = Name::new(Meaning::Address(first.address()));
    let mut session = bench.session(&[name.url()]);
    for (what, meaning) in [("name unknown", Meaning::Unknown), ("lookups hang", Meaning::Silence)] {
        session.fault(what, Excuse::LOSS, |session| {
            name.set(meaning);
            first.kill();
            session.rest(bench.fault / 2);
            first.restart();
        });
        // A breaker that opens twice within a second stays open until the second is over.
        session.rest(ms(1_200));
    }
    name.set(Meaning::Address(first.address()));
    session.fault("name leads elsewhere", Excuse::LOSS, |session| {
        first.kill();
        session.rest(bench.fault / 2);
        second.restart();
        name.set(Meaning::Address(second.address()));
    });
    session.rest(CALM);
    session.finish(&[&second])
}
