//! Charts of bars: lying, so that long names have room, and from zero; on a logarithmic axis from its least mark.

use super::super::document::{Chart, Document, Point, Scale};
use super::super::number;
use super::super::scale::Span;
use super::{category_or_number, escape, frame, is_bytes, style};

pub(super) fn figure(document: &Document, chart: &Chart, number: usize) -> String {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let most = points().flat_map(|point| [point.y, point.high]).flatten().fold(0.0, f64::max);
    let unit = if is_bytes(&chart.y.label) { "bytes" } else { "" };
    let least = points().flat_map(|point| [point.y, point.low]).flatten().fold(f64::INFINITY, f64::min);
    // There is no logarithm of nothing.
    let is_log = chart.y.scale == Scale::Log && least > 0.0 && most.is_finite() && least <= most;
    let span = match unit {
        _ if is_log => Span::log(least, most),
        "bytes" => Span::bytes(most),
        _ => Span::from_zero(most, 4),
    };
    let mut places: Vec<f64> = points().map(|point| point.x).collect();
    places.sort_unstable_by(f64::total_cmp);
    places.dedup();
    let looks = style::looks(document, chart);
    let percent = |value: f64| span.position(value).unwrap_or(0.0) * 100.0;
    let mut out =
        format!("<div class=\"lying\" role=\"img\" aria-label=\"{}\">\n", escape(&described(chart)));
    let named = span.named(0.0, 0.24);
    let ticks = named.iter().map(|tick| {
        format!("<text x=\"{:.2}%\" y=\"11\">{}</text>", percent(*tick), number::figure(*tick, unit))
    });
    out += &format!(
        "<div></div><div class=\"bars\"><svg class=\"axis\" width=\"100%\" height=\"14\" aria-hidden=\"true\">{}</svg></div>\n",
        ticks.collect::<String>()
    );
    for x in places {
        out += &format!(
            "<div class=\"name\">{}</div><div class=\"bars\">",
            escape(&category_or_number(chart, x))
        );
        for (series, look) in chart.series.iter().zip(&looks) {
            let point = series.points.iter().find(|point| point.x.total_cmp(&x).is_eq());
            out += &bar(point, look.colour, &span, unit);
        }
        out += "</div>\n";
    }
    let scale = if is_log { " (logarithmic)" } else { "" };
    out += &format!("</div>\n<p class=\"label\">{}{scale}</p>\n", escape(&chart.y.label));
    frame(document, chart, number, &out)
}

fn bar(point: Option<&Point>, colour: usize, span: &Span, unit: &str) -> String {
    let Some((point, y)) = point.and_then(|point| Some((point, point.y?))) else {
        return "<div class=\"ratio\"><span class=\"absent\">not measured</span></div>".into();
    };
    let percent = |value: f64| span.position(value).unwrap_or(0.0) * 100.0;
    let mut svg = String::from("<svg class=\"track\" width=\"100%\" height=\"18\" aria-hidden=\"true\">");
    for tick in &span.ticks {
        let x = percent(*tick);
        svg += &format!("<line class=\"grid\" x1=\"{x:.2}%\" y1=\"0\" x2=\"{x:.2}%\" y2=\"18\"/>");
    }
    svg += &style::bar("0", &format!("{:.2}%", percent(y)), 3, 12, colour);
    if let (Some(low), Some(high)) = (point.low, point.high) {
        let (low, high) = (percent(low), percent(high));
        svg += &format!("<line class=\"whisker\" x1=\"{low:.2}%\" y1=\"9\" x2=\"{high:.2}%\" y2=\"9\"/>");
        for x in [low, high] {
            svg += &format!("<line class=\"whisker\" x1=\"{x:.2}%\" y1=\"5\" x2=\"{x:.2}%\" y2=\"13\"/>");
        }
    }
    format!("<div class=\"ratio\">{svg}</svg><span>{}</span></div>", number::figure(y, unit))
}

/// The chart in a sentence, for who cannot see it.
fn described(chart: &Chart) -> String {
    let series: Vec<&str> = chart.series.iter().map(|series| series.label.as_str()).collect();
    format!(
        "{}: bars of {} by {}, for {}. The numbers are in the table below.",
        chart.title,
        chart.y.label,
        chart.x.label,
        series.join(", ")
    )
}
