//! Which kinds of lines are logged.

/// `loglevel` and `-d`: OpenLDAP's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLevel(pub u32);

impl LogLevel {
    pub const TRACE: u32 = 0x1;
    pub const PACKETS: u32 = 0x2;
    pub const ARGS: u32 = 0x4;
    pub const CONNS: u32 = 0x8;
    pub const BER: u32 = 0x10;
    pub const FILTER: u32 = 0x20;
    pub const CONFIG: u32 = 0x40;
    pub const ACL: u32 = 0x80;
    pub const STATS: u32 = 0x100;
    pub const STATS2: u32 = 0x200;
    pub const SHELL: u32 = 0x400;
    pub const PARSE: u32 = 0x800;
    pub const SYNC: u32 = 0x4000;
    pub const NONE: u32 = 0x8000;
    pub const ANY: u32 = u32::MAX;

    /// Every named level with its bits, in OpenLDAP's order.
    pub const NAMES: [(&'static str, u32); 15] = [
        ("Any", Self::ANY),
        ("Trace", Self::TRACE),
        ("Packets", Self::PACKETS),
        ("Args", Self::ARGS),
        ("Conns", Self::CONNS),
        ("BER", Self::BER),
        ("Filter", Self::FILTER),
        ("Config", Self::CONFIG),
        ("ACL", Self::ACL),
        ("Stats", Self::STATS),
        ("Stats2", Self::STATS2),
        ("Shell", Self::SHELL),
        ("Parse", Self::PARSE),
        ("Sync", Self::SYNC),
        ("None", Self::NONE),
    ];

    /// Whether any of `bits` is on.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    /// One word: a name, or bits in decimal or hexadecimal (`-1` is all).
    pub fn parse_word(word: &str) -> Option<Self> {
        if let Some((_, bits)) = Self::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
            return Some(Self(*bits));
        }
        let (digits, radix) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
            Some(hex) => (hex, 16),
            None => (word, 10),
        };
        let number = i64::from_str_radix(digits, radix).ok()?;
        // Negative numbers are two's complement, as C reads them.
        u32::try_from(number).ok().or_else(|| i32::try_from(number).ok().map(i32::cast_unsigned)).map(Self)
    }
}

impl Default for LogLevel {
    /// OpenLDAP logs `stats` unless told otherwise.
    fn default() -> Self {
        Self(Self::STATS)
    }
}
