//! Servers measured in turn, round after round, so that what the machine does meanwhile happens to all of them.

use std::net::SocketAddr;
use std::time::Duration;

use crate::load::{self, Ran, Shape, Speak};
use crate::report::{Table, median};

const WARM_UP: Duration = Duration::from_millis(100);
const TIME: Duration = Duration::from_millis(500);

/// More of the cores than this may not go to others during a measurement, or it is made again, at most so often.
pub const DISTURBED: f64 = 0.04;
const ATTEMPTS: usize = 3;

/// One server under one load.
pub struct Contender<'a> {
    pub name: String,
    pub address: SocketAddr,
    pub process: u32,
    /// A server that it asks in turn.
    pub behind: Option<u32>,
    pub speak: Speak<'a>,
    pub shape: Shape,
}

/// What the rounds gave: for each contender a list of them.
pub struct Results {
    names: Vec<String>,
    rounds: Vec<Vec<Ran>>,
}

/// Measures each in turn, `rounds` times.
pub fn measure(contenders: &[Contender<'_>], rounds: usize) -> Result<Results, String> {
    let mut results = Results {
        names: contenders.iter().map(|one| one.name.clone()).collect(),
        rounds: vec![vec![]; contenders.len()],
    };
    // Bounded, because some machines are never quiet.
    let (mut repeated, most_repeated) = (0, rounds * contenders.len() / 2);
    for round in 0..rounds {
        for at in 0..contenders.len() {
            // Nobody is always the first.
            let at = (at + round) % contenders.len();
            let Contender { name, address, process, behind, speak, shape } = &contenders[at];
            let run = || load::run(*address, (*process, *behind), *speak, *shape, WARM_UP, TIME);
            let mut best = run().map_err(|error| format!("{name}: {error}"))?;
            for _ in 1..ATTEMPTS {
                if best.disturbed > DISTURBED && repeated < most_repeated {
                    repeated += 1;
                    let again = run().map_err(|error| format!("{name}: {error}"))?;
                    best = if again.disturbed < best.disturbed { again } else { best };
                }
            }
            results.rounds[at].push(best);
        }
    }
    Ok(results)
}

/// Turns of a duel, and the time of one.
const TURNS: usize = 60;
const TURN: Duration = Duration::from_millis(200);

/// How two compare that differ little.
pub struct Duel {
    /// The median over turns of how many times the other has what the one has.
    pub ratio: f64,
    /// With 95 %, it is in here.
    range: (f64, f64),
    turns: usize,
}

impl std::fmt::Display for Duel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { ratio, range: (least, most), turns } = self;
        write!(
            f,
            "{ratio:.3}x, and with 95 % from {least:.3}x to {most:.3}x ({turns} turns of {} ms)",
            TURN.as_millis()
        )
    }
}

/// Measures two by turns, so short that the machine is the same for both, and leaves out turns in which it did
/// something else.
pub fn duel(one: &Contender<'_>, other: &Contender<'_>, figure: fn(&Ran) -> f64) -> Result<Duel, String> {
    let run = |of: &Contender<'_>| {
        load::run(of.address, (of.process, of.behind), of.speak, of.shape, TURN / 4, TURN)
            .map_err(|error| format!("{}: {error}", of.name))
    };
    let (mut ratios, mut disturbed) = (Vec::new(), Vec::new());
    while ratios.len() < TURNS && disturbed.len() < TURNS {
        let own_first = (ratios.len() + disturbed.len()).is_multiple_of(2);
        let (a, b) = if own_first { (run(one)?, run(other)?) } else { swap((run(other)?, run(one)?)) };
        let list = if a.disturbed.max(b.disturbed) > DISTURBED { &mut disturbed } else { &mut ratios };
        list.push(figure(&a) / figure(&b));
    }
    // A machine that is never quiet has to do.
    if ratios.len() < TURNS / 4 {
        ratios.append(&mut disturbed);
    }
    ratios.sort_unstable_by(f64::total_cmp);
    // The median lies between these two, by the binomial distribution.
    let (turns, half) = (ratios.len(), ratios.len() as f64 / 2.0);
    let around = 0.98 * (turns as f64).sqrt();
    let at = |place: f64| ratios[(place.max(0.0) as usize).min(turns - 1)];
    Ok(Duel { ratio: median(ratios.clone()), range: (at(half - around), at(half + around)), turns })
}

fn swap<A, B>((a, b): (A, B)) -> (B, A) {
    (b, a)
}

impl Results {
    fn of(&self, name: &str) -> &[Ran] {
        let at = self.names.iter().position(|known| known == name);
        at.and_then(|at| self.rounds.get(at)).map_or(&[], |rounds| &**rounds)
    }

    /// The median over rounds.
    pub fn median(&self, name: &str, figure: impl Fn(&Ran) -> f64) -> f64 {
        median(self.of(name).iter().map(figure).collect())
    }

    /// The median over rounds of how many times `b` has what `a` has.
    pub fn ratio(&self, a: &str, b: &str, figure: impl Fn(&Ran) -> f64) -> f64 {
        median(self.of(a).iter().zip(self.of(b)).map(|(a, b)| figure(a) / figure(b)).collect())
    }

    pub fn print(&self, what: &str) {
        println!(
            "{what}; median of {} rounds (the slowest and the quickest)\n",
            self.rounds.first().map_or(0, Vec::len)
        );
        let mut table = Table::new(&["", "requests/s", "", "CPU us/request", "", "busy", "others"]);
        for name in &self.names {
            let range = |figure: fn(&Ran) -> f64, shown: fn(f64) -> String| {
                let values: Vec<f64> = self.of(name).iter().map(figure).collect();
                let (least, most) = values.iter().fold((f64::MAX, 0.0), |(l, m), v| (v.min(l), v.max(m)));
                [shown(median(values)), format!("({} - {})", shown(least), shown(most))]
            };
            let [per_second, its_range] = range(Ran::per_second, |figure| format!("{figure:.0}"));
            let [cpu, range_of_cpu] = range(Ran::cpu, |figure| format!("{figure:.2}"));
            let busy = format!("{:.0} %", self.median(name, Ran::busy) * 100.0);
            let others = format!("{:.0} %", self.median(name, |ran| ran.disturbed) * 100.0);
            table.row(vec![name.clone(), per_second, its_range, cpu, range_of_cpu, busy, others]);
        }
        table.print();
    }
}
