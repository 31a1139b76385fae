//! The programs of the README and of the guide, which are compiled as examples of documentation are.

// Readers copy these: an answer that must be used is used.
#![doc(test(attr(deny(unused_must_use))))]

#[doc = include_str!("../../README.md")]
#[doc = include_str!("../../docs/first-steps.md")]
#[doc = include_str!("../../docs/patterns.md")]
#[doc = include_str!("../../docs/handlers.md")]
#[doc = include_str!("../../docs/retries.md")]
#[doc = include_str!("../../docs/attach.md")]
#[doc = include_str!("../../docs/testing.md")]
#[doc = include_str!("../../docs/coming-from.md")]
#[doc = include_str!("../../docs/deploy.md")]
#[doc = include_str!("../../docs/maintain.md")]
#[doc = include_str!("../../docs/monitor.md")]
#[cfg(doctest)]
struct Guides;
