//! Async functions as handlers: what they may take, and what they may return.

use futures::FutureExt;

use super::Handler;
use crate::lapse::Lapse;
use crate::outcome::{Failure, Outcome};

/// What a lapse can be given to a handler as: itself alone.
///
/// A function's argument is found first and compared then, so that a wrong one is refused in these words.
#[diagnostic::on_unimplemented(
    message = "this handler takes `{A}`, and the lapses of its topic are `{Self}`",
    label = "this takes `{A}`",
    note = "a handler takes a `Lapse` of the topic's own payload, `{Self}` here; of an attached topic, a \
            `Lapse<Expired<T>>`"
)]
pub trait GivenAs<A> {
    /// The argument.
    fn give(self) -> A;
}

impl<A> GivenAs<A> for A {
    fn give(self) -> A {
        self
    }
}

/// What a handler may return: `Result<R, E>`, where `R` is [`Done`](crate::Done), `()` or an [`Outcome`],
/// and `E` is anything that becomes a [`Failure`].
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "this returns `{Self}`",
    note = "a handler's result is a `Result<R, E>`: `R` is `Done`, `()` or `Outcome`; `E` is `Failure`, `anyhow::Error`, \
            `Box<dyn Error + Send + Sync>`, `String`, `&str`, or any error that is `Send + Sync + 'static`"
)]
pub trait Answer {
    /// The same for all handlers.
    fn answer(self) -> Result<Outcome, Failure>;
}

// What is refused is the whole result, not the half of it that does not fit.
#[diagnostic::do_not_recommend]
impl<R: Into<Outcome>, E: Into<Failure>> Answer for Result<R, E> {
    fn answer(self) -> Result<Outcome, Failure> {
        self.map(Into::into).map_err(Into::into)
    }
}

/// A function of one argument. `M` is `()`, and the second implementation is nobody's: as there are two to choose
/// from, the compiler says of a function with more or fewer arguments that it is no handler, which it does in our
/// words. Of a lone implementation it would say what the bound `Fn(A)` misses, in its own.
trait Function<A, M> {
    /// `A` again: known only once the function is found to be one.
    type Argument;
    type Future;
    fn run(&self, argument: Self::Argument) -> Self::Future;
}

impl<F: Fn(A) -> Fut, A, Fut> Function<A, ()> for F {
    type Argument = A;
    type Future = Fut;

    fn run(&self, argument: A) -> Fut {
        self(argument)
    }
}

trait Nobody {}

impl<F: Nobody, A> Function<A, Box<dyn Nobody>> for F {
    type Argument = A;
    type Future = ();

    fn run(&self, _: A) {}
}

impl<F, T, A, M> Handler<T, fn(A) -> M> for F
where
    F: Function<A, M> + Send + Sync + 'static,
    Lapse<T>: GivenAs<F::Argument>,
    F::Future: Future<Output: Answer> + Send,
{
    fn call(&self, lapse: Lapse<T>) -> impl Future<Output = Result<Outcome, Failure>> + Send {
        self.run(lapse.give()).map(Answer::answer)
    }
}
