//! The library against real servers.

mod bulk;
pub(crate) mod capture;
mod demoted;
mod destroying;
mod doctor;
mod forwarding;
mod holding;
mod hostile;
mod life;
mod limits;
mod logs;
mod looking_on;
mod lost_replies;
mod on_time;
mod owning;
mod priorities;
mod producing;
mod providers;
mod proxies;
mod python;
mod redis_conf;
mod repartitioning;
mod rounding;
mod sharing;
mod standstill;
mod subscription;
mod support;
mod swapped;
mod wire;
mod write_order;

use keylapse::Client;
use keylapse_console::Console;
use keylapse_support::Server;

/// Returns a console on a server, as the least privileged user.
fn console(server: &Server) -> Console {
    Console::new(Client::new(&server.app_url()).expect("a URL"))
}
