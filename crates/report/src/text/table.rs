//! Columns of text, as wide as their content.

/// Lays out rows: the first column to the left, the others to the right, two spaces between.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Lays out rows as [`table`] does, without as many of the `droppable` columns as it takes to fit into a width, in
/// their order.
pub fn table_within(rows: &[Vec<String>], width: usize, droppable: &[usize]) -> String {
    let mut dropped: Vec<usize> = Vec::new();
    loop {
        let kept = |row: &Vec<String>| {
            let cells = row.iter().enumerate().filter(|(column, _)| !dropped.contains(column));
            cells.map(|(_, cell)| cell.clone()).collect::<Vec<_>>()
        };
        let text = table(&rows.iter().map(kept).collect::<Vec<_>>());
        let is_wide = text.lines().any(|line| line.chars().count() > width);
        match droppable.get(dropped.len()).filter(|_| is_wide) {
            Some(next) => dropped.push(*next),
            None => return text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "10".into()], vec!["long".into(), "1".into()]];
        assert_eq!(table(&rows), "a     10\nlong   1\n");
    }

    #[test]
    fn columns_are_dropped_in_their_order_until_the_rest_fits() {
        let rows = [["name", "1", "22", "333"].map(ToOwned::to_owned).to_vec()];
        assert_eq!(table_within(&rows, 16, &[1, 2]), "name  1  22  333\n");
        assert_eq!(table_within(&rows, 15, &[1, 2]), "name  22  333\n");
        assert_eq!(table_within(&rows, 3, &[1, 2]), "name  333\n");
    }
}
