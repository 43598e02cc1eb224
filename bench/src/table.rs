//! Aligned text tables.

pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: &[&str]) -> Self {
        Table { rows: vec![header.iter().map(|cell| cell.to_string()).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The first column to the left, the others to the right.
    pub fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|at| {
                let cells = self.rows.iter().filter_map(|row| row.get(at));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for (number, row) in self.rows.iter().enumerate() {
            println!("{}", line(row, &widths));
            if number == 0 {
                println!("{}", "-".repeat(widths.iter().sum::<usize>() + 2 * (columns - 1)));
            }
        }
        println!();
    }
}

fn line(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (at, (cell, &width)) in row.iter().zip(widths).enumerate() {
        if at == 0 {
            line.push_str(&format!("{cell:<width$}"));
        } else {
            line.push_str(&format!("  {cell:>width$}"));
        }
    }
    line.trim_end().to_string()
}
