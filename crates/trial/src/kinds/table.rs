//! The report as a table.

use super::report::{Report, Row, during};
use crate::Group;
use crate::table::aligned;
use crate::verdict::failures;
use std::fmt;

/// Heads of the columns, for 80 columns of text.
const HEAD: [&str; 10] = ["change", "times", "p50 µs", "p99 µs", "connects", "failed", "lost", "wrong", "asked/clean/cut", ""];

/// The table of a report and its counts, ready to print. The verdict is not part of it.
pub struct Table<'a>(pub &'a Report);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let mut lines = vec![HEAD.map(str::to_owned)];
        lines.extend(report.rows.iter().filter(|row| row.times > 0 || spoiled(row)).map(cells));
        // The first column is text, the others are numbers.
        f.write_str(&aligned(&lines, 1))?;
        writeln!(f)?;
        let (seconds, rate) = (report.elapsed.as_secs_f64(), report.connects_per_second());
        let (changes, connects) = (report.changes, report.total().connects);
        writeln!(f, "{changes} changes and {connects} connects in {seconds:.1} s ({rate:.0} connects/s); a connect counts")?;
        writeln!(f, "where it ended: from the start of a change to the start of the next")?;
        if let (Some(without), Some(kept)) = (report.undisturbed.connects_per_second(), report.rate_kept()) {
            let slices = report.undisturbed.elapsed.as_secs_f64();
            writeln!(
                f,
                "with changes {rate:.0} connects/s, without {without:.0} in {slices:.1} s of slices between them: {:.0} %",
                kept * 100.0
            )?;
        }
        let (p50, p99) = (report.reload.p50_us, report.reload.p99_us);
        writeln!(f, "asked/clean/cut: connections that were asked to end, closed cleanly, or were cut off")?;
        writeln!(f, "reconfigure: p50 {p50} µs, p99 {p99} µs; {} round trips on kept connections", report.echoes)?;
        let (answers, at_drains) = (report.answers, report.at_drains);
        writeln!(f, "requests: {answers} answered; {at_drains} were under way when their connections were asked to end")?;
        accounts(f, report)
    }
}

fn spoiled(row: &Row) -> bool {
    row.seen.failed() + row.seen.lost() + row.seen.wrong_bytes + row.seen.ended_badly > 0
}

fn cells(row: &Row) -> [String; HEAD.len()] {
    let seen = row.seen;
    let second = match row.asked + seen.ended_well + seen.ended_badly {
        0 => "-".to_owned(),
        _ => format!("{}/{}/{}", row.asked, seen.ended_well, seen.ended_badly),
    };
    [
        row.kind.name().to_owned(),
        row.times.to_string(),
        row.apply.p50_us.to_string(),
        row.apply.p99_us.to_string(),
        seen.connects.to_string(),
        seen.failed().to_string(),
        seen.lost().to_string(),
        seen.wrong_bytes.to_string(),
        second,
        if spoiled(row) { "<-".to_owned() } else { String::new() },
    ]
}

/// Writes the counts of both ends, as a sum.
fn accounts(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let books = &report.books;
    let part = |(group, count): &(Group, u64)| format!("{count} {}", group.name());
    let parts: Vec<String> = books.established.iter().map(part).collect();
    let sign = |equal: bool| if equal { "==" } else { "!=" };
    let equal = sign(books.accepted == books.all_established());
    write!(f, "accounts: accepted {} {equal} established {}", books.accepted, parts.join(" + "))?;
    if books.still_open > 0 {
        write!(f, "; {} still open", books.still_open)?;
    }
    if let Some(opened) = books.passive_opens {
        let equal = sign(books.agrees_with_kernel());
        write!(f, "\nkernel: passive opens {opened} {equal} accepted {} + queued {}", books.accepted, books.queued)?;
        if books.agrees_with_kernel() && books.counted_twice() > 0 {
            write!(f, " + counted twice {}", books.counted_twice())?;
        }
    }
    failures(f, &report.failures, during)?;
    for (kind, why) in &report.absent {
        write!(f, "\nnot in this model: {}: {why}", kind.name())?;
    }
    for (kind, why) in &report.unseen {
        write!(f, "\nnot seen: {}: {why}", kind.name())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::kind::Kind;
    use super::super::report::tests::good;
    use super::*;

    #[test]
    fn columns_stand_under_their_heads() {
        let mut report = good();
        report.rows[Kind::Drain.index()].asked = 320;
        report.rows[Kind::Drain.index()].seen.ended_well = 320;
        report.rows[Kind::Loops.index()].seen.reset = 3;
        let text = Table(&report).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("change            times p50 µs p99 µs connects failed"), "{text}");
        assert_eq!(lines.len(), 1 + Kind::proper().len() + 7, "{text}");
        let row = |name: &str| *lines.iter().find(|line| line.starts_with(name)).expect("a row for each kind");
        assert!(row("drain").ends_with("320/320/0"), "{text}");
        assert!(row("loops").ends_with("<-"), "{text}");
        assert!(!text.contains("sabotage"), "{text}");
        let end = |line: &str, what: &str| line.find(what).map(|start| line[..start].chars().count() + what.chars().count());
        assert_eq!(end(lines[0], "connects"), end(row("protocol"), "5000"), "{text}");
    }

    #[test]
    fn a_table_fits_80_columns() {
        let mut report = good();
        report.rows[Kind::Drain.index()].asked = 9320;
        report.rows[Kind::Drain.index()].seen.ended_well = 9320;
        let text = Table(&report).to_string();
        let table = text.lines().take_while(|line| !line.is_empty());
        table.for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
    }

    #[test]
    fn accounts_are_a_sum() {
        let mut report = good();
        report.books.passive_opens = Some(95_501);
        let text = Table(&report).to_string();
        let sum = "accounts: accepted 105500 == established 105500 churn + 0 kept + 0 second set + 0 requests + 0 probe";
        assert!(text.contains(sum), "{text}");
        assert!(text.ends_with("kernel: passive opens 95501 != accepted 105500 + queued 0"), "{text}");
        report.books.passive_opens = Some(105_502);
        let text = Table(&report).to_string();
        assert!(text.ends_with("kernel: passive opens 105502 == accepted 105500 + queued 0 + counted twice 2"), "{text}");
        report.absent.push((Kind::Loops, "why".to_owned()));
        assert!(Table(&report).to_string().ends_with("\nnot in this model: loops: why"));
    }
}
