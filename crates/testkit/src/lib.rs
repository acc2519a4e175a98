//! For tests only: servers started on loopback and ended by their own process id.

pub mod pki;
pub mod process;
pub mod site;

pub use pki::{Authority, Issued};
pub use process::{Kind, Server, StartError};
pub use site::Site;
