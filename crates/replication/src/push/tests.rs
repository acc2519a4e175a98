use std::collections::BTreeMap;
use std::sync::Arc;

use larix_engine::replica::AttributeShare;

use super::*;

/// A directory in memory. Names are compared as they are; a change is carried out as a server does it.
#[derive(Default)]
struct Memory {
    entries: BTreeMap<String, Vec<AttributeValues>>,
    /// What was asked for, one word each.
    asked: Vec<String>,
    refuses: Option<ResultCode>,
}

const SUFFIX: &str = "dc=example";

fn schema() -> Schema {
    let mut builder = larix_schema::SchemaBuilder::system();
    ["core", "cosine", "inetorgperson"].into_iter().for_each(|name| builder.add_bundled(name).unwrap());
    builder.build()
}

fn attribute(name: &str, values: &[&str]) -> AttributeValues {
    AttributeValues {
        description: name.to_owned(),
        values: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
    }
}

fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn csn(time: i64) -> Csn {
    Csn { time: larix_engine::time::Timestamp(time), count: 0, server_id: 0, modification: 0 }
}

fn below(name: &str, superior: &str) -> bool {
    name.len() > superior.len() && name.ends_with(superior)
}

impl Memory {
    fn with(entries: &[(&str, u128)]) -> Self {
        let mut memory = Self::default();
        for (dn, number) in entries {
            let attributes = vec![
                attribute("objectClass", &["organizationalUnit"]),
                attribute("entryUUID", &[&uuid(*number).to_string()]),
                attribute("entryCSN", &[&csn(1).text()]),
            ];
            memory.entries.insert((*dn).to_owned(), attributes);
        }
        memory
    }

    fn has_children(&self, dn: &str) -> bool {
        self.entries.keys().any(|name| below(name, dn))
    }

    fn value(&self, dn: &str, name: &str) -> Vec<String> {
        let entry =
            TargetEntry { dn: dn.to_owned(), attributes: self.entries.get(dn).cloned().unwrap_or_default() };
        entry.values(name).map(str::to_owned).collect()
    }

    fn names(&self) -> Vec<&str> {
        self.entries.keys().map(String::as_str).collect()
    }
}

fn code(code: ResultCode) -> Result<(), LdapResult> {
    Err(LdapResult::new(code))
}

impl Target for Memory {
    fn search(
        &mut self,
        search: &TargetSearch<'_>,
        found: &mut dyn FnMut(TargetEntry),
    ) -> Result<(), LdapResult> {
        if !self.entries.contains_key(search.base) {
            return code(ResultCode::NO_SUCH_OBJECT);
        }
        for (dn, attributes) in &self.entries {
            let entry = TargetEntry { dn: dn.clone(), attributes: attributes.clone() };
            let in_scope = match search.scope {
                Scope::Base => dn == search.base,
                _ => dn == search.base || below(dn, search.base),
            };
            let by_uuid = FilterBuf::parse(&format!(
                "(entryUUID={})",
                entry.values("entryUUID").next().unwrap_or("none")
            ));
            let matches =
                *search.filter == FilterBuf::every_entry() || by_uuid.is_ok_and(|f| f == *search.filter);
            if in_scope && matches {
                found(entry);
            }
        }
        Ok(())
    }

    fn write(&mut self, operation: &WriteOperation) -> Result<(), LdapResult> {
        if let Some(refused) = self.refuses {
            return code(refused);
        }
        let superior = |dn: &str| parted(dn).map(|(_, superior)| superior.to_owned());
        match operation {
            WriteOperation::Add { entry, attributes } => {
                self.asked.push(format!("add {entry}"));
                if self.entries.contains_key(entry) {
                    return code(ResultCode::ENTRY_ALREADY_EXISTS);
                }
                if entry != SUFFIX && !self.entries.contains_key(&superior(entry)?) {
                    return code(ResultCode::NO_SUCH_OBJECT);
                }
                self.entries.insert(entry.clone(), attributes.clone());
            }
            WriteOperation::Delete { entry } => {
                self.asked.push(format!("delete {entry}"));
                if self.has_children(entry) {
                    return code(ResultCode::NOT_ALLOWED_ON_NON_LEAF);
                }
                if self.entries.remove(entry).is_none() {
                    return code(ResultCode::NO_SUCH_OBJECT);
                }
            }
            WriteOperation::Modify { object, changes } => {
                let what: Vec<String> = changes
                    .iter()
                    .map(|change| format!("{:?} {}", change.operation, change.attribute.description))
                    .collect();
                self.asked.push(format!("modify {object}: {}", what.join(", ")));
                let Some(entry) = self.entries.get_mut(object) else {
                    return code(ResultCode::NO_SUCH_OBJECT);
                };
                for change in changes {
                    let AttributeValues { description, values } = &change.attribute;
                    let at = entry.iter().position(|one| one.description.eq_ignore_ascii_case(description));
                    let mut had = at.map_or_else(Vec::new, |at| entry.remove(at).values);
                    match change.operation {
                        ModifyOperation::Add => had.extend(values.iter().cloned()),
                        ModifyOperation::Replace => had = values.clone(),
                        _ if values.is_empty() => had.clear(),
                        _ => had.retain(|value| !values.contains(value)),
                    }
                    if !had.is_empty() {
                        entry.push(AttributeValues { description: description.clone(), values: had });
                    }
                }
            }
            WriteOperation::ModifyDn { entry, new_rdn, delete_old_rdn, new_superior } => {
                let above = match new_superior {
                    Some(above) => above.clone(),
                    None => superior(entry)?,
                };
                let name = format!("{new_rdn},{above}");
                self.asked.push(format!("rename {entry} to {name}, deletes {delete_old_rdn}"));
                if !self.entries.contains_key(&above) {
                    return code(ResultCode::NO_SUCH_OBJECT);
                }
                if self.entries.contains_key(&name) {
                    return code(ResultCode::ENTRY_ALREADY_EXISTS);
                }
                let Some(moved) = self.entries.remove(entry) else {
                    return code(ResultCode::NO_SUCH_OBJECT);
                };
                self.entries.insert(name, moved);
            }
        }
        Ok(())
    }
}

fn put(number: u128, dn: &str, more: &[AttributeValues]) -> ReplicatedChange {
    let own = [attribute("objectClass", &["organizationalUnit"]), attribute("entryCSN", &[&csn(2).text()])];
    ReplicatedChange::Put {
        entry_uuid: uuid(number),
        dn: dn.to_owned(),
        attributes: [own.as_slice(), more].concat(),
        state: None,
        place: None,
    }
}

fn pushed(memory: &mut Memory, changes: Vec<ReplicatedChange>, csns: &[Csn]) -> ReplicatedOutcome {
    let schema = schema();
    let rules = ReplicaRules { attributes: Arc::<AttributeShare>::default(), ..ReplicaRules::default() };
    let batch = ReplicatedBatch { changes, context_csns: csns.to_vec(), rules };
    Push { target: memory, schema: &schema, suffix: SUFFIX }.apply(&batch)
}

/// Pushes one change; what the target was asked for, and the names that it has then.
fn check(before: &[(&str, u128)], change: ReplicatedChange, asked: &[&str], names: &[&str]) -> Memory {
    let mut memory = Memory::with(before);
    let outcome = pushed(&mut memory, vec![change], &[]);
    assert_eq!(outcome.changes, [ApplyOutcome::Done], "{asked:?}");
    assert_eq!(memory.asked, asked);
    assert_eq!(memory.names(), names);
    memory
}

#[test]
fn entries_are_added_changed_and_deleted() {
    let suffix = (SUFFIX, 1);
    let add =
        put(2, "ou=a,dc=example", &[attribute("ou", &["a"]), attribute("entryDN", &["ou=a,dc=example"])]);
    let memory = check(&[suffix], add, &["add ou=a,dc=example"], &[SUFFIX, "ou=a,dc=example"]);
    assert_eq!(memory.value("ou=a,dc=example", "entryUUID"), [uuid(2).to_string()]);
    assert!(memory.value("ou=a,dc=example", "entryDN").is_empty());

    let there = [suffix, ("ou=a,dc=example", 2)];
    check(
        &there,
        put(2, "ou=a,dc=example", &[attribute("description", &["x"])]),
        &["modify ou=a,dc=example: Replace entryCSN, Add description"],
        &[SUFFIX, "ou=a,dc=example"],
    );
    let delete = ReplicatedChange::Delete { entry_uuid: uuid(2), csn: None };
    check(&there, delete.clone(), &["delete ou=a,dc=example"], &[SUFFIX]);
    check(&[suffix], delete, &[], &[SUFFIX]);
}

#[test]
fn renames_keep_the_entry() {
    let there = [(SUFFIX, 1), ("ou=a,dc=example", 2), ("ou=b,dc=example", 3)];
    check(
        &there,
        put(2, "ou=c,ou=b,dc=example", &[attribute("ou", &["c"])]),
        &[
            "rename ou=a,dc=example to ou=c,ou=b,dc=example, deletes true",
            "modify ou=c,ou=b,dc=example: Replace entryCSN, Add ou",
        ],
        &[SUFFIX, "ou=b,dc=example", "ou=c,ou=b,dc=example"],
    );
    // Who has the name gives way, and comes again if it is wanted.
    check(
        &there,
        put(2, "ou=b,dc=example", &[attribute("ou", &["A", "b"])]),
        &[
            "rename ou=a,dc=example to ou=b,dc=example, deletes false",
            "delete ou=b,dc=example",
            "rename ou=a,dc=example to ou=b,dc=example, deletes false",
            "modify ou=b,dc=example: Replace entryCSN, Add ou",
        ],
        &[SUFFIX, "ou=b,dc=example"],
    );
}

#[test]
fn a_name_that_is_taken_becomes_the_providers_entry() {
    let there = [(SUFFIX, 1), ("ou=a,dc=example", 9), ("ou=x,ou=a,dc=example", 4)];
    let memory = check(
        &there,
        put(2, "ou=a,dc=example", &[]),
        &["add ou=a,dc=example", "modify ou=a,dc=example: Replace entryCSN, Replace entryUUID"],
        &[SUFFIX, "ou=a,dc=example", "ou=x,ou=a,dc=example"],
    );
    assert_eq!(memory.value("ou=a,dc=example", "entryUUID"), [uuid(2).to_string()]);
}

#[test]
fn what_is_above_an_entry_may_come_later_or_go_first() {
    let mut memory = check(
        &[(SUFFIX, 1)],
        put(3, "ou=c,ou=b,ou=a,dc=example", &[]),
        &[
            "add ou=c,ou=b,ou=a,dc=example",
            "add ou=a,dc=example",
            "add ou=b,ou=a,dc=example",
            "add ou=c,ou=b,ou=a,dc=example",
        ],
        &[SUFFIX, "ou=a,dc=example", "ou=b,ou=a,dc=example", "ou=c,ou=b,ou=a,dc=example"],
    );
    assert_eq!(memory.value("ou=b,ou=a,dc=example", "objectClass"), ["top", "glue"]);
    let outcome = pushed(&mut memory, vec![put(2, "ou=a,dc=example", &[])], &[]);
    assert_eq!(outcome.changes, [ApplyOutcome::Done]);
    assert_eq!(memory.value("ou=a,dc=example", "objectClass"), ["organizationalUnit"]);
    let gone = ReplicatedChange::Delete { entry_uuid: uuid(2), csn: None };
    assert_eq!(pushed(&mut memory, vec![gone], &[]).changes, [ApplyOutcome::Done]);
    assert_eq!(memory.value("ou=a,dc=example", "objectClass"), ["top", "glue"]);
    // Outside of the suffix nothing is made up.
    let outcome = pushed(&mut memory, vec![put(5, "ou=a,dc=elsewhere", &[])], &[]);
    assert!(
        matches!(outcome.changes.as_slice(), [ApplyOutcome::Refused(result)] if result.code == ResultCode::NO_SUCH_OBJECT)
    );
}

#[test]
fn the_context_is_raised_behind_the_changes_and_never_falls() {
    let mut memory = Memory::with(&[(SUFFIX, 1)]);
    let raised = |memory: &Memory| memory.value(SUFFIX, "contextCSN");
    pushed(&mut memory, vec![put(2, "ou=a,dc=example", &[])], &[csn(5)]);
    assert_eq!(raised(&memory), [csn(5).text()]);
    let other = Csn { server_id: 2, ..csn(3) };
    pushed(&mut memory, Vec::new(), &[csn(4), other]);
    assert_eq!(raised(&memory), [csn(5).text(), other.text()]);
    assert_eq!(
        memory.asked,
        [
            "add ou=a,dc=example",
            "modify dc=example: Replace contextCSN",
            "modify dc=example: Replace contextCSN"
        ]
    );
    // A change that the target refuses is asked for again.
    memory.refuses = Some(ResultCode::INSUFFICIENT_ACCESS_RIGHTS);
    let outcome =
        pushed(&mut memory, vec![put(3, "ou=b,dc=example", &[]), put(4, "ou=c,dc=example", &[])], &[csn(9)]);
    assert!(matches!(outcome.changes.as_slice(), [ApplyOutcome::Refused(_)]));
    assert_eq!(raised(&memory), [csn(5).text(), other.text()]);
    let schema = schema();
    let known = Push { target: &mut memory, schema: &schema, suffix: SUFFIX }.context_csns();
    assert_eq!(known, Ok(vec![csn(5), other]));
    let mut nothing = Memory::default();
    assert!(pushed(&mut nothing, Vec::new(), &[csn(9)]).result.is_success());
}

#[test]
fn what_a_refresh_did_not_name_is_deleted() {
    let schema = schema();
    let mut memory = Memory::with(&[
        (SUFFIX, 1),
        ("ou=a,dc=example", 2),
        ("ou=b,ou=a,dc=example", 3),
        ("ou=c,dc=example", 4),
    ]);
    memory.entries.insert(
        "ou=d,dc=example".to_owned(),
        vec![attribute("entryUUID", &[&uuid(5).to_string()]), attribute("entryCSN", &[&csn(8).text()])],
    );
    let share = |seen: &[Csn]| Share {
        whole: false,
        subentries: true,
        base: SUFFIX.to_owned(),
        scope: Scope::Subtree,
        filter: None,
        seen: seen.to_vec(),
    };
    let mut present = UuidSet::new();
    present.insert(uuid(1));
    present.settle();
    let mut delete = |limit| {
        let mut push = Push { target: &mut memory, schema: &schema, suffix: SUFFIX };
        push.delete_absent(&share(&[csn(5)]), &present, limit)
    };
    let outcome = delete(DeleteLimit { percent: 50, entries: 2 });
    assert_eq!(outcome, DeleteOutcome::TooMany { absent: 3, entries: 5 });
    assert_eq!(delete(DeleteLimit::default()), DeleteOutcome::Deleted(3));
    assert_eq!(
        memory.asked,
        ["delete ou=b,ou=a,dc=example", "delete ou=a,dc=example", "delete ou=c,dc=example"]
    );
    // The provider has not seen that one.
    assert_eq!(memory.names(), [SUFFIX, "ou=d,dc=example"]);
}

#[test]
fn a_difference_is_the_least_change() {
    let schema = schema();
    let check = |known: &[AttributeValues], wanted: &[AttributeValues], expected: &[&str]| {
        let changes = difference(&schema, known, wanted, &AttributeShare::default());
        let shown: Vec<String> = changes
            .iter()
            .map(|change| {
                let values: Vec<_> =
                    change.attribute.values.iter().map(|v| String::from_utf8_lossy(v)).collect();
                format!("{:?} {} {}", change.operation, change.attribute.description, values.join(","))
            })
            .collect();
        assert_eq!(shown, expected);
    };
    let members = |values: &[&str]| attribute("description", values);
    check(&[members(&["a", "b"])], &[members(&["b", "a"])], &[]);
    check(
        &[members(&["a", "b", "c"])],
        &[members(&["b", "c", "d"])],
        &["Delete description a", "Add description d"],
    );
    check(&[members(&["a"])], &[members(&["b"])], &["Replace description b"]);
    check(&[members(&["a"])], &[], &["Delete description "]);
    check(&[], &[members(&["a"])], &["Add description a"]);
    // What every server says of itself stays.
    check(&[attribute("hasSubordinates", &["TRUE"]), attribute("contextCSN", &["x"])], &[], &[]);
    // Without an equality rule there are no single values.
    let photo = |values: &[&str]| attribute("jpegPhoto", values);
    check(&[photo(&["1", "2", "3"])], &[photo(&["1", "2", "4"])], &["Replace jpegPhoto 1,2,4"]);
    // A target would say by itself who made a change, unless it is told.
    let name = |value: &str| attribute("modifiersName", &[value]);
    check(
        &[members(&["a"]), name("cn=x")],
        &[members(&["b"]), name("cn=x")],
        &["Replace description b", "Replace modifiersName cn=x"],
    );
    check(&[name("cn=x")], &[name("cn=x")], &[]);
    // The same attribute by another name.
    check(&[attribute("sn", &["x"])], &[attribute("surname", &["x"])], &[]);
}
