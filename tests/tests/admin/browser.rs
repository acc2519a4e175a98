//! The admin page in a real browser, as an administrator uses it. Without a Chromium nothing is tried, and it says so.

use std::net::{Ipv4Addr, SocketAddr};

use base64::Engine as _;
use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::{MessageId, ModifyOperation, client};
use larix_testkit::process::{Signal, signal};
use larix_testkit::{Kind, Running, Server, Site, until, until_some};
use larix_tests::browser::Browser;
use larix_tests::client::Client;

use super::device;

const ADMIN: &str = "cn=admin,dc=example,dc=com";

/// A server with nothing in it, and a browser.
struct Desk {
    server: Server,
    browser: Browser,
    base: String,
    _site: Site,
}

impl Desk {
    fn new(entries: &str) -> Option<Self> {
        Self::with(entries, "", "")
    }

    /// With more lines of the configuration, and of its database.
    fn with(entries: &str, global: &str, database: &str) -> Option<Self> {
        let mut browser = Browser::start()?;
        let site = Site::new(
            Kind::Larix,
            &format!(
                "admin-listener http://127.0.0.1:0/\n{global}\ndatabase config\nrootdn {ADMIN}\n\
                 database monitor\naccess to * by dn.exact={ADMIN} read by * none\n\
                 database mdb\nsuffix dc=example,dc=com\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n\
                 index objectClass,uid eq\naccess to attrs=userPassword by self =xw by anonymous auth by * none\n\
                 access to * by users read by * none\n{database}\n"
            ),
        );
        if !entries.is_empty() {
            site.load_into(Some("dc=example,dc=com"), entries);
        }
        let server = site.start().unwrap_or_else(|error| panic!("{error}"));
        let base = format!("http://{}", SocketAddr::from((Ipv4Addr::LOCALHOST, server.ports[1])));
        browser.resize(1280, 900);
        Some(Self { server, browser, base, _site: site })
    }

    fn open(&mut self, path: &str) {
        let url = format!("{}{path}", self.base);
        self.browser.open(&url);
    }

    fn log_in(&mut self, name: &str, password: &str) {
        self.open("/login");
        self.browser.fill("#name", name);
        self.browser.fill("#password", password);
        self.browser.click("button[type=submit]");
    }

    fn shows(&mut self, text: &str) {
        let shown = self.browser.text();
        assert!(shown.contains(text), "{text:?} is not in\n{shown}");
    }

    /// Opens a page again until a condition, in JavaScript, holds.
    fn shows_again(&mut self, path: &str, condition: &str) {
        until(&format!("{path} has {condition}"), || {
            let holds = self.browser.run(condition) == true;
            if !holds {
                self.open(path);
            }
            holds
        });
    }

    /// Nothing went wrong in a script, and nothing was blocked.
    fn end(self) {
        // Answers of 401 and 422 are shown to the user; the browser notes them as well.
        let complaints: Vec<_> = self
            .browser
            .complaints
            .iter()
            .filter(|text| !text.contains("the server responded with"))
            .collect();
        assert!(complaints.is_empty(), "{complaints:?}");
        assert!(self.server.stop());
    }
}

fn binds(server: &Server, dn: &str, password: &str) -> bool {
    let mut request = Vec::new();
    client::simple_bind(&mut request, MessageId(1), dn, password.as_bytes(), &[]);
    let answer = Client::connect(server.address).exchange(&request).concat();
    answer.windows(3).any(|bytes| bytes == [10, 1, 0])
}

/// Gives Ann another `sn`.
fn rename_ann(server: &Server, sn: &str) {
    let (mut connection, mut request) = (Client::connect(server.address), Vec::new());
    client::simple_bind(&mut request, MessageId(1), ADMIN, b"secret", &[]);
    connection.exchange(&request);
    request.clear();
    let attribute = ClientAttribute { description: "sn", values: &[sn] };
    let change = ClientChange { operation: ModifyOperation::Replace, attribute };
    client::modify(&mut request, MessageId(2), "uid=ann,ou=people,dc=example,dc=com", &[change], &[]);
    let answer = connection.exchange(&request).concat();
    assert!(answer.windows(3).any(|bytes| bytes == [10, 1, 0]), "{answer:02x?}");
}

#[test]
fn from_nothing_to_a_user_in_a_group() {
    let Some(mut desk) = Desk::new("") else { return };
    desk.log_in("admin", "wrong");
    desk.shows("Name or password is wrong.");
    desk.log_in("admin", "secret");
    desk.shows("Operations a second");
    desk.browser.until("document.querySelector('[data-charts]').dataset.ready === 'yes'");

    desk.open("/people");
    desk.shows("Nobody is here yet");
    desk.browser.click("main a.button.primary");
    desk.browser.fill("#givenName", "Ann");
    desk.browser.fill("#sn", "Example");
    // Full name and login follow.
    assert_eq!(desk.browser.run("document.getElementById('uid').value"), "aexample");
    desk.browser.click("main button.primary");
    desk.shows("Ann Example is a user now.");
    picture(&mut desk.browser, "admin-person");
    let password = desk.browser.run("document.getElementById('secret').textContent");
    let password = password.as_str().expect("a password").to_owned();
    let dn = "uid=aexample,ou=people,dc=example,dc=com";
    assert!(binds(&desk.server, dn, &password));

    desk.open("/groups/new");
    desk.browser.fill("#cn", "staff");
    desk.browser.fill("#who", "aexample");
    desk.browser.click("main button.primary");
    desk.shows("1 member");

    // A second user, put into the group on their own page; then out again.
    desk.open("/people/new");
    desk.browser.fill("#sn", "Bold");
    desk.browser.fill("#uid", "bob");
    desk.browser.run("document.querySelector('[name=posix]').click()");
    desk.browser.click("main button.primary");
    desk.shows("10000");
    desk.browser.click("form[action='/groups/member'] button");
    desk.shows("bob is in staff now.");
    desk.browser.click("form[action='/groups/member'] button.quiet");
    desk.shows("bob is not in staff any more.");

    // A new password that the administrator chooses.
    desk.browser.fill("#new", "quite another");
    desk.browser.click("form[action='/people/password'] button");
    desk.shows("The password of bob is set.");
    assert!(binds(&desk.server, "uid=bob,ou=people,dc=example,dc=com", "quite another"));
    // What was shown once is gone.
    desk.open(&format!("/people/one?dn={dn}"));
    assert!(!desk.browser.text().contains(&password));
    desk.open("/");
    desk.browser.until("document.querySelector('[data-charts]').dataset.ready === 'yes'");
    charts_have_ranges(&mut desk);
    picture(&mut desk.browser, "admin-overview");
    desk.browser.resize(390, 844);
    // Columns that one scrolls to are not squeezed: they would make the rows tall.
    assert_eq!(desk.browser.run("document.querySelector('.scroll table').offsetHeight < 200"), true);
    picture(&mut desk.browser, "admin-narrow");
    desk.end();
}

/// Each range draws what there is: one sample is a dot, and every axis has whole numbers.
fn charts_have_ranges(desk: &mut Desk) {
    let ready = "document.querySelector('[data-charts]').dataset.ready === 'yes'";
    for (name, title, mark) in [
        ("1h", "1 hour", "−30 min"),
        ("6h", "6 hours", "−3 h"),
        ("24h", "24 hours", "−12 h"),
        ("7d", "7 days", "−4 d"),
        ("30d", "30 days", "−15 d"),
        ("10m", "10 minutes", "−4 min"),
    ] {
        desk.browser.click(&format!("nav.ranges a[href='/?range={name}']"));
        desk.browser.until(ready);
        desk.shows(&format!("The charts cover the last {title}"));
        let current = desk.browser.run("document.querySelector('.ranges [aria-current]').textContent");
        assert_eq!(current, title);
        let labels = desk
            .browser
            .run("[...document.querySelectorAll('.chart .axis')].map((label) => label.textContent)");
        let labels: Vec<String> = serde_json::from_value(labels).expect("texts");
        assert!(labels.iter().any(|label| label == mark), "{name}: {labels:?}");
        assert!(labels.iter().all(|label| !label.contains('.')), "{name}: {labels:?}");
        // Two hours have one sample so far.
        let dots = desk.browser.run("document.querySelectorAll('#chart-connections .dot').length");
        assert!(name != "30d" || dots == 1, "{dots}");
    }
    desk.browser
        .until("document.querySelector('#chart-latency .legend').textContent.includes('searches p99')");
    let label = desk.browser.run("document.querySelector('#chart-latency svg').getAttribute('aria-label')");
    let label = label.as_str().expect("a label");
    assert!(label.contains("the last 10 minutes") && label.contains("searches median now"), "{label}");
}

/// What is typed for a password is meant: the script moves the choice, and empties the field when another is chosen.
#[test]
fn a_typed_password_is_chosen() {
    let Some(mut desk) = Desk::new("") else { return };
    desk.log_in("admin", "secret");
    desk.open("/people/new");
    let chosen = |desk: &mut Desk| {
        let script = "document.querySelector('[name=password]:checked').value + ' ' + document.querySelector('[name=new]').value";
        desk.browser.run(script).as_str().map(str::to_owned).expect("a text")
    };
    assert_eq!(chosen(&mut desk), "generate ");
    desk.browser.run("document.querySelector('[name=new]').focus()");
    desk.browser.type_text("of my own");
    assert_eq!(chosen(&mut desk), "own of my own");
    desk.browser.run("document.querySelector('[name=password][value=none]').click()");
    assert_eq!(chosen(&mut desk), "none ");
    // What is emptied by hand changes no choice.
    desk.browser.fill("[name=new]", "");
    assert_eq!(chosen(&mut desk), "none ");
    desk.browser.run("document.querySelector('[name=new]').focus()");
    desk.browser.type_text("of my own");
    desk.browser.fill("#sn", "Own");
    desk.browser.click("main button.primary");
    desk.shows("Own is a user now.");
    assert_eq!(desk.browser.run("document.getElementById('secret')"), serde_json::Value::Null);
    assert!(binds(&desk.server, "uid=own,ou=people,dc=example,dc=com", "of my own"));
    desk.end();
}

const ENTRIES: &str = "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
    dn: ou=people,dc=example,dc=com\nobjectClass: organizationalUnit\nou: people\n\n\
    dn: uid=ann,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: ann\ncn: Ann Example\nsn: Example\n\
    userPassword: annpass\n\n\
    dn: uid=bob,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: bob\n\
    cn: <script>document.title='taken'</script>\nsn: \"><img src=x onerror=\"document.title='taken'\">\n";

#[test]
fn entries_are_browsed_and_edited() {
    let Some(mut desk) = Desk::new(ENTRIES) else { return };
    desk.log_in(ADMIN, "secret");
    desk.open("/browse?dn=uid%3Dbob%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom");
    desk.browser.until("document.querySelector('[data-tree]').dataset.ready === 'yes'");
    desk.shows("<script>document.title='taken'</script>");
    desk.browser.prefer("dark");
    picture(&mut desk.browser, "admin-browse-dark");
    desk.browser.prefer("light");
    assert_ne!(desk.browser.run("document.title"), "taken");

    // The tree by keyboard alone: up to Ann, and in.
    desk.browser.run("document.querySelector('[role=treeitem][tabindex=\"0\"]').focus()");
    desk.browser.press("ArrowUp");
    desk.browser.until("document.activeElement.dataset.dn === 'uid=ann,ou=people,dc=example,dc=com'");
    desk.browser.leave_by(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }))",
    );
    desk.shows("uid=ann");

    desk.browser.click("main .actions a");
    // An attribute that her classes do not allow: the server's answer is shown, and the form stays.
    desk.browser.fill("#add", "uidNumber");
    desk.browser.click("button[value=add]");
    desk.browser.fill("#field-uidNumber", "12");
    desk.browser.click("button[value=review]");
    desk.shows("+ uidNumber: 12");
    desk.browser.click("button[value=save]");
    desk.shows("This cannot be saved");
    desk.shows("Object class violation");
    assert_eq!(desk.browser.run("document.getElementById('field-uidNumber').value"), "12");
    desk.browser.fill("#field-uidNumber", "");
    desk.browser.fill("#field-sn", "Sample");
    desk.browser.click("button[value=review]");
    desk.shows("− sn: Example");
    desk.browser.click("button[value=save]");
    desk.shows("uid=ann is changed.");
    desk.shows("Sample");

    desk.open("/search?base=dc%3Dexample%2Cdc%3Dcom&filter=(uid%3Dann)");
    desk.shows("1 entry");
    assert!(
        desk.browser
            .run("document.getElementById('plan').textContent")
            .as_str()
            .is_some_and(|plan| plan.contains("uid"))
    );
    desk.browser.fill("#attr", "sn");
    desk.browser.fill("#val", "S*");
    desk.browser.run("document.querySelector('[data-add-term]').click()");
    assert_eq!(desk.browser.run("document.getElementById('filter').value"), "(&(uid=ann)(sn=S\\2a))");
    // As ldapsearch takes it: one item without parentheses.
    desk.browser.fill("#filter", "uid=ann");
    desk.browser.fill("#val", "S");
    desk.browser.run("document.querySelector('[data-add-term]').click()");
    assert_eq!(desk.browser.run("document.getElementById('filter').value"), "(&(uid=ann)(sn=S))");
    // In a narrow window no name is cut off.
    desk.browser.resize(320, 844);
    let hidden = "(() => { const box = document.querySelector('.scroll'); return box.scrollWidth - box.clientWidth })()";
    assert_eq!(desk.browser.run(hidden), 0);
    // Nor is a field squeezed by what stands beside it, or a word broken.
    desk.open("/entry/edit?dn=uid%3Dann%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom&add=jpegPhoto");
    assert_eq!(desk.browser.run("document.getElementById('field-jpegPhoto').clientWidth > 200"), true);
    desk.open("/import");
    assert_eq!(desk.browser.run("document.querySelector('label.inline code').offsetHeight < 32"), true);
    desk.browser.resize(1280, 900);

    desk.open("/entry/delete?dn=ou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom");
    desk.shows("2 entries below it will be deleted with it.");
    desk.browser.fill("#name", "ou=people");
    desk.browser.click("button.danger");
    desk.shows("ou=people is deleted.");
    desk.end();
}

/// The tree asks for 200 entries at once.
#[test]
fn the_keyboard_comes_to_the_rest_of_a_long_list() {
    let mut entries = ENTRIES.to_owned();
    for number in 0..205 {
        entries += &format!(
            "\ndn: cn=number {number:03},ou=people,dc=example,dc=com\nobjectClass: device\ncn: number {number:03}\n"
        );
    }
    let Some(mut desk) = Desk::new(&entries) else { return };
    desk.log_in(ADMIN, "secret");
    desk.open("/browse?dn=ou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom");
    desk.browser.until("document.querySelector('[data-tree]').dataset.ready === 'yes'");
    assert_eq!(
        desk.browser.run("document.querySelectorAll('[role=group] [role=group] > [role=treeitem]').length"),
        200
    );
    desk.browser.run("document.querySelector('.side button').focus()");
    desk.browser.press("Enter");
    desk.browser
        .until("document.querySelectorAll('[role=group] [role=group] > [role=treeitem]').length === 207");
    desk.browser.until("document.activeElement.dataset.dn === 'cn=number 198,ou=people,dc=example,dc=com'");
    desk.end();
}

#[test]
fn the_configuration_is_changed_while_it_serves() {
    let Some(mut desk) = Desk::new(ENTRIES) else { return };
    desk.log_in(ADMIN, "secret");
    desk.open("/config");
    desk.shows("Indexes of dc=example,dc=com");
    desk.browser.fill("form[action='/entry/edit'] input[placeholder]", "givenName eq,sub");
    desk.browser.click("form[action='/entry/edit'] button");
    desk.shows("+ olcDbIndex: givenName eq,sub");
    picture(&mut desk.browser, "admin-review");
    desk.browser.click("button[value=save]");
    desk.shows("is changed.");
    desk.shows("givenName");

    // What the server does not take is said, and nothing is changed.
    desk.browser.fill("form[action='/entry/edit'] input[placeholder]", "nonsense eq");
    desk.browser.click("form[action='/entry/edit'] button");
    desk.browser.click("button[value=save]");
    desk.shows("This cannot be saved");
    desk.shows("nonsense");
    desk.open("/config");
    assert!(!desk.browser.text().contains("nonsense"));

    desk.browser.run("document.querySelector('input[value=stats]').click()");
    desk.browser.click("section[aria-labelledby=log] button");
    desk.shows("+ olcLogLevel: stats");
    desk.browser.click("button[value=save]");
    assert_eq!(desk.browser.run("document.querySelector('input[value=stats]').checked"), true);
    desk.end();
}

#[test]
fn a_file_is_imported_after_a_look_at_it() {
    let Some(mut desk) = Desk::new(ENTRIES) else { return };
    desk.log_in(ADMIN, "secret");
    desk.open("/import");
    desk.browser.fill(
        "#text",
        "dn: uid=eve,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: eve\ncn: Eve Example\nsn: Example\n\n\
         dn: uid=ann,ou=people,dc=example,dc=com\nchangetype: modify\nadd: title\ntitle: Head of Sales\n",
    );
    desk.browser.click("button[value=preview]");
    desk.shows("1 to add, 1 to modify");
    picture(&mut desk.browser, "admin-import");
    desk.browser.click("button[value=run]");
    desk.shows("All 2 records were imported.");
    desk.open("/schema?class=inetOrgPerson");
    desk.shows("May have, inherited");
    picture(&mut desk.browser, "admin-schema");
    desk.end();
}

/// Searches stay in the browser: for each identity apart, under a name, as far as there is room.
#[test]
fn searches_are_kept_in_the_browser() {
    let Some(mut desk) = Desk::new(ENTRIES) else { return };
    desk.log_in(ADMIN, "secret");
    desk.open("/search");
    desk.browser.fill("#filter", "(uid=ann)");
    desk.browser.fill("#attributes-shown", "sn");
    let save = "document.querySelector('.kept form button').click()";
    desk.browser.run(save);
    desk.shows("The search needs a name.");
    let name = "<b>Ann</b> & co";
    desk.browser.fill("#keep", name);
    desk.browser.run(save);
    desk.shows("is kept in this browser.");
    desk.open("/search");
    assert_eq!(desk.browser.run("document.querySelector('.kept li a').textContent"), name);
    picture(&mut desk.browser, "search");
    desk.browser.click(".kept li a");
    desk.shows("1 entry");
    assert_eq!(desk.browser.run("document.getElementById('filter').value"), "(uid=ann)");
    assert_eq!(desk.browser.run("document.getElementById('attributes-shown').value"), "sn");
    // What else is stored under the key is left out; there is room for thirty.
    let key = "larix-searches:cn=admin,dc=example,dc=com";
    desk.browser.run(&format!("localStorage.setItem('{key}', 'spoilt')"));
    desk.open("/search");
    assert_eq!(desk.browser.run("document.querySelectorAll('.kept li').length"), 0);
    desk.browser.run(&format!(
        "localStorage.setItem('{key}', JSON.stringify([1, {{}}, ...Array.from({{ length: 30 }}, (_, n) => ({{ name: `n${{n}}`, search: 'filter=a' }}))]))"
    ));
    desk.open("/search");
    assert_eq!(desk.browser.run("document.querySelectorAll('.kept li').length"), 30);
    desk.browser.fill("#keep", "one more");
    desk.browser.run(save);
    desk.shows("30 searches are kept: remove one first.");
    desk.browser.run("document.querySelector('.kept li button').click()");
    desk.shows("\"n0\" is removed.");
    assert_eq!(desk.browser.run("document.activeElement.getAttribute('aria-label')"), "Remove n1");
    desk.browser.click("form[action='/logout'] button");
    desk.log_in("uid=ann,ou=people,dc=example,dc=com", "annpass");
    desk.open("/search");
    assert_eq!(desk.browser.run("document.querySelectorAll('.kept li').length"), 0);
    desk.end();
}

/// A change is taken back from the change log, after a look at how; not where the entry has changed since.
#[test]
fn a_change_is_taken_back() {
    let Some(mut desk) = Desk::new(ENTRIES) else { return };
    desk.log_in(ADMIN, "secret");
    let ann = "dn=uid%3Dann%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom";
    let edit = |desk: &mut Desk, attribute: &str, value: &str| {
        desk.open(&format!("/entry/edit?{ann}&add={attribute}"));
        desk.browser.fill(&format!("#field-{attribute}"), value);
        desk.browser.click("button[value=review]");
        desk.browser.click("button[value=save]");
        desk.shows("uid=ann is changed.");
    };
    edit(&mut desk, "title", "Head of Sales");
    desk.browser.click("nav a[href='/changes']");
    desk.shows("modify title");
    desk.browser.prefer("dark");
    desk.browser.resize(390, 844);
    let overflow =
        desk.browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    assert_eq!((overflow, desk.browser.run(CONTRAST)), (0.into(), "".into()));
    picture(&mut desk.browser, "changes-narrow");
    desk.browser.prefer("light");
    desk.browser.resize(1280, 900);
    picture(&mut desk.browser, "changes");
    let first = "tbody a[href^='/changes/undo']";
    desk.browser.click(first);
    desk.shows("delete: title");
    let old = desk.browser.address();
    picture(&mut desk.browser, "admin-undo");
    // Somebody changes the entry meanwhile: it is refused, before and after the look.
    let button = "document.querySelector('main form button.primary') === null";
    edit(&mut desk, "description", "newer");
    desk.browser.open(&old);
    desk.shows("The entry has changed since");
    assert_eq!(desk.browser.run(button), true);
    // The newer one first; its old values are known from the log alone.
    edit(&mut desk, "description", "newest");
    desk.open("/changes");
    desk.browser.click(first);
    desk.shows("description: newer");
    desk.browser.click("main form button.primary");
    desk.shows("The change of uid=ann is taken back.");
    desk.open(&format!("/browse?{ann}"));
    desk.shows("newer");
    assert!(!desk.browser.text().contains("newest"));
    // A value that was there before the log began is not known.
    desk.open(&format!("/people/one?{ann}"));
    desk.browser.fill("#new", "annother");
    desk.browser.click("form[action='/people/password'] button");
    desk.shows("is set.");
    desk.open("/changes");
    desk.browser.click(first);
    desk.shows("The change log does not say which values userPassword had before this change.");
    // A deleted entry comes back whole where the log has it from its beginning.
    desk.open("/groups/new");
    desk.browser.fill("#cn", "staff");
    desk.browser.fill("#who", "ann");
    desk.browser.click("main button.primary");
    desk.shows("1 member");
    let staff = desk.browser.run("new URL(location.href).searchParams.get('dn')");
    let staff = staff.as_str().expect("a name").to_owned();
    desk.open(&format!("/entry/delete?dn={}", staff.replace('=', "%3D").replace(',', "%2C")));
    desk.browser.click("button.danger");
    desk.shows("cn=staff is deleted.");
    desk.open("/changes");
    desk.browser.click(first);
    desk.shows("changetype: add");
    desk.browser.click("main form button.primary");
    desk.shows("The change of cn=staff is taken back.");
    desk.open(&format!("/groups/one?dn={}", staff.replace('=', "%3D").replace(',', "%2C")));
    desk.shows("1 member");
    desk.browser.click("form[action='/logout'] button");
    desk.log_in("uid=ann,ou=people,dc=example,dc=com", "annother");
    desk.open("/changes");
    desk.shows("Changes are shown to the rootdn of the database.");
    desk.browser.open(&old);
    desk.shows("Only the rootdn of dc=example,dc=com may take its changes back.");
    desk.end();
}

/// A backup now, its verification, and what a restore to a moment needs.
#[test]
fn a_backup_is_made_and_verified() {
    let folder = tempfile::Builder::new().prefix("larix-backups-").tempdir().expect("a folder");
    let schedule =
        format!("backup-schedule directory={} full=7d increment=1h keep=4", folder.path().display());
    let Some(mut desk) = Desk::with(ENTRIES, &schedule, "") else { return };
    desk.log_in(ADMIN, "secret");
    desk.browser.click("nav a[href='/backup']");
    let idle = |desk: &mut Desk| {
        let done = "document.querySelector('#state').textContent.includes('nothing is under way') && document.querySelector('tbody') !== null";
        desk.shows_again("/backup", done);
    };
    idle(&mut desk);
    desk.browser.click("form[action='/backup'] button.primary");
    desk.shows("A backup of what has changed is asked for: look below how far it is.");
    idle(&mut desk);
    desk.browser.run("document.querySelector('tbody details').open = true");
    desk.shows("0 changes");
    desk.browser.click("tbody form[action='/backup'] button");
    desk.shows("The verification of larix-");
    desk.shows_again("/backup", "document.querySelector('tbody .tag.good') !== null");
    picture(&mut desk.browser, "admin-backup");
    desk.browser.click("form.restore button");
    desk.shows("What it needs");
    assert_eq!(desk.browser.run("document.activeElement.id"), "needs");
    desk.shows("larix restore -f ");
    desk.shows(" --replace");
    picture(&mut desk.browser, "admin-restore");
    for (width, scheme) in [(390, "light"), (390, "dark"), (1280, "dark"), (1280, "light")] {
        desk.browser.resize(width, 844);
        desk.browser.prefer(scheme);
        let overflow =
            desk.browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!((overflow, desk.browser.run(CONTRAST)), (0.into(), "".into()), "{width} {scheme}");
    }
    desk.browser.fill("#moment", "yesterday");
    desk.browser.click("form.restore button");
    desk.shows("`yesterday` is not a time");

    // Nothing is asked for before the box is ticked; then Ann is as she was.
    desk.browser.fill("#moment", "");
    desk.browser.click("form.restore button");
    desk.shows("What it needs");
    rename_ann(&desk.server, "Later");
    let sure = "document.querySelector('[name=sure]')";
    assert_eq!(desk.browser.run(&format!("{sure}.form.checkValidity()")), false);
    desk.browser.run(&format!("{sure}.click()"));
    desk.browser.click("button.danger");
    desk.shows("The restore of larix-");
    let done = "document.querySelector('main').textContent.includes(' was restored ')";
    desk.shows_again("/backup", done);
    desk.shows("Clients got no answers from the databases for ");
    desk.open("/browse?dn=uid%3Dann%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom");
    assert!(!desk.browser.text().contains("Later"));
    desk.shows("sn");
    desk.end();
}

/// The QR code is drawn, and a code from the secret beside it makes the account ask for codes.
#[test]
fn a_second_factor_is_enrolled() {
    if larix_testkit::packages::OPENSSL.is_lacking() {
        return;
    }
    let Some(mut desk) = Desk::with(ENTRIES, "", "overlay otp") else { return };
    desk.log_in(ADMIN, "secret");
    desk.open("/people/one?dn=uid%3Dann%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom");
    desk.browser.click("a[href^='/people/device']");
    desk.shows("There is no device now");
    desk.browser.click("button[value=show]");
    desk.shows("nothing is stored yet");
    let square = "(() => { const box = document.querySelector('svg.qr').getBoundingClientRect(); \
                  return box.width > 200 && Math.abs(box.width - box.height) < 1; })()";
    assert_eq!(desk.browser.run(square), true);
    for (width, scheme) in [(390, "light"), (390, "dark"), (1280, "dark"), (1280, "light")] {
        desk.browser.resize(width, 844);
        desk.browser.prefer(scheme);
        let overflow =
            desk.browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!((overflow, desk.browser.run(CONTRAST)), (0.into(), "".into()), "{width} {scheme}");
    }
    let secret = desk.browser.run("document.querySelector('#secret').textContent");
    let secret = secret.as_str().unwrap_or_default().to_owned();
    desk.browser.fill("#code", &device::code(&secret, larix_tests::one_time::step_now()));
    desk.browser.click("button[value=confirm]");
    desk.shows("logs in with the password and a code behind it from now on.");
    desk.end();
}

/// The form names who asks and for what; the answer names the rule, as `larix acl explain` does.
#[test]
fn access_is_explained() {
    let Some(mut desk) = Desk::new(ENTRIES) else { return };
    desk.log_in(ADMIN, "secret");
    desk.open("/browse?dn=uid%3Dann%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom");
    desk.browser.click("main .actions a[href^='/access']");
    assert_eq!(
        desk.browser.run("document.getElementById('dn').value"),
        "uid=ann,ou=people,dc=example,dc=com"
    );
    desk.browser.fill("#who", "uid=bob,ou=people,dc=example,dc=com");
    desk.browser.fill("#peer", "192.0.2.1");
    desk.browser.fill("#attribute", "userPassword");
    desk.browser.click("form.access button");
    desk.shows("Denied");
    desk.shows("Decided by `by * none` of {0}to attrs=userPassword");
    desk.shows("passed over: not self");
    // The answer has the focus, and the form keeps what was asked.
    assert_eq!(desk.browser.run("document.activeElement.id"), "answer-title");
    assert_eq!(desk.browser.run("document.getElementById('peer').value"), "192.0.2.1");
    desk.browser.resize(1280, 1260);
    picture(&mut desk.browser, "admin-access");
    desk.browser.fill("#attribute", "");
    desk.browser.click("form.access button");
    desk.shows("allowed");
    desk.browser.run("document.querySelectorAll('details').forEach((one) => (one.open = true))");
    desk.shows("Decided by `by users read` of {1}to *");
    for (width, scheme) in [(390, "light"), (390, "dark"), (1280, "dark")] {
        desk.browser.resize(width, 844);
        desk.browser.prefer(scheme);
        let overflow =
            desk.browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!((overflow, desk.browser.run(CONTRAST)), (0.into(), "".into()), "{width} {scheme}");
    }
    desk.browser.resize(1280, 900);
    desk.browser.prefer("light");
    desk.browser.fill("#who", "bob");
    desk.browser.click("form.access button");
    desk.shows("\"bob\" is not a DN");
    desk.browser.fill("#who", "");
    desk.browser.fill("#dn", "uid=none,dc=example,dc=com");
    desk.browser.click("form.access button");
    desk.shows("There is no entry \"uid=none,dc=example,dc=com\" to which you have the right manage");
    desk.end();
}

#[test]
fn nobody_sees_more_than_they_may() {
    let Some(mut desk) = Desk::new(ENTRIES) else { return };
    desk.log_in("uid=ann,ou=people,dc=example,dc=com", "annpass");
    desk.shows("What the directory knows of you");
    desk.open("/");
    desk.shows("Figures are shown to those who may read cn=Monitor");
    desk.open("/config");
    desk.shows("You may not see the configuration");
    desk.open("/access?dn=uid%3Dann%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom");
    desk.shows("Access rules are shown to those who may read cn=config");
    desk.open("/backup");
    desk.shows("Backups are shown to the rootdn of cn=config");
    desk.open("/replication");
    desk.shows("This is shown to those who may read");
    desk.open("/log");
    desk.shows("The log is shown to those who may read cn=config");
    assert!(!desk.browser.text().contains("conn="), "no line of it");
    desk.open("/people/one?dn=uid%3Dbob%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom");
    desk.browser.fill("#new", "taken over");
    desk.browser.click("form[action='/people/password'] button");
    desk.shows("You do not have the rights for this.");
    desk.end();
}

#[test]
fn who_follows_whom_and_what_was_logged() {
    // Nobody listens at the provider's port: the kernel refuses connections to this one.
    let Some(mut desk) = Desk::with(
        ENTRIES,
        "loglevel stats\nlogfile @DATA@/log",
        "syncrepl rid=017 provider=ldap://127.0.0.1:1 bindmethod=simple searchbase=dc=example,dc=com retry=\"600 +\"\n\
         mirrormode on\noverlay syncprov",
    ) else {
        return;
    };
    desk.log_in(ADMIN, "secret");
    desk.browser.click("nav a[href='/replication']");
    desk.shows("What this server follows");
    desk.shows("rid=017");
    desk.shows("ldap://127.0.0.1:1");
    desk.shows("Nobody is connected now.");
    let failed = "document.querySelector('.problem') !== null";
    desk.shows_again("/replication", failed);
    desk.browser.run("document.querySelector('details').open = true");
    desk.shows("Cookie received");
    picture(&mut desk.browser, "admin-replication");

    desk.browser.click("nav a[href='/log']");
    desk.shows("of the last");
    desk.browser.fill("#q", "BIND dn=");
    desk.browser.click("main form button");
    desk.shows("BIND dn=\"cn=admin,dc=example,dc=com\"");
    let lines = desk.browser.run("document.querySelector('pre.log').textContent.trim().split('\\n').length");
    assert!(lines.as_u64().is_some_and(|lines| lines >= 1), "{lines}");
    assert_eq!(desk.browser.run("document.querySelector('pre.log').tabIndex"), 0);
    picture(&mut desk.browser, "admin-log");
    desk.browser.fill("#q", "no line has this");
    desk.browser.click("main form button");
    assert_eq!(desk.browser.run("document.querySelector('pre.log')"), serde_json::Value::Null);
    desk.end();
}

/// Keeps a picture where `LARIX_PICTURES` says, for the guide.
fn picture(browser: &mut Browser, name: &str) {
    let Ok(folder) = std::env::var("LARIX_PICTURES") else { return };
    let bytes = base64::engine::general_purpose::STANDARD.decode(browser.picture()).expect("base64");
    std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), bytes).expect("a picture");
}

/// What a newcomer does, from the first command on: every field and click is counted.
struct Newcomer {
    browser: Browser,
    steps: Vec<String>,
}

impl Newcomer {
    fn fills(&mut self, selector: &str, text: &str) {
        self.steps.push(format!("fill {selector}"));
        self.browser.fill(selector, text);
    }

    fn clicks(&mut self, selector: &str) {
        self.steps.push(format!("click {selector}"));
        self.browser.click(selector);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the time that it took is printed")]
fn the_first_quarter_of_an_hour_takes_a_minute() {
    let Some(browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (shown, ports) = (folder.path().join("shown"), folder.path().join("ports"));
    let begun = std::time::Instant::now();
    let server = std::process::Command::new(Kind::Larix.program().expect("larix is built"))
        .current_dir(folder.path())
        .args(["serve", "--suffix", "dc=example,dc=com", "--data", "data", "-h", "ldap://127.0.0.1:0/"])
        .args(["--admin", "127.0.0.1:0", "--port-file", "ports"])
        .stdout(std::fs::File::create(&shown).expect("a file"))
        .spawn()
        .expect("larix starts");
    let mut server = Running(server);
    let port = until_some("it has its ports", || {
        assert!(server.try_wait().expect("its state").is_none(), "it ended");
        std::fs::read_to_string(&ports).unwrap_or_default().lines().nth(1).map(str::to_owned)
    });
    let text = until_some("it shows its address", || {
        std::fs::read_to_string(&shown).ok().filter(|text| text.contains(&format!(":{port}/")))
    });
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("password"));
    let password = line.and_then(|line| line.split_whitespace().next()).expect("a password").to_owned();
    let mut newcomer = Newcomer { browser, steps: vec!["larix serve".to_owned()] };
    newcomer.browser.resize(1280, 900);
    newcomer.browser.open(&format!("http://127.0.0.1:{port}/"));
    newcomer.steps.push("open the address that it shows".to_owned());
    newcomer.fills("#name", "admin");
    newcomer.fills("#password", &password);
    newcomer.clicks("button[type=submit]");
    newcomer.clicks("nav a[href='/people']");
    newcomer.clicks("main a.button.primary");
    newcomer.fills("#givenName", "Ann");
    newcomer.fills("#sn", "Example");
    newcomer.clicks("main button.primary");
    assert!(newcomer.browser.text().contains("Ann Example is a user now."), "{}", newcomer.browser.text());
    newcomer.clicks("nav a[href='/groups']");
    newcomer.clicks("main a.button.primary");
    newcomer.fills("#cn", "staff");
    newcomer.fills("#who", "aexample");
    newcomer.clicks("main button.primary");
    assert!(newcomer.browser.text().contains("1 member"), "{}", newcomer.browser.text());
    eprintln!(
        "{} steps, {:.1} s by a machine: {}",
        newcomer.steps.len(),
        begun.elapsed().as_secs_f64(),
        newcomer.steps.join(", ")
    );
    assert!(newcomer.steps.len() <= 16, "{:?}", newcomer.steps);
    assert!(signal(server.id(), Signal::TERM));
    assert!(server.wait().expect("its end").success(), "a clean stop");
}

#[test]
fn the_keyboard_is_enough_and_every_window_fits() {
    let Some(mut desk) = Desk::new(ENTRIES) else { return };
    desk.open("/login");
    // The first field has the focus, once the window is painted.
    desk.browser.until("document.activeElement.id === 'name'");
    desk.browser.type_text(ADMIN);
    desk.browser.press("Tab");
    desk.browser.until("document.activeElement.id === 'password'");
    desk.browser.type_text("secret");
    desk.browser.press("Tab");
    desk.browser.until("document.activeElement.type === 'submit'");
    desk.browser.leave_by("document.activeElement.form.requestSubmit(document.activeElement)");
    desk.browser.press("Tab");
    assert_eq!(desk.browser.run("document.activeElement.className"), "skip");
    for path in [
        "/",
        "/people",
        "/people/new",
        "/groups/new",
        "/browse?dn=dc%3Dexample%2Cdc%3Dcom",
        "/search?filter=(cn=*)",
        "/import",
        "/schema?class=inetOrgPerson",
        "/account",
        "/config",
        "/access",
        "/changes",
        "/backup",
        "/replication",
        "/log",
        "/about",
    ] {
        desk.open(path);
        for (width, scheme) in [(360, "light"), (360, "dark"), (1600, "light"), (1600, "dark")] {
            desk.browser.resize(width, 800);
            desk.browser.prefer(scheme);
            let overflow = desk
                .browser
                .run("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(overflow, 0, "{path} at {width}");
            let pale = desk.browser.run(CONTRAST);
            assert_eq!(pale, "", "{path} in {scheme}");
        }
        let nameless = desk.browser.run(
            "[...document.querySelectorAll('input:not([type=hidden]), select, textarea, button')].filter((field) => \
             !field.hidden && !field.labels?.length && !field.getAttribute('aria-label') && !field.textContent.trim()) \
             .map((field) => field.outerHTML).join()",
        );
        assert_eq!(nameless, "", "{path}: fields without a label");
        assert_eq!(desk.browser.run("document.querySelectorAll('h1').length"), 1, "{path}");
    }
    assert!(desk.browser.picture().len() > 10_000);
    desk.end();
}

/// The texts whose contrast with what is behind them is less than 4.5 to 1 (WCAG 2.2, 1.4.3).
const CONTRAST: &str = r"(() => {
    const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = numbers(getComputedStyle(at).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return colour;
        }
        return numbers(getComputedStyle(document.body).backgroundColor);
    };
    const pale = [];
    for (const element of document.querySelectorAll('body *')) {
        if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
        if (!element.checkVisibility() || element.closest('svg')) continue;
        const one = light(numbers(getComputedStyle(element).color)), two = light(behind(element));
        const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
        if (ratio < 4.5) pale.push(element.tagName + ' ' + element.textContent.slice(0, 30) + ' ' + ratio.toFixed(2));
    }
    return pale.join('; ');
})()";
