//! The shown forms, over a sample and over what is hard to show.

use super::*;

/// Made-up figures with every kind of row and chart: gaps, zeros, an invalid row, a target, one round and three.
fn sample() -> Document {
    Document::from_json(include_str!("testdata/sample.json")).unwrap()
}

/// One heading, table, picture or list a line, with its size: what must not change unseen.
fn outline(html: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rows = 0;
    for tag in html.split('<').skip(1) {
        let (inside, text) = tag.split_once('>').unwrap_or((tag, ""));
        match inside.split(' ').next().unwrap_or("") {
            name @ ("h1" | "h2" | "figcaption") => out.push(format!("{name} {text}")),
            "tr" => rows += 1,
            "/table" => out.push(format!("table of {}", std::mem::take(&mut rows))),
            _ => {}
        }
    }
    out
}

#[test]
fn the_page_has_its_parts_in_order() {
    let expected = "\
h1 Sample: made-up figures of two servers
h2 Invalid figures
h2 Results
table of 19
h2 Charts
figcaption Searches against clients
table of 8
figcaption Latency of searches, 16 clients
table of 6
figcaption CPU of one operation
table of 6
figcaption Rate over time, mixed load
table of 61
figcaption Disk and memory
table of 3
h2 How it was measured
table of 3";
    assert_eq!(outline(&sample().to_html()).join("\n"), expected);
}

/// Tags that are open when another is closed, or at the end; attributes without quotes.
fn check_markup(html: &str) {
    const VOID: [&str; 3] = ["meta", "br", "!DOCTYPE"];
    let mut open: Vec<&str> = Vec::new();
    for tag in html.split('<').skip(1) {
        let (inside, _) = tag.split_once('>').unwrap_or_else(|| panic!("a tag without its end: {tag:.60}"));
        assert_eq!(inside.matches('"').count() % 2, 0, "quotes: <{inside}>");
        let name = inside.split([' ', '/', '\n']).next().unwrap_or("");
        if let Some(closed) = inside.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "closed in the wrong place");
        } else if !inside.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}

#[test]
fn a_page_needs_nothing_from_elsewhere() {
    let html = sample().to_html();
    check_markup(&html);
    for part in ["<script", "<link", "<img", "src=", "href=", "@import", "http:", "https:", "javascript"] {
        assert!(!html.contains(part), "{part}");
    }
    assert_eq!(html.matches("url(").count(), html.matches("url(#").count(), "a style that loads something");
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn every_picture_has_a_name_and_a_table() {
    let document = sample();
    let html = document.to_html();
    for chart in &document.charts {
        assert!(
            html.contains(&format!("<figcaption id=\"chart-{}", position(&document, chart))),
            "{}",
            chart.title
        );
    }
    assert_eq!(html.matches("<details>").count(), document.charts.len());
    let pictures = html.matches("role=\"img\"").count();
    assert_eq!(pictures, document.charts.len());
    // What has no name of its own is not read aloud.
    for svg in html.split("<svg ").skip(1) {
        let tag = svg.split('>').next().unwrap_or("");
        let named = tag.contains("role=\"img\"") || tag.contains("aria-hidden=\"true\"");
        assert!(named, "<svg {tag}>");
    }
}

fn position(document: &Document, chart: &Chart) -> usize {
    document.charts.iter().position(|other| other == chart).unwrap()
}

/// Every text of the document in turn, set to something that breaks out of careless markup.
#[test]
fn texts_stay_texts() {
    const EVIL: &str = "</td></title><script>alert(\"1\")</script>&'\u{1b}[31m";
    let mut document = sample();
    let evil = || EVIL.to_owned();
    document.title = evil();
    document.scenario = evil();
    document.taken = evil();
    document.command = evil();
    document.machine = Machine { cpu: evil(), kernel: evil(), ..document.machine };
    document.notes = vec![evil()];
    for server in &mut document.servers {
        *server = Server { name: evil(), version: evil(), flags: evil() };
    }
    for (number, row) in document.rows.iter_mut().enumerate() {
        row.name = evil();
        row.group = evil();
        row.unit = evil();
        row.note = evil();
        row.invalid = (number % 2 == 0).then(evil);
        row.target = Some(1.0);
    }
    for chart in &mut document.charts {
        chart.title = evil();
        chart.note = evil();
        chart.x.label = evil();
        chart.y.label = evil();
        chart.x.categories.iter_mut().for_each(|name| *name = evil());
        chart.series.iter_mut().for_each(|series| series.label = evil());
    }
    let html = document.to_html();
    check_markup(&html);
    assert!(!html.contains("<script") && !html.contains('\u{1b}'));
    let text = document.to_text(&TextOptions { width: 100, colour: false });
    assert!(!text.contains('\u{1b}'), "a terminal would obey");
    assert_eq!(Document::from_json(&document.to_json().to_string()).unwrap(), document);
}

/// Documents at the edges of what may come: all are shown, none breaks.
#[test]
fn what_is_hard_to_show() {
    let long = "a name that goes on and on, ".repeat(12) + &"W".repeat(120);
    let row = |figures: &[&[Option<f64>]]| Row {
        name: long.clone(),
        goal: Some(4.0),
        figures: figures.iter().map(|rounds| rounds.to_vec()).collect(),
        ..Row::new("", "bytes", Better::Lower)
    };
    let rows = vec![
        row(&[]),
        row(&[&[Some(0.0)], &[Some(0.0)]]),
        row(&[&[None, Some(1e18)], &[Some(1e-9), Some(1.0)]]),
        row(&[&[Some(-5.0)], &[Some(5.0)]]),
        Row {
            goal: Some(0.0),
            target: Some(f64::MAX),
            ..row(&[&[Some(f64::MAX)], &[Some(f64::MIN_POSITIVE)]])
        },
    ];
    let charts = [0.0, -3.0, 1e-12, f64::MAX, f64::NAN].into_iter().flat_map(|value| {
        [Scale::Linear, Scale::Log].into_iter().flat_map(move |scale| {
            [ChartKind::Lines, ChartKind::Bars].map(|kind| {
                let mut y = Axis::linear("memory, bytes");
                y.scale = scale;
                let mut chart = Chart::new("t", kind, Axis { scale, ..Axis::linear("x") }, y);
                chart.push(
                    "a",
                    7,
                    vec![Point::new(value, value), Point { x: value, y: None, low: None, high: None }],
                );
                chart.push("b", 0, (0..500).map(|x| Point::of_rounds(f64::from(x), &[value, 1.0])).collect());
                chart
            })
        })
    });
    let charts: Vec<Chart> = charts.collect();
    for servers in 0..7 {
        let servers = (0..servers).map(|_| Server { name: long.clone(), ..Server::default() }).collect();
        let document =
            Document { servers, rows: rows.clone(), charts: charts.clone(), ..Document::default() };
        let html = document.to_html();
        check_markup(&html);
        for part in ["NaN", "=\"inf", "=\"-inf"] {
            assert!(!html.contains(part), "{part}");
        }
        document.to_text(&TextOptions { width: 0, colour: true });
    }
    check_markup(&Document::default().to_html());
    assert_eq!(Document::default().to_text(&TextOptions { width: 80, colour: false }).trim(), "work  unit");
}

#[test]
fn the_table_of_the_sample() {
    let text = sample().to_text(&TextOptions { width: 110, colour: false });
    for line in text.lines() {
        assert!(line.chars().count() <= 110, "{line}");
    }
    for part in [
        "200,000 entries, 3 rounds, 5 s a figure",
        "[Reads]",
        "4x short",
        "20x ok",
        "INVALID: bind, reconnecting: slapd answered 3 of 41,220 binds with result 49",
        ">= 12,700 ok",
        "note: No figure of this file was measured.",
        "goals reached, 1 row invalid",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let bare = sample().without_goals().to_text(&TextOptions { width: 110, colour: false });
    for part in ["4x short", "20x ok", ">= 12,700 ok", "goals reached"] {
        assert!(!bare.contains(part), "{part:?} stands in\n{bare}");
    }
    assert!(
        bare.contains("1 row invalid") && bare.contains("INVALID"),
        "what must not be used is always said"
    );
    let coloured = sample().to_text(&TextOptions { width: 110, colour: true });
    let bare: String = coloured
        .split('\u{1b}')
        .enumerate()
        .map(|(n, part)| if n == 0 { part } else { part.split_once('m').unwrap_or_default().1 })
        .collect();
    assert_eq!(bare, text, "colours change nothing but colours");
}
