//! What etcd holds: made where nothing is, and looked at before anything is believed.

use ::bytes::Bytes;
use larix_store::TableSpec;

use super::Shared;
use super::call::Effect;
use super::commits::record;
use super::wire::{Condition, Op, Txn, bytes, fields};
use crate::error::{Fault, OpenError};
use crate::schema::{FORMAT, kind};

const STATUS: &str = "/etcdserverpb.Maintenance/Status";
/// The oldest version that is used.
const OLDEST: (u32, u32) = (3, 4);
/// How often something is tried again that others came in between of.
const TRIES: usize = 16;

type Line = (u8, String, String);

impl Shared {
    /// Looks at what is there. With `make` an empty prefix becomes a store, and tables that are new get numbers.
    pub(super) async fn prepare(
        &self,
        schema: &str,
        tables: &[TableSpec],
        make: bool,
    ) -> Result<Vec<u8>, OpenError> {
        self.check_version().await?;
        let made = self.look_for_store(schema, make).await.map_err(Fault::into_open)?;
        made?;
        for _ in 0..TRIES {
            let numbered = self.number(tables, make).await.map_err(Fault::into_open)?;
            if let Some(numbers) = numbered? {
                return Ok(numbers);
            }
        }
        Err(OpenError::Unavailable("other servers number tables all the time".to_owned()))
    }

    async fn check_version(&self) -> Result<(), OpenError> {
        let answer = self.client.call(STATUS, Bytes::new(), Effect::None).await;
        let answer = answer.map_err(Fault::into_open)?;
        let found = fields(&answer).map(|status| String::from_utf8_lossy(bytes(&status, 2)).into_owned());
        let found = found.unwrap_or_default();
        let mut numbers = found.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let own = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if own < OLDEST {
            return Err(OpenError::Old { found, engine: "etcd", oldest: "3.4" });
        }
        Ok(())
    }

    async fn look_for_store(&self, schema: &str, make: bool) -> Result<Result<(), OpenError>, Fault> {
        for _ in 0..TRIES {
            let operations = vec![Op::get(self.keys.format()), Op::all(self.keys.head())];
            let mut done = self.client.txn(&Txn::of(operations)).await?.done.into_iter();
            let mut next = || done.next().map(|done| done.found()).unwrap_or_default();
            let (format, head) = (next(), next());
            match format.first() {
                Some(found) => {
                    let number = std::str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok());
                    return Ok(match number {
                        Some(FORMAT) => Ok(()),
                        Some(found) => Err(OpenError::Format { found, supported: FORMAT }),
                        None => Err(OpenError::Damaged("the number of the format cannot be read".to_owned())),
                    });
                }
                None if !head.is_empty() => {
                    return Ok(Err(OpenError::Damaged("the number of the format is not there".to_owned())));
                }
                None if !make => return Ok(Err(OpenError::NotAStore { schema: schema.to_owned() })),
                None => {}
            }
            let success = vec![
                Op::put(self.keys.format(), FORMAT.to_string()),
                Op::put(self.keys.version(), 0u64.to_be_bytes()),
                Op::put(self.keys.epoch(), 1u64.to_be_bytes()),
                Op::put(self.keys.commit(0), record(1, &[], Some(&[]))),
            ];
            let conditions =
                vec![(self.keys.format(), Condition::Absent), (self.keys.version(), Condition::Absent)];
            self.client.txn(&Txn { conditions, success, failure: Vec::new() }).await?;
        }
        Err(Fault::Conflict)
    }

    /// The number of each table; none where another server has numbered some meanwhile.
    async fn number(
        &self,
        tables: &[TableSpec],
        make: bool,
    ) -> Result<Result<Option<Vec<u8>>, OpenError>, Fault> {
        let txn = Txn::of(vec![Op::get(self.keys.tables())]);
        let found = self.client.txn(&txn).await?.done.into_iter().next();
        let found = found.map(|done| done.found()).unwrap_or_default().into_iter().next();
        let text = found.as_ref().map(|found| &*found.value).unwrap_or_default();
        let Some(mut known) = read(text) else {
            return Ok(Err(OpenError::Damaged("the list of tables cannot be read".to_owned())));
        };
        let (mut numbers, before) = (Vec::new(), known.len());
        for spec in tables {
            let own = kind(spec.kind);
            let number = match known.iter().find(|(_, _, name)| name == spec.name) {
                Some((number, kind, _)) if kind == own => *number,
                Some(_) => return Ok(Err(OpenError::Kind { table: spec.name.to_owned() })),
                None if make => {
                    let next = known.iter().map(|(number, ..)| number.saturating_add(1)).max().unwrap_or(0);
                    known.push((next, own.to_owned(), spec.name.to_owned()));
                    next
                }
                None => {
                    let what = format!("the list of tables lacks \"{}\"", spec.name);
                    return Ok(Err(OpenError::Damaged(what)));
                }
            };
            numbers.push(number);
        }
        if known.len() == before {
            return Ok(Ok(Some(numbers)));
        }
        let text: String =
            known.iter().map(|(number, kind, name)| format!("{number} {kind} {name}\n")).collect();
        let test = found.map_or(Condition::Absent, |found| Condition::Revision(found.changed));
        let txn = Txn {
            conditions: vec![(self.keys.tables(), test)],
            success: vec![Op::put(self.keys.tables(), text)],
            failure: Vec::new(),
        };
        Ok(Ok(self.client.txn(&txn).await?.succeeded.then_some(numbers)))
    }
}

fn read(text: &[u8]) -> Option<Vec<Line>> {
    let line = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let number = words.next()?.parse().ok()?;
        Some((number, words.next()?.to_owned(), words.next()?.to_owned()))
    };
    std::str::from_utf8(text).ok()?.lines().map(line).collect()
}
