//! Import, export, My account and the schema, as HTTP.

use super::http::{ADMIN, Http, escape, start, start_under};

const ANN: &str = "uid=ann,ou=people,dc=example,dc=com";

fn value_of<'b>(body: &'b str, name: &str) -> &'b str {
    let (_, rest) = body.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or(("", ""));
    rest.split('"').next().unwrap_or("")
}

#[test]
fn an_import_is_shown_before_it_is_done() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    let text = "dn: uid=eve,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: eve\ncn: Eve\nsn: E\n\n\
                dn: uid=ann,ou=people,dc=example,dc=com\nchangetype: modify\nadd: title\ntitle: Chief\n-\n\n\
                dn: uid=bob,ou=people,dc=example,dc=com\nchangetype: modrdn\nnewrdn: uid=rob\ndeleteoldrdn: 1\n";
    let shown = http.post("/import", &[("format", "ldif"), ("text", text), ("step", "preview")]);
    assert_eq!(shown.status, 200, "{}", shown.body);
    assert!(shown.body.contains("1 to add, 1 to modify, 1 to rename"), "{}", shown.body);
    let eve = format!("/browse?dn={}", escape("uid=eve,ou=people,dc=example,dc=com"));
    assert!(http.get(&eve).body.contains("Nothing to see here"));
    let done = http.post("/import", &[("format", "ldif"), ("text", text), ("step", "run")]);
    assert!(done.status == 200 && done.body.contains("All 3 records were imported."), "{}", done.body);
    assert!(http.get(&eve).body.contains("Eve"));
    assert!(http.get(&format!("/browse?dn={}", escape(ANN))).body.contains("Chief"));

    // The second time the directory refuses the first record: what follows is tried only when asked for.
    let again = http.post("/import", &[("format", "ldif"), ("text", text), ("step", "run")]);
    assert_eq!(again.status, 422);
    for part in ["0 of 3 records", "There is an entry of this name already.", "begins at line 7"] {
        assert!(again.body.contains(part), "{part}: {}", again.body);
    }
    let fields = [("format", "ldif"), ("text", text), ("step", "run"), ("continue", "1")];
    let again = http.post("/import", &fields);
    assert!(again.body.contains("0 of 3 records") && again.body.contains("3 were refused"), "{}", again.body);

    // A text with a fault changes nothing, whatever the step says.
    let broken = "dn: uid=mallory,dc=example,dc=com\nchangetype: delete\n\ndn: x\n";
    for step in ["preview", "run"] {
        let answer = http.post("/import", &[("format", "ldif"), ("text", broken), ("step", step)]);
        assert_eq!(answer.status, 422, "{step}");
        assert!(answer.body.contains("Line 4:") && !answer.body.contains("value=\"run\""), "{}", answer.body);
    }
    // Nor does it read the server's files.
    let files =
        "dn: cn=p,dc=example,dc=com\nobjectClass: device\ncn: p\ndescription:< file:///etc/hostname\n";
    let answer = http.post("/import", &[("format", "ldif"), ("text", files), ("step", "run")]);
    assert!(answer.status == 422 && answer.body.contains("Line "), "{}", answer.body);
    assert_eq!(http.post("/import", &[("text", " \n"), ("step", "preview")]).status, 422);

    // As a user without rights.
    let mut user = Http::new(fixture.http);
    assert_eq!(user.log_in("ann", "annpass").status, 303);
    let delete = "dn: uid=eve,ou=people,dc=example,dc=com\nchangetype: delete\n";
    let answer = user.post("/import", &[("format", "ldif"), ("text", delete), ("step", "run")]);
    assert!(answer.body.contains("You do not have the rights for this."), "{}", answer.body);
    assert!(http.get(&eve).body.contains("Eve"));
    assert!(fixture.server.stop());
}

#[test]
fn a_table_comes_in_and_goes_out() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    let table = "uid;cn;sn;mail;telephoneNumber\r\ncarl;Carl C;C;carl@example.com|cc@example.com;+49 30 1\r\ndora;=1+1;D;;\r\n";
    let fields = |step: &'static str| {
        [
            ("format", "csv"),
            ("text", table),
            ("parent", "ou=people,dc=example,dc=com"),
            ("naming", "uid"),
            ("classes", "inetOrgPerson"),
            ("step", step),
        ]
    };
    let shown = http.post("/import", &fields("preview"));
    assert!(shown.status == 200 && shown.body.contains("2 to add"), "{}", shown.body);
    let done = http.post("/import", &fields("run"));
    assert!(done.body.contains("All 2 records were imported."), "{}", done.body);

    let query = "base=dc%3Dexample%2Cdc%3Dcom&filter=(|(uid%3Dcarl)(uid%3Ddora))&attributes=cn,mail,telephoneNumber,userPassword";
    assert!(http.get(&format!("/search?{query}")).body.contains("format=csv"));
    let file = http.get(&format!("/search/file?{query}&format=csv"));
    assert_eq!(file.status, 200);
    assert!(file.header("content-type").starts_with("text/csv"), "{}", file.head);
    assert!(file.header("content-disposition").contains("example.csv"), "{}", file.head);
    assert_eq!(
        file.body,
        "dn,cn,mail,telephoneNumber\n\
         \"uid=carl,ou=people,dc=example,dc=com\",Carl C,carl@example.com|cc@example.com,+49 30 1\n\
         \"uid=dora,ou=people,dc=example,dc=com\",'=1+1,,\n"
    );
    let ldif = http.get(&format!("/search/file?{query}&format=ldif")).body;
    assert!(ldif.starts_with("dn: uid=carl,ou=people,dc=example,dc=com\ncn: Carl C\nmail: carl@"), "{ldif}");
    assert_eq!(http.get(&format!("/search/file?{query}&format=xls")).status, 400);
    assert!(fixture.server.stop());
}

#[test]
fn a_file_has_all_entries_or_is_none() {
    let fixture = start("sizelimit size.soft=1 size.hard=1 size.prtotal=1");
    let mut http = Http::new(fixture.http);
    // Limits do not bind the root DN.
    assert_eq!(http.log_in("ann", "annpass").status, 303);
    let file = http.get("/search/file?base=dc%3Dexample%2Cdc%3Dcom&filter=(objectClass%3D*)&format=ldif");
    assert!(file.status != 200 && !file.body.starts_with("dn:"), "{}", file.body);
    assert!(file.body.contains("imit"), "{}", file.body);
    assert!(fixture.server.stop());
}

#[test]
fn users_land_on_their_account_and_change_what_is_theirs() {
    let fixture =
        start_under("", "access to attrs=telephoneNumber,jpegPhoto by self write by users read by * none");
    let mut http = Http::new(fixture.http);
    http.get("/login");
    let answer = http.post("/login", &[("name", "ann"), ("password", "annpass"), ("next", "/")]);
    assert_eq!((answer.status, answer.header("location")), (303, "/account"));
    let page = http.get("/account").body;
    assert!(page.contains("Ann Example") && page.contains("Change my password"), "{page}");
    // What the rules let her write has a field, also where there is no value yet; nothing else has.
    assert!(page.contains("name=\"v:telephoneNumber\"") && page.contains("name=\"b:jpegPhoto\""), "{page}");
    for other in ["v:cn", "v:mail", "v:uid", "v:objectClass", "v:userPassword"] {
        assert!(!page.contains(&format!("name=\"{other}\"")), "{other}: {page}");
    }
    assert!(!page.contains("annpass"));
    // The menu has nothing that is not for her.
    for other in ["/config", "/import", "/log", "/replication"] {
        assert!(!page.contains(&format!("href=\"{other}\"")), "{other}");
    }
    let csn = value_of(&page, "csn").to_owned();
    let fields = |step: &'static str| {
        [
            ("dn", ANN),
            ("csn", csn.as_str()),
            ("from", "account"),
            ("v:telephoneNumber", "+1 555"),
            ("step", step),
        ]
    };
    assert!(http.post("/entry/edit", &fields("review")).body.contains("+ telephoneNumber: +1 555"));
    let saved = http.post("/entry/edit", &fields("save"));
    assert_eq!((saved.status, saved.header("location")), (303, "/account"), "{}", saved.body);
    assert!(http.get("/account").body.contains("+1 555"));

    // A root DN without an entry has an account page, too, and its menu has all.
    let mut admin = Http::new(fixture.http);
    assert_eq!(admin.log_in("admin", "secret").header("location"), "/");
    let page = admin.get("/account").body;
    assert!(page.contains(ADMIN) && page.contains("There is no entry of this name"), "{page}");
    assert!(page.contains("href=\"/config\"") && page.contains("href=\"/import\""), "{page}");
    assert!(fixture.server.stop());
}

#[test]
fn the_schema_can_be_read() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("ann", "annpass").status, 303);
    let list = http.get("/schema?q=inetorg").body;
    assert!(list.contains("/schema?class=inetOrgPerson") && !list.contains("class=posixAccount"), "{list}");
    let class = http.get("/schema?class=INETORGPERSON").body;
    for part in
        ["2.16.840.1.113730.3.2.2", "class=organizationalPerson", "attribute=employeeNumber", "attribute=sn"]
    {
        assert!(class.contains(part), "{part}: {class}");
    }
    let attribute = http.get("/schema?attribute=sn").body;
    for part in ["attribute=name", "caseIgnoreMatch", "class=person", "2.5.4.4"] {
        assert!(attribute.contains(part), "{part}: {attribute}");
    }
    assert_eq!(http.get("/schema?class=nothing").status, 404);
    assert_eq!(http.get("/schema?attribute=%3Cscript%3E").status, 404);
    assert!(fixture.server.stop());
}
