//! The lines of TLS in redis.conf, as they are shipped.

use std::path::Path;

use keylapse::{Schedule, Servers, Tls};
use keylapse_support::{Authority, Reach, Server, skipped, tls_lines, write};

/// All of them, with files and a port of this test: the suite runs on the same lines by `make test-more SUITE=tls`.
#[tokio::test]
async fn a_server_takes_the_lines_of_tls_as_they_stand() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("the CA of this test");
    write(folder.path(), "ca.pem", &authority.pem);
    authority.issue(folder.path(), "server", &["127.0.0.1"]);
    let server = match Server::builder().reach(Reach::over_tls(folder.path())).try_start().await {
        Ok(server) => server,
        Err(error) if error.to_string().contains("Failed finding TLS support") => {
            return skipped("this server was built without TLS");
        }
        Err(error) => panic!("{error}"),
    };
    for (name, shipped) in tls_lines() {
        let [_, value]: [String; 2] =
            redis::from_redis_value(server.cmd(&["CONFIG", "GET", name]).await).unwrap();
        match shipped.rsplit_once('/') {
            Some((_, file)) => assert_eq!(Path::new(&value), folder.path().join(file), "{name}"),
            None if name == "tls-port" => assert_eq!(value, server.door().port().to_string()),
            None => assert_eq!(value, shipped, "{name}"),
        }
    }
    let servers = Servers::at(&server.app_url()).tls(Tls::new().ca_file(folder.path().join("ca.pem")));
    Schedule::connect(servers).await.expect("the URL, and the file of the CA");
}
