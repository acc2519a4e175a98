//! `password-cost`: a new password costs what the configuration says, and one of another cost still binds.

use larix_testkit::{Kind, Site};
use larix_tests::client::run;
use larix_tests::running::Running;

const SUFFIX: &str = "dc=example,dc=com";

#[test]
fn new_passwords_cost_what_the_configuration_says() {
    for (lines, begins) in [
        ("password-cost m=64 t=2 p=1", "{ARGON2}$argon2id$v=19$m=64,t=2,p=1$"),
        ("password-hash {PBKDF2-SHA256}\npassword-cost pbkdf2=1234", "{PBKDF2-SHA256}1234$"),
    ] {
        let hash =
            Kind::Larix.tool("hash-password").args(["-n", "-h", "{SSHA}", "-s", "old"]).output().unwrap();
        let hash = String::from_utf8(hash.stdout).unwrap();
        let site = Site::new(
            Kind::Larix,
            &format!(
                "{lines}\ndatabase mdb\nsuffix {SUFFIX}\nrootdn cn=admin,{SUFFIX}\nrootpw secret\ndirectory @DATA@\n"
            ),
        );
        site.load(&format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\nuserPassword: {hash}\n"));
        let server = Running::of(site);
        let mut client = server.client();
        assert_eq!(run(&mut client, &format!("as {SUFFIX} old")), "=> 0\n");
        assert_eq!(run(&mut client, &format!("as cn=admin,{SUFFIX} secret")), "=> 0\n");
        assert_eq!(run(&mut client, &format!("passwd {SUFFIX} new=new")), "=> 0\n");
        let stored = client.value(SUFFIX, "userPassword").expect("a password");
        assert!(stored.starts_with(begins), "{lines}: {stored}");
        assert_eq!(run(&mut client, &format!("as {SUFFIX} new")), "=> 0\n");
        assert_eq!(run(&mut client, &format!("as {SUFFIX} old")), "=> 49\n");
    }
}
