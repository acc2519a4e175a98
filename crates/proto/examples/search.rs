//! Binds and searches over a plain connection: `cargo run -p larix-proto --example search -- 127.0.0.1:3890`.

use std::io::{Read, Write};
use std::net::TcpStream;

use larix_proto::{FilterBuf, Frame, MessageId, Response, Scope, client, frame};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = FilterBuf::parse("(uid=ann)")?;
    let search = client::Search {
        attributes: &["cn", "mail"],
        ..client::Search::new("dc=example,dc=com", Scope::Subtree, filter.as_filter())
    };
    // Requests are appended to a buffer; several may go out at once.
    let mut out = Vec::new();
    client::simple_bind(&mut out, MessageId(1), "cn=admin,dc=example,dc=com", b"secret", &[]);
    client::search(&mut out, MessageId(2), &search, &[]);
    let address = std::env::args().nth(1).ok_or("where is the server? Such as 127.0.0.1:3890")?;
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&out)?;

    let mut input = Vec::new();
    loop {
        // At most 4 MB a message.
        let Frame::Complete { len } = frame(&input, 4 << 20)? else {
            let mut chunk = [0; 4096];
            let read = stream.read(&mut chunk)?;
            if read == 0 {
                return Err("the server has closed the connection".into());
            }
            input.extend_from_slice(&chunk[..read]);
            continue;
        };
        // Borrows from the input; nothing is copied.
        let message = Response::decode_message(&input[..len])?;
        match &message.response {
            Response::Entry(entry) => {
                println!("{}", entry.dn);
                for attribute in entry.attributes {
                    for value in attribute.values {
                        println!("  {}: {}", attribute.description, String::from_utf8_lossy(value));
                    }
                }
            }
            Response::SearchDone(result) => {
                println!("{:?}", result.code);
                return Ok(());
            }
            _ => {}
        }
        input.drain(..len);
    }
}
