//! The server.

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

/// What fits into a connection before it is read.
const STREAM_BUFFER_BYTES: usize = 64 * 1024;

/// A server in this process. Each clone is the same server; it ends with the last.
#[derive(Clone)]
pub struct TestServer(pub(crate) Arc<SharedServer>);

pub(crate) struct SharedServer {
    engine: Mutex<Engine>,
    clock: TestClock,
    hook: RwLock<Option<Arc<Hook>>>,
    /// Tells the task that expires keys that there is an earlier one, or no server any more.
    pub(crate) changed: Arc<Notify>,
    /// Whether that task was started.
    expiring: AtomicBool,
    /// Dropped with the server, which ends the tasks that wait for it.
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
        f.debug_struct("Server").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl TestServer {
    /// An empty server, whose time is now.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings for a server that differs from that.
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

    /// What time it is for the server. It runs with tokio's clock: while that is paused, so is this.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.0.clock.now()
    }

    /// Opens a connection.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(STREAM_BUFFER_BYTES);
        connection::serve(self, ours);
        theirs
    }

    /// Takes connections on a free port of 127.0.0.1, until the last clone of this server is dropped.
    ///
    /// # Errors
    /// When the system gives no port.
    pub async fn listen(&self) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(connection::accept(Arc::downgrade(&self.0), listener, self.0.alive.subscribe()));
        Ok(address)
    }

    /// Executes a command at once, as a client of its own that may do everything.
    pub fn command(&self, args: impl IntoIterator<Item = impl AsRef<[u8]>>) -> RedisReply {
        let args: Vec<Bytes> = args.into_iter().map(|arg| Bytes::copy_from_slice(arg.as_ref())).collect();
        if args.is_empty() {
            return RedisReply::Error("ERR a command has at least a name".to_owned());
        }
        let mut client = ClientSession::new(0, Some(crate::acl::INTERNAL.to_owned()));
        client.protocol = crate::resp::Protocol::Resp3;
        self.0.expire_in_background(self);
        self.0.execute(&mut client, &args, None)
    }

    /// From now on asks this before each command that arrives on a connection; commands of
    /// [`command`](Self::command) are not asked about. There is one such function at a time.
    pub fn intercept(&self, hook: impl Fn(&CommandRequest<'_>) -> Intervention + Send + Sync + 'static) {
        *self.0.hook.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(hook));
    }

    /// Ends [`intercept`](Self::intercept).
    pub fn stop_intercepting(&self) {
        *self.0.hook.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// From now on has messages carried so to the connections that have subscribed. There is one carrier at a time.
    pub fn carry_by(&self, carrier: Arc<dyn MessageCarrier>) {
        self.0.engine().state().pubsub.carrier = Some(carrier);
    }

    /// Publishes a message that no carrier is asked about: to how many connections.
    pub fn push(&self, channel: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> usize {
        self.0.engine().state().pubsub.push(channel.as_ref(), payload.as_ref())
    }

    /// Ends all connections, as a network does that breaks. Whoever connects again may.
    pub fn disconnect_all(&self) {
        self.disconnect(|_| true);
    }

    /// Ends the connections that have subscribed to something.
    pub fn disconnect_subscribers(&self) {
        self.disconnect(|subscribed| subscribed);
    }

    fn disconnect(&self, chosen: impl Fn(bool) -> bool) {
        let engine = self.0.engine();
        let state = engine.state();
        let lines = state.pubsub.connections().filter(|(_, line)| chosen(line.is_subscriber()));
        lines.for_each(|(_, line)| line.outbox.close());
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

    /// Starts the task that expires keys, once there is a runtime.
    pub(crate) fn expire_in_background(&self, server: &TestServer) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.expiring.swap(true, Ordering::Relaxed) {
            runtime.spawn(expirer::run(Arc::downgrade(&server.0), self.changed.clone()));
        }
    }

    /// A client for a new connection.
    pub(crate) fn open(&self, outbox: ConnectionOutbox) -> ClientSession {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let engine = self.engine();
        let mut state = engine.state();
        let user = state.acl.first_user();
        state.pubsub.open(id, outbox, user.as_deref().unwrap_or_default());
        ClientSession::new(id, user)
    }

    /// The answer to a command. With an outbox it goes there before anybody else's command is executed,
    /// so that an answer stands before all that is published later.
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
        state.pubsub.connections().for_each(|(_, line)| line.outbox.close());
    }
}
