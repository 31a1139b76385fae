//! What unit tests of the rooms need of a server: one in the process, whose calls can be made to fail.
//!
//! The test kit is a crate that depends on this one, so that its listeners are another library than the one under test.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use keylapse_testserver::{Calls, Server};

use crate::client::Client;
use crate::connection::{Endpoint, Endpoints, SERVER_PORT, Target};
use crate::rounds::VirtualTime;
use crate::wire::{DEFAULT_ANSWER_WITHIN, Store, scripts};

/// A server in the test's process, and a client of it in tokio's time.
pub(crate) struct Rig {
    client: Client,
    calls: Calls,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let server = Server::new();
        server.command(["CONFIG", "SET", "notify-keyspace-events", "KExg$"]);
        let calls = Calls::of_scripts(&server, scripts::all().map(|script| (script.name, &script.text)));
        let counting = calls.clone();
        server.intercept(move |request| counting.arrived(request));
        let endpoint = Endpoint::Tcp { host: "in.this.process".to_owned(), port: SERVER_PORT };
        let store = Store::new(&Target::of(Endpoints::One(endpoint)), DEFAULT_ANSWER_WITHIN);
        let client = Client::over(store).streams(move || ready(Ok(server.connect())));
        Self { client: Client { virtual_time: Some(Arc::new(Busy)), ..client }, calls }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }
}

/// Time in which something happens at all times, so that no look is left out.
#[derive(Debug)]
struct Busy;

impl VirtualTime for Busy {
    fn happened(&self) -> u64 {
        0
    }

    fn happens(&self, _: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }
}
