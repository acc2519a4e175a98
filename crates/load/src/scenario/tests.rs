//! Scenarios hold together: what is named is there, and what is asked can be sent.

use super::*;

fn all() -> impl Iterator<Item = Scenario> {
    ALL.into_iter().flat_map(|known| {
        [Size::SMOKE, Size::QUICK, Size { entries: known.entries, seconds: Size::LONG_SECONDS }]
            .map(|size| Scenario::new(known.name, size).unwrap())
    })
}

#[test]
fn every_request_can_be_sent() {
    for scenario in all() {
        for step in scenario.stages.iter().flat_map(|stage| &stage.steps) {
            let Work::Drive(streams) = &step.work else { continue };
            for stream in streams {
                stream.workload.check().unwrap_or_else(|e| panic!("{} {}: {e}", scenario.name, step.title));
                assert!(stream.seconds > 0.0 && stream.connections > 0, "{} {}", scenario.name, step.title);
            }
        }
    }
}

/// README's comparison: two servers, two rounds.
#[test]
fn a_quick_mail_comparison_measures_for_less_than_a_minute() {
    let scenario = Scenario::new("mail", Size::QUICK).unwrap();
    let steps = scenario.stages.iter().flat_map(|stage| &stage.steps);
    let seconds = 2.0 * 2.0 * steps.map(Step::seconds).sum::<f64>();
    assert!((1.0..=60.0).contains(&seconds), "{seconds}");
}

#[test]
fn rows_have_names_of_their_own() {
    for scenario in all() {
        let figures = scenario.stages.iter().flat_map(|stage| &stage.steps).flat_map(|step| &step.figures);
        let mut names: Vec<&str> = figures.map(|figure| figure.name.as_str()).collect();
        names.extend(scenario.derived.iter().map(|derived| derived.name.as_str()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{}", scenario.name);
    }
}

#[test]
fn charts_and_derived_rows_name_what_is_there() {
    for scenario in all() {
        let steps = || scenario.stages.iter().flat_map(|stage| &stage.steps);
        for point in steps().flat_map(|step| &step.points) {
            let known = scenario.charts.iter().any(|chart| chart.title == point.chart);
            assert!(known, "{}: {}", scenario.name, point.chart);
        }
        for chart in &scenario.charts {
            let used = steps().flat_map(|step| &step.points).any(|point| point.chart == chart.title);
            assert!(used, "{}: {}", scenario.name, chart.title);
        }
        for name in scenario.derived.iter().flat_map(|derived| [&derived.above, &derived.below]) {
            let known = steps().flat_map(|step| &step.figures).any(|figure| figure.name == *name);
            assert!(known, "{}: {name}", scenario.name);
        }
    }
}

#[test]
fn the_first_stage_loads() {
    for scenario in all() {
        assert!(scenario.stages.first().is_some_and(|stage| !stage.keeps_data), "{}", scenario.name);
    }
}

#[test]
fn names_and_sizes_that_do_not_exist() {
    let error =
        |name: &str, entries| Scenario::new(name, Size { entries, ..Size::SMOKE }).unwrap_err().to_string();
    let unknown = error("male", 300);
    for part in ["\"male\"", "mail, frontend, grid, subscribers, sizing"] {
        assert!(unknown.contains(part), "{unknown}");
    }
    assert!(error("mail", 7).contains("7 entries: a scenario can be made of 100 to 999999999"));
}

#[test]
fn rows_are_chosen_by_key() {
    let keep = |name: &str, only: &[&str]| {
        let mut scenario = Scenario::new(name, Size::SMOKE).unwrap();
        let only: Vec<String> = only.iter().map(|key| (*key).to_owned()).collect();
        scenario.keep(&only).map(|()| scenario)
    };
    let mail = keep("mail", &["search", "modify"]).unwrap();
    assert!(mail.stages[0].steps.iter().all(|step| ["search", "modify"].contains(&step.key)));
    let grid = keep("grid", &["start"]).unwrap();
    assert_eq!(grid.stages.len(), 1);
    let error = keep("mail", &["search", "serach"]).unwrap_err().to_string();
    for part in ["\"serach\"", "scenario mail", "load, optimize, search, substrings, read"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_stage_whose_loader_was_dropped_loads_by_itself() {
    let mut scenario = Scenario::new("mail", Size::SMOKE).unwrap();
    let mut again = scenario.stages[0].clone();
    again.keeps_data = true;
    for step in &mut again.steps {
        step.key = "later";
    }
    scenario.stages.push(again);
    scenario.keep(&["later".to_owned()]).unwrap();
    assert_eq!(scenario.stages.len(), 1);
    assert!(!scenario.stages[0].keeps_data);
}

#[test]
fn stats_lines_come_first_on_the_same_data() {
    let mut scenario = Scenario::new("mail", Size::SMOKE).unwrap();
    let reads = scenario.stages[0].steps.clone();
    scenario.add_stats_lines();
    let [lines, rest] = scenario.stages.as_slice() else { panic!("{} stages", scenario.stages.len()) };
    assert_eq!((lines.log_level, lines.keeps_data), (Some(LogLevel::Stats), false));
    assert_eq!((rest.log_level, rest.keeps_data), (None, true));
    assert_eq!(lines.steps[0].key, "load", "its rows belong to the stage that loads");
    assert!(rest.steps.iter().all(|step| step.key != "load"));
    assert_eq!(
        lines.steps.len() + rest.steps.len(),
        reads.len() + lines.steps.len() - 1,
        "nothing else is lost"
    );
    for step in &lines.steps[1..] {
        let Work::Drive(streams) = &step.work else { panic!("{}", step.title) };
        assert!(["search", "substrings", "read", "compare", "bind"].contains(&step.key), "{}", step.title);
        assert_eq!((streams[0].identity, streams[0].warm_up), (Identity::Anonymous, 0.0));
        let metrics: Vec<Metric> = step.figures.iter().map(|figure| figure.metric).collect();
        assert_eq!(metrics, [Metric::PerCpuSecond, Metric::LinesPerOperation]);
        assert_eq!(step.figures[0].goal, (step.key == "search").then_some(4.0));
    }
    let figures = scenario.stages.iter().flat_map(|stage| &stage.steps).flat_map(|step| &step.figures);
    let mut names: Vec<&str> = figures.map(|figure| figure.name.as_str()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn stages_without_reads_stay_as_they_are() {
    let mut scenario = Scenario::new("mail", Size::SMOKE).unwrap();
    scenario.keep(&["modify".to_owned(), "load".to_owned()]).unwrap();
    scenario.add_stats_lines();
    assert_eq!(scenario.stages.len(), 1);
    assert!(!scenario.stages[0].keeps_data);
}
