//! The protocols RESP2 and RESP3.

mod encode;
mod parse;
mod whole;

pub(crate) use encode::{Protocol, encode};
pub(crate) use parse::{Invalid, RespParser};
pub(crate) use whole::whole;
