//! The server and its public methods.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use bytes::Bytes;
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use crate::builder::Builder;
use crate::carrier::MessageCarrier;
use crate::client::ClientSession;
use crate::clock::TestClock;
use crate::connection;
use crate::engine::Engine;
use crate::expirer;
use crate::intercept::{CommandRequest, Hook, Intervention};
use crate::outbox::ConnectionOutbox;
use crate::reply::RedisReply;

/// The capacity of a connection in each direction.
const STREAM_BUFFER_BYTES: usize = 64 * 1024;

/// A Redis-compatible server in this process. Clones are the same server, which ends when the last one is dropped.
#[derive(Clone)]
pub struct TestServer(pub(crate) Arc<SharedServer>);

pub(crate) struct SharedServer {
    engine: Mutex<Engine>,
    clock: TestClock,
    hook: RwLock<Option<Arc<Hook>>>,
    /// Wakes the expirer when the next deadline changes, or the server is dropped.
    pub(crate) changed: Arc<Notify>,
    /// True after the expirer was started.
    expiring: AtomicBool,
    /// Ends waiting tasks when it is dropped with the server.
    alive: watch::Sender<()>,
    next_id: AtomicU64,
}

impl Default for TestServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TestServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestServer").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl TestServer {
    /// Returns an empty server whose clock starts at the current time.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns settings for another server.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn over(engine: Engine, clock: TestClock) -> Self {
        Self(Arc::new(SharedServer {
            engine: Mutex::new(engine),
            clock,
            hook: RwLock::new(None),
            changed: Arc::default(),
            expiring: AtomicBool::new(false),
            alive: watch::Sender::new(()),
            next_id: AtomicU64::new(1),
        }))
    }

    /// Returns the server's time. It advances with tokio's clock, which a test may pause.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.0.clock.now()
    }

    /// Opens a connection in memory, in RESP2 until the client sends `HELLO 3`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    #[must_use]
    pub fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(STREAM_BUFFER_BYTES);
        connection::serve(self, ours);
        theirs
    }

    /// Accepts connections on a free port of 127.0.0.1, until the last clone of this server is dropped. Returns the address.
    ///
    /// # Errors
    /// Returns an error if no port is free.
    pub async fn listen(&self) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(connection::accept(Arc::downgrade(&self.0), listener, self.0.alive.subscribe()));
        Ok(address)
    }

    /// Executes a command immediately, with all permissions, and returns the reply in RESP3.
    pub fn command(&self, args: impl IntoIterator<Item = impl AsRef<[u8]>>) -> RedisReply {
        let args: Vec<Bytes> = args.into_iter().map(|arg| Bytes::copy_from_slice(arg.as_ref())).collect();
        if args.is_empty() {
            return RedisReply::Error("ERR empty command".to_owned());
        }
        let mut client = ClientSession::new(0, Some(crate::acl::INTERNAL.to_owned()));
        client.protocol = crate::resp::Protocol::Resp3;
        self.0.expire_in_background(self);
        self.0.execute(&mut client, &args, None)
    }

    /// Calls `hook` before each command on a connection from now on. It replaces an earlier hook, and is not called for
    /// [`command`](Self::command).
    pub fn intercept(&self, hook: impl Fn(&CommandRequest<'_>) -> Intervention + Send + Sync + 'static) {
        *self.0.hook.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(hook));
    }

    /// Removes the hook of [`intercept`](Self::intercept).
    pub fn stop_intercepting(&self) {
        *self.0.hook.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Delivers messages to subscribers through this carrier from now on. It replaces an earlier carrier.
    pub fn carry_by(&self, carrier: Arc<dyn MessageCarrier>) {
        self.0.engine().state().pubsub.carrier = Some(carrier);
    }

    /// Publishes a message without the carrier, and returns the number of receivers.
    pub fn push(&self, channel: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> usize {
        self.0.engine().state().pubsub.push(channel.as_ref(), payload.as_ref())
    }

    /// Closes all connections, as a network failure does. Clients may connect again.
    pub fn disconnect_all(&self) {
        self.disconnect(|_| true);
    }

    /// Closes the connections that have subscriptions.
    pub fn disconnect_subscribers(&self) {
        self.disconnect(|subscribed| subscribed);
    }

    fn disconnect(&self, chosen: impl Fn(bool) -> bool) {
        let engine = self.0.engine();
        let state = engine.state();
        let connections =
            state.pubsub.connections().filter(|(_, connection)| chosen(connection.is_subscriber()));
        connections.for_each(|(_, connection)| connection.outbox.close());
    }
}

impl SharedServer {
    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clock(&self) -> TestClock {
        self.clock
    }

    pub(crate) fn hook(&self) -> Option<Arc<Hook>> {
        self.hook.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts the expirer once, if this is called in a runtime.
    pub(crate) fn expire_in_background(&self, server: &TestServer) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.expiring.swap(true, Ordering::Relaxed) {
            runtime.spawn(expirer::run(Arc::downgrade(&server.0), self.changed.clone()));
        }
    }

    /// Registers a new connection, and returns its client.
    pub(crate) fn open(&self, outbox: ConnectionOutbox) -> ClientSession {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let engine = self.engine();
        let mut state = engine.state();
        let user = state.acl.first_user();
        state.pubsub.open(id, outbox, user.as_deref().unwrap_or_default());
        ClientSession::new(id, user)
    }

    /// Executes a command and returns the reply. The reply is queued in the outbox, if one is given, before another command
    /// is executed. A reply therefore precedes all messages that are published later.
    pub(crate) fn execute(
        &self,
        client: &mut ClientSession,
        args: &[Bytes],
        outbox: Option<&ConnectionOutbox>,
    ) -> RedisReply {
        let mut engine = self.engine();
        let before = engine.state().keys.next_found();
        let reply = engine.serve(client, args);
        if let Some(outbox) = outbox {
            outbox.send(&reply, client.protocol);
        }
        let after = engine.state().keys.next_found();
        drop(engine);
        if after != before {
            self.changed.notify_one();
        }
        reply
    }
}

impl Drop for SharedServer {
    fn drop(&mut self) {
        self.changed.notify_one();
        let state = self.engine.get_mut().unwrap_or_else(PoisonError::into_inner).state();
        state.pubsub.connections().for_each(|(_, connection)| connection.outbox.close());
    }
}
