//! How threads share the processors with those that answer clients.
//!
//! A nice value alone is a share, measured over many milliseconds: whoever runs is left alone for its slice, some 3 ms, even when a
//! worker with fifty times its weight wakes up (Linux 6.6 and later, EEVDF). What answers in 50 us feels that. So threads that
//! compute for longer ask for slices of 100 us, too; `SCHED_IDLE`, which goes at once, would stand still for as long as
//! the processors are busy, and cannot be left again without privilege.
//!
//! The 99.9th percentile of reads beside one change of cn=config after another (two cores that the clients share, quiet
//! machine): 1.7 ms with nice 10 alone, 1.1 ms with nice 19 and short slices, 0.8 ms with `SCHED_IDLE`, 0.45 ms without changes.

use std::io;

/// A tenth of what others get of a busy core, all of one that is idle: what has to come to an end on a busy machine, too.
pub const LOW: i32 = 10;
/// As nice as can be: a sixty-eighth of what others get of a busy core, all of one that is idle.
pub(crate) const LOWEST: i32 = 19;
/// The shortest that Linux takes.
const SLICE_NANOSECONDS: u64 = 100_000;

/// Makes this thread at least so nice (0 to 19), and has it taken off its core after a short slice where another thread wants it.
/// Threads that it starts are as nice. Where the kernel takes no slices the nice value is set; where that is refused, too,
/// the thread competes as all others do.
pub fn give_way(nice: i32) {
    // No nicer than it is: how nice that is.
    let own = rustix::process::nice(0).unwrap_or(0);
    if attributes(Policy::Batch, nice.max(own)).is_err() && nice > own {
        let _ = rustix::process::nice(nice - own);
    }
}

/// Has this thread taken off its core after a short slice where another one wants it; its share stays what it is, and
/// threads that it starts know nothing of it.
pub(crate) fn take_short_slices() {
    let own = rustix::process::nice(0).unwrap_or(0);
    // Where the kernel has no slices nothing is lost.
    let _ = attributes(Policy::Other, own);
}

#[derive(Copy, Clone)]
enum Policy {
    Other,
    /// Does not take a core from anybody when it wakes up.
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

    fn elsewhere<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(ask).join().unwrap()
    }

    #[test]
    fn who_gives_way_is_nice_with_all_that_it_starts() {
        let before = own();
        let (after, child) = elsewhere(|| {
            give_way(LOWEST);
            (own(), elsewhere(own))
        });
        assert_eq!(after, (LOWEST, libc::SCHED_BATCH));
        assert_eq!(child, after);
        assert_eq!(own(), before);
        let nicest_first = elsewhere(|| {
            give_way(LOWEST);
            give_way(5);
            own().0
        });
        assert_eq!(nicest_first, LOWEST, "nobody is less nice than before");
    }

    #[test]
    fn short_slices_are_a_threads_own() {
        let before = own();
        let (after, child) = elsewhere(|| {
            assert!(attributes(Policy::Other, own().0).is_ok());
            take_short_slices();
            (own(), elsewhere(own))
        });
        assert_eq!((after, child), (before, before));
    }
}
