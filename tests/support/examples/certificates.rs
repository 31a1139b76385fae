//! Creates a CA, and a certificate for the TLS servers of tests: `certificates FOLDER`.

use std::{env, fs, net::Ipv4Addr, path::Path};

use keylapse_support::{Authority, write};

fn main() {
    let folder = env::args_os().nth(1).expect("usage: certificates FOLDER");
    let folder = Path::new(&folder);
    fs::create_dir_all(folder).expect("cannot create the folder");
    let authority = Authority::new("the CA of keylapse's tests");
    write(folder, "ca.pem", &authority.pem);
    // Proxies listen on these addresses, at the ports of their servers.
    let mut names: Vec<_> = (1..=9).map(|last| Ipv4Addr::new(127, 0, 0, last).to_string()).collect();
    names.extend(["localhost", "::1"].map(str::to_owned));
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    authority.issue(folder, "server", &names);
}
