//! Any text as the URL of a server, with one of two secrets somewhere in it.

use crate::fuzzing::assert_fit_for_a_log;
use keylapse::Client;
use keylapse::Servers;
use keylapse_connection::{Address, Login, Target};

/// It is read or refused, and nothing that is shown of it depends on its users or passwords.
pub(crate) fn url(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    // In the place of the first `!`, so that an input chooses where it stands.
    let urls = ["hunter2", "swordfish"].map(|secret| text.replacen('!', secret, 1));
    let [one, other] = urls.each_ref().map(|url| read(url));
    if one.secrets != other.secrets || one.secrets.is_none() {
        assert_eq!(one.shown, other.shown, "{text:?}");
    }
    as_a_server(text);
}

struct Read {
    /// Users and passwords, of servers and of sentinels; none of a URL that was refused.
    secrets: Option<[Login; 2]>,
    shown: String,
}

fn read(url: &str) -> Read {
    let (draft, target) = (Target::read(url), Target::parse(url));
    let mut shown = format!("{draft:?} {target:?} {:?} {:?}", Client::new(url), Servers::at(url));
    assert_fit_for_a_log(&shown, 100_000);
    assert!(target.is_err() || draft.is_ok());
    if let Ok(target) = target {
        assert!(!target.endpoints.all().is_empty());
        shown += &addresses(&target);
    }
    let secrets = draft.ok().map(|draft| [draft.options.login.clone(), draft.sentinel_options.login.clone()]);
    Read { secrets, shown }
}

/// What is shown of all that may be connected to.
fn addresses(target: &Target) -> String {
    let mut shown = String::new();
    for endpoint in target.endpoints.all() {
        for access in [&target.options, &target.sentinel_options] {
            let address = Address::at(endpoint.clone(), access.clone());
            shown += &format!("{address} {address:?} {access:?}");
            assert_eq!(address.db(), access.db);
            assert_eq!(address.resp3().options().login, address.options().login);
            assert_eq!(address.anonymous().options().login, Login::default());
        }
    }
    assert_fit_for_a_log(&shown, 1_000_000);
    shown
}

/// The same text in the place of host and port.
fn as_a_server(text: &str) {
    let [one, other] = ["hunter2", "swordfish"].map(|secret| text.replacen('!', secret, 1));
    let [one, other] = [one, other].map(|text| {
        let all = [Servers::one(&text), Servers::cluster(["h", &text]), Servers::sentinel([&text], "m")];
        let shown = format!("{all:?}");
        assert_fit_for_a_log(&shown, 100_000);
        all.map(|servers| Client::try_from(servers).err().map(|error| error.to_string()))
    });
    assert_eq!(one, other, "{text:?}");
}
