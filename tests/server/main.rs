//! The library against real servers.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod attached_scripts;
mod bulk;
mod capture;
mod demoted;
mod destroying;
mod doctor;
mod forwarding;
mod holding;
mod hostile;
mod life;
mod logs;
mod looking_on;
mod lost_replies;
mod on_time;
mod owning;
mod pages;
mod priorities;
mod producing;
mod python;
mod redis_conf;
mod repartitioning;
mod rounding;
mod scripts;
mod sharing;
mod subscription;
mod support;
mod tls;
mod wire;
mod write_order;
