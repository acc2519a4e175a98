//! Entries that are names for others below them, where the provider sends these first or has deleted what was above them.

use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::{LdapResult, ModifyOperation, ResultCode};

use super::{Push, TargetEntry, parted};

/// Superiors that one entry may lack.
const LEVELS_MAX: usize = 100;

fn attribute(name: &str, values: &[&str]) -> AttributeValues {
    let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    AttributeValues { description: name.to_owned(), values }
}

fn classes() -> [AttributeValues; 2] {
    [attribute("objectClass", &["top", "glue"]), attribute("structuralObjectClass", &["glue"])]
}

impl Push<'_> {
    /// Carries out what puts an entry below others, which are made if they are not there.
    pub(super) fn below_glue(&mut self, dn: &str, operation: &WriteOperation) -> Result<(), LdapResult> {
        match self.target.write(operation) {
            Err(missing) if missing.code == ResultCode::NO_SUCH_OBJECT => {
                self.add_glue_above(dn, &missing)?;
                self.target.write(operation)
            }
            done => done,
        }
    }

    /// Adds what is missing between the suffix and an entry.
    fn add_glue_above(&mut self, dn: &str, missing: &LdapResult) -> Result<(), LdapResult> {
        let suffix = self.normal(self.suffix)?;
        let mut wanted = Vec::new();
        let mut above = parted(dn)?.1;
        while wanted.len() < LEVELS_MAX && self.normal(above)?.is_within(&suffix) {
            if self.read(above, &["1.1"])?.is_some() {
                break;
            }
            wanted.push(above);
            above = parted(above)?.1;
        }
        if wanted.is_empty() {
            return Err(missing.clone());
        }
        for name in wanted.into_iter().rev() {
            self.target
                .write(&WriteOperation::Add { entry: name.to_owned(), attributes: classes().to_vec() })?;
        }
        Ok(())
    }

    /// Leaves nothing of the entry but its name.
    pub(super) fn make_glue(&mut self, entry: &TargetEntry) -> Result<(), LdapResult> {
        let replace = |attribute| Modification { operation: ModifyOperation::Replace, attribute };
        let changes = classes().into_iter().map(replace).collect();
        self.target.write(&WriteOperation::Modify { object: entry.dn.clone(), changes })
    }
}
