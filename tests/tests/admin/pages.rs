//! The admin page as HTTP: who gets in, what is refused, what a page may hold.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use larix_proto::{MessageId, client};
use larix_testkit::{Kind, Site};
use larix_tests::client::{Client, run};

use super::http::{ADMIN, Answer, ENTRIES, FORM, Http, escape, send, start, start_under, start_with};

#[test]
fn only_who_may_bind_gets_in() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    let answer = http.get("/people?q=x");
    assert_eq!((answer.status, answer.header("location")), (303, "/login?next=%2Fpeople%3Fq%3Dx"));
    assert_eq!(http.get("/api/figures").status, 401);

    let page = http.get("/login");
    assert_eq!(page.status, 200);
    for (name, part) in [
        ("content-security-policy", "default-src 'none'; script-src 'self'"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
        ("referrer-policy", "same-origin"),
    ] {
        assert!(page.header(name).contains(part), "{name}: {}", page.head);
    }
    // The same answer for a wrong password and for nobody.
    for (name, password) in
        [(ADMIN, "wrong"), ("admin", "wrong"), ("nobody", "x"), ("cn=none,dc=x", "x"), ("=", "x")]
    {
        let answer = http.log_in(name, password);
        assert_eq!(answer.status, 401, "{name}");
        assert!(answer.body.contains("Name or password is wrong."), "{name}: {}", answer.body);
        assert!(http.cookies.iter().all(|(name, _)| !name.contains("session")));
    }
    assert!(http.log_in(ADMIN, "").body.contains("A password is needed."));
    http.get("/login");
    http.csrf = "0".repeat(64);
    assert_eq!(http.post("/login", &[("name", "admin"), ("password", "secret")]).status, 403);

    http.get("/login");
    let fields = [("name", "admin"), ("password", "secret"), ("next", "//evil.example/")];
    let answer = http.post("/login", &fields);
    assert_eq!((answer.status, answer.header("location")), (303, "/"), "{}", answer.body);
    let cookie = answer.head.lines().find(|line| line.contains("-session-")).expect("a session's cookie");
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && cookie.contains("Path=/"),
        "{cookie}"
    );
    assert!(http.get("/").body.contains(ADMIN));

    // Gone with the log-out, also for somebody who has kept the cookie.
    let kept = http.cookies.clone();
    assert_eq!(http.post("/logout", &[]).header("location"), "/login");
    http.cookies = kept;
    assert_eq!(http.get("/").status, 303);
    http.cookies = vec![("larix-session-1".to_owned(), "0".repeat(64))];
    assert_eq!(http.get("/").status, 303);
    assert!(fixture.server.stop());
}

#[test]
fn what_does_not_come_from_its_own_pages_is_refused() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    let csrf = http.csrf.clone();
    let body = format!("csrf={csrf}&dn=uid%3Dann%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom&new=changed");
    let path = "/people/password";
    let mut check = |method: &str, headers: &str, body: &str, status: u16| {
        let answer = http.ask(method, path, headers, body);
        assert_eq!(answer.status, status, "{method} {headers:?}: {}", answer.body);
    };
    let own = format!("{FORM}Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", fixture.http);
    check("POST", FORM, "dn=x", 403);
    check("POST", FORM, &body.replace(&csrf, &"0".repeat(64)), 403);
    check("POST", &format!("{FORM}Origin: http://evil.example\r\n"), &body, 403);
    check("POST", &format!("{FORM}Origin: null\r\n"), &body, 403);
    check("POST", &format!("{FORM}Sec-Fetch-Site: cross-site\r\n"), &body, 403);
    check("POST", "Content-Type: text/plain\r\n", &body, 415);
    check("POST", "", &body, 415);
    check("PUT", FORM, &body, 405);
    check("GET", "", "", 404);
    check("POST", FORM, &"x".repeat(4_200_000), 413);
    check("POST", &own, &body, 303);
    // As behind a proxy that speaks TLS to browsers, and none to the page: it says what to do.
    let origin = format!("{FORM}Origin: https://{}\r\nSec-Fetch-Site: same-origin\r\n", fixture.http);
    let answer = http.ask("POST", path, &origin, &body);
    let says = answer.body.contains("an admin-listener with https:// must be behind the proxy");
    assert!(answer.status == 403 && says, "{}", answer.body);

    let host = |host: &str| {
        send(fixture.http, &format!("GET /login HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
            .status
    };
    let port = fixture.http.port();
    for (name, status) in [
        (format!("127.0.0.1:{port}"), 200),
        (format!("localhost:{port}"), 200),
        ("directory.example.com".to_owned(), 200),
        ("evil.example".to_owned(), 421),
        (format!("192.0.2.1:{port}"), 421),
        (String::new(), 421),
    ] {
        assert_eq!(host(&name), status, "{name}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(40_000));
    assert_eq!(send(fixture.http, &long).status, 431);
    assert!(fixture.server.stop());
}

#[test]
fn values_are_text_whatever_they_are() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    let bob = "uid%3Dbob%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom";
    // And whether the page shows Bob's name.
    for (path, shows) in [
        ("/people".to_owned(), true),
        (format!("/people/one?dn={bob}"), true),
        (format!("/browse?dn={bob}"), true),
        (format!("/entry/edit?dn={bob}"), true),
        ("/search?filter=(uid=bob)&attributes=cn,sn,description".to_owned(), true),
        ("/search?filter=%3Cscript%3Ealert(1)%3C/script%3E".to_owned(), false),
        ("/browse?dn=cn%3D%3Cscript%3Ealert(1)%3C/script%3E".to_owned(), false),
        ("/people?q=%22%3E%3Cimg+src%3Dx+onerror%3Dalert(2)%3E".to_owned(), false),
        ("/login?next=%22%3E%3Cscript%3Ealert(1)%3C/script%3E".to_owned(), false),
    ] {
        let answer = http.get(&path);
        assert!(answer.status != 500 && answer.status != 0, "{path}: {}", answer.head);
        // Attributes stand in double quotes: a single one is text.
        for bad in ["<script>alert", "<img src=x"] {
            assert!(!answer.body.contains(bad), "{path} has {bad}: {}", answer.body);
        }
        let is_shown = answer.body.contains("&lt;script&gt;alert(1)&lt;/script&gt;");
        assert!(is_shown || !shows, "{path}: {}", answer.body);
    }
    let ldif = http.get(&format!("/entry/ldif?dn={bob}"));
    assert!(ldif.header("content-disposition").contains("attachment"), "{}", ldif.head);
    assert!(ldif.header("content-type").starts_with("text/plain"));
    assert!(fixture.server.stop());
}

#[test]
fn rights_are_those_of_who_logged_in() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("uid=ann,ou=people,dc=example,dc=com", "annpass").status, 303);
    assert!(http.get("/").body.contains("Figures are shown to those"));
    assert_eq!(http.get("/api/figures").status, 404);
    assert!(http.get("/config").body.contains("You may not see the configuration"));
    let bob = "uid=bob,ou=people,dc=example,dc=com";
    let answer = http.post("/people/password", &[("dn", bob), ("new", "x")]);
    assert_eq!(answer.status, 422);
    assert!(answer.body.contains("You do not have the rights for this."), "{}", answer.body);
    let answer = http.post("/entry/edit", &[("dn", bob), ("v:sn", "Other"), ("step", "save")]);
    assert_eq!(answer.status, 422);
    assert_eq!(http.post("/entry/delete", &[("dn", bob)]).status, 200);
    assert_eq!(http.get(&format!("/browse?dn={}", escape(bob))).status, 200);
    assert!(!http.get(&format!("/browse?dn={}", escape(bob))).body.contains("annpass"));

    // Her own password, and then that one lets her in over LDAP.
    let ann = "uid=ann,ou=people,dc=example,dc=com";
    assert_eq!(http.post("/people/password", &[("dn", ann), ("new", "better")]).status, 303);
    let mut request = Vec::new();
    client::simple_bind(&mut request, MessageId(1), ann, b"better", &[]);
    let answer = Client::connect(fixture.server.address).exchange(&request).concat();
    assert!(answer.windows(3).any(|bytes| bytes == [10, 1, 0]), "{answer:02x?}");
    assert!(fixture.server.stop());
}

/// As `ldapadd` makes them: the class alone, without its superiors.
#[test]
fn the_configuration_shows_databases_by_whatever_classes_they_were_added() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    http.log_in("admin", "secret");
    let mut connection = Client::connect(fixture.server.address);
    for request in [
        "as cn=admin,dc=example,dc=com secret\n",
        "add \"olcDatabase=null,cn=config\"\nobjectClass: olcNullConfig\nolcDatabase: null\nolcSuffix: dc=nothing\n",
        "add \"olcOverlay=valsort,olcDatabase={2}mdb,cn=config\"\nobjectClass: olcValSortConfig\nolcOverlay: valsort\n\
         olcValSortAttr: sn ou=people,dc=example,dc=com alpha-ascend\n",
    ] {
        assert_eq!(run(&mut connection, request), "=> 0\n", "{request}");
    }
    let shown = http.get("/config").body;
    for part in ["dc=nothing", "{3}null", "{0}valsort"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(fixture.server.stop());
}

/// A level that was not shown as on would be turned off by the next change.
#[test]
fn levels_of_the_log_are_shown_however_they_are_written() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    http.log_in("admin", "secret");
    for (written, on) in
        [("768", &["stats", "stats2"][..]), ("0x4100", &["stats", "sync"]), ("stats", &["stats"])]
    {
        let fields = [("dn", "cn=config"), ("v:olcLogLevel", written), ("step", "save")];
        assert_eq!(http.post("/entry/edit", &fields).status, 303, "{written}");
        let page = http.get("/config").body;
        for level in ["trace", "acl", "stats", "stats2", "sync", "none"] {
            let is_on = page.contains(&format!("name=\"v:olcLogLevel\" value=\"{level}\" checked"));
            assert_eq!(is_on, on.contains(&level), "{level} of {written}: {page}");
        }
    }
    assert!(fixture.server.stop());
}

#[test]
fn an_entry_that_changed_meanwhile_is_not_overwritten() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    http.log_in("admin", "secret");
    let ann = "uid=ann,ou=people,dc=example,dc=com";
    let page = http.get(&format!("/entry/edit?dn={}", escape(ann))).body;
    let csn = page
        .split("name=\"csn\" value=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("a CSN")
        .to_owned();
    let fields = |title: &'static str| [("dn", ann), ("v:title", title), ("step", "save")];
    let with_csn = |title: &'static str| [fields(title).as_slice(), &[("csn", csn.as_str())]].concat();
    let review =
        http.post("/entry/edit", &[("dn", ann), ("v:title", "Chief"), ("step", "review"), ("csn", &csn)]);
    assert!(
        review.body.contains("title: Chief") && review.body.contains("changetype: modify"),
        "{}",
        review.body
    );
    assert_eq!(http.post("/entry/edit", &with_csn("Chief")).status, 303);
    let late = http.post("/entry/edit", &with_csn("Boss"));
    assert_eq!(late.status, 422);
    assert!(late.body.contains("Somebody has changed this entry meanwhile"), "{}", late.body);
    // Nor by way of the form with one more field.
    let more = [("dn", ann), ("v:title", "Boss"), ("step", "add"), ("add", "mail"), ("csn", csn.as_str())];
    let more = http.post("/entry/edit", &more);
    assert!(more.body.contains(&format!("name=\"csn\" value=\"{csn}\"")), "{}", more.body);
    // What the schema does not allow is said, and the form stays.
    let wrong = http.post("/entry/edit", &[("dn", ann), ("v:uidNumber", "twelve"), ("step", "save")]);
    assert_eq!(wrong.status, 422);
    assert!(wrong.body.contains("value=\"twelve\""), "{}", wrong.body);
    assert!(fixture.server.stop());
}

#[test]
fn nor_is_it_by_those_who_may_not_read_its_csn() {
    let rules = "access to attrs=entryCSN by * none\naccess to attrs=title,mail by self write by users read";
    let fixture = start_under("", rules);
    let ann = "uid=ann,ou=people,dc=example,dc=com";
    let (mut own, mut admin) = (Http::new(fixture.http), Http::new(fixture.http));
    assert_eq!(own.log_in(ann, "annpass").status, 303);
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    admin.get("/account");
    let mail_is = |admin: &mut Http, mail: &str| {
        let saved = admin.post("/entry/edit", &[("dn", ann), ("v:mail", mail), ("step", "save")]);
        assert_eq!(saved.status, 303, "{mail}: {}", saved.body);
    };
    for path in ["/account".to_owned(), format!("/entry/edit?dn={}", escape(ann))] {
        let page = own.get(&path).body;
        let state = page.split("name=\"csn\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        let state = state.filter(|state| !state.is_empty()).unwrap_or_else(|| panic!("{path}: {page}"));
        let fields = [("dn", ann), ("v:mail", ""), ("v:title", "Chief"), ("csn", state), ("step", "save")];
        mail_is(&mut admin, "ann@example.com");
        let late = own.post("/entry/edit", &fields);
        assert_eq!(late.status, 422, "{path}");
        assert!(late.body.contains("Somebody has changed this entry meanwhile"), "{path}: {}", late.body);
        assert!(admin.get(&format!("/browse?dn={}", escape(ann))).body.contains("ann@example.com"), "{path}");
        // As it was.
        mail_is(&mut admin, "");
        assert_eq!(own.post("/entry/edit", &fields).status, 303, "{path}");
    }
    assert!(fixture.server.stop());
}

/// The state in the last form of a page.
fn state_in(body: &str) -> String {
    let last = body.rsplit("name=\"csn\" value=\"").next().and_then(|rest| rest.split('"').next());
    last.filter(|state| !state.is_empty()).unwrap_or_else(|| panic!("{body}")).to_owned()
}

#[test]
fn nor_is_it_deleted() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    let bob = "uid=bob,ou=people,dc=example,dc=com";
    let seen = state_in(&http.get(&format!("/entry/delete?dn={}", escape(bob))).body);
    let saved = http.post("/entry/edit", &[("dn", bob), ("v:title", "Chief"), ("step", "save")]);
    assert_eq!(saved.status, 303, "somebody else: {}", saved.body);
    let late = http.post("/entry/delete", &[("dn", bob), ("csn", &seen)]);
    assert_eq!(late.status, 200);
    assert!(late.body.contains("Somebody has changed this entry meanwhile"), "{}", late.body);
    // The answer is about the entry as it is now.
    let seen = state_in(&late.body);
    assert_eq!(http.post("/entry/delete", &[("dn", bob), ("csn", &seen)]).status, 303);
    // What another administrator still has open says so.
    for path in ["/entry/delete", "/entry/edit", "/entry/copy", "/people/one", "/groups/one"] {
        let gone = http.get(&format!("{path}?dn={}", escape(bob)));
        assert_eq!(gone.status, 404, "{path}");
        let said = gone.body.contains(&format!("There is no entry <code>{bob}</code>"));
        assert!(said, "{path}: {}", gone.body);
    }
    assert!(fixture.server.stop());
}

/// Entries of cn=config have no entryCSN before their first change.
#[test]
fn nor_is_the_configuration() {
    let save = |http: &mut Http, seconds: &str, csn: &str| {
        let fields = [("dn", "cn=config"), ("v:olcIdleTimeout", seconds), ("csn", csn), ("step", "save")];
        http.post("/entry/edit", &fields)
    };
    for path in ["/backup", "/config"] {
        let fixture = start("");
        let mut http = Http::new(fixture.http);
        assert_eq!(http.log_in("admin", "secret").status, 303);
        let seen = state_in(&http.get(path).body);
        assert_eq!(save(&mut http, "700", "").status, 303, "{path}: somebody else");
        let late = save(&mut http, "800", &seen);
        assert_eq!(late.status, 422, "{path}: {}", late.body);
        assert!(late.body.contains("Somebody has changed this entry meanwhile"), "{path}: {}", late.body);
        let seen = state_in(&http.get(path).body);
        assert_eq!(save(&mut http, "800", &seen).status, 303, "{path}: as it is");
        assert!(fixture.server.stop());
    }
    // As the file has it.
    for path in ["/backup", "/config"] {
        let fixture = start("");
        let mut http = Http::new(fixture.http);
        assert_eq!(http.log_in("admin", "secret").status, 303);
        let seen = state_in(&http.get(path).body);
        assert_eq!(save(&mut http, "800", &seen).status, 303, "{path}");
        assert!(fixture.server.stop());
    }
}

#[test]
fn the_own_entry_is_saved_also_with_values_that_an_overlay_computes() {
    let rules = "overlay dynlist\ndynlist-attrset inetOrgPerson labeledURI\n\
                 access to attrs=entryCSN by * none\naccess to attrs=title by self write by users read";
    let listed = "userPassword: annpass\nlabeledURI: ldap:///dc=example,dc=com?o?base?(objectClass=*)";
    let fixture = start_with("", rules, &ENTRIES.replacen("userPassword: annpass", listed, 1));
    let ann = "uid=ann,ou=people,dc=example,dc=com";
    let mut own = Http::new(fixture.http);
    assert_eq!(own.log_in(ann, "annpass").status, 303);
    let page = own.get("/account").body;
    assert!(page.contains(">o</th>"), "the overlay computes nothing: {page}");
    let state = page.split("name=\"csn\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
    let state = state.unwrap_or_else(|| panic!("{page}"));
    let fields = [("dn", ann), ("v:title", "Chief"), ("csn", state), ("step", "save")];
    let saved = own.post("/entry/edit", &fields);
    assert_eq!(saved.status, 303, "{}", saved.body);
    assert!(fixture.server.stop());
}

#[test]
fn clients_that_take_their_time_hold_nobody_up() {
    let fixture = start("");
    let slow: Vec<TcpStream> = (0..20)
        .map(|n| {
            let mut stream = TcpStream::connect(fixture.http).expect("a connection");
            let part = match n % 3 {
                0 => "GET /lo".to_owned(),
                1 => format!(
                    "POST /login HTTP/1.1\r\nHost: localhost\r\n{FORM}Content-Length: 100\r\n\r\nname"
                ),
                _ => String::new(),
            };
            stream.write_all(part.as_bytes()).expect("a part of a request");
            stream
        })
        .collect();
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    drop(slow);
    assert!(fixture.server.stop());
}

#[test]
fn addresses_that_are_not_safe_are_refused() {
    let check = |line: &str, part: &str| {
        let site = Site::example(Kind::Larix);
        let text = std::fs::read_to_string(site.configuration()).expect("the configuration");
        std::fs::write(site.configuration(), format!("{line}\n{text}")).expect("the same");
        let Err(error) = site.start() else { panic!("it started with {line}") };
        assert!(error.log.contains(part), "{line}: {}", error.log);
    };
    check("admin-listener http://0.0.0.0:0/", "would carry passwords in clear");
    check("admin-listener https://127.0.0.1:0/", "needs a certificate");
    check("admin-listener nowhere", "not a numeric address");
}

#[test]
fn over_tls_cookies_are_for_tls_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = larix_testkit::Authority::new("Root");
    authority.server().write(folder.path(), "server");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.certificate()).expect("the certificate");
    let path = folder.path().display();
    let fixture = start(&format!(
        "admin-listener https://127.0.0.1:0/\nTLSCertificateFile {path}/server.pem\nTLSCertificateKeyFile {path}/server.key"
    ));
    let port = fixture.server.ports[2];
    let mut roots = rustls::RootCertStore::empty();
    let certificate =
        <rustls::pki_types::CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_file(&ca);
    roots.add(certificate.expect("a certificate")).expect("a root");
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").expect("a name");
    let connection = rustls::ClientConnection::new(std::sync::Arc::new(config), name).expect("a connection");
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a socket");
    let mut stream = rustls::StreamOwned::new(connection, socket);
    let request = format!("GET /login HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer that ends as TLS demands");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("set-cookie: __Host-larix-login-") && answer.contains("; Secure"), "{answer}");
    assert!(answer.contains("strict-transport-security:"), "{answer}");
    // Without TLS there is nothing to be had there.
    assert_eq!(send(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), &request).status, 0);
    assert!(fixture.server.stop());
}

#[test]
fn a_password_policy_holds_here_as_well() {
    let policy = "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
        dn: cn=policy,dc=example,dc=com\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\ncn: policy\n\
        pwdAttribute: userPassword\npwdMustChange: TRUE\npwdLockout: TRUE\n\n\
        dn: uid=ann,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: ann\ncn: Ann\nsn: Example\nuserPassword: first\n";
    let site = Site::new(
        Kind::Larix,
        &format!(
            "admin-listener http://127.0.0.1:0/\ndatabase mdb\nsuffix dc=example,dc=com\nrootdn {ADMIN}\nrootpw secret\n\
             directory @DATA@\nindex uid eq\naccess to * by self write by anonymous auth by users read\n\
             overlay ppolicy\nppolicy_default cn=policy,dc=example,dc=com\n"
        ),
    );
    site.load_into(Some("dc=example,dc=com"), policy);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.ports[1]));
    let ann = "uid=ann,dc=example,dc=com";

    let mut admin = Http::new(address);
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    assert_eq!(admin.post("/people/password", &[("dn", ann), ("new", "second")]).status, 303);
    // A person whose password somebody else has set chooses their own before anything else.
    let mut http = Http::new(address);
    http.get("/login");
    assert_eq!(http.post("/login", &[("name", ann), ("password", "second")]).status, 303);
    assert_eq!(http.get("/people").header("location"), "/password");
    assert!(http.get("/password").body.contains("Choose your own first."));
    let wrong = http.post("/password", &[("old", "second"), ("new", "third"), ("again", "other")]);
    assert!(wrong.body.contains("The two new passwords differ."), "{}", wrong.body);
    let changed = http.post("/password", &[("old", "second"), ("new", "third"), ("again", "third")]);
    assert_eq!(changed.status, 303, "{}", changed.body);
    assert_eq!(http.get("/people").status, 200);

    // Locked, nobody gets in; unlocked, again.
    let lock =
        |admin: &mut Http, action: &str| admin.post("/people/lock", &[("dn", ann), ("action", action)]);
    let locked = lock(&mut admin, "lock");
    assert_eq!(locked.status, 303, "{}", locked.body);
    assert!(admin.get(&format!("/people/one?dn={}", escape(ann))).body.contains("This account is locked"));
    assert_eq!(Http::new(address).log_in(ann, "third").status, 401);
    assert_eq!(lock(&mut admin, "unlock").status, 303);
    assert_eq!(Http::new(address).log_in(ann, "third").status, 303);
    assert!(server.stop());
}

/// As Debian's slapd is set up.
#[test]
fn a_short_name_is_that_of_the_root_dn_over_the_users() {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "admin-listener http://127.0.0.1:0/\ndatabase config\nrootdn cn=admin,cn=config\n\
             database mdb\nsuffix dc=example,dc=com\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n"
        ),
    );
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut http = Http::new(SocketAddr::from((Ipv4Addr::LOCALHOST, server.ports[1])));
    assert_eq!(http.log_in("admin", "secret").status, 303);
    assert!(http.get("/about").body.contains(&format!("<code>{ADMIN}</code>")));
    assert!(server.stop());
}

#[test]
fn users_log_in_by_their_name_though_anonymous_may_not_search() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    let wrong = http.log_in("ann", "wrong");
    let nobody = http.log_in("nobody", "wrong");
    assert_eq!((wrong.status, nobody.status), (401, 401));
    // Who there is, is not told.
    let content = |answer: &Answer| {
        let from = answer.body.find("role=\"alert\"").expect("a reason");
        answer.body[from..].split("</div>").next().expect("its end").to_owned()
    };
    assert_eq!(content(&wrong), content(&nobody));
    for name in ["ann", "Ann", "  ann "] {
        let answer = Http::new(fixture.http).log_in(name, "annpass");
        assert_eq!(answer.status, 303, "{name:?}: {}", answer.body);
    }
    // Two of one name: neither of them is meant.
    let mut admin = Http::new(fixture.http);
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    let fields = [("sn", "Other"), ("uid", "ann"), ("parent", "dc=example,dc=com"), ("password", "none")];
    assert_eq!(admin.post("/people/new", &fields).status, 303);
    assert_eq!(Http::new(fixture.http).log_in("ann", "annpass").status, 401);
    assert!(fixture.server.stop());
}

#[test]
fn ordinary_users_sessions_keep_no_administrator_out() {
    let fixture = start("");
    let mut admin = Http::new(fixture.http);
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    let mut connection = Client::connect(fixture.server.address);
    let mut bind = Vec::new();
    client::simple_bind(&mut bind, MessageId(1), ADMIN, b"secret", &[]);
    connection.exchange(&bind);
    let mut users = Vec::new();
    for user in 0..9 {
        let name = format!("user{user}");
        let class = [b"inetOrgPerson".to_vec()];
        let own = [name.clone().into_bytes()];
        let attributes: Vec<_> =
            [("objectClass", &class), ("uid", &own), ("cn", &own), ("sn", &own), ("userPassword", &own)]
                .into_iter()
                .map(|(description, values)| client::ClientAttribute { description, values })
                .collect();
        let mut add = Vec::new();
        client::add(&mut add, MessageId(2), &format!("uid={name},dc=example,dc=com"), &attributes, &[]);
        let answer = connection.exchange(&add).concat();
        assert!(answer.windows(3).any(|bytes| bytes == [10, 1, 0]), "{answer:02x?}");
        for _ in 0..8 {
            let mut http = Http::new(fixture.http);
            let answer = http.log_in(&name, &name);
            assert_eq!(answer.status, 303, "{name}: {}", answer.body);
            users.push(http);
        }
    }
    // Of the 72 sessions nine made room for others; the administrator's did not.
    assert_eq!(admin.get("/").status, 200);
    assert_eq!(users.iter_mut().map(|http| http.get("/").status).filter(|status| *status == 200).count(), 63);
    // One more, with the places full.
    for _ in 0..2 {
        assert_eq!(Http::new(fixture.http).log_in("admin", "secret").status, 303);
    }
    assert!(fixture.server.stop());
}

#[test]
fn a_password_typed_for_a_new_user_is_theirs() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    // As a browser sends it that nothing was chosen in: the form begins with `generate`.
    let fields = |uid: &'static str, password: &'static str, new: &'static str| {
        [("sn", "New"), ("uid", uid), ("password", password), ("new", new)]
    };
    let answer = http.post("/people/new", &fields("eve", "generate", "typed by hand"));
    assert_eq!(answer.status, 303, "{}", answer.body);
    assert!(!http.get(answer.header("location")).body.contains("shown this once"));
    assert_eq!(Http::new(fixture.http).log_in("eve", "typed by hand").status, 303);
    // What contradicts itself makes no user.
    for (password, new, why) in [("none", "typed", "a password is typed"), ("own", "", "type the password")] {
        let answer = http.post("/people/new", &fields("max", password, new));
        assert!(answer.status == 422 && answer.body.contains(why), "{why}: {}", answer.body);
        assert!(answer.body.contains("value=\"max\""), "{}", answer.body);
    }
    assert!(!http.get("/people?q=max").body.contains("uid%3Dmax"));
    assert!(fixture.server.stop());
}

#[test]
fn a_search_that_does_not_succeed_keeps_its_form() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    let path = "/search?base=ou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom&scope=one&filter=(cn%3Dann&attributes=cn%2Cmail\
                &attr=sn&op=starts&val=Exa";
    let answer = http.get(path);
    assert_eq!(answer.status, 422);
    for part in [
        "The search did not succeed",
        "value=\"ou=people,dc=example,dc=com\"",
        "<option value=\"one\" selected>",
        "value=\"(cn=ann\"",
        "value=\"cn,mail\"",
        "value=\"sn\"",
        "<option value=\"starts\" selected>",
        "value=\"Exa\"",
    ] {
        assert!(answer.body.contains(part), "{part} is not in {}", answer.body);
    }
    // The page shows beside the form that the base does not exist.
    let answer = http.get("/search?base=dc%3Dnowhere&filter=(cn%3Dann)");
    assert!(answer.status == 422 && answer.body.contains("value=\"dc=nowhere\""), "{}", answer.body);
    assert_eq!(http.get("/search?base=dc%3Dexample%2Cdc%3Dcom&filter=(uid%3Dann)").status, 200);
    assert!(fixture.server.stop());
}

#[test]
fn pages_with_nothing_to_show_say_why() {
    let fixture = start("loglevel 0");
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("admin", "secret").status, 303);
    let log = http.get("/log").body;
    assert!(log.contains("This server writes no log yet") && log.contains("-d stats"), "{log}");
    // The way to an entry begins where there is something: at the naming context.
    let page = http.get("/browse?dn=uid%3Dann%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom").body;
    let crumbs = page.split("class=\"crumbs\"").nth(1).and_then(|rest| rest.split("</ol>").next());
    let crumbs = crumbs.expect("the way");
    assert!(crumbs.contains(">dc=example,dc=com</a>") && crumbs.contains(">ou=people</a>"), "{crumbs}");
    assert!(!crumbs.contains("dn=dc%3Dcom"), "{crumbs}");
    assert!(fixture.server.stop());
}

#[test]
fn databases_with_index_lines_have_a_section_of_indexes() {
    // The engine need not be there: the page is about the configuration.
    let fixture = start(
        "database kv\nengine postgresql://larix:x@127.0.0.1:1/directory?sslmode=disable\nnode ldap://127.0.0.1\n\
         suffix dc=shared\nindex cn eq\n\
         database null\nsuffix dc=none",
    );
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in(ADMIN, "secret").status, 303);
    let page = http.get("/config").body;
    for (suffix, has_section) in [("dc=example,dc=com", true), ("dc=shared", true), ("dc=none", false)] {
        let heading = format!(">Indexes of {suffix}</h2>");
        assert_eq!(page.contains(&heading), has_section, "{suffix}: {page}");
    }
    assert!(fixture.server.stop());
}
