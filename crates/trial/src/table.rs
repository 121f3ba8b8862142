//! The columns of reports.

/// Rows with columns as wide as their widest cell: the first `text` of them begin under each other, the others end so.
pub(crate) fn aligned(rows: &[impl AsRef<[String]>], text: usize) -> String {
    let columns = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let width = |column: usize| rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let row = |row: &[String]| {
        let pad = |(column, cell): (usize, &String)| {
            let width = widths[column];
            if column < text { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        row.iter().enumerate().map(pad).collect::<Vec<_>>().join(" ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(|one| row(one.as_ref())).collect()
}
