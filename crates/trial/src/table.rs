//! The columns of reports.

/// Rows with columns as wide as their widest cell: the first `text` of them begin under each other, the others end so.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]], text: usize) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let row = |row: &[String; N]| {
        let pad = |column: usize| {
            let (cell, width) = (&row[column], widths[column]);
            if column < text { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        std::array::from_fn::<String, N, _>(pad).join(" ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(row).collect()
}
