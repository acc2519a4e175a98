//! How well a connection is protected.

/// Security strength factors of the parts of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strength {
    /// The greatest of the others.
    pub overall: u32,
    pub transport: u32,
    pub tls: u32,
    pub sasl: u32,
}
