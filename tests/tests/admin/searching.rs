//! The pages and the order of what was found, and a copy of an entry, as HTTP.

use std::fmt::Write as _;

use super::http::{Http, escape, start};

/// Where a link of a page leads, by its text.
fn link(body: &str, text: &str) -> Option<String> {
    let (before, _) = body.split_once(&format!("\">{text}"))?;
    let (_, address) = before.rsplit_once("href=\"")?;
    Some(address.replace("&amp;", "&"))
}

/// The entries of a page in their order.
fn shown(body: &str) -> Vec<String> {
    let body = body.split_once("<tbody>").map_or("", |(_, rest)| rest);
    let cells = body
        .split("cn=number")
        .skip(1)
        .filter_map(|rest| rest.split_once(",ou=people,dc=example,dc=com</a>"));
    let names = cells.map(|(name, _)| name.to_owned());
    names.filter(|name| name.len() < 10).collect()
}

#[test]
fn what_was_found_has_an_order_and_pages_both_ways() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    let mut text = String::new();
    for number in 0..250 {
        let serial = 1000 + (number * 7) % 250;
        let _ = write!(
            text,
            "dn: cn=number {number:03},ou=people,dc=example,dc=com\nobjectClass: device\ncn: number {number:03}\n\
             serialNumber: {serial}\n\n"
        );
    }
    let done = http.post("/import", &[("format", "ldif"), ("text", &text), ("step", "run")]);
    assert!(done.body.contains("All 250 records were imported."), "{}", done.body);

    let base = escape("ou=people,dc=example,dc=com");
    let first = http.get(&format!(
        "/search?base={base}&filter=(cn%3Dnumber*)&attributes=cn,serialNumber&sort=serialNumber"
    ));
    assert!(first.body.contains("Entries 1 to 100"), "{}", first.body);
    assert!(first.body.contains("aria-sort=\"ascending\"") && link(&first.body, "First page").is_none());
    let names = shown(&first.body);
    assert_eq!(names.len(), 100, "{names:?}");
    // Serial 1000 + k belongs to the number whose sevenfold leaves k.
    assert_eq!(names.first().map(String::as_str), Some(" 000"), "{names:?}");
    assert_eq!(names.get(1).map(String::as_str), Some(" 143"), "{names:?}");
    let second = http.get(&link(&first.body, "Next page").expect("a next page"));
    assert!(second.body.contains("Entries 101 to 200"), "{}", second.body);
    let third = http.get(&link(&second.body, "Next page").expect("a third page"));
    assert!(third.body.contains("Entries 201 to 250 of 250"), "{}", third.body);
    assert!(link(&third.body, "Next page").is_none());
    let back = http.get(&link(&third.body, "Page before").expect("a page before"));
    assert_eq!(shown(&back.body), shown(&second.body));
    let back = http.get(&link(&back.body, "Page before").expect("a page before"));
    assert_eq!(shown(&back.body), names);
    assert!(back.body.contains("Entries 1 to 100"), "{}", back.body);
    // The other way round, from the head of the column.
    let down = http.get(&link(&first.body, "serialNumber<").expect("a head"));
    assert!(down.body.contains("aria-sort=\"descending\""), "{}", down.body);
    assert_eq!(shown(&down.body).first().map(String::as_str), Some(" 107"));
    // What has no order is refused, and the form stays.
    let refused = http.get(&format!("/search?base={base}&filter=(cn%3D*)&sort=nonsense"));
    assert!(refused.status == 422 && refused.body.contains("value=\"nonsense\""), "{}", refused.body);
    // Numbers and trails that nobody gave out do no harm.
    let odd = http.get(&format!("/search?base={base}&filter=(cn%3Dnumber*)&first=x&trail=..-&page=zz"));
    assert!(odd.status == 200, "{}", odd.body);
    let odd = http.get(&format!("/search?base={base}&filter=(cn%3Dnumber*)&first=18446744073709551615"));
    assert!(odd.status == 200, "{}", odd.body);
    assert!(fixture.server.stop());
}

#[test]
fn a_copy_is_a_form_without_name_and_password() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    let ann = escape("uid=ann,ou=people,dc=example,dc=com");
    let page = http.get(&format!("/browse?dn={ann}"));
    let copy = http.get(&link(&page.body, "Add a copy").expect("the way to a copy"));
    assert_eq!(copy.status, 200);
    assert!(copy.body.contains("name=\"parent\" value=\"ou=people,dc=example,dc=com\""), "{}", copy.body);
    assert!(!copy.body.contains("value=\"ann\"") && !copy.body.contains("{SSHA"), "{}", copy.body);
    assert!(copy.body.contains("<option value=\"uid\" selected>"), "{}", copy.body);
    let fields = [
        ("parent", "ou=people,dc=example,dc=com"),
        ("class", "inetOrgPerson"),
        ("naming", "uid"),
        ("v:uid", "anna"),
        ("v:cn", "Anna"),
        ("v:sn", "Example"),
        ("step", "save"),
    ];
    assert_eq!(http.post("/entry/new", &fields).status, 303);
    assert_eq!(http.get("/entry/copy?dn=uid%3Dnobody%2Cdc%3Dexample%2Cdc%3Dcom").status, 404);
    // Who may not see an entry cannot copy it.
    assert_eq!(Http::new(fixture.http).get(&format!("/entry/copy?dn={ann}")).status, 303);
    assert!(fixture.server.stop());
}

#[test]
fn several_entries_are_deleted_after_a_look_at_them() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    let text = "dn: ou=old,dc=example,dc=com\nobjectClass: organizationalUnit\nou: old\n\n\
                dn: cn=a,ou=old,dc=example,dc=com\nobjectClass: device\ncn: a\n\n\
                dn: ou=kept,dc=example,dc=com\nobjectClass: organizationalUnit\nou: kept\n\n\
                dn: cn=b,ou=kept,dc=example,dc=com\nobjectClass: device\ncn: b\n\n";
    let done = http.post("/import", &[("format", "ldif"), ("text", text), ("step", "run")]);
    assert!(done.body.contains("All 4 records were imported."), "{}", done.body);
    let exists = |http: &mut Http, dn: &str| {
        !http.get(&format!("/browse?dn={}", escape(dn))).body.contains("Nothing to see here")
    };
    let (old, a) = ("ou=old,dc=example,dc=com", "cn=a,ou=old,dc=example,dc=com");
    let (kept, b) = ("ou=kept,dc=example,dc=com", "cn=b,ou=kept,dc=example,dc=com");

    // A look deletes nothing, and says what has entries below it.
    let look = http.post("/entries/delete", &[("dn", old), ("dn", a), ("dn", kept)]);
    assert!(look.status == 200 && look.body.contains("3 entries"), "{}", look.body);
    assert!(look.body.contains("has entries below it"), "{}", look.body);
    assert!(exists(&mut http, old) && exists(&mut http, a) && exists(&mut http, kept));

    // An entry above goes with what was chosen below it; one with others below stays.
    let run = http.post("/entries/delete", &[("dn", old), ("dn", kept), ("dn", a), ("step", "run")]);
    assert!(run.status == 422 && run.body.contains("2 of 3 entries are deleted"), "{}", run.body);
    assert!(run.body.contains("ou=kept"), "{}", run.body);
    assert!(
        !exists(&mut http, old) && !exists(&mut http, a) && exists(&mut http, kept) && exists(&mut http, b)
    );

    assert_eq!(http.post("/entries/delete", &[("step", "run")]).status, 400);
    assert_eq!(http.post("/entries/delete", &[("dn", "no name"), ("step", "run")]).status, 400);
    assert_eq!(http.get(&format!("/entries/delete?dn={}&step=run", escape(b))).status, 404);
    let many: Vec<_> = std::iter::repeat_n(("dn", b), 101).chain([("step", "run")]).collect();
    assert!(http.post("/entries/delete", &many).status == 400 && exists(&mut http, b));

    // Without the right nothing goes.
    let mut user = Http::new(fixture.http);
    assert_eq!(user.log_in("ann", "annpass").status, 303);
    let refused = user.post("/entries/delete", &[("dn", b), ("step", "run")]);
    assert!(refused.status == 422 && refused.body.contains("0 of 1 entry"), "{}", refused.body);
    assert!(exists(&mut http, b));
    assert!(fixture.server.stop());
}

#[test]
fn a_star_is_a_column_for_each_attribute() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    let found = http.get("/search?base=dc%3Dexample%2Cdc%3Dcom&filter=(uid%3Dann)&attributes=sn,*");
    let head =
        found.body.split("<thead>").nth(1).and_then(|rest| rest.split("</thead>").next()).unwrap_or("");
    let place = |name: &str| head.find(&format!(">{name}<")).unwrap_or_else(|| panic!("{name}: {head}"));
    assert!(place("sn") < place("cn") && place("sn") < place("objectClass"), "{head}");
    assert!(found.body.contains("<td>Ann Example</td>") && !found.body.contains("annpass"), "{}", found.body);
    assert!(fixture.server.stop());
}

#[test]
fn a_search_shows_no_secret_whatever_its_attribute_is_called() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    for (base, filter, attribute, secret) in [
        ("cn=config", "(olcRootPW=*)", "olcRootPW", "secret"),
        ("cn=config", "(olcRootPW=*)", "OLCROOTPW", "secret"),
        ("dc=example,dc=com", "(uid=ann)", "userPassword", "annpass"),
    ] {
        let path = format!("/search?base={}&filter={}&attributes={attribute}", escape(base), escape(filter));
        let found = http.get(&path);
        assert!(found.body.contains("<td>••••</td>"), "{path}: {}", found.body);
        assert!(!found.body.contains(&format!("<td>{secret}")), "{path}: {}", found.body);
    }
    assert!(fixture.server.stop());
}
