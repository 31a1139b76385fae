//! What a server is called, of which another may take the place: positions in its stream are named by that.

use keylapse_connection::{Value, cmd, from_redis_value};

use crate::connection::{Endpoint, Subscription};
use crate::error::{Error, ErrorKind, Result};
use crate::log::debug;
use crate::wire::{NodeId, fnv1a};

/// Whether the node is who the cluster's map says listens there. Where the user may not ask, the map is believed.
pub(super) async fn check_name(connection: &Subscription, node: NodeId) -> Result<()> {
    match connection.call("asking a node for its name", cmd("CLUSTER").arg("MYID")).await {
        Ok(Value::BulkString(name)) if name == node.as_bytes() => Ok(()),
        Ok(_) => Err(Error::new(ErrorKind::Unavailable, "another node of the cluster listens here by now")),
        Err(error) if error.code().is_some() => {
            debug!(%error, "a node does not say its name: the cluster's map is believed");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The run of a server that sentinels name: it begins anew with each start. Where the user may not ask, its address has
/// to do: two that are named one after the other have two.
pub(super) async fn name_of_run(connection: &Subscription, at: &Endpoint) -> Result<NodeId> {
    let info = match connection.call("asking a server for its run", cmd("INFO").arg("server")).await {
        Ok(info) => info,
        Err(error) if error.code().is_some() => {
            debug!(%error, server = %at, "a server does not say which run it is: its address has to do");
            Value::Nil
        }
        Err(error) => return Err(error),
    };
    let text: String = from_redis_value(info).unwrap_or_default();
    let run = text.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::trim);
    let named = run.and_then(|run| NodeId::new(run.as_bytes())).filter(NodeId::is_named);
    Ok(named.unwrap_or_else(|| by_address(at)))
}

fn by_address(at: &Endpoint) -> NodeId {
    let text = at.to_string();
    let digest = || format!("{:016x}", fnv1a(text.bytes()));
    NodeId::new(text.as_bytes()).or_else(|| NodeId::new(digest().as_bytes())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_name_and_a_long_one_is_its_digest() {
        let at = |host: &str| Endpoint::Tcp { host: host.into(), port: 6379 };
        assert_eq!(by_address(&at("redis-1")).as_bytes(), b"redis-1:6379");
        let [one, other] = ["a", "b"].map(|host| by_address(&at(&host.repeat(50))));
        assert!(one.is_named() && one != other);
    }
}
