//! Any text as the URL of a server, with one of two secrets somewhere in it.

use crate::client::Client;
use crate::connection::Address;
use crate::fuzzing::assert_fit_for_a_log;

/// It is read or refused, and nothing that is shown of it depends on its user or password.
pub fn url(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    // In the place of the first `!`, so that an input chooses where it stands.
    let urls = ["hunter2", "swordfish"].map(|secret| text.replacen('!', secret, 1));
    let [one, other] = urls.each_ref().map(|url| read(url));
    if one.secret != other.secret || one.secret.is_none() {
        assert_eq!(one.shown, other.shown, "{text:?}");
    }
}

struct Read {
    /// User and password; none of a URL that was refused.
    secret: Option<(Option<String>, Option<String>)>,
    shown: String,
}

fn read(url: &str) -> Read {
    let address = Address::parse(url);
    let client = Client::new(url);
    let shown = format!("{address:?} {client:?}");
    assert_fit_for_a_log(&shown, 10_000);
    let Ok(address) = address else { return Read { secret: None, shown } };
    let settings = address.info.redis_settings();
    assert_eq!(address.db, settings.db());
    assert_eq!(address.resp3().info.redis_settings().password(), settings.password());
    let anonymous = address.anonymous();
    assert_eq!(
        (anonymous.info.redis_settings().username(), anonymous.info.redis_settings().password()),
        (None, None)
    );
    let secret = (settings.username().map(str::to_owned), settings.password().map(str::to_owned));
    Read { secret: Some(secret), shown: format!("{shown} {address}") }
}
