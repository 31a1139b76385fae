//! Makes a CA, and the certificate of servers that speak TLS in tests: `certificates FOLDER`.

use std::{env, fs, net::Ipv4Addr, path::Path};

use keylapse_support::{Authority, write};

fn main() {
    let folder = env::args_os().nth(1).expect("a folder for the certificates");
    let folder = Path::new(&folder);
    fs::create_dir_all(folder).expect("the folder can be made");
    let authority = Authority::new("the CA of keylapse's tests");
    write(folder, "ca.pem", &authority.pem);
    // Proxies are beside their servers there.
    let mut names: Vec<_> = (1..=9).map(|last| Ipv4Addr::new(127, 0, 0, last).to_string()).collect();
    names.extend(["localhost", "::1"].map(str::to_owned));
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    authority.issue(folder, "server", &names);
}
