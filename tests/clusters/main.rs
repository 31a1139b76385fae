//! Topics on clusters, and on servers that sentinels watch. These tests mostly wait for failovers: `make test-all` runs
//! many of them at a time.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod attached;
mod bus;
#[path = "../server/capture.rs"]
#[allow(dead_code)] // as that suite needs it
mod capture;
mod databases;
mod doctor;
mod facts;
mod failover;
mod fencing;
mod forwarding;
mod hanging;
mod hostile;
mod idle;
mod kit;
mod life;
mod load;
mod logins;
mod looking_on;
mod majority;
mod moving;
mod outcome;
mod reach;
mod replicas;
mod rights;
mod scripts;
mod sentinel;
mod sentinels;
#[path = "../server/support.rs"]
#[allow(dead_code)] // as that suite needs it
mod support;
mod through;
mod tls;
