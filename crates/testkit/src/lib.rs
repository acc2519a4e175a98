//! For tests only: servers started on loopback and ended by their own process id.

pub mod dns;
pub mod etcd;
pub mod pki;
mod ports;
pub mod postgresql;
pub mod process;
pub mod site;
pub mod terminal;

pub use larix_packages as packages;
pub use pki::{Authority, Issued, self_signed};
pub use process::{Kind, Running, Server, StartError};
pub use site::Site;
pub use terminal::Terminal;
