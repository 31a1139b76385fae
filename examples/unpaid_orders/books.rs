//! The shop's books, with the end of each order. They decide whether an order is closed. The key only starts the check.

use redis::aio::MultiplexedConnection;
use redis::{Client, RedisResult, cmd};

/// TTL of the books of this example, in seconds.
const KEPT: u32 = 3600;

/// How an order has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Paid,
    Closed,
}

/// The books: keys `shop:state:<id>` here, a database in a real shop.
#[derive(Clone)]
pub(crate) struct Books(MultiplexedConnection);

impl Books {
    pub(crate) async fn open(url: &str) -> RedisResult<Self> {
        Ok(Self(Client::open(url)?.get_multiplexed_async_connection().await?))
    }

    /// Settles an order unless it is settled, and returns its state. In SQL: `UPDATE orders SET state = … WHERE id = … AND
    /// state = 'unpaid'`. Payment and closing may happen at the same time, and an attempt may run twice. The first call
    /// settles the order, and later ones change nothing.
    pub(crate) async fn settle(&self, id: &str, state: State) -> RedisResult<State> {
        let mut set = cmd("SET");
        set.arg(key(id)).arg(state.name()).arg("NX").arg("GET").arg("EX").arg(KEPT);
        let stood: Option<String> = set.query_async(&mut self.0.clone()).await?;
        Ok(stood.as_deref().and_then(State::named).unwrap_or(state))
    }

    /// Returns how an order has ended; `None` if it is unpaid.
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
