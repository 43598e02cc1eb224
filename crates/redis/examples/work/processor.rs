//! Processor time of redis-server per decision. Calls are sent over one connection with 32 of them under way, for all
//! alike, so that the time for waking up is shared in the same way.

use tollgate_redis::script;

use crate::cases::{Form, PLAIN, cases, plain_call, user};
use crate::report::{Bound, Goals, Table, median, ratio};
use crate::server::{Connection, Server};

const DECISIONS: usize = 3_200;
const ROUNDS: usize = 15;
const SIZES: [usize; 4] = [1, 16, 32, 64];

/// Seconds that the main thread of the server has used.
fn used(connection: &mut Connection) -> f64 {
    let info = String::from_utf8(connection.command(&[b"INFO", b"cpu"]).unwrap().bytes()).unwrap();
    let number = |name: &str| -> f64 {
        info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim_start_matches(':').parse().unwrap()
    };
    number("used_cpu_user_main_thread") + number("used_cpu_sys_main_thread")
}

/// Microseconds per decision.
pub(crate) fn measure(connection: &mut Connection, calls: &[Vec<u8>], decisions: usize) -> f64 {
    let before = used(connection);
    for window in calls.chunks(32) {
        connection.send_all(&window.concat());
        window.iter().for_each(|_| _ = connection.answer().unwrap());
    }
    (used(connection) - before) * 1e6 / decisions as f64
}

fn plain_calls(connection: &mut Connection) -> Vec<Vec<u8>> {
    let sha = connection.load(PLAIN);
    (0..DECISIONS).map(|n| plain_call(&sha, user(n))).collect()
}

pub(crate) async fn work(goals: &mut Goals) {
    let server = Server::start();
    let mut connection = server.connect(0);
    let plain = plain_calls(&mut connection);
    let sha = connection.load(script::source());
    println!("Processor time of redis-server per decision, in the plain script's; median of {ROUNDS} rounds\n");
    let mut table = Table::new(&["", "plain", "1 a call", "16 a call", "32 a call", "64 a call", "us at 32"]);
    for case in cases() {
        connection.command(&[b"FLUSHALL"]).unwrap();
        let requests = case.requests(DECISIONS).await;
        let calls = SIZES.map(|size| case.calls(&sha, &requests, size));
        // So that all states are there.
        measure(&mut connection, &plain, DECISIONS);
        measure(&mut connection, &calls[3], DECISIONS);
        let (mut base, mut found) = (Vec::new(), SIZES.map(|_| Vec::new()));
        for _ in 0..ROUNDS {
            base.push(measure(&mut connection, &plain, DECISIONS));
            for (calls, found) in calls.iter().zip(&mut found) {
                found.push(measure(&mut connection, calls, DECISIONS));
            }
        }
        let ratios: Vec<f64> = found.iter().map(|found| ratio(found, &base)).collect();
        if let Some(most) = case.goal {
            goals.add(format!("work at 32 a call: {}", case.name), Bound::AtMost(most), ratios[2]);
        }
        let mut row = vec![case.name.to_owned(), format!("{:.2} us", median(&base))];
        row.extend(ratios.iter().map(|ratio| format!("{ratio:.2}x")));
        row.push(format!("{:.2}", median(&found[2])));
        if let Form::Batch(_) = case.form {
            row[2] = "-".to_owned();
        }
        table.row(row);
    }
    table.print();
}
