//! A server in the test's process for unit tests of this crate. Its calls can be made to fail.
//!
//! Unit tests cannot use `keylapse-testing`: that crate depends on this one, so its listeners are of another build of
//! the library.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use keylapse_testserver::{CallRecorder, TestServer};

use crate::client::Client;
use crate::connection::{Endpoint, Endpoints, SERVER_PORT, Target};
use crate::rounds::VirtualTime;
use crate::wire::{DEFAULT_ANSWER_WITHIN, Store, scripts};

/// A server in the test's process, and a client of it in tokio's virtual time.
pub(crate) struct Rig {
    client: Client,
    calls: CallRecorder,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let server = TestServer::new();
        server.command(["CONFIG", "SET", "notify-keyspace-events", "KExg$"]);
        let calls =
            CallRecorder::of_scripts(&server, scripts::all().map(|script| (script.name, &script.text)));
        let counting = calls.clone();
        server.intercept(move |request| counting.arrived(request));
        let endpoint = Endpoint::Tcp { host: "in.this.process".to_owned(), port: SERVER_PORT };
        let store = Store::new(&Target::of(Endpoints::One(endpoint)), DEFAULT_ANSWER_WITHIN);
        let client = Client::over(store).connect_with(move || ready(Ok(server.connect())));
        Self { client: Client { virtual_time: Some(Arc::new(BusyTime)), ..client }, calls }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn calls(&self) -> &CallRecorder {
        &self.calls
    }
}

/// Virtual time with constant activity, so that no poll is skipped.
#[derive(Debug)]
struct BusyTime;

impl VirtualTime for BusyTime {
    fn activity_so_far(&self) -> u64 {
        0
    }

    fn wait_for_activity(&self, _: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }
}
