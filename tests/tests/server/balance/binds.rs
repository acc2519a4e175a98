//! Servers that do not answer binds.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use larix_tests::raw::bind;

use super::{Balance, SUFFIX};

/// The balancer does not read a client while its bind is under way, and notices all the same that it has left.
#[test]
fn a_client_that_leaves_during_its_bind_frees_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It takes connections, and answers nothing.
    std::thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    let text = format!(
        "disable proxyauthz\niotimeout 200\ntier roundrobin\n\
         backend-server uri=ldap://127.0.0.1:{port} numconns=1 bindconns=1 retry=200\n"
    );
    let balance = Balance::of(&text, "ldap://127.0.0.1:0/");
    let mut client = TcpStream::connect(balance.address).unwrap();
    client.write_all(&bind(1, &format!("cn=user1,{SUFFIX}"), "pw1")).unwrap();
    drop(client);
    balance.wait_for("bind connection: ");
    balance.stop();
}
