//! For tests only: servers started on loopback and ended by their own process id, and waiting for them.

pub mod dns;
pub mod etcd;
pub mod pki;
mod ports;
pub mod postgresql;
pub mod process;
pub mod site;
pub mod terminal;
mod waiting;

pub use larix_packages as packages;
pub use pki::{Authority, Issued, self_signed};
pub use process::{Kind, Running, Server, StartError};
pub use site::Site;
pub use terminal::Terminal;
pub use waiting::{SetAtEnd, accepted, until, until_some};
