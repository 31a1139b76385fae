//! stub
#![allow(missing_docs)]
use bytes::Bytes;
use std::time::SystemTime;
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    Nil,
    Int(i64),
    Status(std::borrow::Cow<'static, str>),
    Bulk(Bytes),
    Array(Vec<Reply>),
    Error(String),
}
impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
#[derive(Clone, Debug)]
pub struct Server;
pub struct Builder;
#[derive(Debug)]
pub struct Request<'a> {
    pub connection: u64,
    pub args: &'a [Bytes],
}
#[derive(Debug)]
pub enum Intervention {
    Execute,
    Refuse(String),
    Unanswered,
    Hang,
}
impl Builder {
    pub fn start(self, _: SystemTime) -> Self {
        self
    }
    pub fn build(self) -> Server {
        Server
    }
}
impl Server {
    pub fn builder() -> Builder {
        Builder
    }
    pub fn connect(&self) -> tokio::io::DuplexStream {
        todo!()
    }
    pub async fn listen(&self) -> std::io::Result<std::net::SocketAddr> {
        todo!()
    }
    pub fn now(&self) -> SystemTime {
        todo!()
    }
    pub fn command<A: AsRef<[u8]>>(&self, _args: impl IntoIterator<Item = A>) -> Reply {
        todo!()
    }
    pub fn intercept(&self, _hook: impl Fn(&Request<'_>) -> Intervention + Send + Sync + 'static) {}
}
