//! Replaces the module `tls` if the feature is off. [`Reach`](crate::Reach) then refuses TLS.

use std::{io, path::Path};

use redis::{ConnectionInfo, RedisResult};
use tokio::net::TcpStream;

use crate::proxy::Session;

const WHY: &str = "keylapse-support is built without its feature `tls`";

pub(crate) async fn connect(_: &ConnectionInfo) -> RedisResult<TcpStream> {
    panic!("{WHY}")
}

#[derive(Clone, Debug)]
pub(crate) enum Acceptor {}

impl Acceptor {
    pub(crate) fn of(_: &Path) -> Self {
        panic!("{WHY}")
    }

    pub(crate) async fn accept<'a>(&self, _: &'a mut TcpStream) -> io::Result<Box<dyn Session + 'a>> {
        match *self {}
    }
}
