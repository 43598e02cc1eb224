//! What was found, beside what was wanted.

/// What a ratio has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// The goals of a run, in the order in which they were looked at.
#[derive(Default)]
pub(crate) struct Goals(Vec<(String, Bound, f64)>);

impl Goals {
    pub(crate) fn add(&mut self, what: impl Into<String>, bound: Bound, found: f64) {
        self.0.push((what.into(), bound, found));
    }

    /// Prints them, and says whether all are met.
    pub(crate) fn print(&self) -> bool {
        let mut all_met = true;
        let mut table = Table::new(&["", "goal", "found", ""]);
        for (what, bound, found) in &self.0 {
            let (wanted, met) = match bound {
                Bound::AtMost(most) => (format!("at most {most}x"), found <= most),
                Bound::AtLeast(least) => (format!("at least {least}x"), found >= least),
            };
            all_met &= met;
            let met = if met { "met" } else { "MISSED" };
            table.row(vec![what.clone(), wanted, format!("{found:.2}x"), met.to_owned()]);
        }
        if !self.0.is_empty() {
            println!("Goals\n");
            table.print();
        }
        all_met
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
    let lower = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
    (lower + upper) / 2.0
}

/// The median of how many times `b` each of `a` is, measured in the same round.
pub(crate) fn ratio(a: &[f64], b: &[f64]) -> f64 {
    median(&a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>())
}

/// A table with its first column to the left and the others to the right.
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(ToString::to_string).collect()])
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.0.push(cells);
    }

    pub(crate) fn print(&self) {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |at: usize| self.0.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
        for (number, row) in self.0.iter().enumerate() {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| {
                if at == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") }
            });
            println!("{}", cells.collect::<String>().trim_end());
            if number == 0 {
                println!("{}", "-".repeat(widths.iter().sum::<usize>() + 2 * (columns - 1)));
            }
        }
        println!();
    }
}
