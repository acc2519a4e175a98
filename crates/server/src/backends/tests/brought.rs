//! Extended operations and controls that an overlay in front of a database, or of all, brings.

use larix_engine::controls::{OperationKind as Kind, OverlayControl};
use larix_proto::{ControlBuf, LdapResult};

use super::interceptors::{ask, own};
use super::*;

const OPERATION: &str = "1.2.3.4";
const CONTROL: &str = "1.2.3.5";

static OPERATIONS: [OverlayOperation; 1] = [OverlayOperation {
    oid: OPERATION,
    target: |value| {
        let text = value.map(|value| String::from_utf8_lossy(value).into_owned());
        text.ok_or_else(|| LdapResult::with(ResultCode::PROTOCOL_ERROR, "data expected"))
    },
}];

static CONTROLS: [OverlayControl; 1] = [OverlayControl {
    oid: CONTROL,
    name: "toy",
    listed: true,
    goes_with: |operation| matches!(operation, Kind::Search | Kind::Bind),
    fault: |value| value.map(|_| "not absent"),
}];

#[derive(Debug)]
struct Bringer;

impl Interceptor for Bringer {
    fn requests(&self) -> Operations {
        Operations::SEARCH.and(Operations::EXTENDED)
    }

    fn operations(&self) -> &'static [OverlayOperation] {
        &OPERATIONS
    }

    fn controls(&self) -> &'static [OverlayControl] {
        &CONTROLS
    }

    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: larix_backend::Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        match search.controls.of_overlay(CONTROL) {
            Some(_) => Ok(Box::new(AnsweredSearch { messages: Vec::new(), result: own(), entries: 0 })),
            None => next.open(context, search),
        }
    }

    fn extended(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        operation: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        match operation.oid {
            OPERATION => Reply::Now(own().into()),
            _ => next.extended(context, operation, later),
        }
    }

    fn bound(&self, bound: &BoundSession<'_>) -> Vec<ControlBuf> {
        let value = Some(bound.subject.shown_dn().as_bytes().to_vec());
        vec![ControlBuf { oid: CONTROL.into(), critical: false, value }]
    }
}

fn bench(in_front_of_all: bool) -> Bench {
    let stack = || Stack::new(vec![Arc::new(Bringer)]);
    let (database, all) =
        if in_front_of_all { (Stack::default(), stack()) } else { (stack(), Stack::default()) };
    Bench::behind("o=toy", false, database, all)
}

fn extended(name: &str, value: Option<&str>) -> Vec<u8> {
    let mut out = Vec::new();
    client::extended(&mut out, MessageId(1), name, value.map(str::as_bytes), &[]);
    out
}

fn control(critical: bool, value: Option<&[u8]>) -> ControlBuf {
    ControlBuf { oid: CONTROL.into(), critical, value: value.map(<[u8]>::to_vec) }
}

fn search_with(base: &str, controls: &[ControlBuf]) -> Vec<u8> {
    let filter = FilterBuf::parse("(objectClass=*)").unwrap();
    let mut out = Vec::new();
    let request = Search {
        attributes: &["supportedControl", "supportedExtension"],
        ..Search::new(base, Scope::Base, filter.as_filter())
    };
    client::search(&mut out, MessageId(1), &request, controls);
    out
}

#[test]
fn operations_go_where_their_name_is() {
    for (in_front_of_all, name, value, expected) in [
        (false, OPERATION, Some("cn=a,o=toy"), "51 own"),
        (false, OPERATION, Some(SUFFIX), "2 unsupported extended operation"),
        (false, OPERATION, Some("o=nowhere"), "32 no database serves this name"),
        (false, OPERATION, Some("no name"), "34 invalid DN"),
        (false, OPERATION, None, "2 data expected"),
        (false, "1.2.3.9", Some("o=toy"), "2 unsupported extended operation"),
        (true, OPERATION, Some(SUFFIX), "51 own"),
        (true, OPERATION, Some(""), "51 own"),
    ] {
        let bench = bench(in_front_of_all);
        assert_eq!(ask(&mut bench.bound(), &extended(name, value)), [expected], "{name} {value:?}");
    }
}

#[test]
fn controls_are_heeded_where_somebody_does() {
    let unavailable = "12 critical control unavailable in context";
    for (in_front_of_all, base, controls, expected) in [
        (false, "o=toy", &[control(true, None)][..], "51 own"),
        (false, "o=toy", &[control(false, None)], "51 own"),
        (false, SUFFIX, &[control(true, None)], unavailable),
        (false, "", &[control(true, None)], unavailable),
        (false, SUFFIX, &[control(false, None)], "32 "),
        (true, SUFFIX, &[control(true, None)], "51 own"),
        (false, "o=toy", &[control(false, Some(b"x"))], "2 toy control value not absent"),
        (
            false,
            "o=toy",
            &[control(true, None), control(true, None)],
            "2 toy control specified multiple times",
        ),
    ] {
        let bench = bench(in_front_of_all);
        let answer = ask(&mut bench.connect(), &search_with(base, controls));
        assert_eq!(answer, [expected], "{in_front_of_all} {base} {controls:?}");
    }
    // It does not go with compares.
    let mut request = Vec::new();
    client::compare(&mut request, MessageId(1), "o=toy", "cn", b"x", &[control(true, None)]);
    assert_eq!(ask(&mut bench(false).connect(), &request), ["12 critical extension is unavailable"]);
}

#[test]
fn the_root_dse_lists_them() {
    for bench in [bench(false), bench(true), Bench::new()].into_iter().enumerate() {
        let (number, bench) = bench;
        let mut client = bench.connect();
        client.ask(&search_with("", &[]));
        for oid in [OPERATION, CONTROL] {
            let is_listed = client.out.windows(oid.len()).any(|bytes| bytes == oid.as_bytes());
            assert_eq!(is_listed, number < 2, "{oid}");
        }
    }
}

#[test]
fn a_bind_is_answered_with_controls() {
    let admin = format!("cn=admin,{SUFFIX}");
    for (name, password, controls, expected_values) in [
        (&*admin, &b"secret"[..], &[control(true, None)][..], Some(&*admin)),
        ("", b"", &[control(false, None)], Some("")),
        (&*admin, b"wrong", &[control(false, None)], None),
        (&*admin, b"secret", &[], None),
    ] {
        let bench = bench(true);
        let (mut client, mut request) = (bench.connect(), Vec::new());
        client::simple_bind(&mut request, MessageId(1), name, password, controls);
        client.ask(&request);
        while client.pending() > 0 {
            client.event();
        }
        let message = Response::decode_message(&client.out).unwrap();
        let values: Vec<&[u8]> = message.controls.iter().filter_map(|control| control.value).collect();
        assert_eq!(
            values,
            expected_values.map(str::as_bytes).into_iter().collect::<Vec<_>>(),
            "{name} {controls:?}"
        );
    }
}
