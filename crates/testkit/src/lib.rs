//! For tests only: servers started on loopback and ended by their own process id.

pub mod process;
pub mod site;

pub use process::{Kind, Server, StartError};
pub use site::Site;
