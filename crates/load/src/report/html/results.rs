//! The table of results: every server's figures, and the ratios as bars beside them.

use super::super::document::{Better, Document, Ratio, Row};
use super::super::number;
use super::super::scale::Span;
use super::{escape, style};

/// Where the greatest ratio is more than this, bars are laid on powers of ten, or small ones could not be told apart.
const LINEAR_MAX: f64 = 12.0;

/// How ratios are laid on the width of their column.
struct Ratios {
    span: Span,
    /// Where bars begin: at 0 on a linear axis; at 1x, "equal", on a logarithmic one.
    origin: f64,
    logarithmic: bool,
}

impl Ratios {
    fn of(document: &Document) -> Self {
        let rows = || document.rows.iter().filter(|row| row.invalid.is_none());
        let ratios: Vec<Ratio> =
            rows().flat_map(|row| (1..document.servers.len()).filter_map(|other| row.ratio(other))).collect();
        let goals = rows().filter_map(|row| row.goal).filter(|goal| *goal > 0.0 && goal.is_finite());
        let most = ratios.iter().map(|ratio| ratio.max).chain(goals.clone()).fold(1.0, f64::max);
        let least = ratios.iter().map(|ratio| ratio.min).chain(goals).fold(1.0, f64::min);
        if most > LINEAR_MAX || least < 0.1 {
            Self { span: Span::log(least, most), origin: 1.0, logarithmic: true }
        } else {
            Self { span: Span::from_zero(most, 5), origin: 0.0, logarithmic: false }
        }
    }

    fn percent(&self, value: f64) -> f64 {
        self.span.position(value).unwrap_or(0.0) * 100.0
    }

    /// The axis above the bars.
    fn head(&self, servers: usize) -> String {
        // Each server takes a column from the bars' width.
        let named = self.span.named(1.0, 0.12 * servers.saturating_sub(1).max(1) as f64);
        let ticks = named.iter().map(|tick| {
            format!("<text x=\"{:.2}%\" y=\"11\">{}</text>", self.percent(*tick), number::goal(*tick))
        });
        format!(
            "<svg class=\"axis\" width=\"100%\" height=\"14\" aria-hidden=\"true\">{}</svg>",
            ticks.collect::<String>()
        )
    }

    /// One ratio: the bar to its median, a whisker from the least to the greatest round, the goal as a mark.
    fn bar(&self, row: &Row, ratio: Ratio, reached: Option<bool>) -> String {
        let mut out = String::from("<svg class=\"track\" width=\"100%\" height=\"22\" aria-hidden=\"true\">");
        let grid = self.span.ticks.iter().map(|tick| ("grid", *tick)).chain([("equal", 1.0)]);
        for (class, value) in grid {
            let x = self.percent(value);
            out += &format!("<line class=\"{class}\" x1=\"{x:.2}%\" y1=\"0\" x2=\"{x:.2}%\" y2=\"22\"/>");
        }
        let (from, to) = (self.percent(self.origin), self.percent(ratio.median));
        let (x, width) = (from.min(to), (to - from).abs());
        let place = format!("x=\"{x:.2}%\" y=\"5\" width=\"{width:.2}%\" height=\"12\"");
        out += &format!("<rect class=\"bar s0\" {place}/>");
        if reached == Some(false) {
            out += &format!("<rect {place} fill=\"url(#hatch-short)\"/>");
        }
        if ratio.rounds > 1 {
            let (low, high) = (self.percent(ratio.min), self.percent(ratio.max));
            out +=
                &format!("<line class=\"whisker\" x1=\"{low:.2}%\" y1=\"11\" x2=\"{high:.2}%\" y2=\"11\"/>");
            for x in [low, high] {
                out += &format!("<line class=\"whisker\" x1=\"{x:.2}%\" y1=\"7\" x2=\"{x:.2}%\" y2=\"15\"/>");
            }
        }
        if let Some(goal) = row.goal.filter(|goal| *goal > 0.0) {
            let x = self.percent(goal);
            out += &format!("<line class=\"goal\" x1=\"{x:.2}%\" y1=\"1\" x2=\"{x:.2}%\" y2=\"21\"/>");
        }
        out + "</svg>"
    }
}

pub(super) fn section(document: &Document) -> String {
    if document.rows.is_empty() {
        return String::new();
    }
    let ratios = Ratios::of(document);
    let compared = document.servers.len() > 1;
    let mut out = String::from("<section>\n<h2>Results</h2>\n");
    if compared {
        out += &key(document, &ratios);
    }
    let many = if document.servers.len() > 2 { " many" } else { "" };
    out += &format!(
        "<div class=\"scroll\"><table class=\"results{many}\">\n<thead><tr><th scope=\"col\">Work</th>"
    );
    for (number, server) in document.servers.iter().enumerate() {
        out += &format!(
            "<th scope=\"col\" class=\"number\">{} {}</th>",
            style::swatch(number),
            escape(&server.name)
        );
    }
    if compared {
        let to = match document.servers.as_slice() {
            [_, other] => format!("Ratio to {}", escape(&other.name)),
            _ => "Ratio".to_owned(),
        };
        out += &format!("<th scope=\"col\" class=\"bars\">{to}{}</th>", ratios.head(document.servers.len()));
    }
    let verdicts = document.has_verdicts();
    out += if verdicts { "<th scope=\"col\" class=\"goal\">Goal</th></tr></thead>" } else { "</tr></thead>" };
    out += "\n<tbody>\n";
    let columns = document.servers.len() + 1 + usize::from(compared) + usize::from(verdicts);
    let mut group = "";
    for row in &document.rows {
        if row.group != group {
            group = &row.group;
            out += &format!(
                "<tr class=\"group\"><th colspan=\"{columns}\" scope=\"rowgroup\">{}</th></tr>\n",
                escape(group)
            );
        }
        out += &line(document, row, &ratios, compared);
    }
    out + "</tbody>\n</table></div>\n</section>\n"
}

/// How the bars are read.
fn key(document: &Document, ratios: &Ratios) -> String {
    let first = document.servers.first().map_or("", |server| &server.name);
    let axis = if ratios.logarithmic {
        "The axis is logarithmic: bars begin at 1x, equal, and a bar to the left of it is worse."
    } else {
        "Bars begin at zero."
    };
    let mut out = format!(
        "<p class=\"key\">Figures are medians over the rounds, with the least and the greatest below. Bars show how many times better {} is; longer is better. {axis}</p>\n",
        escape(first)
    );
    let line = |class: &str| {
        format!(
            "<svg class=\"swatch\" width=\"16\" height=\"14\" aria-hidden=\"true\"><line class=\"{class}\" x1=\"8\" y1=\"0\" x2=\"8\" y2=\"14\"/></svg>"
        )
    };
    out += "<ul class=\"legend\">\n";
    if document.rows.iter().any(|row| row.goal.is_some()) {
        out += &format!("<li>{} goal</li>\n<li>{} equal</li>\n", line("goal"), line("equal"));
        out += "<li><svg class=\"swatch\" width=\"22\" height=\"14\" aria-hidden=\"true\"><rect class=\"bar s0\" y=\"1\" width=\"22\" height=\"12\"/><rect y=\"1\" width=\"22\" height=\"12\" fill=\"url(#hatch-short)\"/></svg> short of its goal</li>\n";
    }
    if document.rows.iter().flat_map(|row| row.ratio(1)).any(|ratio| ratio.rounds > 1) {
        out += "<li><svg class=\"swatch\" width=\"22\" height=\"14\" aria-hidden=\"true\"><path class=\"whisker\" d=\"M2 3v8M2 7h18M20 3v8\"/></svg> least to greatest round</li>\n";
    }
    out + "</ul>\n"
}

fn line(document: &Document, row: &Row, ratios: &Ratios, compared: bool) -> String {
    let class = if row.invalid.is_some() { " class=\"invalid\"" } else { "" };
    let mut out = format!("<tr{class}><th scope=\"row\">{}", escape(&row.name));
    let better = if row.better == Better::Lower { "less is better" } else { "" };
    let about: Vec<&str> =
        [number::unit(&row.unit), better].into_iter().filter(|text| !text.is_empty()).collect();
    if !about.is_empty() {
        out += &format!(" <small>{}</small>", escape(&about.join(", ")));
    }
    if !row.note.is_empty() {
        out += &format!("<span class=\"note\">{}</span>", escape(&row.note));
    }
    out += "</th>";
    for server in 0..document.servers.len() {
        out += &format!("<td class=\"number\">{}</td>", figure(row, server));
    }
    if compared {
        out += &format!("<td class=\"bars\">{}</td>", compared_bars(document, row, ratios));
    }
    if document.has_verdicts() {
        out += &format!("<td class=\"goal\">{}</td>", goal(document, row));
    }
    out + "</tr>\n"
}

fn figure(row: &Row, server: usize) -> String {
    let Some(median) = row.median(server) else { return "<span class=\"absent\">not measured</span>".into() };
    let mut out = number::figure(median, &row.unit);
    if let Some((low, high)) = row.spread(server).filter(|(low, high)| low < high) {
        out += &format!(
            "<small>{} – {}</small>",
            number::figure(low, &row.unit),
            number::figure(high, &row.unit)
        );
    }
    out
}

fn compared_bars(document: &Document, row: &Row, ratios: &Ratios) -> String {
    if row.invalid.is_some() {
        return "<span class=\"bad\">invalid, see above</span>".into();
    }
    let several = document.servers.len() > 2;
    let mut out = String::new();
    for (other, server) in document.servers.iter().enumerate().skip(1) {
        let Some(ratio) = row.ratio(other) else {
            let to = if several { format!(" to {}", escape(&server.name)) } else { String::new() };
            out += &format!("<div class=\"ratio\"><span class=\"absent\">no ratio{to}</span></div>");
            continue;
        };
        let mut text = format!("<strong>{}</strong>", number::ratio(ratio.median));
        if several {
            text += &format!(
                " {}<span class=\"unseen\"> to {}</span>",
                style::swatch(other),
                escape(&server.name)
            );
        }
        if ratio.rounds > 1 {
            text += &format!(" <small>{:.2} – {:.2}</small>", ratio.min, ratio.max);
        }
        let bar = ratios.bar(row, ratio, row.reached(other));
        out += &format!("<div class=\"ratio\">{bar}<span>{text}</span></div>");
    }
    out
}

/// The goal and whether it was reached, in words.
fn goal(document: &Document, row: &Row) -> String {
    if row.invalid.is_some() {
        return "<span class=\"bad\">invalid</span>".into();
    }
    let verdict = |reached: Option<bool>| match reached {
        Some(true) => "<span class=\"good\">✓ reached</span>",
        Some(false) => "<span class=\"short\">✗ short</span>",
        None => "<span class=\"absent\">not known</span>",
    };
    let mut out = String::new();
    if let Some(goal) = row.goal {
        let reached: Vec<Option<bool>> =
            (1..document.servers.len()).map(|other| row.reached(other)).collect();
        let all = match reached.as_slice() {
            [] => None,
            all if all.contains(&Some(false)) => Some(false),
            all if all.contains(&None) => None,
            _ => Some(true),
        };
        out += &format!("{} {}", number::goal(goal), verdict(all));
    }
    if let Some(target) = row.target {
        let side = if row.better == Better::Higher { "at least" } else { "at most" };
        let text = format!("{side} {} {}", number::figure(target, &row.unit), verdict(row.target_reached()));
        out += &format!("{}{text}", if out.is_empty() { "" } else { "<br>" });
    }
    out
}
