//! One HTML file that needs nothing else: style and pictures are inside, no script is needed to read it.

mod bars;
mod lines;
mod results;
mod style;

use super::document::{Chart, ChartKind, Document, Point};
use super::number;

impl Document {
    /// The report as one HTML file. It asks for nothing from anywhere, follows the reader's light or dark setting, and
    /// is laid out for A4 when printed.
    pub fn to_html(&self) -> String {
        let title = if self.title.is_empty() { "Measurement" } else { &self.title };
        let mut page =
            String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
        // What the page promises, the browser holds it to.
        page += "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n";
        page +=
            &format!("<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n", escape(title), style::CSS);
        page += &style::patterns();
        page += "<main>\n";
        page += &self.header(title);
        page += &self.faults();
        page += &results::section(self);
        page += &self.pictures();
        page += &self.circumstances();
        page += "</main>\n</body>\n</html>\n";
        page
    }

    fn header(&self, title: &str) -> String {
        let mut out = format!("<header>\n<h1>{}</h1>\n", escape(title));
        let mut facts = Vec::new();
        if !self.scenario.is_empty() {
            facts.push(format!("scenario {}", self.scenario));
        }
        if self.entries > 0 {
            facts.push(format!("{} entries", number::count(self.entries as f64)));
        }
        if self.rounds > 0 {
            facts.push(format!("{} {}", self.rounds, if self.rounds == 1 { "round" } else { "rounds" }));
        }
        if self.seconds > 0.0 {
            facts.push(format!("{} s a figure", number::plain(self.seconds)));
        }
        if !self.taken.is_empty() {
            facts.push(self.taken.clone());
        }
        if !facts.is_empty() {
            out += &format!("<p class=\"facts\">{}</p>\n", escape(&facts.join(" · ")));
        }
        out += &self.tiles();
        out + "</header>\n"
    }

    /// The figures that a hurried reader takes along.
    fn tiles(&self) -> String {
        let (reached, all) = self.goals();
        let invalid = self.rows.iter().filter(|row| row.invalid.is_some()).count();
        let mut tiles = Vec::new();
        if all > 0 {
            let tone = if reached == all { "good" } else { "short" };
            tiles.push((tone, format!("{reached} of {all}"), "goals reached".to_owned()));
        }
        if invalid > 0 {
            let what = if invalid == 1 { "row is invalid" } else { "rows are invalid" };
            tiles.push(("bad", invalid.to_string(), what.to_owned()));
        }
        if tiles.is_empty() {
            return String::new();
        }
        let tiles = tiles.iter().map(|(tone, figure, what)| {
            format!("<div class=\"tile {tone}\"><dd>{}</dd><dt>{}</dt></div>\n", escape(figure), escape(what))
        });
        format!("<dl class=\"tiles\">\n{}</dl>\n", tiles.collect::<String>())
    }

    /// Rows that must not be used, before anything else is read.
    fn faults(&self) -> String {
        let faults: String = self
            .rows
            .iter()
            .filter_map(|row| Some((row, row.invalid.as_ref()?)))
            .map(|(row, why)| format!("<li><strong>{}</strong>: {}</li>\n", escape(&row.name), escape(why)))
            .collect();
        if faults.is_empty() {
            return String::new();
        }
        format!(
            "<section class=\"faults\" role=\"note\">\n<h2>Invalid figures</h2>\n<p>What stands in these rows must not be used.</p>\n<ul>\n{faults}</ul>\n</section>\n"
        )
    }

    fn pictures(&self) -> String {
        let charts: String = self
            .charts
            .iter()
            .map(drawable)
            .enumerate()
            .map(|(number, chart)| match chart.kind {
                ChartKind::Lines => lines::figure(self, &chart, number),
                ChartKind::Bars => bars::figure(self, &chart, number),
            })
            .collect();
        if charts.is_empty() {
            return String::new();
        }
        format!("<section>\n<h2>Charts</h2>\n<div class=\"charts\">\n{charts}</div>\n</section>\n")
    }

    /// Who, where and how.
    fn circumstances(&self) -> String {
        let mut out = String::from("<section class=\"how\">\n<h2>How it was measured</h2>\n");
        if !self.servers.is_empty() {
            out += "<div class=\"scroll\"><table>\n<caption>The servers</caption>\n<thead><tr><th scope=\"col\">Server</th><th scope=\"col\">Version</th><th scope=\"col\">Started as</th></tr></thead>\n<tbody>\n";
            for (number, server) in self.servers.iter().enumerate() {
                out += &format!(
                    "<tr><th scope=\"row\">{} {}</th><td>{}</td><td><code>{}</code></td></tr>\n",
                    style::swatch(number),
                    escape(&server.name),
                    escape(&server.version),
                    escape(&server.flags)
                );
            }
            out += "</tbody>\n</table></div>\n";
        }
        if let Some(machine) = self.machine.in_words() {
            out += &format!("<p>Machine: {}. Servers and client ran on it together.</p>\n", escape(&machine));
        }
        if !self.notes.is_empty() {
            let notes = self.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note)));
            out += &format!("<ul>\n{}</ul>\n", notes.collect::<String>());
        }
        if let [first, _, ..] = self.servers.as_slice() {
            out += &format!(
                "<p>A ratio says how many times better {} is: above 1x it does more a second, or takes less time or room. \
                 It is taken round by round and shown as the median, with the least and the greatest round.</p>\n",
                escape(&first.name)
            );
        }
        if !self.command.is_empty() {
            out += &format!("<p>To repeat it:</p>\n<pre><code>{}</code></pre>\n", escape(&self.command));
        }
        out + "</section>\n"
    }
}

/// The chart with what is no number left out.
fn drawable(chart: &Chart) -> Chart {
    let mut chart = chart.clone();
    for series in &mut chart.series {
        series.points.retain(|point| point.x.is_finite());
        for point in &mut series.points {
            for value in [&mut point.y, &mut point.low, &mut point.high] {
                *value = value.filter(|value| value.is_finite());
            }
        }
    }
    chart
}

/// Text in HTML, also between quotes. Control characters have no place in HTML and become spaces.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c if c.is_control() && c != '\n' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Heading, legend, picture, note and the numbers behind it.
fn frame(document: &Document, chart: &Chart, number: usize, picture: &str) -> String {
    let mut out = format!(
        "<figure aria-labelledby=\"chart-{number}\">\n<figcaption id=\"chart-{number}\">{}</figcaption>\n",
        escape(&chart.title)
    );
    if chart.series.len() > 1 || chart.series.iter().any(|series| !series.label.is_empty()) {
        let looks = style::looks(document, chart);
        let items = chart.series.iter().zip(looks).map(|(series, look)| {
            let mark = match chart.kind {
                ChartKind::Lines => look.line_swatch(),
                ChartKind::Bars => style::swatch(look.colour),
            };
            format!("<li>{mark} {}</li>\n", escape(&series.label))
        });
        out += &format!("<ul class=\"legend\">\n{}</ul>\n", items.collect::<String>());
    }
    out += picture;
    if !chart.note.is_empty() {
        out += &format!("<p class=\"note\">{}</p>\n", escape(&chart.note));
    }
    out += &numbers(chart);
    out + "</figure>\n"
}

/// The most lines of a chart's table; the JSON has all.
const TABLE_LINES_MAX: usize = 200;

/// The numbers of a chart as a table: one line for each x, one column for each series.
fn numbers(chart: &Chart) -> String {
    let mut places: Vec<f64> =
        chart.series.iter().flat_map(|series| &series.points).map(|point| point.x).collect();
    places.sort_unstable_by(f64::total_cmp);
    places.dedup();
    let step = places.len().div_ceil(TABLE_LINES_MAX).max(1);
    let head: String = chart
        .series
        .iter()
        .map(|series| format!("<th scope=\"col\">{}</th>", escape(&series.label)))
        .collect();
    let mut out = format!(
        "<details>\n<summary>Numbers of this chart</summary>\n<div class=\"scroll\"><table>\n<caption>{} ({})</caption>\n<thead><tr><th scope=\"col\">{}</th>{head}</tr></thead>\n<tbody>\n",
        escape(&chart.title),
        escape(&chart.y.label),
        escape(&chart.x.label)
    );
    for x in places.iter().step_by(step) {
        let cells = chart.series.iter().map(|series| {
            let point = series.points.iter().find(|point| point.x.total_cmp(x).is_eq());
            format!(
                "<td>{}</td>",
                point.map_or_else(|| "–".into(), |point| with_spread(point, &chart.y.label))
            )
        });
        let name = category_or_number(chart, *x);
        out += &format!("<tr><th scope=\"row\">{}</th>{}</tr>\n", escape(&name), cells.collect::<String>());
    }
    out += "</tbody>\n</table></div>\n";
    if step > 1 {
        out +=
            &format!("<p class=\"note\">Every {step}th of {} points; the JSON has all.</p>\n", places.len());
    }
    out + "</details>\n"
}

/// A point's value with the least and the greatest round.
fn with_spread(point: &Point, label: &str) -> String {
    let unit = if is_bytes(label) { "bytes" } else { "" };
    let show = |value: f64| number::figure(value, unit);
    match (point.y, point.low, point.high) {
        (None, ..) => "–".into(),
        (Some(y), Some(low), Some(high)) if low < high => {
            format!("{} <small>({} – {})</small>", show(y), show(low), show(high))
        }
        (Some(y), ..) => show(y),
    }
}

/// Whether an axis counts bytes: its label is `bytes` or ends with `, bytes`.
fn is_bytes(label: &str) -> bool {
    label == "bytes" || label.ends_with(", bytes")
}

/// What stands at `x`: a category's name or the number.
fn category_or_number(chart: &Chart, x: f64) -> String {
    let category = || chart.x.categories.get(x as usize).cloned();
    (x >= 0.0 && x.fract() == 0.0).then(category).flatten().unwrap_or_else(|| number::plain(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping() {
        for (text, expected) in [
            ("plain", "plain"),
            ("<b>&\"'", "&lt;b&gt;&amp;&quot;&#39;"),
            ("a\u{0}b\u{1b}[1m", "a b [1m"),
            ("ä 猫", "ä 猫"),
        ] {
            assert_eq!(escape(text), expected);
        }
    }
}
