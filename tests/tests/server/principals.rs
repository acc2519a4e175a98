//! MIT's KDC with its principals in Larix (kldap), and `overlay smbk5pwd`: whichever way a password is set, it gets tickets, and kadmin
//! remembers it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use larix_testkit::packages::{self, Package};
use larix_testkit::process::free_port;
use larix_testkit::{Kind, Running, Server, Site, until};

const REALM: &str = "LARIX.TEST";
const SUFFIX: &str = "dc=example,dc=com";
const ADMIN: &str = "cn=admin,dc=example,dc=com";
const NEEDED: [&Package; 5] =
    [&packages::KDC, &packages::KDC_LDAP, &packages::KADMIN, &packages::KINIT, &packages::LDAP_UTILS];
/// Encryption types, and what their keys are found by in the list of a client.
const ENCRYPTION_TYPES: [&str; 4] = [
    "aes256-cts-hmac-sha1-96",
    "aes128-cts-hmac-sha1-96",
    "aes256-cts-hmac-sha384-192",
    "aes128-cts-hmac-sha256-128",
];

/// A realm whose principals are in a directory.
struct Realm {
    folder: tempfile::TempDir,
    kdc_port: u16,
}

impl Realm {
    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The files of Kerberos for a directory at this port.
    fn configure(&self, ldap_port: u16) {
        let (path, port) = (self.path().display(), self.kdc_port);
        for (number, kind) in ENCRYPTION_TYPES.iter().enumerate() {
            // The KDC takes the first of the client's that the principal has a key of. Tickets are for the TGS, which has one of another type.
            let text = format!(
                "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n \
                 default_tkt_enctypes = {kind} {usual}\n\
                 [realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n  database_module = directory\n  key_stash_file = {path}/stash\n  \
                 kdc_listen = 127.0.0.1:{port}\n  kdc_tcp_listen = 127.0.0.1:{port}\n }}\n\
                 [dbmodules]\n directory = {{\n  db_library = kldap\n  ldap_kerberos_container_dn = cn=kerberos,{SUFFIX}\n  \
                 ldap_kdc_dn = {ADMIN}\n  ldap_kadmind_dn = {ADMIN}\n  ldap_service_password_file = {path}/service\n  \
                 ldap_servers = ldap://127.0.0.1:{ldap_port}/\n }}\n",
                usual = ENCRYPTION_TYPES[0],
            );
            std::fs::write(self.path().join(format!("krb5.{number}.conf")), text).unwrap();
        }
        // `secret`, in hexadecimal digits.
        std::fs::write(self.path().join("service"), format!("{ADMIN}#{{HEX}}736563726574\n")).unwrap();
    }

    fn command(&self, program: &str, number: usize) -> Command {
        let mut command = Command::new(program);
        let conf = self.path().join(format!("krb5.{number}.conf"));
        command.env("KRB5_CONFIG", &conf).env("KRB5_KDC_PROFILE", &conf);
        command.env("KRB5CCNAME", self.path().join("cache")).stdin(Stdio::null());
        command
    }

    fn administer(&self, query: &str) {
        let fault = self.fault_of(query);
        assert_eq!(fault, None, "{query}");
    }

    /// What kadmin says if it does not carry out a request.
    fn fault_of(&self, query: &str) -> Option<String> {
        let mut command = self.command("/usr/sbin/kadmin.local", 0);
        let output = command.args(["-r", REALM, "-q", query]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success() || stderr.contains("while")).then_some(stderr)
    }

    /// Whether a password gets a ticket by a key of this encryption type.
    fn gives_ticket(&self, name: &str, password: &str, number: usize) -> Result<(), String> {
        let mut command = self.command("/usr/bin/kinit", number);
        let mut child = command
            .arg(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A kinit that has ended already says so by its status.
        let _ = child.stdin.take().unwrap().write_all(format!("{password}\n").as_bytes());
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    fn start(&self) -> Running {
        let mut command = self.command("/usr/sbin/krb5kdc", 0);
        let kdc = command.args(["-n", "-r", REALM]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let kdc = Running(kdc.unwrap());
        until("the KDC has an opinion about somebody", || {
            self.gives_ticket("nobody", "x", 0).unwrap_err().contains("not found in Kerberos database")
        });
        kdc
    }
}

fn configuration(data: &Path, overlay: &str) -> Site {
    Site::new(
        Kind::Larix,
        &format!(
            "schema kerberos\npassword-hash {{SSHA}}\ndatabase mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\n\
             directory {}\n{overlay}access to attrs=userPassword by self =xw by anonymous auth by * none\n\
             access to attrs=krbPrincipalKey by * none\naccess to * by users read\n",
            data.display(),
        ),
    )
}

/// OpenLDAP's client with this identity.
fn client(server: &Server, program: &str, identity: (&str, &str), arguments: &[&str], input: &str) {
    let url = format!("ldap://{}", server.address);
    let mut command = Command::new(format!("/usr/bin/{program}"));
    command.args(["-x", "-H", &url, "-D", identity.0, "-w", identity.1]).args(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_password_set_by_ldap_gets_tickets() {
    if NEEDED.iter().filter(|package| package.is_lacking()).count() > 0 {
        return;
    }
    let realm = Realm { folder: tempfile::tempdir().unwrap(), kdc_port: free_port() };
    let data = realm.path().join("data");
    std::fs::create_dir(&data).unwrap();

    // The realm is made before the overlay can know its master key.
    let site = configuration(&data, "");
    let person = |name: &str| {
        format!("dn: uid={name},{SUFFIX}\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\nsn: {name}\n")
    };
    site.load(&format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n{}userPassword: first\n",
        person("ann")
    ));
    let server = site.start().unwrap();
    realm.configure(server.address.port());
    let mut create = realm.command("/usr/sbin/kdb5_ldap_util", 0);
    create.args(["-D", ADMIN, "-w", "secret", "-H", &format!("ldap://{}", server.address)]);
    let output = create.args(["create", "-r", REALM, "-s", "-P", "master", "-subtrees", SUFFIX]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(server.stop());

    let overlay = format!(
        "overlay smbk5pwd\nsmbk5pwd-enable krb5\nsmbk5pwd-krb5-stash {}/stash\nsmbk5pwd-krb5-enctypes {}\n",
        realm.path().display(),
        ENCRYPTION_TYPES.join(" ")
    );
    let site = configuration(&data, &overlay);
    let server = site.start().unwrap();
    realm.configure(server.address.port());
    let ann = format!("uid=ann,{SUFFIX}");
    realm.administer(&format!("addprinc -x dn={ann} -pw kadmin +requires_preauth ann"));
    let _kdc = realm.start();
    realm.gives_ticket("ann", "kadmin", 0).unwrap();

    let of_every_type = |name: &str, password: &str| {
        for (number, kind) in ENCRYPTION_TYPES.iter().enumerate() {
            realm
                .gives_ticket(name, password, number)
                .unwrap_or_else(|error| panic!("{name} {kind}: {error}"));
        }
        assert!(realm.gives_ticket(name, "other", 0).is_err());
    };
    let admin = (ADMIN, "secret");
    client(&server, "ldappasswd", (&ann, "first"), &["-a", "first", "-s", "second"], "");
    of_every_type("ann", "second");
    assert!(realm.gives_ticket("ann", "kadmin", 0).is_err());
    client(&server, "ldapwhoami", (&ann, "second"), &[], "");
    let modify = format!("dn: {ann}\nchangetype: modify\nreplace: userPassword\nuserPassword: thïrd\n");
    client(&server, "ldapmodify", admin, &[], &modify);
    of_every_type("ann", "thïrd");
    // kadmin goes on from there.
    realm.administer("cpw -pw fourth ann");
    realm.gives_ticket("ann", "fourth", 0).unwrap();
    realm.administer("modprinc +needchange ann");
    assert!(realm.gives_ticket("ann", "fourth", 0).is_err());
    client(&server, "ldappasswd", admin, &["-s", "fifth", &ann], "");
    of_every_type("ann", "fifth");
    // Accounts that kadmin has never seen.
    let account = format!(
        "{}objectClass: krbPrincipalAux\nobjectClass: krbTicketPolicyAux\nkrbPrincipalName: ben@{REALM}\nkrbTicketFlags: 128\nuserPassword: benpw\n",
        person("ben")
    );
    client(&server, "ldapadd", admin, &[], &account);
    of_every_type("ben", "benpw");
    client(&server, "ldapadd", admin, &[], &person("cat"));
    client(&server, "ldapadd", admin, &[], &person("dan"));
    let modify = format!(
        "dn: uid=cat,{SUFFIX}\nchangetype: modify\nadd: objectClass\nobjectClass: krbPrincipalAux\n-\n\
         add: krbPrincipalName\nkrbPrincipalName: cat/admin@{REALM}\n-\nadd: userPassword\nuserPassword: catpw\n"
    );
    client(&server, "ldapmodify", admin, &[], &modify);
    of_every_type("cat/admin", "catpw");
    // kadmin remembers passwords that were set here, as many as the policy says.
    realm.administer("addpol -history 4 strict");
    realm.administer("addprinc -x dn=uid=dan,dc=example,dc=com -policy strict -pw dan1 dan");
    for password in ["dan2", "dan3", "dan4"] {
        client(&server, "ldappasswd", admin, &["-s", password, &format!("uid=dan,{SUFFIX}")], "");
    }
    of_every_type("dan", "dan4");
    for password in ["dan1", "dan2", "dan3", "dan4"] {
        let fault = realm.fault_of(&format!("cpw -pw {password} dan")).unwrap_or_default();
        assert!(fault.contains("reuse"), "{password}: {fault}");
    }
    realm.administer("cpw -pw dan5 dan");
    // What kadmin remembers is taken on.
    client(&server, "ldappasswd", admin, &["-s", "dan6", &format!("uid=dan,{SUFFIX}")], "");
    for (password, is_free) in [("dan4", false), ("dan5", false), ("dan6", false), ("dan2", true)] {
        let fault = realm.fault_of(&format!("cpw -pw {password} dan"));
        assert_eq!(fault.is_none(), is_free, "{password}: {fault:?}");
    }
}
