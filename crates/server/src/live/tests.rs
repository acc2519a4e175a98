//! A database that goes and comes again while a request still has the configuration from before.

use std::fs;
use std::path::PathBuf;

use larix_configuration::Config;
use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::write::{AttributeValues, Origin, WriteOperation};

use super::*;
use crate::local::LocalServer;

const ADMIN: &str = "cn=config";

/// A server with the database of `cn=data`, and a folder for another one.
struct Bench {
    folder: tempfile::TempDir,
    local: LocalServer,
    endpoints: Endpoints,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["data", "extra"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let file = folder.path().join("slapd.conf");
        let data = folder.path().join("data");
        let text = format!(
            "database config\nrootdn {ADMIN}\nrootpw secret\n\
             database mdb\nsuffix cn=data\ndirectory {}\n",
            data.display()
        );
        fs::write(&file, text).unwrap();
        let local = LocalServer::open(Config::from_slapd_conf(&file).unwrap()).unwrap();
        Self { folder, local, endpoints: Endpoints::default() }
    }

    fn configurator(&self) -> Configurator<'_> {
        let judge = LowPriority::start("judge").unwrap();
        let (server, keeper) = (self.local.server(), Keeper::default());
        Configurator {
            server,
            endpoints: &self.endpoints,
            judge,
            keeper,
            settle: false,
            earlier: Vec::new(),
            out_of_service: Vec::new(),
        }
    }

    fn extra(&self) -> PathBuf {
        self.folder.path().join("extra")
    }

    fn add(&self) -> WriteOperation {
        let directory = self.extra().display().to_string();
        let values = [
            ("objectClass", "olcDatabaseConfig"),
            ("objectClass", "olcMdbConfig"),
            ("olcDatabase", "mdb"),
            ("olcSuffix", "cn=extra"),
            ("olcDbDirectory", &directory),
        ];
        let mut attributes: Vec<AttributeValues> = Vec::new();
        for (name, value) in values {
            let value = value.as_bytes().to_vec();
            match attributes.iter_mut().find(|attribute| attribute.description == name) {
                Some(attribute) => attribute.values.push(value),
                None => {
                    attributes.push(AttributeValues { description: name.to_owned(), values: vec![value] });
                }
            }
        }
        WriteOperation::Add { entry: "olcDatabase=mdb,cn=config".to_owned(), attributes }
    }

    fn delete() -> WriteOperation {
        WriteOperation::Delete { entry: "olcDatabase={2}mdb,cn=config".to_owned() }
    }

    fn request(&self, operation: WriteOperation) -> Vec<WriteRequest> {
        let dn = self.local.server().config().schema.parse_dn(ADMIN).unwrap();
        let subject = Arc::new(Subject::default().bound_as(dn, ADMIN));
        let controls = RequestControls::default();
        vec![WriteRequest { operation, subject, controls, origin: Origin::Client, passwords: None }]
    }

    /// Has a change made that must be.
    fn apply(&self, configurator: &mut Configurator<'_>, operation: WriteOperation) {
        let outcome = configurator.change(self.request(operation));
        assert_eq!(outcome.result, LdapResult::success());
    }

    /// The generation that a request has which began while the database was there; that is gone now.
    fn gone_while_asked(&self, configurator: &mut Configurator<'_>) -> Arc<Generation> {
        self.apply(configurator, self.add());
        let request = self.local.server().generation_in_force();
        self.apply(configurator, Self::delete());
        request
    }
}

#[test]
fn a_request_that_has_ended_holds_no_directory() {
    let bench = Bench::new();
    let mut configurator = bench.configurator();
    drop(bench.gone_while_asked(&mut configurator));
    bench.apply(&mut configurator, bench.add());
}

/// The request ends once it is judged whether the database may come again.
#[test]
fn a_request_may_end_while_a_change_is_made() {
    let bench = Bench::new();
    let mut configurator = bench.configurator();
    let request = bench.gone_while_asked(&mut configurator);
    let server = bench.local.server();
    let earlier = server.generation_in_force();
    let changes = [ConfigChange {
        operation: bench.add(),
        controls: RequestControls::default(),
        requester: Requester::Offline,
    }];
    let stamp = Stamp { clock: &*server.clock, random: &SystemRandom };
    let changed = earlier.config.changed_together(&changes, &stamp).unwrap();
    drop(request);
    configurator.carry_out(&earlier, &changed, Maker::Client).unwrap();
}

/// A request that still reads the database is not cut off: the change is refused, and can be made later.
#[test]
fn a_request_that_goes_on_keeps_what_it_reads() {
    let bench = Bench::new();
    let mut configurator = bench.configurator();
    let request = bench.gone_while_asked(&mut configurator);
    let refused = configurator.change(bench.request(bench.add())).result;
    assert_eq!(refused.code, ResultCode::OTHER);
    assert!(refused.diagnostic.contains(bench.extra().to_str().unwrap()), "{}", refused.diagnostic);
    drop(request);
    bench.apply(&mut configurator, bench.add());
}
