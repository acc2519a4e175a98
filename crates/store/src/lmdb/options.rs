//! How a store is opened.

/// Reserved address space: no directory reaches it, and only what is used takes room.
pub const MAP_BYTES_DEFAULT: usize = 4 << 40;

/// Slots for concurrent readers: threads of this process and tools beside it.
pub const MAX_READERS_DEFAULT: u32 = 1024;

/// How to open an [`LmdbStore`](super::LmdbStore).
#[derive(Clone, Debug)]
pub struct LmdbOptions {
    /// Create the store if the directory has none.
    pub create: bool,
    /// Permissions of new files, as of `chmod`.
    pub file_mode: u32,
    /// Address space to reserve in bytes, a multiple of 64 KiB; halved while the system refuses it.
    pub map_size: usize,
    pub max_readers: u32,
    /// Let the kernel read ahead on the map. Off where the data are much larger than the memory.
    pub read_ahead: bool,
    /// For a tool beside a serving process: no lock, no writes.
    pub read_only: bool,
    /// A copy that this process has made and no other works on: it may stand on a network file system, and needs no file for locks.
    pub own_copy: bool,
}

impl Default for LmdbOptions {
    fn default() -> Self {
        Self {
            create: true,
            file_mode: 0o600,
            map_size: MAP_BYTES_DEFAULT,
            max_readers: MAX_READERS_DEFAULT,
            read_ahead: true,
            read_only: false,
            own_copy: false,
        }
    }
}

impl LmdbOptions {
    /// For a tool that reads beside a serving process.
    pub fn for_reading() -> Self {
        Self { create: false, read_only: true, ..Self::default() }
    }

    /// For a look into a copy that this process has made.
    pub fn for_own_copy() -> Self {
        Self { own_copy: true, ..Self::for_reading() }
    }
}
