//! Circles of modules: strongly connected components, by Tarjan's algorithm.

use std::collections::{BTreeMap, BTreeSet};

use super::arrows::Arrows;

/// The circles of more than one module, the largest first, each sorted by name.
pub(super) fn circles(names: &BTreeSet<String>, arrows: &Arrows) -> Vec<Vec<String>> {
    let mut targets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        targets.entry(from).or_default().push(to);
    }
    let mut search = Search { targets, ..Search::default() };
    for name in names {
        if !search.numbers.contains_key(name.as_str()) {
            search.visit(name);
        }
    }
    let mut found = search.found;
    found.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    found
}

#[derive(Default)]
struct Search<'a> {
    targets: BTreeMap<&'a str, Vec<&'a str>>,
    numbers: BTreeMap<&'a str, usize>,
    /// Modules whose circle is not known yet.
    open: Vec<&'a str>,
    found: Vec<Vec<String>>,
}

impl<'a> Search<'a> {
    /// The lowest number of an open module that can be reached from `name`.
    fn visit(&mut self, name: &'a str) -> usize {
        let number = self.numbers.len();
        self.numbers.insert(name, number);
        self.open.push(name);
        let mut lowest = number;
        for target in self.targets.get(name).cloned().unwrap_or_default() {
            let reached = match self.numbers.get(target) {
                None => self.visit(target),
                Some(&known) if self.open.contains(&target) => known,
                Some(_) => continue,
            };
            lowest = lowest.min(reached);
        }
        if lowest == number {
            let from = self.open.iter().position(|open| *open == name).unwrap_or(0);
            let mut circle: Vec<String> = self.open.split_off(from).into_iter().map(str::to_owned).collect();
            circle.sort();
            if circle.len() > 1 {
                self.found.push(circle);
            }
        }
        lowest
    }
}
