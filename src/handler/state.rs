//! Handlers that share a state: `async fn(Lapse<T>, S)`.

use super::Handler;
use super::function::Answer;
use crate::lapse::Lapse;

/// The state of a listener's handlers: see [`ListenerBuilder::state`](crate::ListenerBuilder::state).
///
/// A [`ListenerBuilder<State<App>>`](crate::ListenerBuilder) has handlers that may ask for an `App`.
#[derive(Clone, Debug)]
pub struct State<S>(pub(crate) S);

/// What can be given to [`ListenerBuilder::on`](crate::ListenerBuilder::on): a [`Handler`], or after
/// [`state`](crate::ListenerBuilder::state) an async function from a lapse and that state.
///
/// `S` is the builder's; `K` keeps the kinds of handlers apart. Neither is ever written.
// Without a state there is one implementation, and the compiler says what its bounds miss; of a function with
// more or fewer arguments it says this. With a state there are two implementations, and it says this of all.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle lapses that carry `{T}`",
    label = "wrong arguments, a wrong payload or a wrong result",
    note = "a handler takes `Lapse<{T}>`, and after `.state(…)` on the builder it may take the state as its second \
            argument",
    note = "its result is a `Result<R, E>`: `R` is `Done`, `()` or `Outcome`; `E` is `Failure` or any error; and its \
            future is `Send`"
)]
pub trait IntoHandler<T, S, K> {
    /// The kind of the handler that comes of it.
    type Kind: 'static;
    /// The handler, which has the state from now on.
    fn into_handler(self, state: &S) -> impl Handler<T, Self::Kind>;
}

impl<T, S, K: 'static, H: Handler<T, K>> IntoHandler<T, S, (K,)> for H {
    type Kind = K;

    fn into_handler(self, _: &S) -> impl Handler<T, K> {
        self
    }
}

impl<T, S, F, Fut> IntoHandler<T, State<S>, fn(Lapse<T>, S)> for F
where
    T: 'static,
    S: Clone + Send + Sync + 'static,
    F: Fn(Lapse<T>, S) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: Answer> + Send + 'static,
{
    type Kind = fn(Lapse<T>);

    fn into_handler(self, State(state): &State<S>) -> impl Handler<T> {
        let state = state.clone();
        move |lapse: Lapse<T>| self(lapse, state.clone())
    }
}
