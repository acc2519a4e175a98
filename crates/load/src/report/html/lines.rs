//! Charts of lines.

use super::super::document::{Chart, Document, Point, Scale, Series};
use super::super::number;
use super::super::scale::Span;
use super::style::{self, Look};
use super::{category_or_number, escape, frame, is_bytes, with_spread};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 50.0;

/// With more points than this, points are no longer marked, and the spread is a band instead of whiskers.
const MARKS_MAX: usize = 30;
/// The most categories whose names stand under the axis; of more every second, third... is named.
const NAMES_MAX: usize = 10;

struct Plot<'a> {
    chart: &'a Chart,
    x: Span,
    y: Span,
}

pub(super) fn figure(document: &Document, chart: &Chart, number: usize) -> String {
    let Some(plot) = Plot::of(chart) else {
        return frame(
            document,
            chart,
            number,
            "<p class=\"absent\">Nothing was measured for this chart.</p>\n",
        );
    };
    let mut svg = format!(
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"plot-{number}\">\n<title id=\"plot-{number}\">{}</title>\n",
        escape(&described(chart))
    );
    svg += &plot.axes();
    for (series, look) in chart.series.iter().zip(style::looks(document, chart)) {
        svg += &plot.series(series, look);
    }
    frame(document, chart, number, &(svg + "</svg>\n"))
}

impl<'a> Plot<'a> {
    /// Absent when no point has a place.
    fn of(chart: &'a Chart) -> Option<Self> {
        let points =
            || chart.series.iter().flat_map(|series| &series.points).filter(|point| point.y.is_some());
        let xs = points()
            .map(|point| point.x)
            .filter(|x| x.is_finite() && (*x > 0.0 || chart.x.scale == Scale::Linear));
        let ys = points().flat_map(|point| [point.y, point.low, point.high]).flatten();
        let ys = ys.filter(|y| y.is_finite() && (*y > 0.0 || chart.y.scale == Scale::Linear));
        let (x_low, x_high) = (xs.clone().reduce(f64::min)?, xs.reduce(f64::max)?);
        let (y_low, y_high) = (ys.clone().reduce(f64::min)?, ys.reduce(f64::max)?);
        let x = match chart.x.scale {
            _ if !chart.x.categories.is_empty() => Span::exactly(-0.5, chart.x.categories.len() as f64 - 0.5),
            Scale::Linear => Span::linear(x_low.min(0.0), x_high, 8),
            Scale::Log => Span::log(x_low, x_high),
        };
        let y = match chart.y.scale {
            Scale::Linear if is_bytes(&chart.y.label) => Span::bytes(y_high),
            Scale::Linear => Span::linear(y_low.min(0.0), y_high, 5),
            Scale::Log => Span::log(y_low, y_high),
        };
        Some(Self { chart, x, y })
    }

    fn at_x(&self, x: f64) -> Option<f64> {
        Some(LEFT + self.x.position(x)? * (WIDTH - LEFT - RIGHT))
    }

    fn at_y(&self, y: f64) -> Option<f64> {
        Some(HEIGHT - BOTTOM - self.y.position(y)? * (HEIGHT - TOP - BOTTOM))
    }

    fn axes(&self) -> String {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let mut out = String::new();
        let unit = if is_bytes(&self.chart.y.label) { "bytes" } else { "" };
        for tick in &self.y.ticks {
            let Some(y) = self.at_y(*tick) else { continue };
            out +=
                &format!("<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>");
            let text = number::figure(*tick, unit);
            out += &format!("<text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>\n", LEFT - 8.0, y + 4.0);
        }
        for (x, text) in self.x_ticks() {
            out += &format!(
                "<line class=\"tick\" x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{}\"/>",
                bottom + 5.0
            );
            out +=
                &format!("<text class=\"x\" x=\"{x:.1}\" y=\"{}\">{}</text>\n", bottom + 18.0, escape(&text));
        }
        out += &format!("<path class=\"frame\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\n");
        let log = |axis: Scale| if axis == Scale::Log { " (logarithmic)" } else { "" };
        out += &format!(
            "<text class=\"axis-y\" x=\"{LEFT}\" y=\"14\">{}{}</text>\n",
            escape(&self.chart.y.label),
            log(self.chart.y.scale)
        );
        out += &format!(
            "<text class=\"axis-x\" x=\"{:.1}\" y=\"{}\">{}{}</text>\n",
            f64::midpoint(LEFT, right),
            HEIGHT - 10.0,
            escape(&self.chart.x.label),
            log(self.chart.x.scale)
        );
        out
    }

    fn x_ticks(&self) -> Vec<(f64, String)> {
        let names = &self.chart.x.categories;
        if names.is_empty() {
            let ticks =
                self.x.ticks.iter().filter_map(|tick| Some((self.at_x(*tick)?, number::plain(*tick))));
            return ticks.collect();
        }
        let step = names.len().div_ceil(NAMES_MAX).max(1);
        let room = 90 / names.len().div_ceil(step).max(1);
        let ticks = names.iter().enumerate().step_by(step);
        ticks
            .filter_map(|(place, name)| Some((self.at_x(place as f64)?, shortened(name, room.max(4)))))
            .collect()
    }

    fn series(&self, series: &Series, look: Look) -> String {
        let mut points: Vec<&Point> = series.points.iter().collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let marked = points.len() <= MARKS_MAX;
        let mut out = if marked { self.whiskers(&points, look) } else { self.band(&points, look) };
        let mut path = String::new();
        let mut pen = 'M';
        for point in &points {
            match (self.at_x(point.x), point.y.and_then(|y| self.at_y(y))) {
                (Some(x), Some(y)) => {
                    path += &format!("{pen}{x:.1} {y:.1}");
                    pen = 'L';
                }
                // A gap: what was not measured is not drawn.
                _ => pen = 'M',
            }
        }
        out += &format!(
            "<path class=\"line s{}\" stroke-dasharray=\"{}\" d=\"{path}\"/>\n",
            look.colour,
            look.dashes()
        );
        if marked {
            for point in points {
                let (Some(x), Some(y)) = (self.at_x(point.x), point.y.and_then(|y| self.at_y(y))) else {
                    continue;
                };
                out += &look.mark(x, y, &self.title(series, point));
            }
            out.push('\n');
        }
        out
    }

    /// What a pointer that rests on the mark reads.
    fn title(&self, series: &Series, point: &Point) -> String {
        let value = with_spread(point, &self.chart.y.label).replace("<small>", "").replace("</small>", "");
        let name = category_or_number(self.chart, point.x);
        format!(
            "<title>{}, {} {}: {value}</title>",
            escape(&series.label),
            escape(&self.chart.x.label),
            escape(&name)
        )
    }

    fn whiskers(&self, points: &[&Point], look: Look) -> String {
        let mut out = String::new();
        for point in points {
            let ends = (
                self.at_x(point.x),
                point.low.and_then(|y| self.at_y(y)),
                point.high.and_then(|y| self.at_y(y)),
            );
            let (Some(x), Some(low), Some(high)) = ends else { continue };
            out += &format!(
                "<path class=\"spread s{}\" d=\"M{:.1} {low:.1}h8M{x:.1} {low:.1}V{high:.1}M{:.1} {high:.1}h8\"/>",
                look.colour,
                x - 4.0,
                x - 4.0
            );
        }
        out
    }

    fn band(&self, points: &[&Point], look: Look) -> String {
        let edge = |end: fn(&Point) -> Option<f64>| -> Vec<(f64, f64)> {
            let places = points.iter().filter(|point| point.low.is_some() && point.high.is_some());
            places.filter_map(|point| Some((self.at_x(point.x)?, self.at_y(end(point)?)?))).collect()
        };
        let (high, mut low) = (edge(|point| point.high), edge(|point| point.low));
        low.reverse();
        if high.len() < 2 {
            return String::new();
        }
        let corners: Vec<String> = high.iter().chain(&low).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        format!("<polygon class=\"band s{}\" points=\"{}\"/>\n", look.colour, corners.join(" "))
    }
}

/// The name in at most `room` characters.
fn shortened(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    let kept: String = name.chars().take(room.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// The chart in a sentence, for who cannot see it.
fn described(chart: &Chart) -> String {
    let series: Vec<&str> = chart.series.iter().map(|series| series.label.as_str()).collect();
    format!(
        "{}: lines of {} over {}, for {}. The numbers are in the table below.",
        chart.title,
        chart.y.label,
        chart.x.label,
        series.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_by_characters() {
        for (name, room, expected) in [("short", 5, "short"), ("longer", 5, "long…"), ("äöüß", 3, "äö…")]
        {
            assert_eq!(shortened(name, room), expected);
        }
    }
}
