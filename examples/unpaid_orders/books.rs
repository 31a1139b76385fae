//! The shop's books: what has become of each order. They decide; the key only says when to look.

use redis::aio::MultiplexedConnection;
use redis::{Client, RedisResult, cmd};

/// For how long the books of this example are kept, in seconds.
const KEPT: u32 = 3600;

/// How an order has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Paid,
    Closed,
}

/// A database, in a real shop. Here, keys `shop:state:<id>`.
#[derive(Clone)]
pub(crate) struct Books(MultiplexedConnection);

impl Books {
    pub(crate) async fn open(url: &str) -> RedisResult<Self> {
        Ok(Self(Client::open(url)?.get_multiplexed_async_connection().await?))
    }

    /// `UPDATE orders SET state = … WHERE id = … AND state = 'unpaid'`; the state that then stands. Payment
    /// and closing may meet, and an attempt may run twice: the first of them wins, and a repeat changes
    /// nothing.
    pub(crate) async fn settle(&self, id: &str, state: State) -> RedisResult<State> {
        let mut set = cmd("SET");
        set.arg(key(id)).arg(state.name()).arg("NX").arg("GET").arg("EX").arg(KEPT);
        let stood: Option<String> = set.query_async(&mut self.0.clone()).await?;
        Ok(stood.as_deref().and_then(State::named).unwrap_or(state))
    }

    /// How an order has ended, if it has.
    pub(crate) async fn state(&self, id: &str) -> RedisResult<Option<State>> {
        let state: Option<String> = cmd("GET").arg(key(id)).query_async(&mut self.0.clone()).await?;
        Ok(state.as_deref().and_then(State::named))
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Paid => "paid",
            Self::Closed => "closed",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Paid, Self::Closed].into_iter().find(|state| state.name() == name)
    }
}

fn key(id: &str) -> String {
    format!("shop:state:{id}")
}
