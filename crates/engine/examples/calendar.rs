//! Three shows per campaign and user per day, where the day is Berlin's.
//!
//! `cargo run -p tollgate --example calendar`
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use tollgate::{
    Calendar, CalendarUnit, Charge, Engine, FixedWindow, Key, Limit, ManualClock, MemoryStore, Micros, Timestamp, zone,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let day = Calendar::new(CalendarUnit::Day, zone("Europe/Berlin")?);
    let shows = Limit::new(FixedWindow::in_window(3, day.into()))?;

    // 30 March 2024, 22:00 in Berlin: the night in which clocks are set forward.
    let clock = ManualClock::at(Timestamp::from_secs(1_711_832_400));
    let engine = Engine::with_clock(MemoryStore::new(), clock.clone());
    let values: [&[u8]; 2] = [b"campaign-9", b"user-42"];
    let charge = Charge::new(Key::new(1, &values), &shows);
    for hour in 0..4 {
        for _ in 0..4 {
            let decision = engine.decide(&[charge]).await?;
            println!("{hour} h later: allowed {}, fresh in {}", decision.allowed, decision.outcomes[0].reset_after);
        }
        clock.advance(Micros::HOUR);
    }
    Ok(())
}
