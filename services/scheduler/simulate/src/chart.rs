//! Line charts as SVG, drawn by hand: no script, no style sheet of others, the same bytes for the same numbers.

use std::fmt::Write as _;

/// One line of a chart.
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// What a chart shows.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) across: &'a str,
    pub(crate) up: &'a str,
    pub(crate) lines: Vec<Line>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 260.0;
/// Room for the numbers and names of the axes.
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 30.0;
const TICKS: u32 = 5;
/// Told apart also by those who see no colours well (Okabe and Ito), and by their dashes.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000"];
const DASHES: [&str; 3] = ["", "6 3", "2 2"];

/// Text that stands in HTML as it is read.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number of an axis: no more digits than are read.
fn shown(value: f64) -> String {
    let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

impl Chart<'_> {
    /// The chart as an `svg` element.
    pub(crate) fn svg(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(0.0, f64::max);
        let (across, up) = (most(|point| point.0).max(1e-9), most(|point| point.1).max(1e-9));
        let x = |value: f64| LEFT + value / across * (WIDTH - LEFT - 16.0);
        let y = |value: f64| HEIGHT - BOTTOM - value / up * (HEIGHT - BOTTOM - TOP);
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n", escaped(self.title));
        // Writing to a string cannot fail.
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"16\" class=\"title\">{}</text>", escaped(self.title));
        for tick in 0..=TICKS {
            let part = f64::from(tick) / f64::from(TICKS);
            let (at_x, at_y) = (x(across * part), y(up * part));
            let _ = writeln!(svg, "<line x1=\"{LEFT}\" y1=\"{at_y:.1}\" x2=\"{:.1}\" y2=\"{at_y:.1}\" class=\"grid\"/>", x(across));
            let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", LEFT - 6.0, at_y + 4.0, shown(up * part));
            let below = HEIGHT - BOTTOM + 16.0;
            let _ = writeln!(svg, "<text x=\"{at_x:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{}</text>", shown(across * part));
        }
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", x(across), HEIGHT - 8.0, escaped(self.across));
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\">{}</text>", HEIGHT - 8.0, escaped(self.up));
        for (at, line) in self.lines.iter().enumerate() {
            let points: Vec<String> = line.points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
            let (colour, dash) = (COLOURS[at % COLOURS.len()], DASHES[at % DASHES.len()]);
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"{dash}\"/>",
                points.join(" ")
            );
            let right = WIDTH - 16.0;
            let _ = writeln!(
                svg,
                "<text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
                16.0 + 14.0 * at as f64,
                escaped(&line.label)
            );
        }
        svg + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_stays_in_its_frame_and_a_name_stays_a_name() {
        let line = Line { label: "<b>&\"".to_owned(), points: vec![(0.0, 0.0), (10.0, 4.0)] };
        let svg = Chart { title: "t", across: "hours", up: "jobs", lines: vec![line] }.svg();
        assert!(svg.contains("&lt;b&gt;&amp;&quot;") && !svg.contains("<b>"));
        assert!(svg.contains("64.0,216.0 744.0,30.0"), "{svg}");
        let empty = Chart { title: "t", across: "", up: "", lines: vec![Line { label: String::new(), points: Vec::new() }] }.svg();
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }
}
