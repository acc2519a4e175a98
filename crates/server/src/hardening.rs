//! Rights that the process gives up before it serves: core dumps, new privileges, other people's access to its files.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{DumpableBehavior, Resource, Rlimit, setrlimit, umask};

/// The variable that names the socket on which a service manager waits for the server (sd_notify(3)).
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// The variable with the microseconds within which the service manager wants to hear from the server again (sd_watchdog_enabled(3)).
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
/// How long a thread waits for a service manager that has no room for news.
const PATIENCE: Duration = Duration::from_secs(60);

/// Files made from now on are for the server's user, and readable by its group at most.
pub(crate) fn keep_files_private() {
    let before = umask(Mode::RWXO | Mode::WGRP);
    // What the administrator forbids beside that stays forbidden.
    umask(before | Mode::RWXO | Mode::WGRP);
}

/// The memory of the server holds passwords and keys: no dump of it is written, and no process that happens to run as the same
/// user may look into it.
///
/// A limit of zero is not enough, since the kernel does not keep to it when dumps go to a program, as they do under
/// systemd. What keeps that program away takes `/proc/PID` from other processes of the same user as well, measuring
/// ones among them: `service` is false for a server that stays at a terminal.
pub fn forbid_core_dumps(service: bool) -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    if service {
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    Ok(())
}

/// No program that this one might start gets more rights than it has.
pub fn forbid_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Whether a service manager waits for news.
pub fn is_managed() -> bool {
    std::env::var_os(NOTIFY_SOCKET).is_some()
}

/// Within which time the service manager wants to hear `WATCHDOG=1`, if it wants to. `WATCHDOG_PID` does not count: a server in the
/// background is another process than the one that was started, and the manager knows whom it hears (`NotifyAccess=`).
pub(crate) fn watchdog() -> Option<Duration> {
    manager()?;
    let micros: u64 = std::env::var(WATCHDOG_USEC).ok()?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// The service manager's socket. Behind a change of the root directory its path leads nowhere.
static MANAGER: OnceLock<Option<UnixDatagram>> = OnceLock::new();

/// Connects to the service manager that waits for news, if there is one. To be called before the root directory is changed; only the
/// first call has an effect.
pub(crate) fn connect_to_manager() {
    manager();
}

fn manager() -> Option<&'static UnixDatagram> {
    MANAGER.get_or_init(connected).as_ref()
}

fn connected() -> Option<UnixDatagram> {
    let name = std::env::var_os(NOTIFY_SOCKET)?;
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(Path::new(&name)),
        _ => return None,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    socket.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(socket)
}

/// Tells the service manager what the server does: `READY=1`, `WATCHDOG=1`, `STOPPING=1`. Without one, nothing happens; one that
/// does not listen is no reason to stop serving. For one whose queue is full a thread waits, a minute at most: it would take a
/// server that it has not heard of for one that did not start.
pub fn notify(state: &str) {
    let Some(socket) = manager() else { return };
    if rustix::net::send(socket, state.as_bytes(), SendFlags::DONTWAIT) == Err(Errno::AGAIN) {
        let state = state.to_owned();
        let waiting = std::thread::Builder::new().name("notify".to_owned());
        drop(waiting.spawn(move || socket.send(state.as_bytes())));
    }
}
