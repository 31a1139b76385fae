//! The server as clients meet it: over HTTP, at an address.

mod acting;
mod answer;
mod audit;
mod away;
mod bulk;
mod burning;
mod crowds;
mod entrance;
mod keys;
mod looking;
mod metrics;
mod scale;
mod shop;
mod site;
mod slow;
mod tail;
mod throngs;
mod tls;
mod tokens;
mod visits;
mod written;
