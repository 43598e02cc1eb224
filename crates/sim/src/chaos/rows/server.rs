//! What happens to one server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{ALWAYS_CALM, Bench, CALM, ms};
use crate::chaos::Plan;
use crate::chaos::node::Maker;
use crate::chaos::record::{Excuse, History};
use crate::chaos::session::Session;
use crate::redis::{RedisServer, free_port};

fn url(server: &RedisServer) -> String {
    format!("redis://{}", server.address())
}

pub(super) fn calm<M: Maker>(bench: &Bench<M>, plan: Plan) -> History {
    let server = RedisServer::start(&[]);
    let session = bench.session_with(&[url(&server)], plan);
    session.rest(ALWAYS_CALM);
    session.finish(&[&server])
}

pub(super) fn killed<M: Maker>(bench: &Bench<M>) -> History {
    let mut server = RedisServer::start(&[]);
    let mut session = bench.session(&[url(&server)]);
    session.fault("killed", Excuse::LOSS, |_| {
        server.kill();
        bench.wait();
        server.restart();
    });
    session.rest(CALM);
    session.finish(&[&server])
}

pub(super) fn restarted_empty<M: Maker>(bench: &Bench<M>) -> History {
    let mut server = RedisServer::start(&[]);
    let mut session = bench.session(&[url(&server)]);
    for _ in 0..2 {
        session.fault("restarted", Excuse::LOSS, |_| server.restart());
        // A breaker that opens twice within a second stays open until the second is over.
        session.rest(ms(1_200));
    }
    session.finish(&[&server])
}

fn stop_for<M: Maker>(bench: &Bench<M>, times: u32) -> History {
    let server = RedisServer::start(&[]);
    let mut session = bench.session(&[url(&server)]);
    session.fault("stopped", Excuse::ALONE, |session| {
        server.pause();
        session.rest(bench.fault * times);
        server.resume();
    });
    session.rest(CALM);
    session.finish(&[&server])
}

pub(super) fn stopped<M: Maker>(bench: &Bench<M>) -> History {
    stop_for(bench, 1)
}

pub(super) fn stopped_for_long<M: Maker>(bench: &Bench<M>) -> History {
    stop_for(bench, 3)
}

pub(super) fn absent<M: Maker>(bench: &Bench<M>) -> History {
    let mut server = RedisServer::absent(free_port(), &[]);
    let plan = Plan { starts_alone: true, ..bench.plan.clone() };
    let mut session = Session::start(&bench.maker, &[url(&server)], plan);
    session.fault("absent", Excuse::ALONE, |_| {
        bench.wait();
        server.restart();
    });
    session.rest(CALM);
    session.finish(&[&server])
}

pub(super) fn hot_key<M: Maker>(bench: &Bench<M>) -> History {
    let server = RedisServer::start(&[]);
    let plan = Plan { one_key: true, per_second: bench.plan.per_second * 4, ..bench.plan.clone() };
    let session = bench.session_with(&[url(&server)], plan);
    bench.wait();
    session.finish(&[&server])
}

pub(super) fn scripts_flushed<M: Maker>(bench: &Bench<M>) -> History {
    let server = RedisServer::start(&[]);
    let mut session = bench.session(&[url(&server)]);
    // By a connection and not by `redis-cli`: ten processes a second would be a fault of their own.
    let mut connection = TcpStream::connect(server.address()).expect("it is there");
    session.fault("scripts forgotten", Excuse::NOTHING, |session| {
        let until = session.moment() + u64::try_from(bench.fault.as_micros()).unwrap_or(0);
        while session.moment() < until {
            let mut answer = [0; 5];
            connection
                .write_all(b"SCRIPT FLUSH\r\n")
                .and_then(|()| connection.read_exact(&mut answer))
                .expect("it answers");
            assert_eq!(&answer, b"+OK\r\n");
            session.rest(ms(100));
        }
    });
    session.rest(CALM);
    session.finish(&[&server])
}

/// What others do to keys: each is a loss of states, and no more than that.
pub(super) fn vandals<M: Maker>(bench: &Bench<M>) -> History {
    const LOST: Excuse = Excuse { losses: 1, ..Excuse::NOTHING };
    let server = RedisServer::start(&[]);
    let mut session = bench.session(&[url(&server)]);
    let each = |what: &str| {
        let script = format!("for _, key in ipairs(redis.call('KEYS', 'tg1:*')) do {what} end return 'done'");
        assert_eq!(server.cli(&["EVAL", &script, "0"]), "done");
    };
    let remove = "redis.call('DEL', key)";
    let list = "redis.call('DEL', key) redis.call('RPUSH', key, 'x') redis.call('EXPIRE', key, 60)";
    let text = "redis.call('SET', key, 'what is this?', 'EX', 60)";
    session.fault("FLUSHALL", LOST, |_| assert_eq!(server.cli(&["FLUSHALL"]), "OK"));
    for (name, what) in [("DEL", remove), ("lists", list), ("texts", text)] {
        session.rest(CALM);
        session.fault(name, LOST, |_| each(what));
    }
    session.rest(CALM);
    session.finish(&[&server])
}
