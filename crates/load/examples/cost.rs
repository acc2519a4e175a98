//! What the driver itself costs: it drives a thread that answers at once, so that nothing else is measured.
//!
//! ```text
//! cargo build --profile fast -p larix-load --example cost
//! valgrind --tool=callgrind --toggle-collect='*Worker*measure*' target/fast/examples/cost read 16 1 2
//! ```
//!
//! Arguments: search, read, compare or modify; connections; requests in flight; seconds. It prints the operations; the
//! instructions that callgrind collects divided by them are the cost of one, system calls excluded.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use larix_load::drive::{self, Options, Preset, Templates};
use larix_load::generate::Kind;
use larix_proto::{Frame, Message, Request, frame};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |usual: &str| arguments.next().unwrap_or_else(|| usual.to_owned());
    let what = next("read");
    let preset = Preset::ALL.into_iter().find(|preset| preset.name() == what).unwrap_or(Preset::Read);
    let (connections, in_flight) = (next("16").parse()?, next("1").parse()?);
    let duration = Duration::from_secs(next("2").parse()?);
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || answer(socket));
        }
    });
    let options =
        Options { connections, in_flight, duration, warm_up: Duration::ZERO, ..Options::new(address.into()) };
    let report = drive::run(&options, &Templates::of(Kind::Mail)?.workload(preset, 200_000)?)?;
    println!(
        "{} operations, {:.2} us of the driver's CPU time each, {:?}",
        report.operations,
        report.generator_cpu_seconds * 1e6 / report.operations.max(1) as f64,
        report.saturated
    );
    Ok(())
}

/// Answers each request with success, a search with an entry of some 2 KB before it.
fn answer(mut socket: TcpStream) -> anyhow::Result<()> {
    socket.set_nodelay(true)?;
    let (mut input, mut output, mut chunk) = (Vec::new(), Vec::new(), vec![0; 64 << 10]);
    loop {
        let count = socket.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        input.extend_from_slice(chunk.get(..count).unwrap_or_default());
        while let Frame::Complete { len } = frame(&input, 1 << 20)? {
            let message = Message::decode(input.get(..len).unwrap_or_default())?;
            let operation = match message.request {
                Request::Bind(_) => 0x61,
                Request::Search(_) => 0x65,
                Request::Modify(_) => 0x67,
                Request::Compare(_) => 0x6f,
                _ => return Ok(()),
            };
            let id = message.id.0.to_be_bytes();
            if operation == 0x65 {
                // 30 82 length, the id, an entry without a name whose attribute list is 2,000 zeros.
                output.extend_from_slice(&[0x30, 0x82, 0x07, 0xe0, 0x02, 0x04]);
                output.extend_from_slice(&id);
                output.extend_from_slice(&[0x64, 0x82, 0x07, 0xd6, 0x04, 0x00, 0x30, 0x82, 0x07, 0xd0]);
                output.resize(output.len() + 2_000, 0);
            }
            output.extend_from_slice(&[0x30, 0x0f, 0x02, 0x04]);
            output.extend_from_slice(&id);
            let code = if operation == 0x6f { 6 } else { 0 };
            output.extend_from_slice(&[operation, 7, 0x0a, 1, code, 0x04, 0, 0x04, 0]);
            input.drain(..len);
        }
        socket.write_all(&output)?;
        output.clear();
    }
}
