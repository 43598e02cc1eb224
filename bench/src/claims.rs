//! What is claimed about speed, checked against the run that was just made.

use crate::contender::{FLOOR, GOVERNOR};
use crate::speed::{Results, Scenario};

/// `contender` takes at most `at_most` times what `against` takes.
struct Claim {
    contender: &'static str,
    scenario: Scenario,
    against: &'static str,
    at_most: f64,
}

/// What two threads decide, in what one does.
const TWO_THREADS: f64 = 1.7;

/// Add a line for each claim. The first two check the harness itself.
fn claims() -> Vec<Claim> {
    let claim = |contender, scenario, against, at_most| Claim { contender, scenario, against, at_most };
    vec![
        claim("empty", Scenario::Hot, FLOOR, 0.5),
        claim(FLOOR, Scenario::Hot, GOVERNOR, 1.0),
        claim("tollgate", Scenario::Hot, GOVERNOR, 1.0 / 2.0),
        claim("tollgate", Scenario::Uniform, GOVERNOR, 1.0 / 3.0),
        claim("tollgate", Scenario::Zipf, GOVERNOR, 1.0 / 3.0),
        claim("tollgate", Scenario::Hot, FLOOR, 1.5),
        claim("tollgate", Scenario::Uniform, FLOOR, 1.5),
        claim("tollgate", Scenario::Zipf, FLOOR, 1.5),
        claim("tollgate x3", Scenario::Hot, "tollgate", 2.0),
    ]
}

pub fn print(results: &Results) {
    println!("Claims");
    for claim in claims() {
        let found = results.ratio(claim.scenario, claim.contender, claim.against);
        let verdict = match found {
            None => "SKIP",
            Some(ratio) if ratio <= claim.at_most => "PASS",
            Some(_) => "FAIL",
        };
        let found = found.map_or("not measured".to_string(), |ratio| format!("{ratio:.2}"));
        println!(
            "{verdict}  {}: {} at most {:.2} x {} ({found})",
            claim.scenario.title(),
            claim.contender,
            claim.at_most,
            claim.against,
        );
    }
    let speedup = results.speedup("tollgate");
    let verdict = speedup.map_or("SKIP", |found| if found >= TWO_THREADS { "PASS" } else { "FAIL" });
    let found = speedup.map_or("not measured".to_string(), |found| format!("{found:.2}"));
    println!("{verdict}  uniform: two threads of tollgate at least {TWO_THREADS:.2} x one ({found})");
    println!();
}
