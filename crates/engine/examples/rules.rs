//! Deciding by rules: text in, verdicts out, and new rules while it runs.
//!
//! `cargo run -p tollgate --example rules`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its reader")]

use std::process::ExitCode;

use tollgate::{Check, MemoryStore, Micros, RuleSet, Settlement, Tollgate};

const RULES: &str = "
domain: api
rules:
  - name: posts
    when: {path: /posts}
    per: user_id
    limits: [{rate: 2/s, algorithm: sliding_log}, 1000/day]
  - name: models
    per: api_key
    limits: 100k tokens/min
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let rules = match RuleSet::from_yaml(RULES) {
        Ok(rules) => rules,
        Err(problems) => {
            eprintln!("{}", problems.render(false));
            return Ok(ExitCode::FAILURE);
        }
    };
    let gate = Tollgate::new(rules, MemoryStore::new());

    for _ in 0..3 {
        let request = [("user_id", "42"), ("path", "/posts")];
        let verdict = gate.check(&Check::attributes("api", &request)).await?;

        if let Some(toll) = verdict.binding() {
            let rule = verdict.rule(toll).map_or("", |rule| &rule.name);
            println!("{rule}: allowed {}, {} left", verdict.allowed, toll.outcome.remaining);
        }
        if let Some(wait) = verdict.retry_after().filter(|_| verdict.denied()) {
            println!("try again in {wait}");
        }
    }

    let request = [("api_key", "k1")];
    let most = [("tokens", 4_000)];
    let check = Check::attributes("api", &request).costs(&most);
    let (verdict, reservation) = gate.reserve(&check, Micros::from_secs(60)).await?;
    if let Some(reservation) = reservation {
        gate.settle(reservation, Settlement::CommitActual(&[1_234])).await?;
    }
    println!("models: allowed {}", verdict.allowed);

    gate.replace_rules(RuleSet::from_yaml(&RULES.replace("2/s", "3/s")).unwrap_or_default());
    let request = [("user_id", "42"), ("path", "/posts")];
    let verdict = gate.check(&Check::attributes("api", &request)).await?;
    println!("with 3/s instead of 2/s: allowed {}", verdict.allowed);
    Ok(ExitCode::SUCCESS)
}
