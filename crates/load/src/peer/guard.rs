//! What must not outlive a comparison: the servers it started and the folder it works in.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// How long a server may take to stop when the run is broken off, in steps of [`STEP`]; then it is killed.
const STOP_STEPS: u32 = 500;
const STEP: Duration = Duration::from_millis(20);
/// How often the folder is removed while a process writes there.
const REMOVALS_MAX: u32 = 5;

/// Knows the children and the folder. A clone knows the same ones: one belongs to the thread that awaits signals.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    children: Vec<Pid>,
    folder: Option<PathBuf>,
    /// Sockets that it made outside of the folder.
    files: Vec<PathBuf>,
    ended: bool,
}

impl Guard {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A list of numbers and a path are whole whatever the other thread was doing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder that goes when the run is broken off; none when it is to stay.
    pub fn set_folder(&self, folder: Option<PathBuf>) {
        self.lock().folder = folder;
    }

    /// Starts a child and knows it. A terminal's Ctrl-C does not reach it: it is the guard's to end.
    ///
    /// # Errors
    /// It cannot be started, or [`Guard::end`] was called.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut state = self.lock();
        if state.ended {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        let child = command.process_group(0).spawn()?;
        state.children.extend(pid(child.id()));
        Ok(child)
    }

    /// Whether a child has ended; it is not reaped.
    pub fn is_over(&self, child: &Child) -> bool {
        pid(child.id()).is_none_or(has_ended)
    }

    /// Awaits a child's end, forgets it, and reaps it.
    ///
    /// # Errors
    /// It is no child of this process.
    pub fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        if let Some(pid) = pid(child.id()) {
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), ended), Err(Errno::INTR)) {}
        }
        self.forget_child(child.id());
        child.wait()
    }

    pub(crate) fn add_child(&self, id: u32) {
        self.lock().children.extend(pid(id));
    }

    /// Forgets a child, before its number can be another process's: call it ahead of the wait that reaps it.
    pub(crate) fn forget_child(&self, id: u32) {
        let gone = pid(id);
        self.lock().children.retain(|child| Some(*child) != gone);
    }

    /// A file that goes, too.
    pub(crate) fn add_file(&self, path: &Path) {
        self.lock().files.push(path.to_owned());
    }

    pub(crate) fn remove_files(&self) {
        self.lock().remove_files();
    }

    /// Whether [`Guard::end`] was called: failures from then on are its doing.
    pub fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// Stops every child by its process id, waits for it, kills what does not stop, and removes the folder.
    ///
    /// The list stays locked: no thread reaps a child, and so frees its number, while this signals it.
    pub fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        for child in std::mem::take(&mut state.children) {
            let _ = kill_process(child, Signal::TERM);
            if !wait_until_gone(child) {
                let _ = kill_process(child, Signal::KILL);
                wait_until_gone(child);
            }
        }
        state.remove_files();
        if let Some(folder) = state.folder.take() {
            // This process may still be writing there: what came meanwhile goes the next time.
            let _ = (0..REMOVALS_MAX).find(|_| std::fs::remove_dir_all(&folder).is_ok());
        }
    }
}

impl State {
    fn remove_files(&mut self) {
        for file in self.files.drain(..) {
            let _ = std::fs::remove_file(file);
        }
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// Awaits a child's end and leaves it to its parent to reap it.
fn wait_until_gone(child: Pid) -> bool {
    for _ in 0..STOP_STEPS {
        if has_ended(child) {
            return true;
        }
        std::thread::park_timeout(STEP);
    }
    false
}

/// Whether a child is no longer running; it is not reaped.
pub(super) fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(child), options), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_stops_children_and_removes_the_folder() {
        let folder = std::env::temp_dir().join(format!("larix-guard-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("inner")).unwrap();
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let guard = Guard::default();
        guard.set_folder(Some(folder.clone()));
        guard.add_child(child.id());
        let clone = guard.clone();
        clone.end();
        assert!(guard.has_ended());
        assert!(!folder.exists());
        assert!(!child.wait().unwrap().success(), "ended by the signal");
    }

    #[test]
    fn a_forgotten_child_is_left_alone() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let guard = Guard::default();
        guard.add_child(child.id());
        guard.forget_child(child.id());
        guard.end();
        assert!(child.try_wait().unwrap().is_none(), "still runs");
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
