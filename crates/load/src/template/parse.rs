//! Reading a template.

use std::collections::BTreeMap;
use std::path::Path;

use larix_proto::Dn;

use super::error::{TemplateError, TemplateFault};
use super::tag::{Context, Segment, parts};
use super::{Below, Branch, DEPTH_MAX, ENTRIES_MAX, Kind, Line, Template};

/// A branch or template as it is written, before names are looked up.
#[derive(Debug, Default)]
struct Section {
    line: usize,
    branch: bool,
    /// The DN of a branch, the name of a template.
    name: String,
    extends: Option<(usize, String)>,
    rdn: Option<String>,
    /// (line number, template, count)
    below: Vec<(usize, String, u64)>,
    lines: Vec<(usize, Line)>,
}

pub(super) fn parse(text: &str, directory: &Path) -> Result<Template, TemplateError> {
    let mut reader =
        Reader { constants: BTreeMap::new(), sections: Vec::new(), context: Context::new(directory) };
    for (index, line) in text.lines().enumerate() {
        reader.line(index + 1, line).map_err(|fault| TemplateError { line: index + 1, fault })?;
    }
    let Reader { sections, context, .. } = reader;
    link(&sections, &context, text.lines().count().max(1))
}

struct Reader {
    constants: BTreeMap<String, String>,
    sections: Vec<Section>,
    context: Context,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), TemplateFault> {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let line = self.with_constants(line)?;
        let no_line = || TemplateFault::NoLine(line.clone());
        if let Some(definition) = line.strip_prefix("define ") {
            let (name, value) = definition.split_once('=').ok_or_else(no_line)?;
            let twice = self.constants.insert(name.trim().to_owned(), value.to_owned());
            return twice.map_or(Ok(()), |_| Err(TemplateFault::Twice(name.trim().to_owned())));
        }
        let (name, value) = line.split_once(':').ok_or_else(no_line)?;
        let (name, value) = (name.trim(), value.trim_start());
        if name.is_empty() {
            return Err(no_line());
        }
        match name.to_ascii_lowercase().as_str() {
            "branch" => self.begin(number, true, value),
            "template" => self.begin(number, false, value),
            lower => self.within(number, lower, name, value),
        }
    }

    /// Puts `[name]`s in place.
    fn with_constants(&self, line: &str) -> Result<String, TemplateFault> {
        let mut out = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(at) = rest.find(['[', '\\']) {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            if from.starts_with('\\') {
                // What is escaped stays so until tags are read; a bracket is done with here.
                let escaped = from.chars().nth(1);
                if escaped != Some('[') {
                    out.push('\\');
                }
                out.extend(escaped);
                rest = from.get(1 + escaped.map_or(0, char::len_utf8)..).unwrap_or_default();
                continue;
            }
            let (name, after) = from
                .get(1..)
                .and_then(|from| from.split_once(']'))
                .ok_or_else(|| TemplateFault::Unclosed { opening: '[', text: line.to_owned() })?;
            let value = self.constants.get(name).ok_or_else(|| TemplateFault::Undefined(name.to_owned()))?;
            out.push_str(value);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn begin(&mut self, line: usize, branch: bool, name: &str) -> Result<(), TemplateFault> {
        let same = |section: &Section| section.branch == branch && section.name.eq_ignore_ascii_case(name);
        if self.sections.iter().any(same) {
            return Err(TemplateFault::Twice(name.to_owned()));
        }
        let mut section = Section { line, branch, name: name.to_owned(), ..Section::default() };
        if branch {
            section.lines = own_lines(line, name)?;
        }
        self.sections.push(section);
        Ok(())
    }

    fn within(&mut self, number: usize, lower: &str, name: &str, value: &str) -> Result<(), TemplateFault> {
        let Some(section) = self.sections.last_mut() else {
            return Err(TemplateFault::Nowhere(format!("{name}: {value}")));
        };
        let misplaced = |line| Err(TemplateFault::Misplaced { line, within: "branch" });
        match lower {
            "subordinatetemplate" => {
                let count = || TemplateFault::Count(value.to_owned());
                let (template, entries) = value.split_once(':').ok_or_else(count)?;
                let entries = entries.trim().parse().map_err(|_| count())?;
                section.below.push((number, template.trim().to_owned(), entries));
            }
            "rdnattr" if section.branch => return misplaced("rdnAttr"),
            "extends" if section.branch => return misplaced("extends"),
            "rdnattr" => section.rdn = Some(value.to_owned()),
            "extends" => section.extends = Some((number, value.to_owned())),
            _ => {
                let parts = parts(value, &mut self.context)?;
                section.lines.push((number, Line { attribute: name.to_owned(), parts }));
            }
        }
        Ok(())
    }
}

/// The attributes that a branch has by its name: those of its RDN. The classes are added when it names none.
fn own_lines(line: usize, dn: &str) -> Result<Vec<(usize, Line)>, TemplateFault> {
    let fault = |reason: String| TemplateFault::Dn { dn: dn.to_owned(), reason };
    let parsed = Dn::parse(dn).map_err(|error| fault(error.to_string()))?;
    let rdn = parsed.rdns().first().ok_or_else(|| fault("it is empty".to_owned()))?;
    let lines = rdn.avas().iter().map(|ava| {
        let parts = vec![Segment::Text(String::from_utf8_lossy(ava.value.as_ref()).into_owned())];
        (line, Line { attribute: ava.attribute.to_owned(), parts })
    });
    Ok(lines.collect())
}

/// Looks up names, and checks what only the whole shows.
fn link(sections: &[Section], context: &Context, last_line: usize) -> Result<Template, TemplateError> {
    let at = |line: usize| move |fault: TemplateFault| TemplateError { line, fault };
    let templates: Vec<&Section> = sections.iter().filter(|section| !section.branch).collect();
    let index = |name: &str| {
        let found = templates.iter().position(|template| template.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| TemplateFault::UnknownTemplate(name.to_owned()))
    };
    let below = |section: &Section| -> Result<Vec<Below>, TemplateError> {
        let each = section.below.iter();
        each.map(|(line, name, count)| Ok(Below { kind: index(name).map_err(at(*line))?, count: *count }))
            .collect()
    };
    let mut kinds = Vec::with_capacity(templates.len());
    for template in &templates {
        kinds.push(kind(template, &templates, below(template)?)?);
    }
    let mut branches = Vec::new();
    for section in sections.iter().filter(|section| section.branch) {
        let lines = with_classes(section);
        check_references(&lines)?;
        let lines = lines.into_iter().map(|(_, line)| line).collect();
        branches.push(Branch { dn: section.name.clone(), lines, below: below(section)? });
    }
    for (kind, template) in templates.iter().enumerate() {
        check_depth(&kinds, kind, 0).map_err(at(template.line))?;
    }
    if branches.is_empty() {
        return Err(at(last_line)(TemplateFault::Empty));
    }
    let starts = context.counters.iter().map(|(start, _)| *start).collect();
    let restarting = restarting(&kinds, context);
    let template = Template { branches, kinds, counters: context.counters.len(), restarting, starts };
    if template.entries() > ENTRIES_MAX {
        return Err(at(last_line)(TemplateFault::TooMany { what: "entries", max: ENTRIES_MAX }));
    }
    Ok(template)
}

fn kind(template: &Section, all: &[&Section], below: Vec<Below>) -> Result<Kind, TemplateError> {
    let lines = with_extended(template, all, 0)?;
    check_references(&lines)?;
    let (mut rdn, mut base) = (template.rdn.as_deref(), template.extends.as_ref());
    // The RDN of the nearest template that names one; `with_extended` has found that they end.
    while let (None, Some((_, name))) = (rdn, base) {
        let section = all.iter().find(|section| section.name.eq_ignore_ascii_case(name));
        rdn = section.and_then(|section| section.rdn.as_deref());
        base = section.and_then(|section| section.extends.as_ref());
    }
    let rdn: Vec<String> = rdn.unwrap_or("cn").split('+').map(|name| name.trim().to_owned()).collect();
    for attribute in &rdn {
        if !lines.iter().any(|(_, line)| line.attribute.eq_ignore_ascii_case(attribute)) {
            let (template_name, attribute) = (template.name.clone(), attribute.clone());
            let fault = TemplateFault::Rdn { template: template_name, attribute };
            return Err(TemplateError { line: template.line, fault });
        }
    }
    let lines = lines.into_iter().map(|(_, line)| line).collect();
    Ok(Kind { name: template.name.clone(), rdn, lines, below })
}

/// The lines of a template after those of the template that it extends.
fn with_extended(
    template: &Section,
    all: &[&Section],
    depth: usize,
) -> Result<Vec<(usize, Line)>, TemplateError> {
    let Some((line, name)) = &template.extends else { return Ok(template.lines.clone()) };
    let fault = |fault| TemplateError { line: *line, fault };
    if depth > all.len() {
        return Err(fault(TemplateFault::Cycle(template.name.clone())));
    }
    let base = all.iter().find(|section| section.name.eq_ignore_ascii_case(name));
    let base = base.ok_or_else(|| fault(TemplateFault::UnknownTemplate(name.clone())))?;
    let mut lines = with_extended(base, all, depth + 1)?;
    lines.extend(template.lines.iter().cloned());
    Ok(lines)
}

/// The lines of a branch, with the classes of its RDN's type when it names none.
fn with_classes(section: &Section) -> Vec<(usize, Line)> {
    let is_class = |(_, line): &(usize, Line)| line.attribute.eq_ignore_ascii_case("objectClass");
    let mut lines = section.lines.clone();
    if lines.iter().any(is_class) {
        return lines;
    }
    let rdn = lines.first().map(|(_, line)| line.attribute.to_ascii_lowercase()).unwrap_or_default();
    let classes: &[&str] = match rdn.as_str() {
        "dc" => &["top", "domain"],
        "o" => &["top", "organization"],
        "ou" => &["top", "organizationalUnit"],
        "c" => &["top", "country"],
        "l" => &["top", "locality"],
        "cn" => &["top", "organizationalRole"],
        "uid" => &["top", "account"],
        _ => &["top", "extensibleObject"],
    };
    let lines_of_classes = classes.iter().map(|class| {
        let parts = vec![Segment::Text((*class).to_owned())];
        (section.line, Line { attribute: "objectClass".to_owned(), parts })
    });
    lines.splice(0..0, lines_of_classes);
    lines
}

/// References are to what stands above them.
fn check_references(lines: &[(usize, Line)]) -> Result<(), TemplateError> {
    for (index, (number, line)) in lines.iter().enumerate() {
        for part in &line.parts {
            let (Segment::Attribute(name, _) | Segment::If { attribute: name, .. }) = part else { continue };
            let above = lines.iter().take(index);
            if !above.clone().any(|(_, line)| line.attribute.eq_ignore_ascii_case(name)) {
                return Err(TemplateError { line: *number, fault: TemplateFault::Reference(name.clone()) });
            }
        }
    }
    Ok(())
}

fn check_depth(kinds: &[Kind], kind: usize, depth: usize) -> Result<(), TemplateFault> {
    let Some(own) = kinds.get(kind) else { return Ok(()) };
    if depth > kinds.len() {
        return Err(TemplateFault::Cycle(own.name.clone()));
    }
    if depth > DEPTH_MAX {
        return Err(TemplateFault::TooMany { what: "levels", max: DEPTH_MAX as u64 });
    }
    own.below.iter().try_for_each(|below| check_depth(kinds, below.kind, depth + 1))
}

/// The counters that start anew below each parent, with the kind they stand in.
fn restarting(kinds: &[Kind], context: &Context) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        for part in kind.lines.iter().flat_map(|line| &line.parts) {
            if let Segment::Sequential(counter) = part
                && context.counters.get(*counter).is_some_and(|(_, restarts)| *restarts)
            {
                found.push((index, *counter));
            }
        }
    }
    found
}
