//! What is claimed about speed, checked against the run that was just made, and how claims are printed.

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

/// What is told beside the claims, and not claimed.
const TOLD: [(&str, Scenario, &str); 2] =
    [("tollgate x3", Scenario::Uniform, "tollgate"), ("tollgate x3", Scenario::Zipf, "tollgate")];

/// Prints one claim with what was found, and says whether it may stand: what was not measured may.
pub fn verdict(claim: &str, found: Option<f64>, holds: impl Fn(f64) -> bool) -> bool {
    let verdict = match found {
        None => "SKIP",
        Some(found) if holds(found) => "PASS",
        Some(_) => "FAIL",
    };
    let found = found.map_or("not measured".to_string(), |found| format!("{found:.2}"));
    println!("{verdict}  {claim} ({found})");
    verdict != "FAIL"
}

/// Prints all of them. `false` if one does not hold.
pub fn print(results: &Results) -> bool {
    println!("Claims");
    let mut hold = true;
    for Claim { contender, scenario, against, at_most } in claims() {
        let claim = format!("{}: {contender} at most {at_most:.2} x {against}", scenario.title());
        hold &= verdict(&claim, results.ratio(scenario, contender, against), |ratio| ratio <= at_most);
    }
    let claim = format!("uniform: two threads of tollgate at least {TWO_THREADS:.2} x one");
    hold &= verdict(&claim, results.speedup("tollgate"), |speedup| speedup >= TWO_THREADS);
    for (contender, scenario, against) in TOLD {
        if let Some(ratio) = results.ratio(scenario, contender, against) {
            println!("      {}: {contender} takes {ratio:.2} x {against}", scenario.title());
        }
    }
    println!();
    hold
}
