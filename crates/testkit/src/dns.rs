//! A name server on loopback, which answers what a test says, over UDP and TCP (RFC 1035).

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The flags of an answer without an error, of one that there is no such name, of a refusal, and of an answer that is cut off.
pub const FOUND: u16 = 0x8180;
pub const NO_SUCH_NAME: u16 = 0x8183;
pub const REFUSED: u16 = 0x8185;
pub const CUT_OFF: u16 = 0x8380;

/// The bytes before the question.
const HEADER: usize = 12;

/// A question that a server was asked.
#[derive(Clone, Debug)]
pub struct DnsQuestion {
    /// The message.
    pub bytes: Vec<u8>,
    /// `_ldap._tcp.example.com`, in lower case.
    pub name: String,
    pub over_tcp: bool,
}

impl DnsQuestion {
    fn read(bytes: &[u8], over_tcp: bool) -> Option<Self> {
        let mut labels = Vec::new();
        let mut at = HEADER;
        loop {
            let length = usize::from(*bytes.get(at)?);
            if length == 0 {
                break;
            }
            labels.push(String::from_utf8_lossy(bytes.get(at + 1..at + 1 + length)?).to_lowercase());
            at += 1 + length;
        }
        // The type and the class stand behind the name.
        let bytes = bytes.get(..at + 5)?.to_vec();
        Some(Self { bytes, name: labels.join("."), over_tcp })
    }

    /// An answer to it: the question once more, and records of [`srv_record`].
    pub fn answer(&self, flags: u16, records: &[Vec<u8>]) -> Vec<u8> {
        let mut answer = self.bytes.clone();
        answer.splice(2..4, flags.to_be_bytes());
        answer.splice(6..8, u16::try_from(records.len()).unwrap_or(u16::MAX).to_be_bytes());
        records.iter().for_each(|record| answer.extend_from_slice(record));
        answer
    }
}

/// An SRV record about the name of the question (RFC 2782), which is known for a minute.
pub fn srv_record(priority: u16, weight: u16, port: u16, target: &str) -> Vec<u8> {
    let mut data = Vec::new();
    [priority, weight, port].iter().for_each(|number| data.extend(number.to_be_bytes()));
    for label in target.split('.').filter(|label| !label.is_empty()) {
        data.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        data.extend_from_slice(label.as_bytes());
    }
    data.push(0);
    let mut record = vec![0xc0, HEADER as u8, 0, 33, 0, 1, 0, 0, 0, 60];
    record.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
    record.extend(data);
    record
}

/// What a server answers: nothing, or messages one after the other.
type Answers = dyn Fn(&DnsQuestion) -> Vec<Vec<u8>> + Send + Sync;

/// The server. It ends when it is dropped.
#[derive(Debug)]
pub struct NameServer {
    pub address: SocketAddr,
    question_count: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl NameServer {
    /// # Panics
    /// No port is free.
    pub fn start(answers: impl Fn(&DnsQuestion) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        let (tcp, udp) = sockets().expect("a free port");
        let address = udp.local_addr().expect("the address of a socket");
        let answers: Arc<Answers> = Arc::new(answers);
        let (question_count, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let own = (Arc::clone(&answers), Arc::clone(&question_count), Arc::clone(&is_over));
        let over_udp = thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !own.2.load(Ordering::Relaxed) {
                let Ok((length, client)) = udp.recv_from(&mut buffer) else { continue };
                let Some(question) = DnsQuestion::read(&buffer[..length], false) else { continue };
                own.1.fetch_add(1, Ordering::Relaxed);
                for answer in (own.0)(&question) {
                    // A client that has gone needs none.
                    let _ = udp.send_to(&answer, client);
                }
            }
        });
        let own = (answers, Arc::clone(&question_count), Arc::clone(&is_over));
        let over_tcp = thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                if own.2.load(Ordering::Relaxed) {
                    break;
                }
                own.1.fetch_add(1, Ordering::Relaxed);
                // As with a client that has gone.
                let _ = serve(stream, &*own.0);
            }
        });
        Self { address, question_count, is_over, threads: vec![over_udp, over_tcp] }
    }

    /// How many questions it was asked so far.
    pub fn asked(&self) -> usize {
        self.question_count.load(Ordering::Relaxed)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        for thread in self.threads.drain(..) {
            // One that has panicked has failed its test.
            let _ = thread.join();
        }
    }
}

/// Of one port.
fn sockets() -> io::Result<(TcpListener, UdpSocket)> {
    let mut last = io::Error::other("not tried");
    for _ in 0..100 {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        match UdpSocket::bind(tcp.local_addr()?) {
            Ok(udp) => {
                udp.set_read_timeout(Some(Duration::from_millis(50)))?;
                return Ok((tcp, udp));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn serve(mut stream: TcpStream, answers: &Answers) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut bytes = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut bytes)?;
    let Some(question) = DnsQuestion::read(&bytes, true) else { return Ok(()) };
    for answer in answers(&question) {
        let length = u16::try_from(answer.len()).unwrap_or(u16::MAX);
        stream.write_all(&[&length.to_be_bytes(), answer.as_slice()].concat())?;
    }
    Ok(())
}
