//! What was found, beside what was wanted.

use std::fmt::Write as _;

/// What a figure has to be.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Below(f64),
    /// Not further from one than this.
    Within(f64),
}

impl Bound {
    fn holds(self, found: f64) -> bool {
        match self {
            Self::AtMost(most) => found <= most,
            Self::AtLeast(least) => found >= least,
            Self::Below(limit) => found < limit,
            Self::Within(share) => (1.0 - share..=1.0 + share).contains(&found),
        }
    }
}

struct Goal {
    what: String,
    bound: Bound,
    unit: &'static str,
    found: f64,
}

/// The goals of a run, in the order in which they were looked at.
#[derive(Default)]
pub struct Goals(Vec<Goal>);

impl Goals {
    pub fn add(&mut self, what: impl Into<String>, bound: Bound, unit: &'static str, found: f64) {
        self.0.push(Goal { what: what.into(), bound, unit, found });
    }

    /// Prints them, and says whether all are met.
    pub fn print(&self) -> bool {
        println!("Goals\n");
        let width = self.0.iter().map(|goal| goal.what.chars().count()).max().unwrap_or(0);
        for Goal { what, bound, unit, found } in &self.0 {
            let wanted = match bound {
                Bound::AtMost(most) => format!("at most {most}{unit}"),
                Bound::AtLeast(least) => format!("at least {least}{unit}"),
                Bound::Below(limit) => format!("below {limit}{unit}"),
                Bound::Within(share) => format!("within {:.0} %", share * 100.0),
            };
            let met = if bound.holds(*found) { "met" } else { "MISSED" };
            println!("{what:<width$}  {wanted:<16}  {:>9}  {met}", format!("{found:.2}{unit}"));
        }
        self.0.iter().all(|goal| goal.bound.holds(goal.found))
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => (values[length / 2 - 1] + values[length / 2]) / 2.0,
    }
}

/// A table with its first column to the left and the others to the right.
pub struct Table(Vec<Vec<String>>);

impl Table {
    pub fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(ToString::to_string).collect()])
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.0.push(cells);
    }

    pub fn print(&self) {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |at: usize| self.0.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
        for (number, row) in self.0.iter().enumerate() {
            let mut line = String::new();
            for (at, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let _ = if at == 0 { write!(line, "{cell:<width$}") } else { write!(line, "  {cell:>width$}") };
            }
            println!("{}", line.trim_end());
            if number == 0 {
                println!("{}", "-".repeat(widths.iter().sum::<usize>() + 2 * (columns - 1)));
            }
        }
        println!();
    }
}
