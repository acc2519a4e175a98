pub mod change;
mod failure;
pub mod known;
pub mod operational;
pub mod prepare;
mod queue;
pub mod schema_check;
mod values;
pub mod request;
