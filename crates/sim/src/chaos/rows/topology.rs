//! What happens to a primary with replicas, and to a Cluster.

use std::collections::BTreeSet;

use super::{ALWAYS_CALM, Bench, CALM, ms};
use crate::chaos::Plan;
use crate::chaos::node::Maker;
use crate::chaos::record::{Excuse, History, Moment, Record, Shared};
use crate::chaos::session::Session;
use crate::redis::{Cluster, RedisServer, Replicated, eventually};

/// Waits until a Sentinel names another primary, and says when that was.
fn promoted<M: Maker>(session: &Session<M>, replicated: &Replicated, old: u16) -> Moment {
    eventually("another is promoted", || {
        (0..3).any(|sentinel| replicated.primary_port(sentinel).is_some_and(|port| port != old))
    });
    session.moment()
}

fn primary(replicated: &Replicated) -> (u16, usize) {
    let port = replicated.primary_port(0).expect("a primary");
    (port, replicated.servers.iter().position(|server| server.port() == port).expect("one of them"))
}

fn finish<M: Maker>(session: Session<M>, replicated: &Replicated) -> History {
    session.rest(CALM);
    let (_, index) = primary(replicated);
    session.finish(&[&replicated.servers[index]])
}

pub(super) fn calm_sentinel<M: Maker>(bench: &Bench<M>, plan: Plan) -> History {
    let replicated = Replicated::start(&[]);
    let session = bench.session_with(&[replicated.url()], plan);
    session.rest(ALWAYS_CALM);
    finish(session, &replicated)
}

pub(super) fn sentinel_killed<M: Maker>(bench: &Bench<M>) -> History {
    let mut replicated = Replicated::start(&[]);
    let mut session = bench.session(&[replicated.url()]);
    let (port, index) = primary(&replicated);
    session.fault_until("primary killed", Excuse::LOSS, |session| {
        replicated.servers[index].kill();
        promoted(session, &replicated, port)
    });
    finish(session, &replicated)
}

/// The old primary believes for seconds that it still is one. Nobody may ask it.
pub(super) fn sentinel_zombie<M: Maker>(bench: &Bench<M>) -> History {
    let replicated = Replicated::start(&[]);
    let mut session = bench.session(&[replicated.url()]);
    let (port, index) = primary(&replicated);
    session.fault_until("primary stopped", Excuse::LOSS, |session| {
        replicated.servers[index].pause();
        promoted(session, &replicated, port)
    });
    session.fault("the old primary is back", Excuse::NOTHING, |session| {
        replicated.servers[index].resume();
        session.rest(bench.fault);
    });
    finish(session, &replicated)
}

pub(super) fn no_sentinels<M: Maker>(bench: &Bench<M>) -> History {
    let mut replicated = Replicated::start(&[]);
    let mut session = bench.session(&[replicated.url()]);
    let (_, index) = primary(&replicated);
    session.fault("no Sentinels", Excuse::NOTHING, |session| {
        replicated.sentinels.iter_mut().for_each(RedisServer::kill);
        session.rest(bench.fault);
    });
    session.rest(CALM);
    session.read_at(format!("redis://{}", replicated.servers[index].address()));
    session.finish(&[&replicated.servers[index]])
}

/// A Sentinel of another opinion names a replica, from the start.
pub(super) fn wrong_sentinel<M: Maker>(bench: &Bench<M>) -> History {
    let replicated = Replicated::start(&[]);
    let (_, index) = primary(&replicated);
    let replica = &replicated.servers[(index + 1) % 3];
    let wrong = replicated.sentinel_for(replica.port());
    let url = replicated.url().replacen("://", &format!("://{},", wrong.address()), 1);
    let session = bench.session(&[url]);
    bench.wait();
    finish(session, &replicated)
}

pub(super) fn demoted<M: Maker>(bench: &Bench<M>) -> History {
    let replicated = Replicated::start(&[]);
    let mut session = bench.session(&[replicated.url()]);
    let (port, _) = primary(&replicated);
    session.fault_until("primary demoted", Excuse::LOSS, |session| {
        replicated.fail_over();
        promoted(session, &replicated, port)
    });
    finish(session, &replicated)
}

pub(super) fn lagging<M: Maker>(bench: &Bench<M>) -> History {
    let mut replicated = Replicated::start(&[]);
    let mut session = bench.session(&[replicated.url()]);
    let (port, index) = primary(&replicated);
    session.fault_until("replicas lag, and one is promoted", Excuse::LOSS, |session| {
        let replicas = |replicated: &Replicated, what: fn(&RedisServer)| {
            let others = replicated.servers.iter().enumerate().filter(|(number, _)| *number != index);
            others.for_each(|(_, server)| what(server));
        };
        replicas(&replicated, RedisServer::pause);
        session.rest(ms(400));
        replicated.servers[index].kill();
        replicas(&replicated, RedisServer::resume);
        promoted(session, &replicated, port)
    });
    finish(session, &replicated)
}

/// A primary that is cut off from its replicas stops admitting, if it is told to.
pub(super) fn without_replicas<M: Maker>(bench: &Bench<M>) -> History {
    let replicated = Replicated::start(&["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"]);
    let mut session = bench.session(&[replicated.url()]);
    let (_, index) = primary(&replicated);
    let mut refused = false;
    let mut from = 0;
    session.fault("replicas cut off", Excuse::ALONE, |session| {
        let others = || replicated.servers.iter().enumerate().filter(|(number, _)| *number != index);
        others().for_each(|(_, server)| server.pause());
        // It waits for them for up to two seconds; nodes that are alone before that are so for another reason.
        session.rest(ms(2_200));
        eventually("nodes leave it alone", || {
            refused = !session.is_serving();
            refused
        });
        from = session.moment();
        bench.wait();
        others().for_each(|(_, server)| server.resume());
    });
    let mut history = {
        session.rest(CALM);
        session.finish(&[&replicated.servers[index]])
    };
    let until = history.faults.first().map_or(0, |fault| fault.end);
    let meanwhile = |record: &&Record| record.begun > from + 100_000 && record.returned < until;
    let answered = history.records.iter().filter(meanwhile).filter(|record| record.is_shared_admission()).count();
    if answered > 0 {
        history.complaints.push(format!("{answered} were admitted by a primary without replicas"));
    }
    history
}

fn whole<'c>(cluster: &'c Cluster, but: &[usize]) -> Vec<&'c RedisServer> {
    cluster.servers.iter().enumerate().filter(|(number, _)| !but.contains(number)).map(|(_, server)| server).collect()
}

/// Waits until the slots from 0 on have an owner at another port and all is well.
fn taken_over<M: Maker>(session: &Session<M>, cluster: &Cluster, port: u16) -> Moment {
    let other = &cluster.servers[1];
    eventually("the replica is promoted", || {
        let nodes = other.cli(&["CLUSTER", "NODES"]);
        let owner = nodes.lines().find(|line| line.contains("master") && line.contains(" 0-"));
        owner.is_some_and(|line| !line.contains(&format!(":{port}@")))
            && other.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
    });
    session.moment()
}

pub(super) fn calm_cluster<M: Maker>(bench: &Bench<M>, plan: Plan) -> History {
    let cluster = Cluster::start(&[]);
    let session = bench.session_with(&[cluster.url()], plan);
    session.rest(ALWAYS_CALM);
    session.finish(&whole(&cluster, &[]))
}

/// Only what the dead primary counted is decided alone: the others go on, if they are told to.
pub(super) fn cluster_killed<M: Maker>(bench: &Bench<M>) -> History {
    let mut cluster = Cluster::start(&["--cluster-require-full-coverage", "no"]);
    let mut session = bench.session(&[cluster.url()]);
    let port = cluster.servers[0].port();
    let mut keys = String::new();
    session.fault_until("primary of a Cluster killed", Excuse::LOSS, |session| {
        keys = cluster.servers[0].cli(&["KEYS", "tg1:*"]);
        cluster.servers[0].kill();
        taken_over(session, &cluster, port)
    });
    session.rest(CALM);
    let mut history = session.finish(&whole(&cluster, &[0]));
    // Names that end another's are not told apart: few-1 and few-11 may be, since a length is before each.
    let is_there = |name: &str| keys.lines().any(|key| key.ends_with(name));
    let there: BTreeSet<u32> = history
        .counters
        .iter()
        .enumerate()
        .filter(|(_, counter)| is_there(&counter.name))
        .filter_map(|(number, _)| u32::try_from(number).ok())
        .collect();
    let fault = history.faults.first().map_or(0..0, |fault| fault.begin..fault.end);
    let elsewhere = history.records.iter().filter(|record| {
        fault.contains(&record.begun) && !there.contains(&record.counter) && !is_rare(&history, record)
    });
    // A machine that stands still lets deadlines pass on any of them; if all were left alone, none would be answered.
    let strayed = elsewhere.clone().filter(|record| record.is_alone()).count();
    let asked = elsewhere.filter(|record| record.shared != Shared::Repeated).count();
    if strayed * 2 > asked {
        history.complaints.push(format!("{strayed} of {asked} on other primaries were decided alone"));
    }
    history
}

/// Keys that few ask for may not have been there yet when it was looked.
fn is_rare(history: &History, record: &Record) -> bool {
    history.counters.get(record.counter as usize).is_some_and(|counter| counter.name.starts_with("few"))
}

/// A primary and its replica are gone: nobody serves until they are back, empty.
pub(super) fn cluster_down<M: Maker>(bench: &Bench<M>) -> History {
    let mut cluster = Cluster::start(&[]);
    let mut session = bench.session(&[cluster.url()]);
    session.fault("Cluster down", Excuse::LOSS, |session| {
        for number in [3, 0] {
            cluster.servers[number].kill();
        }
        eventually("the Cluster is down", || {
            cluster.servers[1].cli(&["CLUSTER", "INFO"]).contains("cluster_state:fail")
        });
        session.rest(bench.fault);
        for number in [0, 3] {
            cluster.servers[number].restart();
        }
        eventually("the Cluster is well", || {
            [0, 1, 2]
                .iter()
                .all(|number| cluster.servers[*number].cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
        });
    });
    session.rest(CALM);
    session.finish(&whole(&cluster, &[]))
}

/// The slots of the hottest keys move, there and back, and nobody notices. Then those of keys that are asked for
/// together with keys that do not exist: only they are decided alone.
pub(super) fn migration<M: Maker>(bench: &Bench<M>) -> History {
    let cluster = Cluster::start(&[]);
    let mut session = bench.session(&[cluster.url()]);
    let slot_of = |name: &str| {
        let keys = |server: &RedisServer| server.cli(&["KEYS", &format!("tg1:*{name}")]);
        let first = cluster.servers.iter().take(3).position(|server| !keys(server).is_empty()).expect("it is there");
        let tag = keys(&cluster.servers[first]).get(4..9).expect("a tag").to_owned();
        (cluster.servers[0].cli(&["CLUSTER", "KEYSLOT", &tag]).parse::<u16>().expect("a slot"), first)
    };
    let move_about = |session: &Session<M>, (slot, first): (u16, usize)| {
        let second = (first + 1) % 3;
        for (from, to) in [(first, second), (second, first)] {
            cluster.migrate(slot, from, to, || session.rest(ms(200)));
            session.rest(ms(200));
        }
    };
    session.fault("slots move", Excuse::NOTHING, |session| move_about(session, slot_of("4x")));
    session.rest(CALM);
    session.fault("slots of held keys and of a long log move", Excuse::ALONE, |session| {
        ["held-bucket", "long-log"].iter().for_each(|name| move_about(session, slot_of(name)));
    });
    session.rest(CALM);
    let mut history = session.finish(&whole(&cluster, &[]));
    let fault = history.faults.last().map_or(0..0, |fault| fault.begin..fault.end);
    let moved = ["held-bucket", "long-log"];
    let is_elsewhere = |record: &&Record| {
        let counter = history.counters.get(record.counter as usize);
        counter.is_some_and(|counter| !moved.contains(&&*counter.name)) && record.shared != Shared::Repeated
    };
    // How many of a thousand on other keys were decided alone, while those slots moved or else. A machine that stands
    // still lets deadlines pass at any time.
    let alone = |meanwhile: bool| {
        let asked =
            history.records.iter().filter(is_elsewhere).filter(|record| fault.contains(&record.begun) == meanwhile);
        asked.clone().filter(|record| record.is_alone()).count() * 1_000 / asked.count().max(1)
    };
    let (during, before) = (alone(true), alone(false));
    if during > before + 200 {
        let text =
            format!("{during} of 1000 on other keys were decided alone while slots moved, {before} before and after");
        history.complaints.push(text);
    }
    history
}

pub(super) fn reshard<M: Maker>(bench: &Bench<M>) -> History {
    let cluster = Cluster::start(&[]);
    let mut session = bench.session(&[cluster.url()]);
    let (from, to) = (cluster.servers[0].cli(&["CLUSTER", "MYID"]), cluster.servers[1].cli(&["CLUSTER", "MYID"]));
    let address = cluster.servers[0].address().to_string();
    session.fault("slots are moved", Excuse::NOTHING, |_| {
        let said = cluster.servers[0].cli(&[
            "--cluster",
            "reshard",
            &address,
            "--cluster-from",
            &from,
            "--cluster-to",
            &to,
            "--cluster-slots",
            "1000",
            "--cluster-yes",
        ]);
        assert!(said.contains("Moving slot"), "{said}");
    });
    session.rest(CALM);
    session.finish(&whole(&cluster, &[]))
}
