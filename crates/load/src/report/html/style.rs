//! Colours, marks and hatchings: what tells the servers apart, on screen, on paper and without colours.

use super::super::document::{Chart, Document};

/// The page's style sheet.
pub(super) const CSS: &str = include_str!("style.css");

/// How many servers look different; more begin again.
const LOOKS: usize = 6;

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Look {
    /// 0 to `LOOKS - 1`; of the style sheet and of the hatching.
    pub(super) colour: usize,
    pub(super) mark: usize,
    dash: usize,
}

/// The looks of a chart's series: a server keeps its colour through the report, and its mark unless it has several
/// series in this chart.
pub(super) fn looks(document: &Document, chart: &Chart) -> Vec<Look> {
    let servers = document.servers.len().max(1);
    let mut seen: Vec<usize> = Vec::new();
    chart
        .series
        .iter()
        .enumerate()
        .map(|(place, series)| {
            let colour = series.server.unwrap_or(place) % LOOKS;
            let repeat = seen.iter().filter(|known| **known == colour).count();
            seen.push(colour);
            Look {
                colour,
                mark: (colour + repeat * servers) % LOOKS,
                dash: (colour + repeat * servers) % LOOKS,
            }
        })
        .collect()
}

impl Look {
    pub(super) fn dashes(self) -> &'static str {
        ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2 1 2"].get(self.dash).copied().unwrap_or("")
    }

    /// The mark of a point.
    pub(super) fn mark(self, x: f64, y: f64, title: &str) -> String {
        let class = format!("class=\"mark s{}\"", self.colour);
        let path = |d: String| format!("<path {class} d=\"{d}\">{title}</path>");
        match self.mark {
            0 => format!("<circle {class} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\">{title}</circle>"),
            1 => path(format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5)),
            2 => path(format!("M{:.1} {:.1}l4.8 8.2h-9.6z", x, y - 5.0)),
            3 => path(format!("M{:.1} {:.1}l5 5l-5 5l-5 -5z", x, y - 5.0)),
            4 => path(format!("M{:.1} {:.1}l4.8 -8.2h-9.6z", x, y + 5.0)),
            _ => path(format!("M{:.1} {:.1}h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z", x - 1.5, y - 5.0)),
        }
    }

    /// A piece of the line with its mark, for the legend.
    pub(super) fn line_swatch(self) -> String {
        format!(
            "<svg class=\"swatch\" width=\"34\" height=\"14\" aria-hidden=\"true\"><line class=\"line s{}\" x1=\"0\" y1=\"7\" x2=\"34\" y2=\"7\" stroke-dasharray=\"{}\"/>{}</svg>",
            self.colour,
            self.dashes(),
            self.mark(17.0, 7.0, "")
        )
    }
}

/// A server's colour and hatching in a small box.
pub(super) fn swatch(server: usize) -> String {
    let colour = server % LOOKS;
    format!(
        "<svg class=\"swatch\" width=\"16\" height=\"14\" aria-hidden=\"true\">{}</svg>",
        bar("0", "16", 1, 12, colour)
    )
}

/// A bar in a server's colour with its hatching over it; `x` and `width` with their units.
pub(super) fn bar(x: &str, width: &str, y: u32, height: u32, colour: usize) -> String {
    let place = format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"");
    let mut out = format!("<rect class=\"bar s{colour}\" {place}/>");
    if colour > 0 {
        out += &format!("<rect {place} fill=\"url(#hatch-{colour})\"/>");
    }
    out
}

/// The hatchings, defined once a page.
pub(super) fn patterns() -> String {
    let shapes = [
        "<path d=\"M-2 2l4 -4M0 8l8 -8M6 10l4 -4\"/>",
        "<path d=\"M0 2h8M0 6h8\"/>",
        "<path d=\"M-2 6l4 4M0 0l8 8M6 -2l4 4\"/>",
        "<path d=\"M2 0v8M6 0v8\"/>",
        "<path d=\"M0 4h8M4 0v8\"/>",
    ];
    let patterns = shapes.iter().zip(1..).map(|(shape, number)| {
        format!("<pattern id=\"hatch-{number}\" class=\"hatch\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">{shape}</pattern>")
    });
    format!(
        "<svg class=\"patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>{}<pattern id=\"hatch-short\" class=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><path d=\"M-1.5 1.5l3 -3M0 6l6 -6M4.5 7.5l3 -3\"/></pattern></defs></svg>\n",
        patterns.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Axis, ChartKind, Server};

    #[test]
    fn a_server_keeps_its_colour_and_two_of_its_series_differ() {
        let servers = vec![Server::default(), Server::default()];
        let document = Document { servers, ..Document::default() };
        let mut chart = Chart::new("t", ChartKind::Lines, Axis::linear("x"), Axis::linear("y"));
        for server in [1, 0, 1, 0] {
            chart.push("", server, Vec::new());
        }
        let looks = looks(&document, &chart);
        assert_eq!(looks.iter().map(|look| look.colour).collect::<Vec<_>>(), [1, 0, 1, 0]);
        let mut marks: Vec<usize> = looks.iter().map(|look| look.mark).collect();
        marks.sort_unstable();
        marks.dedup();
        assert_eq!(marks.len(), 4);
    }
}
