//! What a test asks of a build, said once: both have the same words for it.

/// A module that plays the part of one build.
macro_rules! side {
    ($build:ident) => {
        pub(crate) mod $build {
            use std::sync::{Arc, Mutex};
            use std::time::Duration;

            use ::$build as keylapse;
            use keylapse::{
                Attached, Client, Done, Expired, Failure, Lapse, Listener, Result, Schedule, Topic,
            };
            use tokio::sync::oneshot;
            use tokio::task::JoinHandle;

            pub(crate) const WIRE_VERSION: keylapse::ErrorKind = keylapse::ErrorKind::WireVersion;

            pub(crate) fn orders() -> Topic<String> {
                Topic::new("order:unpaid:{id}").expect("a pattern")
            }

            fn listener(url: &str, namespace: &str) -> keylapse::ListenerBuilder {
                let client = Client::new(url).and_then(|client| client.namespace(namespace));
                Listener::builder(client.expect("a client"))
            }

            /// Arms an order, to be closed after `delay`.
            pub(crate) async fn arm(url: &str, namespace: &str, id: &str, delay: Duration) -> Result<()> {
                let schedule = Schedule::connect(Client::new(url)?.namespace(namespace)?).await?;
                let armed = schedule.arm(&orders(), [id], delay, &id.to_owned()).await?;
                assert!(armed.is_armed(), "{armed:?}");
                Ok(())
            }

            type Closed = Arc<Mutex<Vec<String>>>;

            /// A listener, and the orders that it has closed.
            pub(crate) struct Listening {
                closed: Closed,
                stop: oneshot::Sender<()>,
                run: JoinHandle<Result<()>>,
            }

            impl Listening {
                /// To orders that are armed.
                pub(crate) fn managed(url: &str, namespace: &str) -> Self {
                    let closed = Closed::default();
                    let handled = closed.clone();
                    let close = move |lapse: Lapse<String>| {
                        handled.lock().expect("no panic").push(lapse.payload().clone());
                        async { Ok::<_, Failure>(Done) }
                    };
                    Self::run(listener(url, namespace).on(orders(), close), closed)
                }

                /// To orders that other programs write.
                pub(crate) fn attached(url: &str, namespace: &str) -> Self {
                    let closed = Closed::default();
                    let handled = closed.clone();
                    let close = move |lapse: Lapse<Expired<String>>| {
                        let id = lapse.capture("id").expect("the pattern has one").to_owned();
                        handled.lock().expect("no panic").push(id);
                        async { Ok::<_, Failure>(Done) }
                    };
                    Self::run(listener(url, namespace).attach(Attached::new(orders()), close), closed)
                }

                fn run(listener: keylapse::ListenerBuilder, closed: Closed) -> Self {
                    let listener = listener.build().expect("a listener");
                    let (stop, stopped) = oneshot::channel::<()>();
                    let run = async move { listener.run_until(async { drop(stopped.await) }).await };
                    Self { closed, stop, run: tokio::spawn(run) }
                }

                /// What it has closed so far.
                pub(crate) fn closed(&self) -> Vec<String> {
                    self.closed.lock().expect("no panic").clone()
                }

                /// Stops it: it has closed these, each once.
                pub(crate) async fn stop_with(self, all: Vec<String>) {
                    let Self { closed, stop, run } = self;
                    stop.send(()).expect("it runs");
                    run.await.expect("no panic").expect("a clean end");
                    let mut closed = closed.lock().expect("no panic").clone();
                    closed.sort();
                    assert_eq!(closed, all);
                }

                /// Why it has ended by itself.
                pub(crate) async fn refusal(self) -> keylapse::Error {
                    self.run.await.expect("no panic").expect_err("it does not start")
                }
            }
        }
    };
}

side!(before);
side!(now);
