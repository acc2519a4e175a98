//! How threads share the processors with those that answer clients.
//!
//! A nice value alone is a share, measured over many milliseconds. Who runs when a worker wakes up is another matter (Linux 6.6 and
//! later, EEVDF): the one whose slice would end first, by shares. A thread that asks for short slices is therefore *preferred*, and
//! leaves the processor at the end of its slice only when the timer looks, every 4 ms or so; a thread that asks for longer slices
//! than others have leaves it at once for each of them that wakes up and has not had its share. So threads that compute for longer
//! ask for long slices.
//!
//! How long a thread waits that wakes up beside one that computes on the same processor, p99.9 and longest of four rounds of 3,800
//! (`tests/bench/waking-up`, Linux 6.18, 250 ticks a second, quiet machine; 0.05 ms of it is the timer's):
//!
//! | it computes with | p99.9, ms | longest, ms |
//! |---|---|---|
//! | nice 0, slices of 100 us | 3.9 to 4.0 | 4.0 |
//! | nice 0, slices of 10 ms | 0.09 to 0.12 | 0.1 to 0.3 |
//! | nice 10, slices of 100 us | 0.10 to 3.8 | 3.9 to 4.0 |
//! | nice 10, slices of 10 ms | 0.09 to 0.15 | 0.1 to 0.3 |
//! | nice 19, slices of 100 us | 0.10 to 0.13 | 0.1 to 1.2 |
//! | nice 19, slices of 10 ms | 0.10 to 0.16 | 0.1 to 0.3 |
//!
//! `SCHED_IDLE`, which goes at once, too, would stand still for as long as the processors are busy, and cannot be left again
//! without privilege.

use std::io;

/// A tenth of what others get of a busy core, all of one that is idle: what has to come to an end on a busy machine, too.
pub const LOW: i32 = 10;
/// As nice as can be: a sixty-eighth of what others get of a busy core, all of one that is idle.
pub(crate) const LOWEST: i32 = 19;
/// Longer than the slice of a thread that asks for none (2.8 ms at most); Linux takes up to 100 ms.
const SLICE_NANOSECONDS: u64 = 10_000_000;

/// Makes this thread at least so nice (0 to 19), and has it leave its core for any other thread that wakes up and has not had
/// its share. Threads that it starts are as nice. Where the kernel takes no slices the nice value is set; where that is refused,
/// too, the thread competes as all others do.
pub fn give_way(nice: i32) {
    // No nicer than it is: how nice that is.
    let own = rustix::process::nice(0).unwrap_or(0);
    if attributes(Policy::Batch, nice.max(own)).is_err() && nice > own {
        let _ = rustix::process::nice(nice - own);
    }
}

/// Has this thread leave its core for any other one that wakes up and has not had its share; its own share stays what it is,
/// and threads that it starts know nothing of it, nor of a nice value below 0 (sched(7), reset-on-fork).
pub(crate) fn take_long_slices() {
    let own = rustix::process::nice(0).unwrap_or(0);
    // Where the kernel has no slices nothing is lost.
    let _ = attributes(Policy::Other, own);
}

#[derive(Copy, Clone)]
enum Policy {
    Other,
    /// Takes no core from another thread when it wakes up.
    Batch,
}

/// What `sched_setattr` (Linux, sched(7)) takes, in the first of its versions.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of the policies here: the length of a slice, since Linux 6.12; not looked at before.
    runtime: u64,
    deadline: u64,
    period: u64,
}

#[allow(unsafe_code, reason = "neither the standard library nor rustix has this call; figures above")]
fn attributes(policy: Policy, nice: i32) -> io::Result<()> {
    let (policy, flags) = match policy {
        Policy::Other => (libc::SCHED_OTHER, libc::SCHED_FLAG_RESET_ON_FORK),
        Policy::Batch => (libc::SCHED_BATCH, 0),
    };
    let attributes = SchedAttr {
        size: const { size_of::<SchedAttr>() as u32 },
        policy: policy.unsigned_abs(),
        flags: u64::from(flags.unsigned_abs()),
        nice,
        priority: 0,
        runtime: SLICE_NANOSECONDS,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the call reads `size` bytes from the pointer, which the structure has, and keeps nothing of it; thread 0 is this one.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(&attributes), 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of this thread, as proc_pid_stat(5) has it: nice and policy.
    fn own() -> (i32, i32) {
        let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The name may have spaces in it; what follows begins with the third field.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
        (fields[19 - 3].parse().unwrap(), fields[41 - 3].parse().unwrap())
    }

    fn on_new_thread<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(ask).join().unwrap()
    }

    #[test]
    fn who_gives_way_is_nice_with_all_that_it_starts() {
        let before = own();
        let (after, child) = on_new_thread(|| {
            give_way(LOWEST);
            (own(), on_new_thread(own))
        });
        assert_eq!(after, (LOWEST, libc::SCHED_BATCH));
        assert_eq!(child, after);
        assert_eq!(own(), before);
        let nicest_first = on_new_thread(|| {
            give_way(LOWEST);
            give_way(5);
            own().0
        });
        assert_eq!(nicest_first, LOWEST, "nobody is less nice than before");
    }

    #[test]
    fn long_slices_are_a_threads_own() {
        let before = own();
        let (after, child) = on_new_thread(|| {
            assert!(attributes(Policy::Other, own().0).is_ok());
            take_long_slices();
            (own(), on_new_thread(own))
        });
        assert_eq!((after, child), (before, (before.0.max(0), before.1)));
    }
}
