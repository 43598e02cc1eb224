//! Limits that processes share through Redis, from a program of one's own. Start it twice and see that both spend from
//! one budget:
//!
//! ```sh
//! cargo run --release -p tollgate-redis --example shared -- redis://127.0.0.1
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use tollgate::{Check, Clock as _, Denials, Engine, MemoryStore, Micros, Presence, RuleSet, Shelter, Tollgate};
use tollgate_redis::link::{RedisLink, Settings};
use tollgate_redis::{RedisStore, script};

const RULES: &str = "
domain: shop
rules:
  - {name: orders, per: user, limits: [5/10s]}
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1".to_owned());
    let link = RedisLink::open(url.parse()?, script::source(), Settings::default())?;
    // What Redis denied a moment ago is denied without asking, and while Redis is gone this process enforces its share.
    let store = Shelter::new(Denials::new(RedisStore::new(link)), MemoryStore::new());
    let gate = Tollgate::with_engine(
        RuleSet::from_yaml(RULES).map_err(|problems| problems.render(false))?,
        Engine::new(store),
    );

    // How many share the limits. A server says so every two seconds.
    let (presence, shelter) = (Presence::new()?, gate.engine().store());
    for second in 0..20 {
        if let Ok(servers) = presence.report(shelter.shared().store(), gate.engine().clock().now()).await {
            shelter.set_servers(servers);
        }
        let verdict = gate.check(&Check::attributes("shop", &[("user", "alice")])).await?;
        println!(
            "{second:>2}: {}, {} left{}, {} at it",
            if verdict.allowed { "allowed" } else { "denied " },
            verdict.binding().map_or(0, |toll| toll.outcome.remaining),
            if verdict.is_degraded() { " of this process's share" } else { "" },
            shelter.servers(),
        );
        gate.engine().clock().sleep_until(gate.engine().clock().now().plus(Micros::SECOND)).await;
    }
    Ok(())
}
