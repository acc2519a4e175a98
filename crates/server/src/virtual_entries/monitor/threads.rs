//! cn=Threads and cn=Waiters: event loops in the terms of a thread pool.

use larix_engine::entry::Entry;

use super::Monitor;

impl Monitor<'_> {
    pub(super) fn threads(&self, out: &mut Vec<Entry>) {
        let about = "This subsystem contains information about threads.";
        out.push(self.container("Threads", about, true).build());
        // A loop serves what is ready: nothing waits for a thread, and the one that answers this is active.
        let workers = self.statistics.workers().to_string();
        for (name, value, about) in [
            ("Max", workers.as_str(), "Maximum number of threads as configured"),
            ("Max Pending", "0", "Maximum number of pending threads"),
            ("Open", workers.as_str(), "Number of open threads"),
            ("Starting", "0", "Number of threads being started"),
            ("Active", "1", "Number of active threads"),
            ("Pending", "0", "Number of pending threads"),
            ("Backload", "1", "Number of active plus pending threads"),
            ("State", "running", "Thread pool state"),
        ] {
            let built = self.child("Threads", name, "monitoredObject").one("monitoredInfo", value);
            out.push(built.one("description", about).build());
        }
        for (name, about) in [
            ("Runqueue", "Queue of running threads - besides those handling operations"),
            ("Tasklist", "List of running plus standby threads - besides those handling operations"),
        ] {
            let built = self.child("Threads", name, "monitoredObject");
            out.push(built.one("description", about).build());
        }
    }

    pub(super) fn waiters(&self, out: &mut Vec<Entry>) {
        let about = "This subsystem contains information about read/write waiters.";
        out.push(self.container("Waiters", about, true).build());
        out.push(self.counter("Waiters", "Read", self.statistics.current_connections() as u64));
        out.push(self.counter("Waiters", "Write", 0));
    }
}
