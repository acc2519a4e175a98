//! `larix demo`: a generated directory, loaded, served and asked, in one command.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use larix_load::generate::{self, Kind};
use larix_load::peer::Guard;

use crate::signals;
use crate::terminal::say;

/// How long the server may take to answer, in steps of [`STEP`].
const START_STEPS: u32 = 500;
const STEP: Duration = Duration::from_millis(20);

/// Generate a directory of people, load it, serve it on a free loopback port, and ask it a question.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// How many people
    #[arg(long, default_value_t = 2_000, value_parser = enough)]
    entries: u64,
    /// The same seed gives the same people
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the directory goes and stays; without it, it is removed at the end
    #[arg(long)]
    data: Option<PathBuf>,
    /// Stop after the first answer instead of serving on
    #[arg(long)]
    once: bool,
}

/// The person that the question is about.
const ASKED: u64 = 7;

/// # Errors
/// No number, or too few people for the question.
fn enough(text: &str) -> Result<u64, String> {
    let entries: u64 = text.parse().map_err(|error: std::num::ParseIntError| error.to_string())?;
    if entries > ASKED {
        Ok(entries)
    } else {
        Err(format!("at least {}, of whom one is asked for", ASKED + 1))
    }
}

pub(crate) fn main(args: &DemoArgs) -> ExitCode {
    let farewell = if args.data.is_some() {
        "larix demo: stopping the server"
    } else {
        "larix demo: stopping the server and removing the data"
    };
    match signals::guarded(farewell, |guard| demo(args, guard)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larix demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn demo(args: &DemoArgs, guard: &Guard) -> anyhow::Result<()> {
    let folder = folder(args, guard)?;
    let folder = folder.as_path();
    let larix = std::env::current_exe().context("cannot find this program's own file")?;
    let schema = write_bundled_schema(&folder.join("schema"))?;
    let directory = generate::write_directory(Kind::People, args.entries, args.seed, folder, &schema)?;
    step(&format!("generated {} people, {} KB of LDIF", args.entries, directory.ldif_bytes / 1024));
    let mut add = Command::new(&larix);
    add.args(["add", "-q", "-f"]).arg(&directory.configuration).arg("-l").arg(&directory.ldif);
    let loaded = status(guard, &mut add).context("cannot start larix add")?;
    if !loaded.success() {
        bail!(
            "larix add ended with {loaded}; is {} a directory of an earlier demo?",
            directory.data.display()
        );
    }
    step("loaded them");
    let mut server = DemoServer::start(&larix, &directory.configuration, folder, guard)?;
    step(&format!("serving on {}", server.url()));
    let base = Kind::People.suffix();
    let filter = format!("(&(uid=user.{ASKED})(objectClass=person))");
    let question = ["-LLL", "-b", base, filter.as_str(), "cn", "mail", "telephoneNumber"];
    say!("\n$ larix search -x -H {} {}", server.url(), shell(&question));
    let mut search = Command::new(&larix);
    // It asks the demo's server, whatever the settings of this machine's clients are.
    search.env("LDAPNOINIT", "1").args(["search", "-x", "-H", &server.url()]).args(question);
    let answered = status(guard, &mut search).context("cannot start larix search")?;
    if !answered.success() {
        bail!("the search ended with {answered}");
    }
    if args.once {
        return Ok(());
    }
    say!("Try next, in another terminal:\n");
    say!("  ldapsearch -x -H {} -b {base} '(cn=*bel*)' cn mail", server.url());
    say!(
        "  ldapsearch -x -H {} -D {} -w {} -b ou=groups,{base} '(cn=sales)'\n",
        server.url(),
        Kind::People.root_dn(),
        generate::ROOT_PASSWORD
    );
    say!("Ctrl-C ends it{}.", if args.data.is_some() { "" } else { " and removes the data" });
    server.wait()
}

/// The folder of the flags; without one a temporary folder, which the guard removes.
fn folder(args: &DemoArgs, guard: &Guard) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &args.data {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        return Ok(folder.clone());
    }
    let temporary = tempfile::Builder::new().prefix("larix-demo").tempdir().context("no temporary folder")?;
    let folder = temporary.keep();
    guard.set_folder(Some(folder.clone()));
    Ok(folder)
}

/// Runs a command to its end, unless a signal ends both.
fn status(guard: &Guard, command: &mut Command) -> std::io::Result<ExitStatus> {
    let mut child = guard.spawn(command.stdin(Stdio::null()))?;
    guard.wait(&mut child)
}

fn step(text: &str) {
    say!("* {text}");
}

/// The words as a shell would take them.
fn shell(words: &[&str]) -> String {
    let quoted = words.iter().map(|word| {
        if word.contains(['(', '*', '&', ' ']) { format!("'{word}'") } else { (*word).to_owned() }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Writes the bundled schema that generated directories include; answers the folder as an absolute path.
pub(crate) fn write_bundled_schema(folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for name in ["core", "cosine", "inetorgperson", "nis"] {
        let text = larix_schema::bundled(name).with_context(|| format!("no schema {name} is bundled"))?;
        let file = folder.join(format!("{name}.schema"));
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    folder.canonicalize().with_context(|| format!("cannot resolve {}", folder.display()))
}

/// A server that ends with this program.
pub(crate) struct DemoServer {
    child: Child,
    port: u16,
    guard: Guard,
}

impl DemoServer {
    pub(crate) fn start(
        larix: &Path,
        configuration: &Path,
        folder: &Path,
        guard: &Guard,
    ) -> anyhow::Result<Self> {
        let ports = folder.join("port");
        let _ = std::fs::remove_file(&ports);
        let mut serve = Command::new(larix);
        serve.args(["serve", "-d", "0", "-h", "ldap://127.0.0.1:0/", "-f"]).arg(configuration);
        serve.arg("--port-file").arg(&ports).stdin(Stdio::null());
        let child = guard.spawn(&mut serve).context("cannot start larix serve")?;
        let mut served = Self { child, port: 0, guard: guard.clone() };
        for _ in 0..START_STEPS {
            if let Some(port) = read_port(&ports) {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                if TcpStream::connect_timeout(&address, STEP).is_ok() {
                    served.port = port;
                    return Ok(served);
                }
            }
            if guard.is_over(&served.child) {
                bail!("larix serve ended with {}", guard.wait(&mut served.child)?);
            }
            std::thread::park_timeout(STEP);
        }
        bail!("larix serve accepts no connection");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn url(&self) -> String {
        format!("ldap://127.0.0.1:{}/", self.port)
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        // A signal to this program ends both, before this returns.
        let status = self.guard.wait(&mut self.child).context("the server is lost")?;
        if status.success() { Ok(()) } else { bail!("larix serve ended with {status}") }
    }
}

impl Drop for DemoServer {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let (false, Some(pid)) = (self.guard.is_over(&self.child), pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.guard.wait(&mut self.child);
    }
}

fn read_port(file: &Path) -> Option<u16> {
    let file = std::fs::File::open(file).ok()?;
    BufReader::new(file).lines().next()?.ok()?.trim().parse().ok()
}
