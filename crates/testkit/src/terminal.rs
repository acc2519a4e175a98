//! A pseudo-terminal, for programs that talk to a person.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

/// What a terminal sends for Ctrl-C.
pub const INTERRUPT: &str = "\x03";
/// How often something is looked for that has to come, and how long it takes to look in vain: three minutes in all.
const LOOKS: u32 = 1_800;
const LOOK: Duration = Duration::from_millis(100);
/// Takes a terminal as the controlling one of a session that has none, and goes on with the other arguments.
const CONTROLLED: &str = r#": <>"$0" && exec "$@""#;

/// A terminal, and the person in front of it.
#[derive(Debug)]
pub struct Terminal {
    /// The person's side.
    person: File,
    /// The program's side, held open so that its modes outlive the program.
    program: File,
    path: PathBuf,
    shown: String,
}

impl Terminal {
    /// # Errors
    /// The system has no pseudo-terminal to give.
    pub fn open() -> io::Result<Self> {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&person)?;
        unlockpt(&person)?;
        let path = PathBuf::from(OsStr::from_bytes(ptsname(&person, Vec::new())?.as_bytes()));
        let flags = i32::try_from(OFlags::NOCTTY.bits()).unwrap_or_default();
        let program = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path)?;
        Ok(Self { person: File::from(person), program, path, shown: String::new() })
    }

    /// A command in a session of its own whose controlling terminal this is. Its standard streams are the terminal's, unless
    /// the caller sets others. The child has the command's process id.
    ///
    /// # Panics
    /// The terminal cannot be opened once more.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let stream = || Stdio::from(self.program.try_clone().expect("the terminal can be opened once more"));
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", CONTROLLED]).arg(&self.path).arg(program);
        command.stdin(stream()).stdout(stream()).stderr(stream());
        command
    }

    /// Types something; a line ends with `\n`.
    ///
    /// # Panics
    /// The terminal takes nothing.
    pub fn types(&mut self, text: &str) {
        self.person.write_all(text.as_bytes()).expect("a terminal takes what is typed");
    }

    /// Waits until the terminal shows a text behind what it showed before the last call, and gives everything up to its end.
    ///
    /// # Panics
    /// It does not come within three minutes.
    pub fn shows(&mut self, text: &str) -> String {
        for _ in 0..LOOKS {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            self.look();
        }
        panic!("the terminal does not show {text:?}: {:?}", self.shown);
    }

    /// Waits for a program's end. Gives its status, and what the terminal showed since the last call.
    ///
    /// # Panics
    /// It does not end within three minutes; it is killed then.
    pub fn ended(&mut self, child: &mut Child) -> (ExitStatus, String) {
        for _ in 0..LOOKS {
            if let Some(status) = child.try_wait().expect("a child of this process") {
                // What it wrote is there when it has ended.
                while self.look() {}
                return (status, std::mem::take(&mut self.shown));
            }
            self.look();
        }
        let _ = child.kill();
        let _ = child.wait();
        panic!("it does not end: {:?}", self.shown);
    }

    /// Whether the terminal shows what is typed.
    ///
    /// # Panics
    /// The terminal is gone.
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.program).expect("the terminal's modes").local_modes.contains(LocalModes::ECHO)
    }

    /// Takes what the terminal shows next, waiting a moment for it; says whether there was anything.
    fn look(&mut self) -> bool {
        let moment = Timespec::try_from(LOOK).expect("a tenth of a second");
        let mut ready = [PollFd::new(&self.person, PollFlags::IN)];
        if !poll(&mut ready, Some(&moment)).is_ok_and(|count| count > 0) {
            return false;
        }
        let mut bytes = [0; 4096];
        let Ok(length @ 1..) = self.person.read(&mut bytes) else { return false };
        self.shown.push_str(&String::from_utf8_lossy(&bytes[..length]));
        true
    }
}
