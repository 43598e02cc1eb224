//! What came of the rows, for people and for programs.

use std::fmt::Write as _;

use super::checker::Findings;
use super::times::{Met, Times};

/// One row, judged.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Its name: `F01`.
    pub name: &'static str,
    /// What it is about.
    pub what: &'static str,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of a row.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It was injected.
    Injected(Box<(Findings, Times)>),
    /// It is shown by another test.
    ShownBy(&'static str),
    /// It is not shown, and why.
    NotShown(&'static str),
}

impl Judged {
    /// Whether nothing is wrong, and nothing was left open; what depends on time only counts if times do.
    pub fn is_well(&self, times_count: bool) -> bool {
        match &self.verdict {
            Verdict::Injected(judged) => {
                judged.0.violated == 0 && !self.has(Met::NoSample) && (!times_count || !self.has(Met::No))
            }
            Verdict::ShownBy(_) | Verdict::NotShown(_) => true,
        }
    }

    /// For how long the machine stood still at most, in microseconds.
    pub fn longest_stall(&self) -> u64 {
        match &self.verdict {
            Verdict::Injected(judged) => judged.1.lateness.longest,
            Verdict::ShownBy(_) | Verdict::NotShown(_) => 0,
        }
    }

    /// Whether deadlines were missed without a reason no more often than when nothing is done.
    pub fn is_steady(&self) -> bool {
        match &self.verdict {
            Verdict::Injected(judged) => judged.1.is_steady,
            Verdict::ShownBy(_) | Verdict::NotShown(_) => true,
        }
    }

    fn has(&self, what: Met) -> bool {
        matches!(&self.verdict, Verdict::Injected(judged) if judged.1.goals.iter().any(|(_, met)| *met == what))
    }

    fn word(&self, times_count: bool) -> &'static str {
        match &self.verdict {
            Verdict::Injected(judged) if judged.0.violated > 0 => "VIOLATED",
            Verdict::Injected(_) if self.has(Met::NoSample) => "NO SAMPLE",
            Verdict::Injected(_) if self.has(Met::No) => {
                if times_count {
                    "LATE"
                } else {
                    "passed, late"
                }
            }
            Verdict::Injected(_) => "passed",
            Verdict::ShownBy(_) => "elsewhere",
            Verdict::NotShown(_) => "not shown",
        }
    }
}

fn ms(micros: u64) -> String {
    format!("{}.{:02}", micros / 1_000, micros % 1_000 / 10)
}

/// One row in a line.
pub fn line(judged: &Judged, times_count: bool) -> String {
    let word = judged.word(times_count);
    match &judged.verdict {
        Verdict::Injected(both) => {
            let (findings, times) = &**both;
            let recovery = findings.recoveries.iter().filter_map(|back| back.took).max();
            let recovery = recovery.map_or_else(|| "-".to_owned(), ms);
            format!(
                "{:4} {:44} {:>5.2} {:>5.2} {:>6} {:>6} {:>6} {:>5} {:>5.1}% {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}  {word}",
                judged.name,
                judged.what,
                findings.ratio,
                findings.shared_ratio,
                findings.decisions,
                findings.denied,
                findings.repeated,
                findings.lifted,
                percent(findings.alone, findings.decisions),
                findings.replayed,
                ms(times.p50),
                ms(times.p99),
                ms(times.faulty.0),
                ms(times.most),
                ms(times.lateness.longest),
                recovery,
            )
        }
        Verdict::ShownBy(whom) => format!("{:4} {:44} {word}: {whom}", judged.name, judged.what),
        Verdict::NotShown(why) => format!("{:4} {:44} {word}: {why}", judged.name, judged.what),
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / (whole as f64).max(1.0)
}

/// All rows, and below them what is wrong.
pub fn table(rows: &[Judged], times_count: bool) -> String {
    let mut text = format!(
        "{:4} {:44} {:>5} {:>5} {:>6} {:>6} {:>6} {:>5} {:>6} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
        "row",
        "what",
        "used",
        "redis",
        "asked",
        "denied",
        "again",
        "lift",
        "alone",
        "exact",
        "p50 ms",
        "p99",
        "fault99",
        "most",
        "machine",
        "back ms"
    );
    for row in rows {
        let _ = writeln!(text, "{}", line(row, times_count));
    }
    text.extend(rows.iter().map(details));
    text
}

/// What is wrong with a row, in lines.
pub fn details(row: &Judged) -> String {
    let mut text = String::new();
    let Verdict::Injected(both) = &row.verdict else { return text };
    for (kind, what) in &both.0.violations {
        let _ = writeln!(text, "{}: {kind:?}: {what}", row.name);
    }
    for (goal, met) in &both.1.goals {
        let what = match met {
            Met::Yes => continue,
            Met::No => "not in time",
            Met::NoSample => "no sample",
        };
        let _ = writeln!(text, "{}: {what}: {goal}", row.name);
    }
    text
}

/// The same for programs.
pub fn json(rows: &[Judged], times_count: bool) -> String {
    let rows: Vec<String> = rows.iter().map(|row| json_row(row, times_count)).collect();
    format!("{{\n  \"times_judged\": {times_count},\n  \"rows\": [\n    {}\n  ]\n}}\n", rows.join(",\n    "))
}

fn json_row(row: &Judged, times_count: bool) -> String {
    let head = format!(
        "\"row\": {}, \"what\": {}, \"verdict\": {}",
        quoted(row.name),
        quoted(row.what),
        quoted(row.word(times_count))
    );
    match &row.verdict {
        Verdict::ShownBy(text) | Verdict::NotShown(text) => format!("{{{head}, \"where\": {}}}", quoted(text)),
        Verdict::Injected(both) => {
            let (findings, times) = &**both;
            let violations = list(findings.violations.iter().map(|(kind, what)| format!("{kind:?}: {what}")));
            let goals_that = |what: Met| {
                let which = times.goals.iter().filter(|(_, met)| *met == what);
                list(which.map(|(goal, _)| goal.clone()))
            };
            let (late, no_sample) = (goals_that(Met::No), goals_that(Met::NoSample));
            let goals = list(times.goals.iter().map(|(goal, _)| goal.clone()));
            format!(
                "{{{head}, \"used_of_allowed\": {:.4}, \"redis_used_of_allowed\": {:.4}, \"decisions\": {}, \"denied\": {}, \
                 \"repeated\": {}, \"given_back_units\": {}, \"lifted\": {}, \"alone\": {}, \"missed_without_fault\": {}, \"missed_unexplained\": {}, \"unknown_units\": {}, \"answered\": {}, \
                 \"replayed\": {}, \"p50_us\": {}, \"p99_us\": {}, \"most_us\": {}, \"fault_p99_us\": {}, \"fault_most_us\": {}, \
                 \"machine_late_p99_us\": {}, \"machine_longest_stall_us\": {}, \"recoveries_us\": {:?}, \"goals\": {goals}, \
                 \"late\": {late}, \"no_sample\": {no_sample}, \"violated\": {}, \"violations\": {violations}}}",
                findings.ratio,
                findings.shared_ratio,
                findings.decisions,
                findings.denied,
                findings.repeated,
                findings.given_back,
                findings.lifted,
                findings.alone,
                findings.misses.missed,
                findings.misses.unexplained,
                findings.unknown,
                findings.answered,
                findings.replayed,
                times.p50,
                times.p99,
                times.most,
                times.faulty.0,
                times.faulty.1,
                times.lateness.p99,
                times.lateness.longest,
                findings.recoveries.iter().filter_map(|back| back.took).collect::<Vec<_>>(),
                findings.violated,
            )
        }
    }
}

fn list(texts: impl Iterator<Item = String>) -> String {
    format!("[{}]", texts.map(|text| quoted(&text)).collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_read_is_escaped() {
        assert_eq!(quoted("a \"b\" \\ \n"), "\"a \\\"b\\\" \\\\ \\u000a\"");
    }

    #[test]
    fn late_is_told_and_counts_where_times_do() {
        let times = Times { goals: vec![("slow".to_owned(), Met::No)], ..Times::default() };
        let verdict = Verdict::Injected(Box::new((Findings::default(), times)));
        let row = Judged { name: "F00", what: "x", verdict };
        assert!(row.is_well(false) && !row.is_well(true));
        assert!(line(&row, true).ends_with("LATE") && line(&row, false).ends_with("passed, late"));
        assert!(json(std::slice::from_ref(&row), true).contains("\"late\": [\"slow\"]"));
        assert!(table(&[row], true).contains("F00: not in time: slow"));
    }

    #[test]
    fn what_nothing_was_asked_for_is_not_well_whatever_counts() {
        let times = Times { goals: vec![("back".to_owned(), Met::NoSample)], ..Times::default() };
        let verdict = Verdict::Injected(Box::new((Findings::default(), times)));
        let row = Judged { name: "F00", what: "x", verdict };
        assert!(!row.is_well(false) && !row.is_well(true) && line(&row, false).ends_with("NO SAMPLE"));
        assert!(json(std::slice::from_ref(&row), true).contains("\"no_sample\": [\"back\"]"));
        assert!(details(&row).contains("F00: no sample: back"));
    }
}
