//! What a program receives and does not answer: results and entries of the database behind it. One thread writes them, in their order,
//! each to a connection of its own. Searches wait for it; what else comes while too much waits is lost, and the log says how much.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larix_engine::log::Follower;
use zeroize::Zeroizing;

use super::calls::{Tell, connect};

/// Bytes that wait for the program, above which searches wait.
const BYTES_HIGH: usize = 1 << 20;
/// Bytes above which nothing more is kept.
const BYTES_MAX: usize = 16 << 20;
/// How long the program may take to take one of them.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// A thread without anything to tell ends after this time.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Queue {
    texts: VecDeque<Zeroizing<Vec<u8>>>,
    bytes: usize,
    /// What was not told since the log said so.
    lost: u64,
    /// Searches that wait.
    searches: Vec<Arc<Follower>>,
    has_thread: bool,
    is_closed: bool,
}

struct Shared {
    path: PathBuf,
    tell: Tell,
    /// [`PATIENCE`], but in tests.
    patience: Duration,
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// What waits for one program.
pub(super) struct Notices(Arc<Shared>);

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Drop for Notices {
    /// What waits is still told.
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.wake.notify_all();
    }
}

impl Notices {
    pub(super) fn new(path: &Path, tell: Tell, patience: Duration) -> Self {
        let (path, queue, wake) = (path.to_owned(), Mutex::default(), Condvar::new());
        Self(Arc::new(Shared { path, tell, patience, queue, wake }))
    }

    /// Adds one. It does not wait.
    pub(super) fn add(&self, text: Zeroizing<Vec<u8>>) {
        let mut queue = self.0.lock();
        if queue.bytes + text.len() > BYTES_MAX {
            queue.lost += 1;
            return;
        }
        queue.bytes += text.len();
        queue.texts.push_back(text);
        if !queue.has_thread {
            let shared = Arc::clone(&self.0);
            let spawned = std::thread::Builder::new().name("sock-told".to_owned());
            // Without a thread the next one tries again.
            queue.has_thread = spawned.spawn(move || shared.serve()).is_ok();
        }
        drop(queue);
        self.0.wake.notify_one();
    }

    /// Whether a search is to wait before it finds more; the queue calls its follower when it may go on.
    pub(super) fn delays(&self, follower: &Arc<Follower>) -> bool {
        let mut queue = self.0.lock();
        follower.looks();
        let is_full = queue.bytes >= BYTES_HIGH;
        if is_full && !queue.searches.iter().any(|known| Arc::ptr_eq(known, follower)) {
            queue.searches.push(Arc::clone(follower));
        }
        is_full
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Every change of it is whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does.
    fn serve(&self) {
        let mut was_delivered = true;
        while let Some(text) = self.next() {
            let delivery = connect(&self.path, self.patience).and_then(|mut stream| stream.write_all(&text));
            self.settle(delivery, &mut was_delivered);
        }
    }

    fn next(&self) -> Option<Zeroizing<Vec<u8>>> {
        let mut queue = self.lock();
        loop {
            if let Some(text) = queue.texts.pop_front() {
                queue.bytes -= text.len();
                self.let_searches_go_on(&mut queue);
                return Some(text);
            }
            let (waited, timeout) =
                self.wake.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = waited;
            if queue.texts.is_empty() && (queue.is_closed || timeout.timed_out()) {
                queue.has_thread = false;
                return None;
            }
        }
    }

    fn let_searches_go_on(&self, queue: &mut Queue) {
        if queue.bytes < BYTES_HIGH / 2 {
            queue.searches.drain(..).for_each(|search| search.tell());
        }
    }

    /// Counts what was not told, and says so when the program is away and when it is back.
    fn settle(&self, delivery: io::Result<()>, was_delivered: &mut bool) {
        let path = self.path.display();
        let mut queue = self.lock();
        match delivery {
            Ok(()) if queue.lost > 0 => {
                let lost = std::mem::take(&mut queue.lost);
                drop(queue);
                (self.tell)(&format!("socketpath \"{path}\": {lost} results and entries were not told"));
                *was_delivered = true;
            }
            Ok(()) => *was_delivered = true,
            Err(error) => {
                queue.lost += 1;
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
                    // Who waits for such a program waits for nothing.
                    queue.lost += queue.texts.len() as u64;
                    queue.texts.clear();
                    queue.bytes = 0;
                    self.let_searches_go_on(&mut queue);
                }
                drop(queue);
                if std::mem::replace(was_delivered, false) {
                    let text = "results and entries are not told until it takes them";
                    (self.tell)(&format!("socketpath \"{path}\": {error}: {text}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;

    /// What waits for a program that may take so long, and the log.
    fn notices(path: &Path, patience: Duration) -> (Notices, Arc<Mutex<Vec<String>>>) {
        let log_lines = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&log_lines);
        let tell = Arc::new(move |text: &str| log.lock().unwrap().push(text.to_owned()));
        (Notices::new(path, tell, patience), log_lines)
    }

    fn add(notices: &Notices, text: &str) {
        notices.add(Zeroizing::new(text.as_bytes().to_vec()));
    }

    #[expect(clippy::disallowed_methods, reason = "a test waits for a thread by the clock")]
    fn until(is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(180), "it did not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn they_come_in_their_order_and_what_was_lost_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("told");
        let (notices, log) = notices(&path, Duration::from_secs(180));
        (0..3).for_each(|number| add(&notices, &format!("early {number}")));
        until(|| notices.0.lock().lost == 3);
        let lines = std::mem::take(&mut *log.lock().unwrap());
        assert!(lines.len() == 1 && lines[0].contains("No such file"), "{lines:?}");

        let listener = UnixListener::bind(&path).unwrap();
        (0..50).for_each(|number| add(&notices, &format!("late {number}")));
        for number in 0..50 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("late {number}"));
        }
        until(|| log.lock().unwrap().iter().any(|text| text.contains("3 results and entries were not told")));
    }

    #[test]
    fn a_program_that_takes_nothing_delays_searches_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hangs");
        let listener = UnixListener::bind(&path).unwrap();
        // Longer than this thread may have to wait for a processor while it adds them.
        let (notices, log) = notices(&path, Duration::from_secs(3));
        let woken = Arc::new(AtomicUsize::new(0));
        let wake = Arc::clone(&woken);
        let follower = Follower::new(Box::new(move || {
            wake.fetch_add(1, Ordering::SeqCst);
        }));
        assert!(!notices.delays(&follower));
        // More than connections that wait to be taken, and more than one of them holds.
        let text = "x".repeat(400 << 10);
        (0..30).for_each(|_| add(&notices, &text));
        assert!(notices.delays(&follower));
        (0..30).for_each(|_| add(&notices, &text));
        assert!(notices.0.lock().bytes <= BYTES_MAX);
        until(|| woken.load(Ordering::SeqCst) == 1);
        assert!(!notices.delays(&follower));
        until(|| log.lock().unwrap().iter().any(|text| text.contains("are not told until")));
        drop(listener);
    }
}
