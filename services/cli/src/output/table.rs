//! Tables for people: columns as wide as their content, cut to the terminal where there is one.

use super::Style;

/// How a column behaves when the terminal is narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Never cut: ids, states, numbers.
    Whole,
    /// Cut with an ellipsis where needed: names, reasons.
    Cut,
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading, in capitals.
    pub heading: &'static str,
    /// Whether it is shown with `-o wide` only.
    pub wide_only: bool,
    /// How it behaves when there is little room.
    pub fit: Fit,
}

impl Column {
    /// A column that is never cut.
    pub const fn whole(heading: &'static str) -> Self {
        Self { heading, wide_only: false, fit: Fit::Whole }
    }

    /// A column that may be cut.
    pub const fn cut(heading: &'static str) -> Self {
        Self { heading, wide_only: false, fit: Fit::Cut }
    }

    /// The same column, for `-o wide` only.
    #[must_use]
    pub const fn wide(self) -> Self {
        Self { wide_only: true, ..self }
    }
}

/// Blanks between columns.
const GAP: usize = 2;
/// The narrowest a column is cut to.
const NARROWEST: usize = 8;

/// Renders rows under headings. `width` is that of the terminal; without one nothing is cut. Every line ends without blanks.
pub fn render(columns: &[Column], rows: &[Vec<String>], wide: bool, width: Option<usize>, style: Style) -> String {
    let shown: Vec<usize> = (0..columns.len()).filter(|at| wide || !columns[*at].wide_only).collect();
    let cell = |row: &[String], at: usize| row.get(at).map(|text| one_line(text)).unwrap_or_default();
    let mut widths: Vec<usize> = shown
        .iter()
        .map(|at| rows.iter().map(|row| columns_of(&cell(row, *at))).chain([columns[*at].heading.len()]).max().unwrap_or(0))
        .collect();
    if let Some(width) = width {
        narrow(columns, &shown, &mut widths, width);
    }
    let line = |cells: Vec<String>| {
        let mut text = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            let cell = cut(cell, *width);
            text.push_str(&cell);
            text.extend(std::iter::repeat_n(' ', width.saturating_sub(columns_of(&cell)) + GAP));
        }
        text.trim_end().to_owned()
    };
    let mut text = style.heading(&line(shown.iter().map(|at| columns[*at].heading.to_owned()).collect()));
    text.push('\n');
    for row in rows {
        text.push_str(&line(shown.iter().map(|at| cell(row, *at)).collect()));
        text.push('\n');
    }
    text
}

/// Takes width from the columns that may be cut, the widest first, until the line fits or nothing more can be taken.
fn narrow(columns: &[Column], shown: &[usize], widths: &mut [usize], width: usize) {
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    while total(widths) > width {
        let widest =
            (0..widths.len()).filter(|at| columns[shown[*at]].fit == Fit::Cut && widths[*at] > NARROWEST).max_by_key(|at| widths[*at]);
        let Some(widest) = widest else { return };
        widths[widest] -= 1;
    }
}

/// A cell holds one line: control characters (also those that would move a terminal's cursor) become blanks.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// How many terminal columns a text takes: two for wide (East Asian) letters, none for combining marks.
pub fn columns_of(text: &str) -> usize {
    text.chars().map(columns_of_letter).sum()
}

fn columns_of_letter(letter: char) -> usize {
    match u32::from(letter) {
        0x0300..=0x036F | 0x200B..=0x200F | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F
        | 0x2E80..=0x303E
        | 0x3041..=0xA4CF
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0xFFE0..=0xFFE6
        | 0x1F300..=0x1F64F
        | 0x1F900..=0x1F9FF
        | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

fn cut(text: &str, width: usize) -> String {
    if columns_of(text) <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let kept: String = text
        .chars()
        .take_while(|letter| {
            let fits = columns_of_letter(*letter) <= room;
            room = room.saturating_sub(columns_of_letter(*letter));
            fits
        })
        .collect();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [Column::whole("ID"), Column::cut("NAME"), Column::whole("HOST").wide()];

    fn rows() -> Vec<Vec<String>> {
        vec![vec!["a1".into(), "推荐模型".into(), "n1".into()], vec!["b22".into(), "a name that is long\tand tabbed".into(), "n2".into()]]
    }

    #[test]
    fn columns_align_also_under_wide_letters() {
        let text = render(&COLUMNS, &rows(), true, None, Style::Plain);
        assert_eq!(
            text,
            "ID   NAME                            HOST\na1   推荐模型                        n1\nb22  a name that is long and tabbed  n2\n"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_names_and_never_ids() {
        let text = render(&COLUMNS, &rows(), false, Some(16), Style::Plain);
        assert_eq!(text, "ID   NAME\na1   推荐模型\nb22  a name tha…\n");
    }
}
