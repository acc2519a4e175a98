//! `tcp-buffer`.

/// Sizes of the kernel's buffers for connections: `tcp-buffer [listener=<url>] [{read|write}=]<bytes>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpBuffer {
    /// Of one listener; `None`: of all.
    pub listener: Option<String>,
    pub read: Option<u32>,
    pub write: Option<u32>,
}
