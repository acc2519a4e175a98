//! What an administrator hands in to be imported: LDIF (RFC 2849) or CSV (RFC 4180), read into steps that a page can list and
//! carry out. Nothing here asks the directory.

use larix_proto::ModifyOperation;
use larix_proto::ldif::{Body, Change, LdifAttribute, Reader};
use larix_schema::Schema;

use super::client::{AttributeChange, ReceivedAttribute};
use super::{export, names, schema};

/// Steps of one import. `larix modify` and `larix add` take more.
pub(super) const STEPS_MAX: usize = 20_000;
/// Faults that are listed; the rest is counted.
const FAULTS_MAX: usize = 50;
/// The column of a CSV file that holds whole names.
const DN_COLUMN: &str = "dn";
const OBJECT_CLASS: &str = "objectClass";

/// One operation to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The line of the text that it begins on, from 1.
    pub(super) line: u64,
    pub(super) dn: String,
    pub(super) action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Add(Vec<ReceivedAttribute>),
    Modify(Vec<AttributeChange>),
    Delete,
    Rename { rdn: String, delete_old: bool, superior: Option<String> },
}

impl Action {
    /// Its name in a list.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "add",
            Self::Modify(_) => "modify",
            Self::Delete => "delete",
            Self::Rename { .. } => "rename",
        }
    }
}

/// A place in the text that cannot be imported, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: u64,
    pub(super) text: String,
}

/// What a text asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) steps: Vec<Step>,
    /// The first of them; with one of these nothing is carried out.
    pub(super) faults: Vec<Fault>,
    pub(super) faults_in_all: usize,
}

impl Import {
    fn fault(&mut self, line: u64, text: impl Into<String>) {
        self.faults_in_all += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Fault { line, text: text.into() });
        }
    }

    /// Takes a step; false when there are too many.
    fn step(&mut self, line: u64, dn: String, action: Action) -> bool {
        if self.steps.len() == STEPS_MAX {
            self.fault(
                line,
                format!("an import has at most {STEPS_MAX} records: larix modify and larix add take more"),
            );
            return false;
        }
        if let Err(error) = larix_proto::Dn::parse(&dn) {
            self.fault(line, format!("{dn:?} is not a distinguished name: {error}"));
            return true;
        }
        self.steps.push(Step { line, dn, action });
        true
    }
}

/// Reads LDIF. A record without `changetype` is an entry to be added.
pub(super) fn ldif(text: &str) -> Import {
    let mut import = Import::default();
    // Without files: `:<` and `include:` would read the server's own.
    let mut reader = Reader::new(text.as_bytes());
    loop {
        let record = match reader.read_record() {
            Ok(Some(record)) => record,
            Ok(None) => return import,
            Err(error) => {
                import.fault(error.line, error.fault.to_string());
                if !error.is_recoverable() {
                    return import;
                }
                continue;
            }
        };
        let action = match record.body {
            Body::Content(attributes) => Action::Add(found(attributes)),
            Body::Change { controls, .. } if !controls.is_empty() => {
                import.fault(record.line, "a record with controls is carried out by larix modify alone");
                continue;
            }
            Body::Change { change, .. } => action(change),
        };
        if !import.step(record.line, record.dn, action) {
            return import;
        }
    }
}

fn action(change: Change) -> Action {
    match change {
        Change::Add(attributes) => Action::Add(found(attributes)),
        Change::Delete => Action::Delete,
        Change::Modify(modifications) => Action::Modify(
            modifications
                .into_iter()
                .map(|one| AttributeChange {
                    operation: one.operation,
                    name: one.description,
                    values: one.values,
                })
                .collect(),
        ),
        Change::ModifyDn { new_rdn, delete_old_rdn, new_superior } => {
            Action::Rename { rdn: new_rdn, delete_old: delete_old_rdn, superior: new_superior }
        }
    }
}

fn found(attributes: Vec<LdifAttribute>) -> Vec<ReceivedAttribute> {
    attributes.into_iter().map(|a| ReceivedAttribute { name: a.description, values: a.values }).collect()
}

/// What a CSV file leaves open.
#[derive(Copy, Clone, Debug)]
pub(super) struct CsvRules<'a> {
    /// The entry above the new ones, where there is no column `dn`.
    pub(super) parent: &'a str,
    /// The column that names an entry, where there is no column `dn`.
    pub(super) naming: &'a str,
    /// Object classes, blanks between them, where there is no column `objectClass`.
    pub(super) classes: &'a str,
}

/// Reads CSV: the first line names attributes, and each further line is an entry to be added. Commas, semicolons or tabs stand
/// between cells, as the first line has them. Several values in a cell are separated as [`export`] does it.
pub(super) fn csv(schema: &Schema, text: &str, rules: CsvRules<'_>) -> Import {
    let mut import = Import::default();
    // Spreadsheets begin UTF-8 with a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    // Browsers end the lines of a form with CRLF, also in cells. The reader would count such lines wrongly.
    let text = &text.replace("\r\n", "\n");
    let mut reader =
        csv::ReaderBuilder::new().delimiter(delimiter(text)).flexible(true).from_reader(text.as_bytes());
    let header: Vec<String> = match reader.headers() {
        Ok(header) => header.iter().map(|name| name.trim().to_owned()).collect(),
        Err(error) => {
            import.fault(1, error.to_string());
            return import;
        }
    };
    check_header(schema, &header, rules, &mut import);
    if import.faults_in_all > 0 {
        return import;
    }
    for row in reader.records() {
        let row = match row {
            Ok(row) => row,
            Err(error) => {
                import.fault(error.position().map_or(0, csv::Position::line), error.to_string());
                continue;
            }
        };
        let line = row.position().map_or(0, csv::Position::line);
        if row.len() > header.len() {
            import.fault(line, format!("{} cells, where the first line names {}", row.len(), header.len()));
            continue;
        }
        match entry(&header, &row, rules) {
            Ok((dn, attributes)) => {
                if !import.step(line, dn, Action::Add(attributes)) {
                    return import;
                }
            }
            Err(why) => import.fault(line, why),
        }
    }
    import
}

/// The character between cells: the one of three that the first line has most of.
fn delimiter(text: &str) -> u8 {
    let first = text.lines().next().unwrap_or("");
    let count = |delimiter: u8| first.bytes().filter(|byte| *byte == delimiter).count();
    // Of equally many the last is taken: the comma.
    [b'\t', b';', b','].into_iter().max_by_key(|delimiter| count(*delimiter)).unwrap_or(b',')
}

fn check_header(schema: &Schema, header: &[String], rules: CsvRules<'_>, import: &mut Import) {
    for name in header {
        let known =
            name.eq_ignore_ascii_case(DN_COLUMN) || schema.attribute_type(schema::base_name(name)).is_some();
        if !known {
            import.fault(1, format!("column {name:?}: the schema has no attribute of this name"));
        }
    }
    let has = |wanted: &str| header.iter().any(|name| name.eq_ignore_ascii_case(wanted));
    if !has(DN_COLUMN) {
        if rules.parent.is_empty() {
            import.fault(1, "without a column dn, say below which entry the new ones belong");
        }
        if !has(rules.naming) {
            import.fault(
                1,
                format!(
                    "without a column dn, a column names the entries: there is no column {:?}",
                    rules.naming
                ),
            );
        }
    }
    if !has(OBJECT_CLASS) && rules.classes.split_whitespace().next().is_none() {
        import.fault(1, "without a column objectClass, say of which object classes the entries are");
    }
}

/// The name and the attributes of one line.
fn entry(
    header: &[String],
    row: &csv::StringRecord,
    rules: CsvRules<'_>,
) -> Result<(String, Vec<ReceivedAttribute>), String> {
    let mut dn = String::new();
    let mut attributes: Vec<ReceivedAttribute> = Vec::new();
    for (name, cell) in header.iter().zip(row) {
        if name.eq_ignore_ascii_case(DN_COLUMN) {
            cell.trim().clone_into(&mut dn);
            continue;
        }
        for value in export::cell_values(cell) {
            add(&mut attributes, name, value);
        }
    }
    if !attributes.iter().any(|a| a.name.eq_ignore_ascii_case(OBJECT_CLASS)) {
        for class in rules.classes.split_whitespace() {
            add(&mut attributes, OBJECT_CLASS, class.to_owned());
        }
    }
    if dn.is_empty() {
        let naming = attributes.iter().find(|a| a.name.eq_ignore_ascii_case(rules.naming));
        let value = naming.and_then(|a| std::str::from_utf8(a.values.first()?).ok());
        let value =
            value.ok_or_else(|| format!("the cell {:?}, which names the entry, is empty", rules.naming))?;
        dn = names::below(&names::rdn(rules.naming, value), rules.parent);
    }
    Ok((dn, attributes))
}

fn add(attributes: &mut Vec<ReceivedAttribute>, name: &str, value: String) {
    let value = value.into_bytes();
    match attributes.iter_mut().find(|a| a.name.eq_ignore_ascii_case(name)) {
        Some(known) if known.values.contains(&value) => {}
        Some(known) => known.values.push(value),
        None => attributes.push(ReceivedAttribute { name: name.to_owned(), values: vec![value] }),
    }
}

/// How many of each kind, in words: `12 to add, 3 to modify`.
pub(super) fn summary(steps: &[Step]) -> String {
    let count = |name: &str| steps.iter().filter(|step| step.action.name() == name).count();
    let parts: Vec<String> = ["add", "modify", "rename", "delete"]
        .into_iter()
        .filter(|name| count(name) > 0)
        .map(|name| format!("{} to {name}", count(name)))
        .collect();
    parts.join(", ")
}

/// What a modify would do, in a line: `+mail -title`.
pub(super) fn outline(action: &Action) -> String {
    match action {
        Action::Add(attributes) => format!("{} attributes", attributes.len()),
        Action::Modify(changes) => {
            let sign = |operation| match operation {
                ModifyOperation::Add => '+',
                ModifyOperation::Delete => '−',
                ModifyOperation::Replace => '=',
                ModifyOperation::Increment => '#',
            };
            let shown: Vec<String> =
                changes.iter().take(8).map(|one| format!("{}{}", sign(one.operation), one.name)).collect();
            shown.join(" ") + if changes.len() > 8 { " …" } else { "" }
        }
        Action::Delete => String::new(),
        Action::Rename { rdn, superior: None, .. } => rdn.clone(),
        Action::Rename { rdn, superior: Some(superior), .. } => names::below(rdn, superior),
    }
}

#[cfg(test)]
mod tests {
    use larix_schema::SchemaBuilder;

    use super::*;

    fn lines(import: &Import) -> String {
        let mut out = String::new();
        for Step { line, dn, action } in &import.steps {
            out += &format!("{line} {} {dn} {}\n", action.name(), outline(action));
        }
        for Fault { line, text } in &import.faults {
            out += &format!("{line}! {text}\n");
        }
        out
    }

    #[test]
    fn ldif_becomes_steps_and_faults_with_their_lines() {
        let text = "version: 1\n\ndn: cn=a,dc=x\nobjectClass: device\ncn: a\n\n\
                    dn: cn=a,dc=x\nchangetype: modify\nadd: description\ndescription: d\n-\ndelete: l\n-\n\n\
                    dn: cn=a,dc=x\nchangetype: modrdn\nnewrdn: cn=b\ndeleteoldrdn: 1\nnewsuperior: dc=y\n\n\
                    dn: cn=b,dc=y\nchangetype: delete\n\n\
                    dn: cn=c,dc=x\nobjectClass device\n\n\
                    dn: cn=p,dc=x\njpegPhoto:< file:///etc/passwd\n\n\
                    dn: no name\ncn: x\n\n\
                    dn: cn=d,dc=x\ncontrol: 1.2.3 true\nchangetype: delete\n";
        let import = ldif(text);
        let shown = lines(&import);
        let steps = "3 add cn=a,dc=x 2 attributes\n7 modify cn=a,dc=x +description −l\n\
                     15 rename cn=a,dc=x cn=b,dc=y\n21 delete cn=b,dc=y \n";
        assert!(shown.starts_with(steps), "{shown}");
        assert_eq!(import.faults_in_all, 4, "{shown}");
        for part in ["25! ", "28! ", "30! \"no name\"", "33! a record with controls"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(summary(&import.steps), "1 to add, 1 to modify, 1 to rename, 1 to delete");
    }

    #[test]
    fn csv_becomes_entries() {
        let mut builder = SchemaBuilder::system();
        for name in ["core", "cosine", "inetorgperson"] {
            builder.add_bundled(name).expect("a bundled schema");
        }
        let schema = builder.build();
        let rules = CsvRules { parent: "ou=people,dc=x", naming: "uid", classes: "inetOrgPerson" };
        let check = |text: &str, rules: CsvRules<'_>, expected: &str| {
            assert_eq!(lines(&csv(&schema, text, rules)), expected, "{text:?}");
        };
        check(
            "\u{feff}uid;cn;sn;mail\r\nann;Ann A;A;a@x|ann@x\r\n\"b,b\";B;B;\r\n",
            rules,
            "2 add uid=ann,ou=people,dc=x 5 attributes\n3 add uid=b\\2Cb,ou=people,dc=x 4 attributes\n",
        );
        check(
            "dn,cn,objectClass\n\"cn=q,dc=x\",q,device\n",
            CsvRules { parent: "", ..rules },
            "2 add cn=q,dc=x 2 attributes\n",
        );
        check("uid,cn\n,x\n", rules, "2! the cell \"uid\", which names the entry, is empty\n");
        check("uid,cn\na,b,c\n", rules, "2! 3 cells, where the first line names 2\n");
        check(
            "uid,nothing\na,b\n",
            rules,
            "1! column \"nothing\": the schema has no attribute of this name\n",
        );
        check(
            "cn\nx\n",
            CsvRules { parent: "", classes: " ", ..rules },
            "1! without a column dn, say below which entry the new ones belong\n\
             1! without a column dn, a column names the entries: there is no column \"uid\"\n\
             1! without a column objectClass, say of which object classes the entries are\n",
        );
        let Action::Add(attributes) = &csv(&schema, "uid\tcn\na\tx|y|x\n", rules).steps[0].action else {
            panic!("an add");
        };
        assert_eq!(attributes[1].values, [b"x".to_vec(), b"y".to_vec()]);
    }

    #[test]
    fn an_import_has_a_limit() {
        let text = "dn: dc=x\nchangetype: delete\n\n".repeat(STEPS_MAX + 2);
        let import = ldif(&text);
        assert_eq!((import.steps.len(), import.faults_in_all), (STEPS_MAX, 1));
    }
}
