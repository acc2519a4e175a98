//! Searches: where one looks ([`scope`]), whether an entry matches ([`filter`]), what of it is answered ([`selection`]).

pub mod cookie;
pub mod filter;
pub mod limits;
pub mod referral;
pub mod scope;
pub mod selection;
